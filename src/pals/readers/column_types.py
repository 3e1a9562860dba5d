"""Columns of a table that are more than names: weights, yes and no, times, gold labels."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pandas as pd

from pals.readers.columns import Columns
from pals.readers.parquet import ParquetError
from pals.readers.reader_table import Coded, Table, no_annotators
from pals.readers.source import Source, text_of
from pals.readers.times import durations_of, times_of
from pals.util.errors import InputError
from pals.util.files import without_mark
from pals.util.words import quoted

YES = frozenset({"1", "1.0", "true", "t", "yes", "y"})
NO = frozenset({"", "0", "0.0", "false", "f", "no", "n", "nan", "na", "none", "null"})
WHOLE = re.compile(r"^([0-9]+)\.0+$")
"""How programs write a whole number in a column with gaps."""
LARGEST_WEIGHT = 1e12
"""Sums of such weights keep all their digits that matter; what is larger is a date or a number of something else."""


def places(source: Source) -> np.ndarray:
    """Row numbers of the frame, as a spreadsheet shows them."""
    return np.arange(source.rows) + source.first_row


def names_in(source: Source, column: str) -> Coded:
    """A column of names."""
    code_R1, names = columns_in(source, [column])
    return Coded(code_R1[:, 0], names)


def columns_in(source: Source, columns: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """(code_RX, names): columns of names, coded together. The cells of Parquet files may be numbers; those of others may be
    marked as no formulas."""
    for column in columns:
        if column in source.repeated:
            source.refuse(f"two columns are called {quoted(column)}", "Give them different names.")
    if source.is_parquet:
        code, names = _together(_parquet_columns(source, columns))
    else:
        code, names = _unmarked(*_text_columns(source.frame[list(columns)]))
    return code.reshape(len(columns), -1).T, names


def _text_columns(cells: pd.DataFrame) -> Coded:
    """Columns of a text file, one under the other, numbered in the order in which the texts occur."""
    if not any(isinstance(kind, pd.CategoricalDtype) for kind in cells.dtypes):
        return Coded(*pd.factorize(cells.to_numpy(dtype=object).ravel(order="F")))  # one by one, thousands take a minute
    found = (cells[column].cat for column in cells)
    return _together([Coded(column.codes.to_numpy(), column.categories.to_numpy(dtype=object)) for column in found])


def _parquet_columns(source: Source, columns: Sequence[str]) -> list[Coded]:
    try:
        found = source.parquet.columns(columns)
    except ParquetError as error:
        raise InputError(f"{source.path}: {error}") from None
    return [_named(source, column, *cells) for column, cells in zip(columns, found, strict=True)]


def _named(source: Source, column: str, code_R: np.ndarray, values: Sequence[object]) -> Coded:
    try:
        names = Coded.of([text_of(value) for value in values])
    except TypeError as error:
        source.refuse(f"the column {quoted(column)} holds {error}", "A name is a text or a number.")
    return Coded(np.append(names.code_R, -1)[code_R], names.names)


def _together(columns: Sequence[Coded]) -> Coded:
    """One column under the other, with one list of names."""
    if len(columns) == 1:
        return columns[0]
    number, names = pd.factorize(np.concatenate([column.names for column in columns]))
    starts = np.cumsum([0, *(len(column.names) for column in columns)])
    codes = [
        np.append(number[start : start + len(column.names)], -1)[column.code_R]
        for column, start in zip(columns, starts, strict=False)
    ]
    return Coded(np.concatenate(codes), names)


def _unmarked(code_R: np.ndarray, names: np.ndarray) -> Coded:
    if not any(name.startswith("'") for name in names):
        return Coded(code_R.astype(np.int64), names)
    number, names = pd.factorize(np.array([without_mark(name) for name in names], dtype=object))
    return Coded(number[code_R].astype(np.int64), names)


def refuse_joined(source: Source, words: Mapping[str, Collection[str]]) -> None:
    """A second header inside the table names other columns than the first; `words` are, by column, the names that its cell
    could hold. Such a row has one of them in every column."""
    if source.is_parquet:
        return
    header_R = np.ones(source.rows, dtype=bool)
    for column, known in words.items():
        cells = names_in(source, column)
        is_name = [str(name).strip().casefold() in known or str(name).strip() == column for name in cells.names]
        header_R &= np.append(is_name, False)[cells.code_R]
    if words and header_R.any():
        source.refuse_second_header(int(header_R.argmax()))


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
    """A number from 0 to `LARGEST_WEIGHT`; NaN for anything else."""
    try:
        weight = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return np.nan
    return weight if 0 <= weight <= LARGEST_WEIGHT else np.nan


def bad_weight(place: str, found: object) -> InputError:
    return InputError(
        f"{place}: the weight is {quoted(found)}. Weights are numbers from 0 to {LARGEST_WEIGHT:g}; write 1 for one vote."
    )


def flags_in(source: Source, column: str) -> np.ndarray:
    """A column of yes and no."""
    cells = names_in(source, column)
    words = [str(name).strip().casefold() for name in cells.names]
    for code, word in enumerate(words):
        if word not in YES and word not in NO:
            row = int((cells.code_R == code).argmax()) + source.first_row
            found = f"{quoted(cells.names[code])} in the column {quoted(column)}"
            source.refuse(f"row {row} has {found}", "Write true or false.")
    yes_R: np.ndarray = np.append(np.array([word in YES for word in words], dtype=bool), False)[cells.code_R]
    return yes_R


def times_in(
    source: Source, found: Mapping[str, str], columns: Columns, role: Literal["time", "seconds"] = "time"
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """When each row was answered, or how many seconds that took; None without such a column, or if it is left alone, as a note
    then says. Where the user named it, it is understood or refused."""
    if role not in found:
        return None, ()
    asked, column = role in columns, found[role]
    try:
        code_R, values = _cells(source, column)
    except InputError as error:
        if asked:
            raise
        return None, (f"{'Times' if role == 'time' else 'Seconds'} of answers are not read: {error}",)

    def place(code: int) -> str:
        return f"{source.path}, row {int((code_R == code).argmax()) + source.first_row}, column {quoted(column)},"

    time_V, notes = (times_of if role == "time" else durations_of)(values, place, asked=asked)
    return None if time_V is None else np.append(time_V, np.nan)[code_R], notes


def _cells(source: Source, column: str) -> tuple[np.ndarray, Sequence[object]]:
    """A column as numbers and their different values, in Parquet files of any type."""
    if not source.is_parquet:
        code_R, names = names_in(source, column)
        return code_R, names.tolist()
    if column in source.repeated:
        source.refuse(f"two columns are called {quoted(column)}", "Give them different names.")
    try:
        cells: tuple[np.ndarray, Sequence[object]] = source.parquet.columns([column])[0]
    except ParquetError as error:
        raise InputError(f"{source.path}: {error}") from None
    return cells


def add_gold(table: Table, item: Coded, gold: Coded, place_R: np.ndarray) -> Table:
    """The table with one more row for every item and right label that these columns name; `item` has the table's names."""
    pairs = pd.DataFrame({"item": item.code_R, "gold": gold.code_R}).drop_duplicates()
    said = np.append([bool(str(name).strip()) for name in gold.names], False).astype(bool)
    row_G = pairs.index.to_numpy()[said[pairs["gold"].to_numpy()]]
    rows, more = len(table.place_R), len(row_G)
    weight_R = None if table.weight_R is None else np.append(table.weight_R, np.ones(more))
    sure_R = None if table.sure_R is None else np.append(table.sure_R, np.ones(more, dtype=bool))
    time_R = None if table.time_R is None else np.append(table.time_R, np.full(more, np.nan))
    seconds_R = None if table.seconds_R is None else np.append(table.seconds_R, np.full(more, np.nan))
    answer_R = table.answer_R
    if answer_R is not None:
        answer_R = np.append(answer_R, answer_R.max(initial=-1) + 1 + np.arange(more))
    return replace(
        table,
        place_R=np.append(table.place_R, place_R[row_G]),
        item=Coded(np.append(table.item.code_R, item.code_R[row_G]), item.names),
        worker=Coded(np.append(table.worker.code_R, no_annotators(more).code_R), table.worker.names),
        label=Coded(
            np.append(table.label.code_R, gold.code_R[row_G] + len(table.label.names)),
            np.append(table.label.names, gold.names),
        ),
        answer_R=answer_R,
        weight_R=weight_R,
        sure_R=sure_R,
        time_R=time_R,
        seconds_R=seconds_R,
        gold_R=np.append(np.zeros(rows, dtype=bool) if table.gold_R is None else table.gold_R, np.ones(more, dtype=bool)),
    )
