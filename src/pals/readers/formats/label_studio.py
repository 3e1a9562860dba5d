"""Label Studio: the JSON export (tasks with annotations), and JSON_MIN or CSV (one row per annotation)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from pals.readers.columns import Columns, find
from pals.readers.json_values import kind, text_of
from pals.readers.reader_table import Records, Table
from pals.readers.source import Source
from pals.readers.unsure_answers import role_of, sure_of, sureness_questions
from pals.util.errors import InputError
from pals.util.words import listed

LABEL_STUDIO_HINT = "Export the project from Label Studio as JSON again."
OURS = "pals_"
"""Prefix of the entries in a task's data that `pals relabel` writes; none is a question."""
ITEM = f"{OURS}item"
"""The entry of data, and of meta, with the item's name in the run, whatever the address of its image."""
QUESTION = "label"
"""Name of the question in the labelling settings that are written with such tasks."""
NOT_LABELS = {"id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement"}
IMAGE_NAME = re.compile(r"\.(jpe?g|png|gif|bmp|tiff?|webp)$", re.IGNORECASE)
RATING_PATTERN = re.compile(r'\[?\{"rating": ?(\d{1,3}(?:\.\d+)?)\}\]?')
MAX_STARS = 999
CANCELLED_NOTE = "cancelled by the annotator"
REPEATED_NOTE = "an annotation that was read before (same id)"

Labels = dict[str, list[str | None]]
"""By question."""
Ratings = dict[str, float]


class Annotation(NamedTuple):
    """One annotation: its labels by question, its ratings by name, and `about`: times and ground truth as written."""

    item: str
    place: int | str
    annotator: str | None
    labels: Labels
    ratings: Ratings
    about: Mapping[str, Any]


def read_label_studio(source: Source, columns: Columns) -> Table:
    """`columns={"item": key of the image in data, "label": from_name of the question}` where there are several. Cancelled
    annotations are skipped; `ground_truth` ones are gold; predictions and drafts are not votes. A second question, or a rating,
    that asks whether the answer is sure marks it."""
    for role in columns:
        if role not in ("item", "label"):
            raise InputError(f"Label Studio files need no column for {role!r}; only 'item' and 'label' can be chosen.")
    is_json = not source.is_parquet and source.text.lstrip()[:1] in ("[", "{")
    rows = source.json if is_json else source.records(source.names)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        source.refuse(f"the file holds {kind(rows)}, not a list of tasks", LABEL_STUDIO_HINT)
    try:
        if any(isinstance(row.get("data"), dict) for row in rows):
            return _read_tasks(source, rows, columns)
        return _read_flat(source, rows, columns)
    except TypeError as error:  # from text_of
        source.refuse(f"there is {error} where a name belongs", LABEL_STUDIO_HINT)


# ---- JSON: tasks with annotations


def _read_tasks(source: Source, tasks: list[dict[str, Any]], columns: Columns) -> Table:
    records = Records(source.path, "task")
    seen: set[str] = set()
    answers: list[Annotation] = []
    data = [_data(task) for task in tasks]
    items = _item_names(source, data, columns)
    for number, (task, item) in enumerate(zip(tasks, items, strict=True), start=1):
        annotations = task.get("annotations", task.get("completions", []))
        if not isinstance(annotations, list) or not all(isinstance(a, dict) for a in annotations):
            source.refuse(f"`annotations` of task {number} is not a list of objects", LABEL_STUDIO_HINT)
        records.lone.append(item)
        for row, annotation in enumerate(annotations, start=1):
            place = f"{number}, annotation {row}"
            key = text_of(annotation.get("id"))
            if annotation.get("was_cancelled") is True or annotation.get("skipped") is True:
                records.skip(CANCELLED_NOTE, place)
            elif key is not None and key in seen:
                records.skip(REPEATED_NOTE, place)
            else:
                annotator = _worker(annotation.get("completed_by"))
                answers.append(Annotation(item, place, annotator, *_results(source, annotation, place), annotation))
            seen |= {key} if key is not None else set()
    given: Labels = defaultdict(list)
    for answer in answers:
        for name, labels in answer.labels.items():
            given[name] += labels
    wanted = _wanted(given, data, columns)
    marking = sureness_questions(given, wanted)
    question = _question(source, [name for name in given if name not in marking], wanted)
    return _table(records, answers, question, marking)


def _data(task: Mapping[str, Any]) -> dict[str, Any]:
    """A task's data, with the item's name from its meta if it is there alone."""
    data, meta = task.get("data"), task.get("meta")
    named = {ITEM: meta.get(ITEM)} if isinstance(meta, dict) else {}
    return {**named, **data} if isinstance(data, dict) else named


