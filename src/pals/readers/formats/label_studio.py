"""Label Studio: the JSON export (tasks with annotations), and JSON_MIN or CSV (one row per annotation)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from pals.readers.columns import Columns, find
from pals.readers.source import Source, kind, text_of
from pals.readers.tables import Records, Table
from pals.readers.unsure import role_of, sure_of, sureness_questions
from pals.util.errors import InputError
from pals.util.words import listed

REMEDY = "Export the project from Label Studio as JSON again."
NOT_LABELS = {"id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement"}
IMAGE = re.compile(r"\.(jpe?g|png|gif|bmp|tiff?|webp)$", re.IGNORECASE)
CANCELLED = "cancelled by the annotator"
TWICE = "an annotation that was read before (same id)"

Answer = tuple[str, dict[str, list[str | None]], dict[str, Any]]  # place, labels by question, annotation


def read_label_studio(source: Source, columns: Columns) -> Table:
    """`columns={"item": key of the image in data, "label": from_name of the question}` where there are several. Cancelled
    annotations are skipped; `ground_truth` ones are gold; predictions and drafts are not votes. A second question that asks
    whether the answer is sure is no question of its own."""
    for role in columns:
        if role not in ("item", "label"):
            raise InputError(f"Label Studio files need no column for {role!r}; only 'item' and 'label' can be chosen.")
    rows = source.json if _is_json(source) else source.records(source.names)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        source.refuse(f"the file holds {kind(rows)}, not a list of tasks", REMEDY)
    try:
        if any(isinstance(row.get("data"), dict) for row in rows):
            return _read_tasks(source, rows, columns)
        return _read_flat(source, rows, columns)
    except TypeError as error:  # from text_of
        source.refuse(f"there is {error} where a name belongs", REMEDY)


def _is_json(source: Source) -> bool:
    return not source.is_parquet and source.text.lstrip()[:1] in ("[", "{")


# ---- JSON: tasks with annotations


def _read_tasks(source: Source, tasks: list[dict[str, Any]], columns: Columns) -> Table:
    records = Records(source.path, "task")
    seen: set[str] = set()
    answers: list[tuple[str, Answer]] = []
    images = _image_names(source, [task.get("data") for task in tasks], columns)
    for number, (task, item) in enumerate(zip(tasks, images, strict=True), start=1):
        annotations = task.get("annotations", task.get("completions", []))
        if not isinstance(annotations, list) or not all(isinstance(a, dict) for a in annotations):
            source.refuse(f"`annotations` of task {number} is not a list of objects", REMEDY)
        records.lone.append(item)
        for row, annotation in enumerate(annotations, start=1):
            place = f"{number}, annotation {row}"
            key = text_of(annotation.get("id"))
            if annotation.get("was_cancelled") is True:
                records.skip(CANCELLED, place)
            elif key is not None and key in seen:
                records.skip(TWICE, place)
            else:
                answers.append((item, (place, _answers(source, annotation, place), annotation)))
            seen |= {key} if key is not None else set()
    given: dict[str, list[str | None]] = defaultdict(list)
    for _, (_, chosen, _) in answers:
        for name, labels in chosen.items():
            given[name] += labels
    marking = sureness_questions(given, columns.get("label"))
    question = _question(source, [name for name in given if name not in marking], columns)
    for item, (place, chosen, annotation) in answers:
        if question in chosen or chosen.keys() <= marking.keys():
            sure = all(sure_of(value, role) for name, role in marking.items() for value in chosen.get(name, []))
            gold = annotation.get("ground_truth") is True
            labels = chosen.get(question or "", [])
            worker, time = _worker(annotation.get("completed_by")), _time(annotation)
            records.add(item, worker, labels, place, gold=gold, sure=sure, time=time)
    return records.table()


def _answers(source: Source, annotation: Mapping[str, Any], place: str) -> dict[str, list[str | None]]:
    """The choices of one annotation, by question."""
    results = annotation.get("result", [])
    if not isinstance(results, list):
        source.refuse(f"`result` of task {place} is {kind(results)}, not a list", REMEDY)
    chosen: dict[str, list[str | None]] = defaultdict(list)
    for result in results:
        entry = source.as_dict(result, f"a result of task {place}", REMEDY)
        type_ = entry.get("type")
        if type_ in ("choices", "taxonomy"):  # boxes, relations and the like are no votes
            value = source.as_dict(entry.get("value"), f"the value of task {place}", REMEDY)
            chosen[text_of(entry.get("from_name")) or "choices"] += _choices(value.get(type_))
    return chosen


def _choices(value: object) -> list[str | None]:
    """["newt", "frog"], or paths through a hierarchy: [["animal", "newt"]] is animal/newt."""
    entries = value if isinstance(value, list) else [value]
    return ["/".join(text_of(p) or "" for p in entry) if isinstance(entry, list) else text_of(entry) for entry in entries]


def _worker(value: Any) -> str | None:
    """An annotator's number, or the object that some versions write."""
    if isinstance(value, dict):
        return text_of(value.get("email")) or text_of(value.get("id"))
    return text_of(value)


