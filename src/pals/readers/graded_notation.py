"""Rankings and percentages within a cell: "deer>dog", "deer:70|dog:30"."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import numpy as np

from pals.readers.graded_columns import PERCENT_HINT, percents_of
from pals.readers.read_summary import some
from pals.readers.reader_table import Grades
from pals.readers.unsure_answers import unmarked
from pals.util.errors import InputError, unknown
from pals.util.words import quoted

NOTATIONS = ("ranked", "percent", "plain")
RANKS = ">"
STATED = re.compile(r"(?s)(.*[^\s:])(?:\s*:\s*([-+]?\d+(?:\.\d+)?\s*%?)|\s+(\d+(?:\.\d+)?\s*%))")
"""A label with a percentage: "deer:70", "deer:0.7", "deer 70%"."""
MIN_KNOWN = 0.9
"""Share of the rankings, or of the labels with a percentage, whose labels must be known from elsewhere."""


class Notation:
    """Which cells are read as rankings and percentages.

    ">" and ":" may belong to names. They are notation if at least nine in ten of the labels around them are known: declared,
    standing alone in another cell, in rankings both before and after another label, or with percentages that add up to 100.

    Args:
        cells: The labels in each different cell, as the separator divides them.
        declared: Names of classes that the user or a file declares.
        setting: "ranked" or "percent" for notation in any case, "plain" for none; None: as the labels show.

    Raises:
        InputError: There is no such setting.

    >>> notation = Notation([["deer>dog"], ["dog"], ["deer"], ["deer:70", "dog:30"]], ())
    >>> notation.read(["deer>dog"]).rank, notation.read(["deer:70", "dog:30"]).percent
    ([1, 2], [0.7, 0.3])
    """

    def __init__(self, cells: Sequence[Sequence[str]], declared: Collection[str], setting: str | None = None) -> None:
        if setting is not None and setting not in NOTATIONS:
            raise unknown("notation", setting, NOTATIONS)
        self.declared, self.setting = declared, setting
        pieces = {piece: None for cell in cells for piece in cell}
        odd = [piece for piece in pieces if piece not in declared]
        rankings = {piece: [part.strip() for part in piece.split(RANKS)] for piece in odd if RANKS in piece}
        parts = {part: None for found in rankings.values() for part in found} | {p: None for p in odd if p not in rankings}
        self.stated = {part: found for part in parts if part not in declared and (found := _stated(part)) is not None}
        known = set(declared) | {piece for piece in pieces if piece not in rankings and piece not in self.stated}
        before = {self._bare(part) for found in rankings.values() for part in found[:-1]}
        known |= before & {self._bare(part) for found in rankings.values() for part in found[1:]}
        value_V, bad_V = percents_of([text for _, text in self.stated.values()])
        self.value = dict(zip(self.stated, value_V.tolist(), strict=True))
        self.bad = {part for part, bad in zip(self.stated, bad_V, strict=True) if bad}
        for cell in cells if self.stated else ():
            values = [self.value.get(part, np.nan) for piece in cell for part in rankings.get(piece, [piece])]
            if len(values) > 1 and abs(sum(values) - 1) < 0.011:
                known |= {self._bare(part) for piece in cell for part in rankings.get(piece, [piece])}
        known |= {bare for name in known if (bare := unmarked(name)) is not None}
        known |= {part for part in map(self._bare, parts) if unmarked(part) in known}
        self.unknown = {
            "ranked": [p for p, found in rankings.items() if not all(self._bare(part) in known for part in found)],
            "percent": [part for part, (label, _) in self.stated.items() if label not in known],
        }
        self.found = {"ranked": list(rankings), "percent": list(self.stated)}

    def _bare(self, part: str) -> str:
        return self.stated[part][0] if part in self.stated else part

    def is_on(self, kind: str) -> bool:
        """Whether this kind of notation is read."""
        if self.setting in (kind, "plain"):
            return self.setting == kind
        return bool(self.found[kind]) and len(self.unknown[kind]) <= (1 - MIN_KNOWN) * len(self.found[kind])

    def read(self, cell: Sequence[str], *, percents: bool = True) -> Grades:
        """The labels of a cell. Labels on one level of a ranking share its rank; several on the last one are possible.

        Args:
            cell: The labels as the separator divides them.
            percents: Whether percentages are read at all.

        Raises:
            InputError: A blank stands where a label belongs, or a percentage is out of range; without the place.
        """
        found, level = Grades([], [], []), 1
        for piece in cell:
            parts = [piece]
            if self.is_on("ranked") and RANKS in piece and piece not in self.declared:
                parts = [part.strip() for part in piece.split(RANKS)]
            for number, part in enumerate(parts):
                if not part:
                    raise InputError(f"a label is missing in the ranking {quoted(piece)}. Write it, or remove {RANKS!r}.")
                level += number > 0
                on = percents and part in self.stated and self.is_on("percent")
                if on and part in self.bad:
                    raise InputError(f"the percentage in {quoted(part)} is out of range. {PERCENT_HINT}")
                found.names.append(self.stated[part][0] if on else part)
                found.percent.append(self.value[part] if on else np.nan)
                found.rank.append(level)
        last = found.rank.count(level) > 1
        return found._replace(rank=[0 if level == 1 or (last and rank == level) else rank for rank in found.rank])

    def notes(self) -> list[str]:
        """What was taken as notation, and what for names."""
        notes = []
        for kind, what in (("ranked", "ranks labels"), ("percent", "gives a label's percentage")):
            names, sign = self.found[kind], RANKS if kind == "ranked" else ":"
            if self.is_on(kind) and names:
                notes.append(f"Taken as notation: {sign!r} {what} ({some(names, len(names))}); --notation plain turns this off")
            elif names and self.setting is None:
                strange = self.unknown[kind]
                notes.append(
                    f"{sign!r} is taken for a part of the name ({some(strange, len(strange))}), since its labels do not stand "
                    f"alone elsewhere; if it {what}, add --notation {kind}"
                )
        return notes


def _stated(part: str) -> tuple[str, str] | None:
    """The label and the percentage of "deer:70"."""
    found = STATED.fullmatch(part) if ":" in part or "%" in part else None
    return None if found is None else (found[1], found[2] or found[3])


def maybe_graded(name: str) -> bool:
    """Whether a name could be read as a ranking or as a label with a percentage."""
    return RANKS in name or _stated(name) is not None
