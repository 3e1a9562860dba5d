"""Columns of a table by type: names, weights, flags, times."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from pals.readers.columns import Columns
from pals.readers.json_values import text_of
from pals.readers.reader_table import Coded
from pals.readers.source import Source
from pals.readers.times import durations_of, times_of
from pals.util.errors import InputError
from pals.util.files import without_mark
from pals.util.words import quoted

YES = frozenset({"1", "1.0", "true", "t", "yes", "y"})
NO = frozenset({"", "0", "0.0", "false", "f", "no", "n", "nan", "na", "none", "null"})
WHOLE = re.compile(r"^([0-9]+)\.0+$")
"""How programs write a whole number in a column with gaps."""
MAX_WEIGHT = 1e12
"""Sums of such weights keep all digits that matter. A larger number is a date or something else."""


def places(source: Source) -> np.ndarray:
    """Row numbers of the frame, as a spreadsheet shows them."""
    return np.arange(source.rows) + source.first_row


def names_in(source: Source, column: str) -> Coded:
    """A column of names."""
    code_R1, names = columns_in(source, [column])
    return Coded(code_R1[:, 0], names)


def columns_in(source: Source, columns: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """(code_RX, names): columns of names with one common list of names. Cells of Parquet files may be numbers; in other files
    the apostrophe that keeps a cell from being a formula is removed."""
    _refuse_repeated(source, columns)
    if source.is_parquet:
        named = [_named(source, column, *cells) for column, cells in zip(columns, source.parquet.columns(columns), strict=True)]
        code, names = concatenated(named)
    else:
        code, names = _text_columns(source.frame[list(columns)])
        if any(name.startswith("'") for name in names):
            number, names = pd.factorize(np.array([without_mark(name) for name in names], dtype=object))
            code = number[code]
    return code.astype(np.int64).reshape(len(columns), -1).T, names


def _text_columns(cells: pd.DataFrame) -> Coded:
    """Columns of a text file, one under the other, numbered in the order in which the texts occur."""
    if not any(isinstance(kind, pd.CategoricalDtype) for kind in cells.dtypes):
        return Coded(*pd.factorize(cells.to_numpy(dtype=object).ravel(order="F")))  # one by one, thousands take a minute
    found = (cells[column].cat for column in cells)
    return concatenated([Coded(column.codes.to_numpy(), column.categories.to_numpy(dtype=object)) for column in found])


def _refuse_repeated(source: Source, columns: Sequence[str]) -> None:
    for column in columns:
        if column in source.repeated:
            source.refuse(f"two columns are called {quoted(column)}", "Give them different names.")


def _named(source: Source, column: str, code_R: np.ndarray, values: Sequence[object]) -> Coded:
    try:
        names = Coded.of([text_of(value) for value in values])
    except TypeError as error:
        source.refuse(f"the column {quoted(column)} holds {error}", "A name is a text or a number.")
    return Coded(np.append(names.code_R, -1)[code_R], names.names)


def concatenated(columns: Sequence[Coded]) -> Coded:
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


def refuse_joined(source: Source, words: Mapping[str, Collection[str]]) -> None:
    """Refuse a second header inside the table: a row that names a column in every one of these columns.

    Args:
        words: For each column the names, besides its own, that a header may give it.
    """
    if source.is_parquet:
        return
    header_R = np.ones(source.rows, dtype=bool)
    for column, known in words.items():
        cells = names_in(source, column)
        texts = (str(name).strip() for name in cells.names)
        header_R &= cells.flags(text.casefold() in known or text == column for text in texts)
    if words and header_R.any():
        source.refuse_second_header(int(header_R.argmax()))


def weights_in(source: Source, column: str) -> np.ndarray:
    """A column of weights."""
    cells = names_in(source, column)
    weight_R: np.ndarray = np.array([*map(weight_of, cells.names), np.nan])[cells.code_R]
    bad = np.flatnonzero(np.isnan(weight_R))
    if len(bad):
        found = cells.names[cells.code_R[bad[0]]] if cells.code_R[bad[0]] >= 0 else ""
        raise bad_weight(f"{source.path}, row {bad[0] + source.first_row}", found)
    return weight_R


def weight_of(value: object) -> float:
    """A number from 0 to `MAX_WEIGHT`; NaN for anything else."""
    try:
        weight = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return np.nan
    return weight if 0 <= weight <= MAX_WEIGHT else np.nan


def bad_weight(place: str, found: object) -> InputError:
    """The error for a weight that is none."""
    return InputError(f"{place}: the weight is {quoted(found)}. Weights are numbers from 0 to {MAX_WEIGHT:g}; one vote is 1.")


def flags_in(source: Source, column: str) -> np.ndarray:
    """A column of yes and no."""
    cells = names_in(source, column)
    words = [str(name).strip().casefold() for name in cells.names]
    for code, word in enumerate(words):
        if word not in YES | NO:
            found = f"{quoted(cells.names[code])} in the column {quoted(column)}"
            source.refuse(f"row {cells.first_row(code) + source.first_row} has {found}", "Write true or false.")
    return cells.flags(word in YES for word in words)


def times_in(
    source: Source, found: Mapping[str, str], columns: Columns, role: Literal["time", "seconds"] = "time"
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """When each row was answered, or how many seconds that took.

    Args:
        found: The column of each role.
        columns: Columns that the user named; one of these must be understood.
        role: "time" or "seconds".

    Returns:
        The numbers, or None without such a column or if it is not understood; and notes for the user.

    Raises:
        InputError: The column that the user named is not understood.
    """
    if role not in found:
        return None, ()
    required, column = role in columns, found[role]
    try:
        _refuse_repeated(source, [column])
        code_R, values = source.parquet.columns([column])[0] if source.is_parquet else names_in(source, column)
    except InputError as error:
        if required:
            raise
        return None, (f"{'Times' if role == 'time' else 'Seconds'} of answers are not read: {error}",)

    def place(code: int) -> str:
        return f"{source.path}, row {int((code_R == code).argmax()) + source.first_row}, column {quoted(column)},"

    time_V, notes = (times_of if role == "time" else durations_of)(list(values), place, required=required)
    return None if time_V is None else np.append(time_V, np.nan)[code_R], notes
