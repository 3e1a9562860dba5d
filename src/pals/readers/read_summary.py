"""What reading a file came to: how much was read, what was left out and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pals.util.words import how_many, quoted

EXAMPLES = 3


@dataclass(frozen=True)
class Skipped:
    """Rows of one kind that gave no vote."""

    reason: str
    count: int
    examples: tuple[str, ...]  # places in the file, the first few

    def __str__(self) -> str:
        more = ", ..." if self.count > len(self.examples) else ""
        return f"{self.count:,} skipped: {self.reason} ({'; '.join(self.examples)}{more})"


@dataclass(frozen=True)
class ReadSummary:
    """What was read, what was skipped and why. `print(summary)` is for people."""

    files: tuple[str, ...]
    format: str
    rows: int
    "Labels that the files hold, the skipped ones too."
    answers: int
    items: int
    workers: int
    classes: int
    gold: int
    "Items whose right label is known."
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    unsure: int = 0
    "Answers that are marked as unsure."
    unknown: int = 0
    "Times that somebody said that they don't know; among neither the answers nor the skipped."

    def lines(self) -> list[str]:
        named = f"{self.files[0]}" if len(self.files) == 1 else f"{len(self.files)} files"
        people = how_many(self.workers, "annotator") if self.workers else "unnamed annotators"
        gold = f"; {how_many(self.gold, 'item')} with a gold label" if self.gold else ""
        answers, items = how_many(self.answers, "answer"), how_many(self.items, "item")
        classes = how_many(self.classes, "class", "classes")
        unsure = f"; {how_many(self.unsure, 'unsure answer')}" if self.unsure else ""
        unknown = f'; {how_many(self.unknown, "time")} "don\'t know"' if self.unknown else ""
        first = f"{named} ({self.format}): {answers} by {people} on {items}, {classes}{gold}{unsure}{unknown}"
        return [first, *map(str, self.skipped), *self.notes]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def some(names: Iterable[str], count: int) -> str:
    """The first few of `count` names, for a message."""
    shown = [quoted(name, 100) for name, _ in zip(names, range(EXAMPLES), strict=False)]
    return ", ".join(shown) + (", ..." if count > len(shown) else "")


def unanswered(names: Sequence[str], one: str, several: str) -> str:
    """That these, in words such as "item has" and "items have", have no answer."""
    return f"{how_many(len(names), one, several)} no answer ({some(names, len(names))})"
