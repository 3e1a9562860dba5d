"""What reading answers found: how much was read, what was left out and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pals.util.words import how_many, quoted

MAX_EXAMPLES = 3


@dataclass(frozen=True)
class Skipped:
    """Rows of one kind that gave no vote."""

    reason: str
    count: int
    examples: tuple[str, ...]
    "The first few places in the file."

    def __str__(self) -> str:
        more = ", ..." if self.count > len(self.examples) else ""
        return f"{self.count:,} skipped: {self.reason} ({'; '.join(self.examples)}{more})"


@dataclass(frozen=True)
class ReadSummary:
    """What was read, what was skipped and why; `print(summary)` shows it in sentences.

    Args:
        files: The files.
        format: Their format or formats.
        rows: Labels that the files hold, with those that were skipped.
        answers: Answers that were read.
        items: Items that the files name.
        annotators: Annotators with an answer.
        classes: Number of classes.
        gold: Items whose right label is known.
        skipped: Rows that were left out, by reason.
        notes: Warnings.
        unsure: Answers that are marked as unsure.
        unknown: "Don't know"s, which are neither answers nor skipped.
    """

    files: tuple[str, ...]
    format: str
    rows: int
    answers: int
    items: int
    annotators: int
    classes: int
    gold: int
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    unsure: int = 0
    unknown: int = 0

    def lines(self) -> list[str]:
        """The summary in sentences, one per line."""
        files = self.files[0] if len(self.files) == 1 else f"{len(self.files)} files"
        annotators = how_many(self.annotators, "annotator") if self.annotators else "unnamed annotators"
        gold = f"; {how_many(self.gold, 'item')} with a gold label" if self.gold else ""
        answers, items = how_many(self.answers, "answer"), how_many(self.items, "item")
        classes = how_many(self.classes, "class", "classes")
        unsure = f"; {how_many(self.unsure, 'unsure answer')}" if self.unsure else ""
        unknown = f'; {how_many(self.unknown, "time")} "don\'t know"' if self.unknown else ""
        first = f"{files} ({self.format}): {answers} by {annotators} on {items}, {classes}{gold}{unsure}{unknown}"
        return [first, *map(str, self.skipped), *self.notes]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def some(names: Iterable[str], count: int) -> str:
    """The first few of `count` names, for a message."""
    shown = [quoted(name, 100) for name, _ in zip(names, range(MAX_EXAMPLES), strict=False)]
    return ", ".join(shown) + (", ..." if count > len(shown) else "")


def unanswered(names: Sequence[str], one: str, several: str) -> str:
    """A sentence that these things, called "item has" or "items have", have no answer."""
    return f"{how_many(len(names), one, several)} no answer ({some(names, len(names))})"