def _results(source: Source, annotation: Mapping[str, Any], place: str) -> tuple[Labels, Ratings]:
    """The choices and the ratings of one annotation."""
    results = annotation.get("result", [])
    if not isinstance(results, list):
        source.refuse(f"`result` of task {place} is {kind(results)}, not a list", LABEL_STUDIO_HINT)
    labels: Labels = defaultdict(list)
    ratings: Ratings = {}
    for result in results:
        entry = source.as_dict(result, f"a result of task {place}", LABEL_STUDIO_HINT)
        type_, name = entry.get("type"), text_of(entry.get("from_name"))
        if type_ in ("choices", "taxonomy", "rating"):  # boxes, relations and the like are no votes
            value = source.as_dict(entry.get("value"), f"the value of task {place}", LABEL_STUDIO_HINT)
            if type_ != "rating":
                labels[name or "choices"] += _choices(value.get(type_))
            elif (stars := _stars(value)) is not None:
                ratings[name or "rating"] = stars
    return labels, ratings


def _choices(value: object) -> list[str | None]:
    """["newt", "frog"], or paths through a hierarchy: [["animal", "newt"]] is animal/newt."""
    entries = value if isinstance(value, list) else [value]
    return ["/".join(text_of(p) or "" for p in entry) if isinstance(entry, list) else text_of(entry) for entry in entries]


def _worker(value: Any) -> str | None:
    """An annotator's number, or the object that some versions write."""
    if isinstance(value, dict):
        return text_of(value.get("email")) or text_of(value.get("id"))
    return text_of(value)


def _wanted(names: Collection[str], data: Iterable[Mapping[str, Any]], columns: Columns) -> str | None:
    """The question that the user named; in tasks of `pals relabel` theirs."""
    chosen = columns.get("label")
    if chosen is None and QUESTION in names and _is_ours(data):
        return QUESTION
    return None if chosen is None else str(chosen)


def _question(source: Source, names: list[str], wanted: str | None) -> str | None:
    questions = list(dict.fromkeys(names))
    if wanted is not None and wanted not in questions:
        source.refuse(f"no question is called {wanted!r}", f"Found: {listed(questions)}.")
    if wanted is None and len(questions) > 1:
        source.refuse(
            f"there are answers to several questions: {listed(questions)}",
            "Choose one: --label-column NAME (columns={'label': 'NAME'}).",
        )
    return wanted if wanted is not None else questions[0] if questions else None


def _table(records: Records, answers: list[Annotation], question: str | None, marking: Mapping[str, str]) -> Table:
    """The answers to a question. Answers to the questions in `marking`, and ratings with such a name, show how sure they are:
    a rating of more than half of the highest one given is a yes, and no star is no mark."""
    top: Ratings = {}
    for answer in answers:
        for name, stars in answer.ratings.items():
            top[name] = max(stars, top.get(name, 0.0))

    def rated_sure(stars: float, top: float, role: str) -> bool:
        return stars == 0 or (stars > top / 2) == (role == "sure")

    roles = {name: role for name in top if (role := role_of(name)) is not None}
    for item, place, annotator, labels, ratings, about in answers:
        if question in labels or labels.keys() <= marking.keys():
            sure = all(sure_of(value, role) for name, role in marking.items() for value in labels.get(name, []))
            sure = sure and all(rated_sure(ratings.get(name, 0.0), top[name], role) for name, role in roles.items())
            records.add(
                item,
                annotator,
                labels.get(question or "", []),
                place,
                gold=about.get("ground_truth") is True,
                sure=sure,
                time=about.get("created_at") or about.get("updated_at"),
                seconds=about.get("lead_time"),
            )
    left = [name for name in top if name not in roles]
    note = f"Ratings are not read ({listed(left)}); one that is called `sure` says how sure an answer is"
    return records.table(notes=[note] if left else [])


def _stars(value: object) -> float | None:
    """The rating in {"rating": 4}, alone in a list or not, also as text."""
    if isinstance(value, str):
        found = RATING_PATTERN.fullmatch(value.strip())
        return float(found[1]) if found else None
    entry = value[0] if isinstance(value, list) and len(value) == 1 else value
    stars = entry.get("rating") if isinstance(entry, dict) else None
    if not isinstance(stars, (int, float)) or isinstance(stars, bool) or not 0 <= stars <= MAX_STARS:
        return None
    return float(stars)


# ---- JSON_MIN and CSV: one row per annotation


