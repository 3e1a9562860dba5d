"""Work by threads, a bounded number of results ahead, given in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

READ_AHEAD = 2
"""Results that are computed, or waiting, while one is in use."""


def in_order(pool: Executor, work: Callable[[T], R], parts: Iterable[T], most: int) -> Iterator[R]:
    """Results of `work` on each part, computed by the pool and given in the order of the parts.

    An error of the work is raised in place of its result; parts that have not begun by then are dropped.

    Args:
        pool: Threads or processes.
        work: Function of a part.
        parts: Read as far as needed.
        most: Most results that are computed, waiting, or about to be given.
    """
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


def read_ahead(read: Callable[[T], R], parts: Iterable[T], ahead: int = READ_AHEAD) -> Iterator[R]:
    """Results of `read` on each part, in order, from one thread at most `ahead` parts ahead. It ends with the iterator."""
    with ThreadPoolExecutor(1, "pals-read") as pool:
        yield from in_order(pool, read, parts, ahead + 1)
