"""JSON Lines, a JSON list of such objects, and Hugging Face's metadata files: one item or one answer per object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from pals.readers.column_types import bad_weight, weight_of
from pals.readers.columns import KNOWN, Columns, find, not_read, plain
from pals.readers.graded_columns import SETS, choice_columns, graded_labels, record_percents
from pals.readers.json_values import kind, labels_of, text_of
from pals.readers.reader_table import Coded, Grades, Records, Table, no_annotators
from pals.readers.source import Source
from pals.readers.unsure_answers import SURE_ROLES, attributes_sure, check_sureness, sure_of
from pals.util.errors import InputError
from pals.util.words import listed, quoted

RECORD_ROLES = (
    *("item", "annotator", "label", "candidates", "votes", "weight", *SURE_ROLES),
    *("time", "seconds", "answer_id", "is_gold", "gold"),
)
METADATA_FILES = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
VOTES_HINT = 'Write a list of {"annotator": ..., "label": ...}.'


def read_jsonl(source: Source, columns: Columns) -> Table:
    """`{"item": ..., "annotator": ..., "label": ...}` per line; as in a long table, lines of the same item and annotator
    are one answer with several labels. `label` may be a list; instead of it `candidates` (a list; each line is an answer) or
    `votes` (a list of `{"annotator": ..., "label": ...}`). `"unsure": true` beside a label marks it."""
    return _read(source, columns, "line", source.json_lines())


def read_json_list(source: Source, columns: Columns) -> Table:
    """The same objects as one JSON list."""
    if not isinstance(source.json, list):
        source.refuse(f"the file holds {kind(source.json)}, not a list of objects", "Write [{...}, {...}].")
    return _read(source, columns, "record", list(enumerate(source.json, start=1)))


def read_huggingface(source: Source, columns: Columns) -> Table:
    """`metadata.jsonl` or `metadata.parquet` of an image folder: `file_name` with `votes`, `candidates` or `label`."""
    if not source.is_parquet and source.text.lstrip().startswith("{"):
        return read_jsonl(source, columns)
    wanted = list(find(source.names, columns, RECORD_ROLES, source).values())  # images may be in the same file
    rows = source.records(wanted) if wanted else [{}]
    table = _read(source, columns, "row", list(enumerate(rows, start=source.first_row)))
    return replace(table, notes=(*not_read(source.names, wanted), *table.notes))


def metadata_file(folder: Path) -> Path | None:
    """The metadata file of a Hugging Face image folder."""
    return next((folder / name for name in METADATA_FILES if (folder / name).is_file()), None)


def _read(source: Source, columns: Columns, unit: str, rows: list[tuple[int, Any]]) -> Table:
    """The table of some records, each with its place in the file."""
    for place, row in rows:
        if not isinstance(row, dict):
            source.refuse(f"{unit} {place} holds {kind(row)}, not an object", 'Write {"item": ..., "label": ...}.')
    names = list(dict.fromkeys(key for _, row in rows for key in row))
    choices, columns = choice_columns(columns, names, source)
    found = find(names, columns, RECORD_ROLES, source)
    if "item" not in found or not {"votes", "label", "candidates", *SETS} & (found.keys() | choices.keys()):
        missing = "one of label, candidates, votes" if "item" in found else "item"
        source.refuse(
            f"no key for {missing}; found: {listed(names)}",
            "Say which key it is: --item-column NAME (columns={'item': 'NAME'}).",
        )
    for role in [role for role in SURE_ROLES if role in found]:
        values = [row.get(found[role]) for _, row in rows]
        if not check_sureness(found, columns, role, values, lambda number: f"{source.path}, {unit} {rows[number][0]}"):
            del found[role]
    notes = not_read(names, {*found.values(), *chain.from_iterable(choices.values())})
    percents = record_percents(rows, choices.get("percent", ()), lambda place: f"{source.path}, {unit} {place}")
    if not choices and set(found) <= {"item", "annotator", "label"}:
        by_role = {role: [row.get(name) for _, row in rows] for role, name in found.items()}
        if all(set(map(type, values)) <= {str, NoneType} for values in by_role.values()):  # whole columns at once
            return Table(
                path=source.path,
                unit=unit,
                place_R=np.array([place for place, _ in rows]),
                item=Coded.of(by_role["item"]),
                annotator=Coded.of(by_role["annotator"]) if "annotator" in by_role else no_annotators(len(rows)),
                label=Coded.of(by_role["label"]),
                notes=notes,
            )
    records = Records(source.path, unit)
    for place, row in rows:
        try:
            _add(records, row, found, place, f"{source.path}, {unit} {place}", graded_labels(row, found, choices, percents))
        except TypeError as error:  # from text_of
            source.refuse(f"{unit} {place} has {error} where a name belongs", "A name is a text or a number.")
    return records.table(notes=notes, require_times="time" in columns)


def _add(
    records: Records, row: Mapping[str, Any], found: Mapping[str, str], place: int, where: str, graded: Grades | None
) -> None:
    """Add the answers of one record, with the choices in `graded`."""

    def cell(role: str) -> Any:
        return row.get(found[role]) if role in found else None

    item = text_of(cell("item")) or ""
    weight = _weight(row, found.get("weight"), where)
    sure = all(sure_of(cell(role), role) for role in SURE_ROLES)
    votes = cell("votes")
    if votes:
        if isinstance(votes, dict):  # {"ann": "newt", "bob": "frog"}
            votes = [{"annotator": annotator, "label": label} for annotator, label in votes.items()]
        if not isinstance(votes, list):
            raise InputError(f"{where}: the votes are {kind(votes)}. {VOTES_HINT}")
        for annotator, labels, share, marked_sure, time in (_vote(vote, where) for vote in votes):
            records.add(item, annotator, labels, place, weight=weight * share, sure=sure and marked_sure, time=time)
    else:
        label = cell("label")
        is_gold = cell("is_gold")
        if is_gold not in (None, True, False, 0, 1):
            raise InputError(f"{where}: is_gold is {quoted(is_gold)}. Write true or false.")
        records.add(
            item,
            text_of(cell("annotator")),
            labels_of(cell("candidates") if label is None else label) if graded is None else graded.names,
            place,
            weight=weight,
            sure=sure,
            time=cell("time"),
            seconds=cell("seconds"),
            gold=bool(is_gold),
            joins=label is not None and (graded is None or not any(graded.rank)),
            graded=graded,
            answer_id=text_of(cell("answer_id")),
        )
    if cell("gold") is not None:
        records.add(item, None, labels_of(cell("gold")), place, gold=True)


def _vote(vote: object, where: str) -> tuple[str | None, list[str | None], float, bool, Any]:
    """Annotator, labels, weight, whether the answer is sure, and its time, of one of the `votes`."""
    if not isinstance(vote, dict):
        return None, labels_of(vote), 1.0, True, None
    by_plain_key = {plain(key): value for key, value in vote.items()}

    def values(role: str) -> list[Any]:
        return [by_plain_key[key] for key in KNOWN[role] if key in by_plain_key]

    labels = values("label")
    if not labels:
        raise InputError(f"{where}: a vote has no label; found: {listed(vote)}. {VOTES_HINT}")
    annotator, time = ((*values(role), None)[0] for role in ("annotator", "time"))
    return text_of(annotator), labels_of(labels[0]), _weight(vote, "weight", where), attributes_sure(vote), time


def _weight(row: Mapping[str, Any], key: str | None, where: str) -> float:
    if key is None or key not in row:
        return 1.0
    weight = weight_of(row[key])
    if weight != weight:
        raise bad_weight(where, row[key])
    return weight
