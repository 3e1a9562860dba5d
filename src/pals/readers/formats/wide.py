"""Wide tables: one row per item, one column per annotator."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pals.readers.cells import add_gold, names_in, places
from pals.readers.columns import Columns, find, not_read, plain
from pals.readers.source import Source
from pals.readers.tables import Coded, Table
from pals.util.errors import InputError

BESIDE = frozenset({"weight", "weights", "time", "created_at", "comment", "comments", "notes", "is_gold"})
"""Columns that hold no person's answers although they stand beside those that do."""


def read_wide(source: Source, columns: Columns) -> Table:
    """A blank cell is a person who was not asked. `columns={"workers": [...]}` names the annotators' columns."""
    names = source.frame.columns.tolist()
    chosen = columns.get("workers")
    found = find(names, {role: name for role, name in columns.items() if role != "workers"}, ("item", "gold"), source)
    item = found.get("item", names[0])
    if chosen is None:
        people = [name for name in names if name not in (item, found.get("gold")) and plain(name) not in BESIDE]
    else:
        people = [chosen] if isinstance(chosen, str) else list(chosen)
        for name in people:
            if name not in names:
                raise InputError(f"{source.path}: there is no column {name!r}. Found: {', '.join(map(repr, names))}.")
    if not people:
        source.refuse("there is no column of answers beside the items'", "Give each annotator a column.")
    items = names_in(source, item)
    _check_items(source, item, items)
    row_R, worker_R, label = _cells(source, people)
    table = Table(
        path=source.path,
        unit="row",
        place_R=places(source)[row_R],
        item=items.take(row_R),
        worker=Coded(worker_R, np.array(people, dtype=object)),
        label=label,
        answer_R=np.arange(len(row_R)),
        splits=True,
        notes=not_read(names, [item, *people, *found.values()]),
    )
    return add_gold(table, items, names_in(source, found["gold"]), places(source)) if "gold" in found else table


def _check_items(source: Source, column: str, items: Coded) -> None:
    twice = pd.Series(items.code_R[items.code_R >= 0]).duplicated().to_numpy().nonzero()[0]
    twice = twice[[bool(str(items.names[items.code_R[row]]).strip()) for row in twice]]
    if len(twice):
        row = int(twice[0])
        source.refuse(
            f"row {row + source.first_row} names {items.names[items.code_R[row]]!r} again in the column {column!r}",
            "A wide table has one row per item; if each row is one answer, read it with --format long "
            "(format='long') and say which column holds the label.",
        )


def _cells(source: Source, people: list[str]) -> tuple[np.ndarray, np.ndarray, Coded]:
    """Row, annotator and label of all cells that are not blank, row by row."""
    by_person = [names_in(source, name) for name in people]
    code, names = pd.factorize(np.concatenate([column.names for column in by_person]))
    starts = np.cumsum([0, *(len(column.names) for column in by_person)])
    blank = np.array([not str(name).strip() for name in names], dtype=bool)
    label_RW = np.stack(
        [
            np.append(code[start : start + len(column.names)], -1)[column.code_R]
            for column, start in zip(by_person, starts, strict=False)
        ],
        axis=1,
    )
    row_R, worker_R = ((label_RW >= 0) & ~np.append(blank, True)[label_RW]).nonzero()
    return row_R, worker_R, Coded(label_RW[row_R, worker_R], names)
