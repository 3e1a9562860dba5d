"""Stopping a run without loss: at the first signal it ends after the current epoch, at the second at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self


class Stopped(KeyboardInterrupt):
    """Ended by SIGINT (Ctrl-C) or SIGTERM; `code` is the exit status, 128 + the number of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.code = 128 + number


class Interrupt:
    """A request to stop. Subclasses may pass it on to other processes."""

    def __init__(self) -> None:
        self._requested = False
        self._number: int = signal.SIGINT

    @property
    def stopped(self) -> Stopped:
        """The exception to raise once the work is saved."""
        return Stopped(self._number)

    def request(self) -> None:
        self._requested = True

    @property
    def requested(self) -> bool:
        return self._requested

    def clear(self) -> None:
        """Called when the work has ended."""

    @contextmanager
    def on_signal(self, first: Callable[[], None]) -> Iterator[Self]:
        """Within the block, the first SIGINT or SIGTERM requests a stop and calls `first`; the second raises `Stopped`."""

        def interrupted(number: int, frame: FrameType | None) -> None:
            if self.requested:
                raise Stopped(number)
            self._number = number
            self.request()
            first()

        try:
            with _handled(interrupted, signal.SIGINT, signal.SIGTERM):
                yield self
        finally:
            self.clear()


@contextmanager
def ending_politely() -> Iterator[None]:
    """Within the block, SIGTERM raises `Stopped`, as Ctrl-C raises KeyboardInterrupt, so that no file stays half-written."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Stopped(number)

    with _handled(end, signal.SIGTERM):
        yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None], *numbers: int) -> Iterator[None]:
    """These signals go to `handler` within the block, and to the handlers of before afterwards."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)
