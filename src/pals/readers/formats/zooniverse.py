"""Zooniverse's classification export: a CSV whose cells `annotations` and `subject_data` hold JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from pals.readers.column_types import flags_in
from pals.readers.columns import Columns, plain
from pals.readers.json_values import kind, labels_of, text_of
from pals.readers.reader_table import Records, Table
from pals.readers.source import Source
from pals.readers.unsure_answers import sure_of, sureness_questions
from pals.util.errors import InputError
from pals.util.words import listed, quoted

IMAGE_KEYS = ("filename", "file_name", "file", "image", "image_name", "imagename", "name", "path")
ZOONIVERSE_HINT = "Export the classifications from Zooniverse again."


def read_zooniverse(source: Source, columns: Columns) -> Table:
    """`columns={"label": "T0", "item": "Filename"}` choose the task and the entry of the subject's data. Rows marked
    `gold_standard` are gold, not votes. A second task that asks whether the answer is sure marks it. Unnamed visitors count as
    different annotators."""
    for role in columns:
        if role not in ("item", "label"):
            raise InputError(f"Zooniverse files need no column for {role!r}; only 'item' and 'label' can be chosen.")
    for name in ("annotations", "subject_data"):
        if name not in source.frame:
            source.refuse(f"there is no column {name!r}", ZOONIVERSE_HINT)
    frame = source.frame
    rows = list(zip(frame["annotations"], frame["subject_data"], strict=True))
    blank_R = frame.apply(lambda column: column.astype(str).str.strip() == "").all(axis=1).tolist()
    users = frame["user_name"].tolist() if "user_name" in frame else [None] * len(frame)
    gold = flags_in(source, "gold_standard") if "gold_standard" in frame else [False] * len(frame)
    times = frame["created_at"].tolist() if "created_at" in frame else [None] * len(frame)
    titles: dict[str, str] = {}
    answers = [
        {} if blank else _answers(source, cell, source.first_row + i, titles)
        for i, ((cell, _), blank) in enumerate(zip(rows, blank_R, strict=True))
    ]
    given: dict[str, list[str | None]] = defaultdict(list)
    for answer in answers:
        for name, labels in answer.items():
            given[name] += labels
    marking = sureness_questions(given, columns.get("label"), titles)
    task = _task(source, [name for name, labels in given.items() if any(labels) and name not in marking], columns)
    records = Records(source.path, "row")
    for i, (answer, (_, subject)) in enumerate(zip(answers, rows, strict=True)):
        item = "" if blank_R[i] else _item(source, subject, source.first_row + i, columns)
        sure = all(sure_of(value, role) for name, role in marking.items() for value in answer.get(name, []))
        labels = answer.get(task or "", [])
        place = source.first_row + i
        records.add(item, users[i] or None, labels, place, gold=bool(gold[i]), sure=sure, time=times[i])
    workflows = sorted(set(frame["workflow_id"]) - {""}) if "workflow_id" in frame else []
    note = f"{len(workflows)} workflows are in this file; their answers to task {task} are read as one question"
    return records.table(notes=[note] if len(workflows) > 1 else [])


def _answers(source: Source, cell: Any, row: int, titles: dict[str, str]) -> dict[str, list[str | None]]:
    """The labels given for each task that is a choice; drawings and free transcriptions are left out. Adds the texts of the
    tasks to `titles`."""
    found: dict[str, list[str | None]] = {}
    entries = source.parse_json(str(cell), f", row {row}")
    if not isinstance(entries, list):
        source.refuse(f"`annotations` in row {row} is {kind(entries)}, not a list", ZOONIVERSE_HINT)
    for entry in entries:
        if not isinstance(entry, dict):
            source.refuse(f"`annotations` in row {row} holds {kind(entry)}, not an object", ZOONIVERSE_HINT)
        labels = _labels(entry.get("value"))
        if labels is not None:
            found.setdefault(str(entry.get("task")), []).extend(labels)
            if isinstance(entry.get("task_label"), str):
                titles[str(entry.get("task"))] = entry["task_label"]
    return found


def _labels(value: Any) -> list[str | None] | None:
    """One choice, several, or those of a survey ([{"choice": "NEWT", ...}]); None if it is nothing of the kind."""
    if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
        value = [entry.get("choice") for entry in value]
        if None in value:
            return None
    try:
        return labels_of(value)
    except TypeError:
        return None


def _task(source: Source, names: Iterable[str], columns: Columns) -> str | None:
    tasks = sorted(names)
    wanted = columns.get("label")
    if wanted is not None and wanted not in tasks:
        source.refuse(f"no answer to task {wanted!r}", f"Found: {listed(tasks)}.")
    if wanted is None and len(tasks) > 1:
        source.refuse(
            f"there are answers to several tasks: {listed(tasks)}",
            "Choose one: --label-column T0 (columns={'label': 'T0'}).",
        )
    return str(wanted) if wanted is not None else tasks[0] if tasks else None


def _item(source: Source, cell: Any, row: int, columns: Columns) -> str:
    """The file's name among the subject's data, or else the subject's number."""
    subjects = source.parse_json(str(cell), f", row {row}")
    if not isinstance(subjects, dict) or not subjects:
        source.refuse(f"`subject_data` in row {row} is not an object with the subject's number", ZOONIVERSE_HINT)
    number, data = next(iter(subjects.items()))
    if not isinstance(data, dict):
        source.refuse(f"`subject_data` in row {row} is {kind(data)} for subject {quoted(number)}", ZOONIVERSE_HINT)
    wanted = columns.get("item")
    if wanted is not None:
        if wanted not in data:
            source.refuse(f"the subject in row {row} has no {wanted!r}", f"Found: {listed(data)}.")
        names = [data[str(wanted)]]
    else:
        spelled = {plain(key.lstrip("#!/ ")): value for key, value in data.items()}
        names = [spelled[name] for name in IMAGE_KEYS if isinstance(spelled.get(name), str) and spelled[name]]
    try:
        return (text_of(names[0]) if names else None) or number
    except TypeError as error:
        source.refuse(f"{wanted!r} of the subject in row {row} is {error}", "Choose an entry that holds a name.")
