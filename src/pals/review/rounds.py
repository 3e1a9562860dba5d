"""The rounds of a run: which is the last, and the process that makes the next. What it does is in `apply`."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pals.review.store import FILE_NAME, Round, Store
from pals.util.plugins import plugin_files

FOLDER = "reviewed"
"""In the run's folder: the runs that came of updates, and the answers that each took in."""
LINES = 200  # of an update's words that are kept for the page
State = Literal["idle", "running", "failed", "done"]


def has_answers(run: Path) -> bool:
    """Whether anybody has been at the page of this run."""
    return (run / FILE_NAME).is_file()


def base_of(run: Path) -> Path | None:
    """The run that was reviewed where this one came of; None of any other."""
    above = run.resolve().parent
    return above.parent if above.name == FOLDER and has_answers(above.parent) else None


def newest(run: Path, store: Store) -> tuple[Path, Round | None]:
    """The run to be shown: that of the last update that is still there, or the run itself."""
    for done in reversed(store.rounds()):
        if (run / FOLDER / done.folder / "summary.json").is_file():
            return run / FOLDER / done.folder, done
    return run, None


class Update:
    """The command as a process of its own, while people go on answering."""

    def __init__(self, run: Path, on_end: Callable[[], object]) -> None:
        self.run, self._on_end = run, on_end
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self.state: State = "idle"
        self.lines: deque[str] = deque(maxlen=LINES)

    def start(self) -> bool:
        """False if one is running already."""
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
        """When the server ends: an update that is under way leaves nothing behind that counts."""
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
