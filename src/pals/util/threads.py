"""Work that threads do ahead of whoever wants its results, in order, and never far ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

AHEAD = 2
"""Results that wait, or are in the making, while one is in use."""


def in_order(pool: Executor, work: Callable[[T], R], parts: Iterable[T], most: int) -> Iterator[R]:
    """`work` on each part by the pool; at most this many results are waiting, in the making, or about to be given. An error
    of the work is raised where its result would be given; what has not begun by then is dropped."""
    waiting: deque[Future[R]] = deque()
    try:
        for part in parts:
            waiting.append(pool.submit(work, part))
            if len(waiting) >= most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def read_ahead(read: Callable[[T], R], parts: Iterable[T], ahead: int = AHEAD) -> Iterator[R]:
    """`read` each part, in order, in one thread that is at most `ahead` parts ahead. The thread ends with the iterator."""
    with ThreadPoolExecutor(1, "pals-read") as pool:
        yield from in_order(pool, read, parts, ahead + 1)
