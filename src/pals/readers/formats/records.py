"""JSON Lines, a JSON list of such objects, and Hugging Face's metadata files: one item or one answer per object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any, NoReturn

import numpy as np

from pals.readers import unsure_answers
from pals.readers.column_types import bad_weight, weight_of
from pals.readers.columns import KNOWN, Columns, find, not_read, plain
from pals.readers.reader_table import Coded, Records, Table, no_annotators
from pals.readers.source import Source, kind, labels_of, text_of
from pals.util.errors import InputError
from pals.util.words import listed, quoted

ROLES = (
    *("item", "annotator", "label", "candidates", "votes", "weight", *unsure_answers.ROLES),
    *("time", "seconds", "answer_id", "is_gold", "gold"),
)
UNKNOWN = ("item", "one of label, candidates, votes")
METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")


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
    wanted = list(find(source.names, columns, ROLES, source).values())  # pictures may lie in the same file
    rows = source.records(wanted) if wanted else [{}]
    table = _read(source, columns, "row", list(enumerate(rows, start=source.first_row)))
    return replace(table, notes=(*not_read(source.names, wanted), *table.notes))


def metadata_file(folder: Path) -> Path | None:
    """The metadata file of a Hugging Face image folder."""
    return next((folder / name for name in METADATA if (folder / name).is_file()), None)


def _read(source: Source, columns: Columns, unit: str, rows: list[tuple[int, Any]]) -> Table:
    for place, row in rows:
        if not isinstance(row, dict):
            source.refuse(f"{unit} {place} holds {kind(row)}, not an object", 'Write {"item": ..., "label": ...}.')
    names = list(dict.fromkeys(key for _, row in rows for key in row))
    found = find(names, columns, ROLES, source)
    answer = next((role for role in ("votes", "label", "candidates") if role in found), None)
    if "item" not in found or answer is None:
        missing = UNKNOWN["item" in found]
        source.refuse(
            f"no key for {missing}; found: {listed(names)}",
            "Say which key it is: --item-column NAME (columns={'item': 'NAME'}).",
        )
    for role in [role for role in unsure_answers.ROLES if role in found]:
        values = [row.get(found[role]) for _, row in rows]
        unsure_answers.understood(found, columns, role, values, lambda number: f"{source.path}, {unit} {rows[number][0]}")
    notes = not_read(names, found.values())
    if set(found) <= {"item", "annotator", "label"}:
        by_role = {role: [row.get(name) for _, row in rows] for role, name in found.items()}
        if all(set(map(type, values)) <= {str, NoneType} for values in by_role.values()):
            return _table(source.path, unit, [place for place, _ in rows], by_role, notes)
    records = Records(source.path, unit)
    for place, row in rows:
        try:
            _add(records, row, found, place, f"{source.path}, {unit} {place}")
        except TypeError as error:  # from text_of
            source.refuse(f"{unit} {place} has {error} where a name belongs", "A name is a text or a number.")
    return records.table(notes=notes, asked_for_times="time" in columns)


def _table(path: Path, unit: str, places: list[int], values: Mapping[str, list[Any]], notes: tuple[str, ...]) -> Table:
    """Where every row is one label of one person: whole columns at once."""
    rows = len(places)
    return Table(
        path=path,
        unit=unit,
        place_R=np.array(places),
        item=Coded.of(values["item"]),
        worker=Coded.of(values["annotator"]) if "annotator" in values else no_annotators(rows),
        label=Coded.of(values["label"]),
        notes=notes,
    )


def _add(records: Records, row: Mapping[str, Any], found: Mapping[str, str], place: int, where: str) -> None:
    def cell(role: str) -> Any:
        return row.get(found[role]) if role in found else None

    item = text_of(cell("item")) or ""
    weight = _weight(row, found.get("weight"), where)
    sure = all(unsure_answers.sure_of(cell(role), role) for role in unsure_answers.ROLES)
    votes = cell("votes")
    if votes:
        if isinstance(votes, dict):  # {"ann": "newt", "bob": "frog"}
            votes = [{"annotator": worker, "label": label} for worker, label in votes.items()]
        for worker, labels, share, marked_sure, time in _votes(votes, where):
            records.add(item, worker, labels, place, weight=weight * share, sure=sure and marked_sure, time=time)
    else:
        label = cell("label")
        labels = labels_of(cell("candidates") if label is None else label)
        records.add(
            item,
            text_of(cell("annotator")),
            labels,
            place,
            weight=weight,
            sure=sure,
            time=cell("time"),
            seconds=cell("seconds"),
            gold=_flag(cell("is_gold"), where),
            joins=label is not None,
            answer_id=text_of(cell("answer_id")),
        )
    if cell("gold") is not None:
        records.add(item, None, labels_of(cell("gold")), place, gold=True)


def _votes(votes: Any, where: str) -> Iterator[tuple[str | None, list[str | None], float, bool, Any]]:
    """Annotator, labels, weight, whether the answer is sure, and its time, of each entry."""
    for vote in votes if isinstance(votes, list) else _bad_votes(votes, where):
        if isinstance(vote, dict):
            spelled = {plain(key): value for key, value in vote.items()}
            worker, time = (
                next((spelled[key] for key in KNOWN[role] if key in spelled), None) for role in ("annotator", "time")
            )
            said = [spelled[key] for key in KNOWN["label"] if key in spelled]
            if not said:
                found = f"a vote has no label; found: {listed(vote)}"
                raise InputError(f'{where}: {found}. Write a list of {{"annotator": ..., "label": ...}}.')
            weight, sure = _weight(vote, "weight", where), unsure_answers.attributes_sure(vote)
            yield text_of(worker), labels_of(said[0]), weight, sure, time
        else:
            yield None, labels_of(vote), 1.0, True, None


def _bad_votes(votes: object, where: str) -> NoReturn:
    raise InputError(f'{where}: the votes are {kind(votes)}. Write a list of {{"annotator": ..., "label": ...}}.')


def _weight(row: Mapping[str, Any], key: str | None, where: str) -> float:
    if key is None or key not in row:
        return 1.0
    weight = weight_of(row[key])
    if weight != weight:
        raise bad_weight(where, row[key])
    return weight


def _flag(value: object, where: str) -> bool:
    if value not in (None, True, False, 0, 1):
        raise InputError(f"{where}: is_gold is {quoted(value)}. Write true or false.")
    return bool(value)