def _time(annotation: Mapping[str, Any]) -> Any:
    """When an annotation was made; when it was last changed, where that is all that is known."""
    return annotation.get("created_at") or annotation.get("updated_at")


def _question(source: Source, names: list[str], columns: Columns) -> str | None:
    questions = list(dict.fromkeys(names))
    wanted = columns.get("label")
    if wanted is not None and wanted not in questions:
        source.refuse(f"no question is called {wanted!r}", f"Found: {listed(questions)}.")
    if wanted is None and len(questions) > 1:
        source.refuse(
            f"there are answers to several questions: {listed(questions)}",
            "Choose one: --label-column NAME (columns={'label': 'NAME'}).",
        )
    return str(wanted) if wanted is not None else questions[0] if questions else None


# ---- JSON_MIN and CSV: one row per annotation


def _read_flat(source: Source, rows: list[dict[str, Any]], columns: Columns) -> Table:
    names = list(dict.fromkeys(key for row in rows for key in row))
    find(names, columns, ("item", "label"), source)  # are they there?
    images = _image_names(source, rows, columns)
    key = columns.get("item") or _image_key(rows)
    questions = [name for name in names if name not in NOT_LABELS and name != key]
    given = {name: [v for n, row in enumerate(rows, start=1) for v in _cell(source, row.get(name), n)]
             if role_of(name) else [] for name in questions}  # fmt: skip
    marking = sureness_questions(given, columns.get("label"))
    question = _question(source, [name for name in questions if name not in marking], columns)
    records = Records(source.path, "annotation")
    seen: set[str] = set()
    for number, (row, item) in enumerate(zip(rows, images, strict=True), start=1):
        annotation = text_of(row.get("annotation_id"))
        if annotation and annotation in seen:
            records.skip(TWICE, number, item)
            continue
        seen |= {annotation} if annotation else set()
        labels = _cell(source, row.get(question or ""), number)
        marks = [(role, value) for name, role in marking.items() for value in _cell(source, row.get(name), number)]
        sure = all(sure_of(value, role) for role, value in marks)
        records.add(item, _worker(row.get("annotator")), labels, number, sure=sure, time=_time(row))
    return records.table()


def _cell(source: Source, value: Any, number: int) -> list[str | None]:
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):  # a CSV cell with several choices
        value = source.parse_json(value, f", annotation {number}")
    return _choices(value.get("choices", value.get("taxonomy")) if isinstance(value, dict) else value)


# ---- images


def _image_names(source: Source, data: list[Any], columns: Columns) -> list[str]:
    """What the tasks' images are called, as near to a relative path as Label Studio lets us know."""
    rows = [entry if isinstance(entry, dict) else {} for entry in data]
    key = columns.get("item") or _image_key(rows)
    if key is None:
        source.refuse(
            "no entry of the tasks' data looks like an image", "Say which it is: --item-column KEY (columns={'item': 'KEY'})."
        )
    raw = [text_of(row.get(str(key))) or "" for row in rows]
    meant: dict[str, set[str]] = defaultdict(set)
    for name in raw:
        meant[clean_name(name)].add(name)
    return [clean_name(name) if len(meant[clean_name(name)]) == 1 else name for name in raw]


def _image_key(rows: list[dict[str, Any]]) -> str | None:
    """The key whose values are names of images; else "image"; else the only text."""
    texts = {key: value for row in reversed(rows) for key, value in row.items() if isinstance(value, str)}
    images = [key for key, value in texts.items() if IMAGE.search(clean_name(value))]
    names = images or [key for key in texts if key == "image"] or [key for key in texts if key not in NOT_LABELS]
    return names[0] if images or len(names) == 1 else None


def clean_name(value: str) -> str:
    """Label Studio's address of an image without what Label Studio added."""
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