def _read_flat(source: Source, rows: list[dict[str, Any]], columns: Columns) -> Table:
    names = list(dict.fromkeys(key for row in rows for key in row))
    find(names, columns, ("item", "label"), source)  # refuses columns that are not there
    items = _item_names(source, rows, columns)
    rated = [{name: stars for name, value in row.items() if (stars := _stars(value)) is not None} for row in rows]
    known = {*NOT_LABELS, *(name for ratings in rated for name in ratings), columns.get("item") or _image_key(rows)}
    questions = [name for name in names if name not in known and not name.startswith(OURS)]
    given = {
        name: [v for n, row in enumerate(rows, start=1) for v in _cell(source, row.get(name), n)] if role_of(name) else []
        for name in questions
    }
    wanted = _wanted(given, rows, columns)
    marking = sureness_questions(given, wanted)
    question = _question(source, [name for name in questions if name not in marking], wanted)
    asked = [*marking, *([question] if question is not None else [])]
    records = Records(source.path, "annotation")
    seen: set[str] = set()
    answers: list[Annotation] = []
    for number, (row, item, ratings) in enumerate(zip(rows, items, rated, strict=True), start=1):
        annotation = text_of(row.get("annotation_id"))
        if annotation and annotation in seen:
            records.skip(REPEATED_NOTE, number, item)
            continue
        seen |= {annotation} if annotation else set()
        labels = {name: _cell(source, row.get(name), number) for name in asked}
        answers.append(Annotation(item, number, _worker(row.get("annotator")), labels, ratings, row))
    return _table(records, answers, question, marking)


def _cell(source: Source, value: Any, number: int) -> list[str | None]:
    """`newt`, {"choices": [...]} where there are several, or [{"taxonomy": [...]}]; in CSV files as text."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        value = source.parse_json(value, f", annotation {number}")
    entries = value if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value) else [value]
    chosen = (entry.get("choices", entry.get("taxonomy")) if isinstance(entry, dict) else entry for entry in entries)
    return [label for labels in chosen for label in _choices(labels)]


# ---- items


def _is_ours(data: Iterable[Mapping[str, Any]]) -> bool:
    """Whether `pals relabel` wrote one of the tasks."""
    return any(row.get(ITEM) for row in data)


def _item_names(source: Source, data: list[dict[str, Any]], columns: Columns) -> list[str]:
    """The names of the tasks' items: as `pals relabel` wrote them, else by their images."""
    named = [None if "item" in columns else text_of(row.get(ITEM)) for row in data]
    if named and all(named):
        return [name or "" for name in named]
    key = columns.get("item") or _image_key(data)
    if key is None and not any(named):
        source.refuse(
            "no entry of the tasks' data looks like an image", "Say which it is: --item-column KEY (columns={'item': 'KEY'})."
        )
    raw = [text_of(row.get(str(key))) or "" for row in data]
    meant: dict[str, set[str]] = defaultdict(set)
    for image in raw:
        meant[clean_name(image)].add(image)
    images = [clean_name(image) if len(meant[clean_name(image)]) == 1 else image for image in raw]
    return [name or image for name, image in zip(named, images, strict=True)]


def _image_key(rows: list[dict[str, Any]]) -> str | None:
    """The key whose values are names of images; else "image"; else the only text, where no item has a name."""
    texts = {key: value for row in reversed(rows) for key, value in row.items()
             if isinstance(value, str) and not key.startswith(OURS)}  # fmt: skip
    images = [key for key, value in texts.items() if IMAGE_NAME.search(clean_name(value))]
    names = images or [key for key in texts if key == "image"]
    if not names and not _is_ours(rows):
        names = [key for key in texts if key not in NOT_LABELS]
    return names[0] if images or len(names) == 1 else None


def clean_name(value: str) -> str:
    """Label Studio's address of an image as the name of its file.

    >>> clean_name("/data/upload/3/1a2b3c4d-a01.jpg")
    'a01.jpg'
    """
    try:
        parts = urlsplit(value)
        local = parse_qs(parts.query).get("d") if parts.path.rstrip("/").endswith("local-files") else None
    except ValueError:
        return value
    if local:
        return local[0].lstrip("/")
    if not parts.scheme and not value.startswith("/data/"):
        return value
    path = unquote(parts.path).lstrip("/")
    upload = re.fullmatch(r"(?:.*/)?data/upload/(?:[^/]+/)?(?:[0-9a-f]{8}-)?([^/]+)", "/" + path)
    return upload[1] if upload else path.removeprefix("data/")
