"""Stopping without losing anything: asked once, a run ends after the epoch it is in; asked twice, at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self


class Stopped(KeyboardInterrupt):
    """By Ctrl-C, or by a polite request of the system (SIGTERM); `code` is what a shell calls that."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.code = 128 + number


class Interrupt:
    """Whether the user has asked to stop."""

    def __init__(self) -> None:
        self._asked = False
        self._number: int = signal.SIGINT

    @property
    def stopped(self) -> Stopped:
        """To be raised once all that was asked for is done."""
        return Stopped(self._number)

    def ask(self) -> None:
        self._asked = True

    @property
    def asked(self) -> bool:
        return self._asked

    def forget(self) -> None:
        """Nobody looks any more."""

    @contextmanager
    def on_signal(self, first: Callable[[], None]) -> Iterator[Self]:
        """Ctrl-C, or a polite request of the system, asks; `first` is told. The second raises `Stopped`."""

        def interrupted(number: int, frame: FrameType | None) -> None:
            if self.asked:
                raise Stopped(number)
            self._number = number
            self.ask()
            first()

        try:
            with _handled(interrupted, signal.SIGINT, signal.SIGTERM):
                yield self
        finally:
            self.forget()


@contextmanager
def ending_politely() -> Iterator[None]:
    """A request of the system to end raises `Stopped` as Ctrl-C raises KeyboardInterrupt: nothing stays half-written."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Stopped(number)

    with _handled(end, signal.SIGTERM):
        yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None], *numbers: int) -> Iterator[None]:
    """These signals come to `handler`; afterwards to whoever they came to before."""
    if threading.current_thread() is not threading.main_thread():  # signals come to the main thread alone
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)
