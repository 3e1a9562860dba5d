"""Asking processes on several machines to stop."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from pals.util.interrupt import Interrupt


class Stop(Interrupt):
    """A file in the folder that they share."""

    def __init__(self, base: Path) -> None:
        super().__init__()
        self.file = base.resolve() / f".stop-{os.getpid()}-{uuid.uuid4().hex[:8]}"

    def ask(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.touch()

    @property
    def asked(self) -> bool:
        return self.file.exists()

    def forget(self) -> None:
        self.file.unlink(missing_ok=True)
