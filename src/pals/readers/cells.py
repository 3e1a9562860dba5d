"""Columns of a table that are more than names: weights, yes and no, gold labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pals.readers.source import Source, text_of
from pals.readers.tables import Coded, Table, nobody
from pals.util.errors import InputError

YES = frozenset({"1", "1.0", "true", "t", "yes", "y"})
NO = frozenset({"", "0", "0.0", "false", "f", "no", "n", "nan", "na", "none", "null"})


def places(source: Source) -> np.ndarray:
    """Row numbers of the frame, as a spreadsheet shows them."""
    return np.arange(len(source.frame)) + source.first_row


def names_in(source: Source, column: str) -> Coded:
    """A column of names; the cells of Parquet files may be numbers."""
    values = _one(source, column).to_numpy(dtype=object, na_value=None) if source.is_parquet else _one(source, column)
    if not source.is_parquet:
        code_R, names = pd.factorize(values.to_numpy())
        return Coded(code_R.astype(np.int64), names)
    try:
        return Coded.of([text_of(plain(value)) for value in values])
    except TypeError as error:
        source.refuse(f"the column {column!r} holds {error}", "A name is a text or a number.")


def plain(value: Any) -> Any:
    """A cell of a Parquet file as JSON would have it."""
    if isinstance(value, np.ndarray):
        return [plain(entry) for entry in value]
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    return value.item() if isinstance(value, np.generic) else None if value is pd.NA or value is pd.NaT else value


def _one(source: Source, column: str) -> pd.Series:
    values = source.frame[column]
    if isinstance(values, pd.DataFrame):
        source.refuse(f"two columns are called {column!r}", "Give them different names.")
    return values


def weights_in(source: Source, column: str) -> np.ndarray:
    cells = names_in(source, column)
    weight_L = np.array([weight_of(name) for name in cells.names], dtype=np.float64)
    weight_R: np.ndarray = np.append(weight_L, np.nan)[cells.code_R]
    bad = np.isnan(weight_R).nonzero()[0]
    if len(bad):
        row = bad[0]
        found = cells.names[cells.code_R[row]] if cells.code_R[row] >= 0 else ""
        raise bad_weight(f"{source.path}, row {row + source.first_row}", found)
    return weight_R


def weight_of(value: object) -> float:
    """A finite number that is not negative; NaN for anything else."""
    try:
        weight = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return np.nan
    return weight if 0 <= weight < np.inf else np.nan


def bad_weight(place: str, found: object) -> InputError:
    return InputError(
        f"{place}: the weight is {found!r}. Weights are finite numbers that are not negative; write 1 for one vote."
    )


def flags_in(source: Source, column: str) -> np.ndarray:
    """A column of yes and no."""
    cells = names_in(source, column)
    words = [str(name).strip().casefold() for name in cells.names]
    for code, word in enumerate(words):
        if word not in YES and word not in NO:
            row = int((cells.code_R == code).argmax()) + source.first_row
            source.refuse(f"row {row} has {cells.names[code]!r} in the column {column!r}", "Write true or false.")
    yes_R: np.ndarray = np.append(np.array([word in YES for word in words], dtype=bool), False)[cells.code_R]
    return yes_R


def add_gold(table: Table, item: Coded, gold: Coded, place_R: np.ndarray) -> Table:
    """The table with one more row for every item and right label that these columns name; `item` has the table's names."""
    pairs = pd.DataFrame({"item": item.code_R, "gold": gold.code_R}).drop_duplicates()
    said = np.append([bool(str(name).strip()) for name in gold.names], False).astype(bool)
    row_G = pairs.index.to_numpy()[said[pairs["gold"].to_numpy()]]
    rows, more = len(table.place_R), len(row_G)
    weight_R = None if table.weight_R is None else np.append(table.weight_R, np.ones(more))
    answer_R = table.answer_R
    if answer_R is not None:
        answer_R = np.append(answer_R, answer_R.max(initial=-1) + 1 + np.arange(more))
    return replace(
        table,
        place_R=np.append(table.place_R, place_R[row_G]),
        item=Coded(np.append(table.item.code_R, item.code_R[row_G]), item.names),
        worker=Coded(np.append(table.worker.code_R, nobody(more).code_R), table.worker.names),
        label=Coded(
            np.append(table.label.code_R, gold.code_R[row_G] + len(table.label.names)),
            np.append(table.label.names, gold.names),
        ),
        answer_R=answer_R,
        weight_R=weight_R,
        gold_R=np.append(np.zeros(rows, dtype=bool) if table.gold_R is None else table.gold_R, np.ones(more, dtype=bool)),
    )
