"""The process that computes the next round of a run while its review goes on."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pals.util.plugins import plugin_files

MAX_UPDATE_LINES = 200  # of an update's words that are kept for the page
UpdateState = Literal["idle", "running", "failed", "done"]


class UpdateProcess:
    """`pals update RUN` as a process, while the review goes on."""

    def __init__(self, run: Path, on_end: Callable[[], object]) -> None:
        self.run, self._on_end = run, on_end
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self.state: UpdateState = "idle"
        self.lines: deque[str] = deque(maxlen=MAX_UPDATE_LINES)

    def start(self) -> bool:
        """Returns False if an update is running already."""
        with self._lock:
            if self.state == "running":
                return False
            self.lines.clear()
            self.state = "running"
            plugins = [word for file in plugin_files() for word in ("--plugin", str(file))]
            command = [sys.executable, "-m", "pals", "update", str(self.run), *plugins]
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, encoding="utf-8"
            )
            threading.Thread(target=self._follow, args=(self._process,), daemon=True).start()
            return True

    def stop(self) -> None:
        """Terminate a running update; an unfinished round is discarded by the next one."""
        with self._lock:
            process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            process.wait()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.lines.append(line.rstrip())
        failed = process.wait() != 0
        if not failed:
            self._on_end()
        self.state = "failed" if failed else "done"
