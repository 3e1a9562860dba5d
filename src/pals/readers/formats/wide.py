"""Wide tables: one row per item, one column per annotator."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from pals.readers.column_types import WHOLE, columns_in, names_in, places, refuse_joined
from pals.readers.columns import KNOWN, Columns, find, not_read, plain
from pals.readers.reader_table import Coded, Table
from pals.readers.source import Source
from pals.util.errors import InputError
from pals.util.words import listed, quoted

NO_ANNOTATORS = frozenset(
    {"weight", "weights", "comment", "comments", "notes", "is_gold", "majority", "majority_vote", "consensus"}.union(
        *(KNOWN[role] for role in ("sure", "unsure", "time", "seconds"))
    )
)
"""Columns that hold no annotator's answers although they stand beside those that do."""


def read_wide(source: Source, columns: Columns) -> Table:
    """A blank cell is no answer. `columns={"annotators": [...]}` names the annotators' columns."""
    item, annotators, gold = _roles(source, columns)
    refuse_joined(source, {item: ()})
    items = names_in(source, item)
    _check_items(source, item, items)
    row_R, annotator_R, label = _cells(source, annotators)
    table = Table(
        path=source.path,
        unit="row",
        place_R=places(source)[row_R],
        item=items.take(row_R),
        annotator=Coded(annotator_R, np.array(annotators, dtype=object)),
        label=label,
        answer_R=np.arange(len(row_R)),
        splits=True,
        notes=not_read(source.names, [item, *annotators, *gold]),
    )
    return table.with_gold(items, names_in(source, gold[0]), places(source)) if gold else table


def columns_unlike_others(source: Source, columns: Columns) -> list[str]:
    """Columns that are filled in for every item and share no answer with any other column, so that they are hardly an
    annotator's. A table with an answer per row has such columns: its annotators share nothing with its labels."""
    _, annotators, _ = _roles(source, columns)
    if len(annotators) < 2:
        return []
    row_R, annotator_R, label = _cells(source, annotators)
    words = pd.Series([re.split("[|>]", str(name).casefold()) for name in label.names], dtype=object).explode()
    words = words.str.replace(r"\s*:\s*[\d.]+\s*%?\s*$", "", regex=True).str.strip(" ?")  # a ranking, a percentage
    words = words.str.replace(WHOLE, r"\1", regex=True)
    number_L = pd.Series(pd.factorize(words)[0], index=words.index)
    pairs = pd.DataFrame({"code": label.code_R, "annotator": annotator_R}).drop_duplicates()
    pairs = pairs.join(number_L.rename("label"), on="code")[["label", "annotator"]].drop_duplicates()
    sharing = set(pairs.loc[pairs["label"].duplicated(keep=False), "annotator"])
    filled_W = np.bincount(annotator_R, minlength=len(annotators)) == len(np.unique(row_R))
    return [annotators[w] for w in filled_W.nonzero()[0].tolist() if w not in sharing]


def _roles(source: Source, columns: Columns) -> tuple[str, list[str], list[str]]:
    """The columns of the items, of the annotators, and of the right labels, if there is one."""
    names = source.names
    chosen = columns.get("annotators")
    found = find(names, {role: name for role, name in columns.items() if role != "annotators"}, ("item", "gold"), source)
    item, gold = found.get("item", names[0]), [found["gold"]] if "gold" in found else []
    if chosen is None:
        annotators = [name for name in names if name not in (item, *gold) and plain(name) not in NO_ANNOTATORS]
    else:
        annotators = [chosen] if isinstance(chosen, str) else list(chosen)
        missing = sorted(set(annotators) - set(names), key=annotators.index)
        if missing:
            raise InputError(f"{source.path}: there is no column {quoted(missing[0])}. Found: {listed(names)}.")
    if not annotators:
        source.refuse("there is no column of answers next to the items", "Give each annotator a column.")
    return item, annotators, gold


def _check_items(source: Source, column: str, items: Coded) -> None:
    """Refuse an item in two rows."""
    twice_R = (items.code_R >= 0) & pd.Series(items.code_R).duplicated().to_numpy()
    row = next((row for row in np.flatnonzero(twice_R).tolist() if str(items.names[items.code_R[row]]).strip()), None)
    if row is not None:
        source.refuse(
            f"row {row + source.first_row} names {quoted(items.names[items.code_R[row]])} again in the column {quoted(column)}",
            "A wide table has one row per item; if each row is one answer, read it with --format long "
            "(format='long') and say which column holds the label.",
        )


def _cells(source: Source, annotators: list[str]) -> tuple[np.ndarray, np.ndarray, Coded]:
    """Row, annotator and label of all cells that are not blank, row by row."""
    label_RW, names = columns_in(source, annotators)
    filled_L = np.array([bool(str(name).strip()) for name in names], dtype=bool)
    row_R, annotator_R = np.append(filled_L, False)[label_RW].nonzero()
    return row_R, annotator_R, Coded(label_RW[row_R, annotator_R], names)
