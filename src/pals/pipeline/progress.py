"""What a fit reports while it works: nothing at all, lines of text to a function, or whatever a subclass makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from pals.pipeline.time_left import Count, Say

if TYPE_CHECKING:
    from pals.runs.run import Run

AfterEpoch = Callable[[Mapping[str, Any]], None]


class Monitor:
    """Silent. A subclass shows what it likes; only `follow` has work to do, which is to train."""

    def say(self, line: str) -> None:
        """A sentence about what was read, chosen or found."""

    def counting(self, what: str) -> AbstractContextManager[Count]:
        """Around a pass over all items: gives a function that is told how many are done, of how many."""
        return nullcontext(lambda done, total: None)

    def training(self) -> AbstractContextManager[object]:
        """Around all training."""
        return nullcontext()

    def follow(self, title: str, run: Run, after_epoch: AfterEpoch) -> None:
        """Train a run to its end and call `after_epoch` with the record of each epoch."""
        for record in run.epochs():
            after_epoch(record)


class Lines(Monitor):
    """Every sentence, and a line per epoch, to a function such as `print` or `logger.info`."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def say(self, line: str) -> None:
        self._say(line)

    def follow(self, title: str, run: Run, after_epoch: AfterEpoch) -> None:
        for record in run.epochs():
            trusts = trust_words(record)
            self._say(f"{title}: epoch {record['epoch']}/{record['epochs']}{', ' if trusts else ''}{trusts}")
            after_epoch(record)


def trust_words(record: Mapping[str, Any]) -> str:
    """How many labels a method that chooses among them has learned from in this epoch; nothing for others."""
    selected = record.get("selected")
    return "" if selected is None else f"learns from {selected:,} labels that it trusts"


def monitor_of(given: Monitor | Say | None) -> Monitor:
    """None is silence, a function gets lines."""
    if given is None:
        return Monitor()
    return given if isinstance(given, Monitor) else Lines(given)
