"""Stopping without losing anything: asked once, a run ends after the epoch it is in; asked twice, at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self


class Interrupt:
    """Whether the user has asked to stop."""

    def __init__(self) -> None:
        self._asked = False

    def ask(self) -> None:
        self._asked = True

    @property
    def asked(self) -> bool:
        return self._asked

    def forget(self) -> None:
        """Nobody looks any more."""

    @contextmanager
    def on_signal(self, first: Callable[[], None]) -> Iterator[Self]:
        """Ctrl-C, or a polite request of the system, asks; `first` is told. The second raises KeyboardInterrupt."""

        def interrupted(number: int, frame: FrameType | None) -> None:
            if self.asked:
                raise KeyboardInterrupt
            self.ask()
            first()

        if threading.current_thread() is not threading.main_thread():  # signals come to the main thread alone
            yield self
            return
        before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self.forget()
