"""Columns with ranks and with percentages beside the answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from pals.readers.column_types import WHOLE, names_in
from pals.readers.source import Source
from pals.util.errors import InputError
from pals.util.words import quoted

GRADES = ("rank", "percent")
PERCENT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(e-?\d+)?\s*(%?)")
NO_PERCENT = frozenset({"", "na", "n/a", "nan", "none", "null"})


def percents_of(cells: Sequence[object], place: Callable[[int], str]) -> np.ndarray:
    """Probabilities from percentages. Numbers without a sign are from 0 to 1 if none of them is above 1, else from 0 to 100.

    Args:
        cells: The different percentages as written.
        place: Where each of them is, for messages.

    Returns:
        A probability for each; NaN where it is blank.

    Raises:
        InputError: A cell is no number from 0 to 100.
    """
    texts = [str(cell).strip().casefold() for cell in cells]
    found = [PERCENT.fullmatch(text) for text in texts]
    hundred = any(match is not None and not match[3] and float(match[1] + (match[2] or "")) > 1 for match in found)
    value_V = np.full(len(texts), np.nan)
    for number, (text, match) in enumerate(zip(texts, found, strict=True)):
        if match is not None:
            power = int((match[2] or "e0")[1:]) - (2 if match[3] or hundred else 0)
            value_V[number] = float(f"{match[1]}e{power}")  # "70" becomes 0.7 without a rounding error
        if text not in NO_PERCENT and not value_V[number] <= 1:
            hint = "Write a number from 0 to 100, or leave it blank."
            raise InputError(f"{place(number)}: the percentage is {quoted(cells[number])}. {hint}")
    return value_V


def percents_in(source: Source, column: str) -> np.ndarray:
    """A column of percentages."""
    cells = names_in(source, column)
    value_V = percents_of(cells.names.tolist(), lambda code: f"{source.path}, row {cells.first_row(code) + source.first_row}")
    percent_R: np.ndarray = np.append(value_V, np.nan)[cells.code_R]
    return percent_R


def ranks_in(source: Source, column: str) -> np.ndarray:
    """A column of ranks; 0 or blank is none."""
    cells = names_in(source, column)
    texts = [WHOLE.sub(r"\1", str(name).strip()) for name in cells.names]
    for code, text in enumerate(texts):
        if text and not re.fullmatch("[0-9]{1,9}", text):
            found = f"row {cells.first_row(code) + source.first_row}: the rank is {quoted(cells.names[code])}"
            source.refuse(found, "Write 1 for the first choice, 2 for the second, or leave it blank.")
    rank_R: np.ndarray = np.array([*(int(text or 0) for text in texts), 0])[cells.code_R]
    return rank_R
