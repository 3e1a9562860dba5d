"""How long is left: the first real steps are timed, and the time is said then."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Count = Callable[[int, int], None]  # how many are done, of how many
Say = Callable[[str], None]

WORTH_SAYING = 5.0  # seconds; nobody needs to be told of a shorter wait
TIMED = 2.0  # seconds of a pass over all items after which the rest is estimated


def in_words(seconds: float) -> str:
    """ "40 s", "3 minutes", "2.5 hours"."""
    if seconds < 119.5:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7170 else f"{seconds / 3600:.1f} hours"


def seconds_left(record: Mapping[str, Any], lengths: Sequence[tuple[int, float]], place: int, done: int) -> float:
    """After `done` epochs of run number `place`, of which `record` is the last: what all further epochs will take.
    `lengths` has, for each run, its epochs and what one of them costs in comparison."""
    one = (record["seconds"] - record.get("warmup_seconds", 0.0)) / lengths[place][1]
    epochs, cost = lengths[place]
    rest = (epochs - done) * cost + sum(epochs * cost for epochs, cost in lengths[place + 1 :])
    return float(one * rest)


def said_once(count: Count, say: Say, what: str, clock: Callable[[], float] = time.perf_counter) -> Count:
    """The same counter; once, after the first two seconds, it also says how long the rest will take."""
    started, said = clock(), False

    def counted(done: int, total: int) -> None:
        nonlocal said
        count(done, total)
        passed = clock() - started
        if not said and done and passed >= TIMED:
            said = True
            left = passed / done * (total - done)
            if left >= WORTH_SAYING:
                say(f"{what}: about {in_words(left)} left.")

    return counted
