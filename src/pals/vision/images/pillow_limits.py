"""Pillow's settings and warnings belong to the whole program: changed only while needed, and put back."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from PIL import Image

LARGEST = 500_000_000  # pixels; an uncompressed picture of this size takes 2 GB
IN_FLIGHT = 2 << 30  # bytes of pictures that may be in the making at once
SMALL = 4 << 20  # pictures of fewer bytes are not counted


class Shared:
    """A change of something global that many threads need at once: the first one makes it, the last one takes it back."""

    def __init__(self, change: Callable[[], AbstractContextManager[None]]) -> None:
        self.change = change
        self.lock = threading.Lock()
        self.users = 0

    def __enter__(self) -> None:
        with self.lock:
            if not self.users:
                self.made = self.change()
                self.made.__enter__()
            self.users += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                self.made.__exit__(None, None, None)


@contextmanager
def _without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


@contextmanager
def _with_larger_pictures() -> Iterator[None]:
    before = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = ours = LARGEST if before is None else max(before, LARGEST)
    try:
        yield
    finally:
        if ours == Image.MAX_IMAGE_PIXELS:  # else someone has set it in the meantime, and that counts
            Image.MAX_IMAGE_PIXELS = before


quiet = Shared(_without_warnings)
"""Pillow warns of large pictures and odd metadata; what matters of it becomes a reason why a picture is bad."""

larger_pictures = Shared(_with_larger_pictures)
"""Pillow refuses pictures of more than 179 megapixels. Entered only for such a picture, so that for all others, and for
whoever else uses Pillow, the limit stays as it is."""


class Budget:
    """Bytes that decoding threads share. A picture that needs more than all of them is decoded alone."""

    def __init__(self, limit: int = IN_FLIGHT, small: int = SMALL) -> None:
        self.limit, self.small = limit, small
        self.used = 0
        self.freed = threading.Condition()

    def spend(self, cost: int) -> AbstractContextManager[None]:
        return self._spend(cost) if cost > self.small else nullcontext()

    @contextmanager
    def _spend(self, cost: int) -> Iterator[None]:
        with self.freed:
            self.freed.wait_for(lambda: not self.used or self.used + cost <= self.limit)
            self.used += cost
        try:
            yield
        finally:
            with self.freed:
                self.used -= cost
                self.freed.notify_all()
