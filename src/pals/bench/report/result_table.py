"""A table of results beside published ones, as plain data: what the renderers and the figures are given."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

SIGNS = {"within": "≈", "better": "▲", "worse": "▼", "not run": "·", "": ""}
"""Of the marks: our mean compared with the published one."""
Entry = Any
"""A row of `ResultTable.entries`, as a named tuple."""


@dataclass(frozen=True)
class ResultTable:
    """The entries of one table."""

    name: str
    title: str
    entries: pd.DataFrame
    "From `results_frame.entries_frame`: one row for each experiment, in the order of rows and columns; None: not known."
    epochs: int | None = None
    "Of runs with a shortened schedule; None: the full one."
    against: str | None = None
    "The row that the others are compared with."
    study_epochs: int | None = None
    "Of a study of ours with times: its own schedule, shorter than the published ones. None: any other table."
    quantity: Literal["accuracy", "seconds"] = "accuracy"
    "seconds: of an epoch."
    notes: tuple[str, ...] = ()

    @property
    def schedule(self) -> str:
        """The schedule of its runs, in words."""
        if self.epochs is not None:
            return f"SHORTENED to {self.epochs} epoch{'s' * (self.epochs > 1)}"
        return "full schedule" if self.study_epochs is None else f"{self.study_epochs} epochs (this study's own schedule)"

    @property
    def row_groups(self) -> bool:
        """Whether groups gather rows (the ablations) and not columns (the data sets)."""
        return bool((self.entries.groupby("column")["group"].nunique() > 1).any())

    def rows(self) -> list[Entry]:
        """The entries as named tuples."""
        return list(self.entries.itertuples(index=False, name="Entry"))


@dataclass(frozen=True)
class Block:
    """A grid of entries with a heading."""

    heading: str
    heads: tuple[str, ...]
    "Short names of its columns, without the words of the heading."
    columns: tuple[Entry, ...]
    "The first entry of each column."
    rows: tuple[tuple[str, str, tuple[Entry | None, ...]], ...]
    "For each row the heading of its section (or nothing), its name, and its entries."


def blocks(table: ResultTable) -> list[Block]:
    """The grids of a table: one for each group of columns, or one with a section for each group of rows.

    Args:
        table: with entries in the order of rows and columns.
    """
    entries, found = table.rows(), []
    if table.row_groups:
        names = unique(entry.column for entry in entries)
        common = _common_start(names)
        return [_block(entries, common.rstrip(", "), common, sections=True)]
    for group in unique(entry.group for entry in entries):
        found.append(_block([entry for entry in entries if entry.group == group], group, f"{group}, ", sections=False))
    return found


def _block(entries: list[Entry], heading: str, common: str, *, sections: bool) -> Block:
    columns = {entry.column: entry for entry in reversed(entries)}  # the first of each
    names = unique(entry.column for entry in entries)
    rows: dict[tuple[str, str], dict[str, Entry]] = {}
    for entry in entries:
        rows.setdefault((entry.group if sections else "", entry.row), {})[entry.column] = entry
    return Block(
        heading,
        tuple(name.removeprefix(common) for name in names),
        tuple(columns[name] for name in names),
        tuple((section, row, tuple(found.get(name) for name in names)) for (section, row), found in rows.items()),
    )


def unique(values: Iterable[str]) -> list[str]:
    """Each value once, in the order of first appearance."""
    return list(dict.fromkeys(values))


def _common_start(names: list[str]) -> str:
    """The words with which all names begin, up to a comma; never a whole name."""
    parts = [name.split(", ") for name in names]
    shared = 0
    while all(len(words) > shared + 1 for words in parts) and len({words[shared] for words in parts}) == 1:
        shared += 1
    return "".join(f"{word}, " for word in parts[0][:shared]) if parts else ""
