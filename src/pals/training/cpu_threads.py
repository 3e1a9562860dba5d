"""Several batches at a time on a CPU, each in a thread of its own that uses one core.

Inside one small convolution cores mostly wait for each other, and all of them for the one that other programs keep busy;
batches need not wait for anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from pals.util.threads import in_order

T = TypeVar("T")
R = TypeVar("R")


def lanes_on(device: torch.device) -> int:
    """How many batches are worked on at a time: on a CPU as many as torch may use cores."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def in_lanes(work: Callable[[T], R], parts: Iterable[T], lanes: int, *, ahead: int = 1) -> Iterator[R]:
    """`work` on each part, in order, on `lanes` of them at a time; `ahead` more are taken from `parts` and wait."""
    with _pool(lanes) as pool:
        yield from in_order(pool, work, parts, lanes + ahead)


@contextmanager
def _pool(lanes: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that use one core each. To say so in a thread also tells libraries that know no threads, hence the last line."""
    cores = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(lanes, "pals-lane", torch.set_num_threads, (1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(cores)
