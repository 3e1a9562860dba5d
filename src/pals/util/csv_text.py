"""CSV that is safe to open in a spreadsheet."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pandas as pd

from pals.util.files import mark_as_text, replacing

FORMULA_STARTS = frozenset("'=+-@\t\r")
"""First characters of the cells that `mark_as_text` may change."""

CSV_BLOCK_ROWS = 100_000
"""Rows that are converted to text at a time."""


def write_csv(path: Path, table: pd.DataFrame | Iterable[pd.DataFrame]) -> None:
    """Writes `csv_text` of a table, or of its consecutive parts, `CSV_BLOCK_ROWS` at a time."""
    frames = [table] if isinstance(table, pd.DataFrame) else table
    parts = (frame.iloc[i : i + CSV_BLOCK_ROWS] for frame in frames for i in range(0, max(len(frame), 1), CSV_BLOCK_ROWS))
    with replacing(path) as file:
        for number, part in enumerate(parts):
            file.write(csv_text(part, header=number == 0).encode("utf-8"))


def csv_text(table: pd.DataFrame, header: bool = True) -> str:
    """The table as CSV, quoted where needed, with true and false; missing values are empty cells.

    A cell that a spreadsheet would run as a formula is marked as text (`mark_as_text`).
    """
    flags = {name: table[name].map({True: "true", False: "false"}) for name in table if table[name].dtype == bool}
    names = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    texts = {name: _marked(table[name]) for name in names}
    marked = table.assign(**flags | texts).rename(columns=mark_as_text)
    # With lines that end in \n, pandas leaves a lone \r unquoted, which readers take for the end of a line.
    cells = chain(marked, *(set(texts[name].to_numpy(dtype=object)) for name in names))
    quoting = csv.QUOTE_NONNUMERIC if any(isinstance(cell, str) and "\r" in cell for cell in cells) else csv.QUOTE_MINIMAL
    text: str = marked.to_csv(index=False, header=header, lineterminator="\n", quoting=quoting)
    return text


def _marked(cells: pd.Series) -> pd.Series:
    """The cells with their marks; each distinct text that may need one is checked once."""
    texts = cells.to_numpy(dtype=object)
    marked = {text: mark_as_text(text) for text in set(texts) if isinstance(text, str) and text[:1] in FORMULA_STARTS}
    return cells.map(lambda cell: marked.get(cell, cell)) if marked else cells
