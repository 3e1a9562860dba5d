"""Tables of results beside published ones, as plain data. `layout` arranges them, `markdown_latex` writes them down.

A table never mixes schedules: it is either of runs with the full schedule, or of runs shortened to one number of epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pals.util.errors import InputError

Mark = Literal["within", "better", "worse", "not run", ""]
SIGNS: Mapping[Mark, str] = {"within": "≈", "better": "▲", "worse": "▼", "not run": "·", "": ""}


@dataclass(frozen=True)
class RunLink:
    """One run behind a number."""

    seed: int
    accuracy: float
    "Per cent, last epoch."
    epochs: int
    "Of its schedule."
    shortened: bool
    folder: str
    href: str = ""
    "Link to it from the page that is written; empty: none."
    commit: str | None = None


@dataclass(frozen=True)
class Score:
    """Mean over runs in per cent; one run has no deviation."""

    mean: float
    std: float | None
    runs: tuple[RunLink, ...]


@dataclass(frozen=True)
class Speed:
    """How long a run took. Runs on different machines are not compared: `hardware` says which it was."""

    epoch_seconds: float
    "Median, warm-up left out."
    total_seconds: float
    times_supervised: float | None = None
    "Epoch in epochs of the supervised row on the same hardware."
    cost: float | None = None
    "The same as counted from the passes that the method makes."
    hardware: str | None = None


@dataclass(frozen=True)
class Column:
    """A column's heading and what its labels are."""

    name: str
    group: str = ""
    protocol: str = ""
    "How candidate sets were drawn; empty where people gave them."
    nominal_noise: float | None = None
    effective_noise: float | None = None
    "Share of sets without the true label, as measured in the runs; None before there is one."


@dataclass(frozen=True)
class Entry:
    """One number of a table: ours and the published one."""

    row: str
    column: str
    group: str = ""
    ours: Score | None = None
    published: tuple[float, float | None] | None = None
    mark: Mark = ""
    against: tuple[float, float | None, float | None] | None = None
    "Mean difference to another row over the seeds that both have, and its 95% interval (None: a single seed)."
    speed: Speed | None = None
    note: str = ""

    @property
    def difference(self) -> float | None:
        return None if self.ours is None or self.published is None else self.ours.mean - self.published[0]


@dataclass(frozen=True)
class Table:
    """Entries in the order in which rows and columns are to appear. `epochs` is None for the full schedule."""

    name: str
    title: str
    entries: tuple[Entry, ...]
    columns: tuple[Column, ...]
    epochs: int | None = None
    against: str | None = None
    study_epochs: int | None = None
    "Of a comparison of ours with times: its own schedule, shorter than the published ones. None: any other table."
    quantity: Literal["accuracy", "seconds"] = "accuracy"
    "seconds: of an epoch, which depend on the machine and are not held against the published ones."
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for entry in self.entries:
            for run in entry.ours.runs if entry.ours else ():
                if run.shortened != (self.epochs is not None) or (self.epochs is not None and run.epochs != self.epochs):
                    asked = "the full schedule" if self.epochs is None else f"{self.epochs} epochs"
                    found = f"shortened to {run.epochs} epochs" if run.shortened else "of the full schedule"
                    raise InputError(f"{run.folder} is a run {found}, but the table is of {asked}. They are never mixed.")

    @property
    def schedule(self) -> str:
        if self.epochs is not None:
            return f"SHORTENED to {self.epochs} epoch{'s' * (self.epochs > 1)}"
        return "full schedule" if self.study_epochs is None else f"{self.study_epochs} epochs (this study's own schedule)"

    @property
    def row_groups(self) -> bool:
        """Whether groups gather rows (the ablations) and not columns (the data sets)."""
        groups: dict[str, set[str]] = {}
        for entry in self.entries:
            groups.setdefault(entry.column, set()).add(entry.group)
        return any(len(found) > 1 for found in groups.values())


@dataclass(frozen=True)
class Block:
    """A grid of entries with a heading: short names of its columns, and its rows in sections that may have headings too."""

    heading: str
    heads: tuple[str, ...]
    columns: tuple[Column, ...]
    sections: tuple[tuple[str, tuple[tuple[str, tuple[Entry | None, ...]], ...]], ...]


def blocks(table: Table) -> list[Block]:
    """The grids of a table: one per group of columns, or one with a section per group of rows."""
    if table.row_groups:
        names = [column.name for column in table.columns]
        common = _common_start(names)
        heads = tuple(name.removeprefix(common) for name in names)
        groups = unique(entry.group for entry in table.entries)
        sections = tuple((group, _rows(table, group, table.columns)) for group in groups)
        return [Block(common.rstrip(", "), heads, table.columns, sections)]
    found = []
    for group in unique(column.group for column in table.columns):
        columns = tuple(column for column in table.columns if column.group == group)
        heads = tuple(column.name.removeprefix(f"{group}, ") for column in columns)
        found.append(Block(group, heads, columns, (("", _rows(table, group, columns)),)))
    return found


def _rows(table: Table, group: str, columns: Sequence[Column]) -> tuple[tuple[str, tuple[Entry | None, ...]], ...]:
    found = {(entry.row, entry.column): entry for entry in table.entries if entry.group == group}
    return tuple((row, tuple(found.get((row, column.name)) for column in columns)) for row in unique(row for row, _ in found))


def unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _common_start(names: Sequence[str]) -> str:
    """What all names begin with, up to a comma."""
    parts = [name.split(", ") for name in names]
    shared = 0
    while all(len(words) > shared + 1 for words in parts) and len({words[shared] for words in parts}) == 1:
        shared += 1
    return "".join(f"{word}, " for word in parts[0][:shared]) if parts else ""
