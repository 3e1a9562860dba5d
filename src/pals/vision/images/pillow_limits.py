"""Limits on memory while decoding, and global settings of Pillow that are changed only while needed."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from PIL import Image

MAX_PIXELS = 500_000_000  # pixels; an uncompressed image of this size takes 2 GB
MAX_DECODING_BYTES = 2 << 30  # of all images that are being decoded
MIN_COUNTED_BYTES = 4 << 20  # smaller images are not counted


class SharedContext:
    """A context manager that threads share: entered by the first of them, left by the last."""

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
def _with_larger_images() -> Iterator[None]:
    before = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = ours = MAX_PIXELS if before is None else max(before, MAX_PIXELS)
    try:
        yield
    finally:
        if ours == Image.MAX_IMAGE_PIXELS:  # else another caller has set it meanwhile
            Image.MAX_IMAGE_PIXELS = before


quiet = SharedContext(_without_warnings)
"""Suppresses Pillow's warnings of large images and odd metadata; errors become the reasons of bad images."""

larger_images = SharedContext(_with_larger_images)
"""Lifts Pillow's limit of 179 megapixels. Entered only for such an image, so that the limit stays for other uses of Pillow."""


class MemoryBudget:
    """Bytes that decoding threads share. An image that needs more than all of them is decoded alone."""

    def __init__(self, limit: int = MAX_DECODING_BYTES, small: int = MIN_COUNTED_BYTES) -> None:
        self.limit, self.small = limit, small
        self.used = 0
        self.freed = threading.Condition()

    def acquire(self, cost: int) -> AbstractContextManager[None]:
        return self._acquire(cost) if cost > self.small else nullcontext()

    @contextmanager
    def _acquire(self, cost: int) -> Iterator[None]:
        with self.freed:
            self.freed.wait_for(lambda: not self.used or self.used + cost <= self.limit)
            self.used += cost
        try:
            yield
        finally:
            with self.freed:
                self.used -= cost
                self.freed.notify_all()
