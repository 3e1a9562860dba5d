"""How long is left: the first real steps are timed, and the time is said then."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pals.util.words import duration

Count = Callable[[int, int], None]  # how many are done, of how many
Say = Callable[[str], None]

WORTH_SAYING = 5.0  # seconds; nobody needs to be told of a shorter wait
TIMED = 2.0  # seconds of a pass over all items after which the rest is estimated


def seconds_left(record: Mapping[str, Any], lengths: Sequence[tuple[int, float]], place: int, done: int) -> float:
    """After `done` epochs of run number `place`, of which `record` is the last: what all further epochs will take.
    `lengths` has, for each run, its epochs and what one of them costs in comparison."""
    one = (record["seconds"] - record.get("warmup_seconds", 0.0)) / lengths[place][1]
    epochs, cost = lengths[place]
    rest = (epochs - done) * cost + sum(epochs * cost for epochs, cost in lengths[place + 1 :])
    return float(one * rest)


def said_once(count: Count, say: Say, what: str, clock: Callable[[], float] = time.perf_counter) -> Count:
    """The same counter; once, two seconds after the first call, it also says how long the rest will take. What is done by the
    first call may have been done long before, and says nothing of the pace."""
    start: tuple[float, int] | None = None
    said = False

    def counted(done: int, total: int) -> None:
        nonlocal start, said
        count(done, total)
        now = clock()
        start = start or (now, done)
        passed, new = now - start[0], done - start[1]
        if not said and new and passed >= TIMED:
            said = True
            left = passed / new * (total - done)
            if left >= WORTH_SAYING:
                say(f"{what}: about {duration(left)} left.")

    return counted
