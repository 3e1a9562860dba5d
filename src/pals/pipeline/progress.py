"""Progress of a fit: reported not at all, as lines of text to a function, or by a subclass of `Monitor`; and the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from pals.util.words import duration

if TYPE_CHECKING:
    from pals.runs.run import Run

AfterEpoch = Callable[[Mapping[str, Any]], None]
Count = Callable[[int, int], None]  # how many are done, of how many
Say = Callable[[str], None]

MIN_REPORTED_SECONDS = 5.0  # a shorter wait is not reported
MIN_TIMED_SECONDS = 2.0  # of a pass over all items, after which the rest is estimated


class Monitor:
    """Reports nothing. A subclass overrides what it reports; only `follow` does work, the training."""

    def say(self, line: str) -> None:
        """A sentence about what was read, chosen or found."""

    def counting(self, what: str) -> AbstractContextManager[Count]:
        """Around a pass over all items: yields a function that receives how many are done, of how many."""
        return nullcontext(lambda done, total: None)

    def training(self) -> AbstractContextManager[object]:
        """Around all training."""
        return nullcontext()

    def follow(self, title: str, run: Run, after_epoch: AfterEpoch) -> None:
        """Train a run to its end and call `after_epoch` with the record of each epoch."""
        for record in run.epochs():
            after_epoch(record)


class Lines(Monitor):
    """Passes every sentence, and a line per epoch, to a function such as `print` or `logger.info`."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def say(self, line: str) -> None:
        self._say(line)

    def follow(self, title: str, run: Run, after_epoch: AfterEpoch) -> None:
        for record in run.epochs():
            selected = selected_words(record)
            self._say(f"{title}: epoch {record['epoch']}/{record['epochs']}{', ' if selected else ''}{selected}")
            after_epoch(record)


def selected_words(record: Mapping[str, Any]) -> str:
    """The number of labels that the method selected in this epoch; "" for a method that does not select."""
    selected = record.get("selected")
    return "" if selected is None else f"learns from {selected:,} labels that it trusts"


def monitor_of(given: Monitor | Say | None) -> Monitor:
    """None reports nothing; a function receives lines."""
    if given is None:
        return Monitor()
    return given if isinstance(given, Monitor) else Lines(given)


def seconds_left(record: Mapping[str, Any], lengths: Sequence[tuple[int, float]], place: int, done: int) -> float:
    """Estimated time of all further epochs.

    Args:
        record: The last epoch of run number `place`.
        lengths: For each run its epochs, and the cost of one of them relative to the others.
        place: Number of the current run.
        done: Epochs of that run so far.
    """
    one = (record["seconds"] - record.get("warmup_seconds", 0.0)) / lengths[place][1]
    epochs, cost = lengths[place]
    rest = (epochs - done) * cost + sum(epochs * cost for epochs, cost in lengths[place + 1 :])
    return float(one * rest)


def reporting_time_left(count: Count, say: Say, what: str, clock: Callable[[], float] = time.perf_counter) -> Count:
    """The same counter, which also reports once how long the rest will take, after MIN_TIMED_SECONDS. The first call only
    starts the clock: what it counts may have been done long before."""
    start: tuple[float, int] | None = None
    reported = False

    def counted(done: int, total: int) -> None:
        nonlocal start, reported
        count(done, total)
        now = clock()
        start = start or (now, done)
        passed, new = now - start[0], done - start[1]
        if not reported and new and passed >= MIN_TIMED_SECONDS:
            reported = True
            left = passed / new * (total - done)
            if left >= MIN_REPORTED_SECONDS:
                say(f"{what}: about {duration(left)} left.")

    return counted
