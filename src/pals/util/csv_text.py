"""Tables as text that people open in a spreadsheet."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from pals.util.files import mark_as_text, replacing

MARKED = frozenset("'=+-@\t\r")
"""With what a cell begins that `mark_as_text` may change."""

ROWS = 100_000
"""That are text at once."""


def write_csv(path: Path, table: pd.DataFrame | Iterable[pd.DataFrame]) -> None:
    """Write `csv_text` of the table, or of its parts, some rows at a time."""
    frames = [table] if isinstance(table, pd.DataFrame) else table
    parts = (frame.iloc[start : start + ROWS] for frame in frames for start in range(0, max(len(frame), 1), ROWS))
    with replacing(path) as file:
        for number, part in enumerate(parts):
            file.write(csv_text(part, header=number == 0).encode("utf-8"))


def csv_text(table: pd.DataFrame, header: bool = True) -> str:
    """The table as CSV: quoted where needed, true and false, nothing where there is no value. A cell that a spreadsheet would
    take for a formula is marked as text."""
    flags = {name: table[name].map({True: "true", False: "false"}) for name in table if table[name].dtype == bool}
    names = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    texts = {name: _marked(table[name]) for name in names}
    marked = table.assign(**flags | texts).rename(columns=mark_as_text)
    # where lines end with \n alone, nothing quotes a lone \r, which readers take for the end of a line
    bare = any("\r" in str(name) for name in marked) or any(_holds_return(texts[name]) for name in names)
    quoting = csv.QUOTE_NONNUMERIC if bare else csv.QUOTE_MINIMAL
    text: str = marked.to_csv(index=False, header=header, lineterminator="\n", quoting=quoting)
    return text


def _holds_return(cells: pd.Series) -> bool:
    return any(isinstance(text, str) and "\r" in text for text in set(cells.to_numpy(dtype=object)))


def _marked(cells: pd.Series) -> pd.Series:
    """The cells with their marks; few are looked at, as most do not begin like a formula."""
    texts = cells.to_numpy(dtype=object)
    marked = {text: mark_as_text(text) for text in set(texts) if isinstance(text, str) and text[:1] in MARKED}
    return cells.map(lambda cell: marked.get(cell, cell)) if marked else cells
