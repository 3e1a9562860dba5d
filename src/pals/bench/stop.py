"""Stopping without losing anything: asked once, every run ends after the epoch it is in; asked twice, at once."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


class Stop:
    """A wish that processes on several machines can see: a file in the folder that they share."""

    def __init__(self, base: Path) -> None:
        self.file = base.resolve() / f".stop-{os.getpid()}-{uuid.uuid4().hex[:8]}"

    def ask(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.touch()

    @property
    def asked(self) -> bool:
        return self.file.exists()

    @contextmanager
    def on_interrupt(self, first: Callable[[], None]) -> Iterator[Stop]:
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
            self.file.unlink(missing_ok=True)
