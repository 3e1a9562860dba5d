"""The review page opened from Python, for notebooks: the server runs in a process of its own until it is closed."""

from __future__ import annotations

import atexit
import os
import re
import subprocess
import sys
from html import escape
from pathlib import Path
from types import TracebackType
from typing import Any

from pals.pipeline.finished_run import run_folder
from pals.runs.rounds import run_of
from pals.util.errors import InputError

ADDRESS = re.compile(r"http://\S+/")
SECONDS_TO_END = 10
"""Seconds that the server has to finish what it writes before it is killed."""


class ReviewPage:
    """A review page that is open: `address` in a browser, `close()` to stop the server. It ends with the program.

    Args:
        run: The run's folder.
        server: The process.
        address: Where the page is, with its token.
    """

    def __init__(self, run: Path, server: subprocess.Popen[str], address: str) -> None:
        self.run, self.address, self._server = run, address, server
        atexit.register(self.close)

    def close(self) -> None:
        """Stop the server; every answer is saved."""
        atexit.unregister(self.close)
        self._server.terminate()
        try:
            self._server.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        for stream in (self._server.stdout, self._server.stderr):
            if stream is not None:
                stream.close()

    def __enter__(self) -> ReviewPage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Review of {self.run} at {self.address}"

    def _repr_html_(self) -> str:
        return f'<p>Review of {escape(str(self.run))}: <a href="{escape(self.address)}" target="_blank">open the page</a></p>'


def open_page(run: Any, *, name: str = "", port: int = 0, browser: bool = True) -> ReviewPage:
    """Open the review page of a run, like the command `pals review`.

    Args:
        run: Folder of a finished run, or the findings of `fit` or `update`.
        name: Your name as annotator; default: the page asks.
        port: Port to listen on; 0 picks a free one.
        browser: Whether to open the page in a browser.

    Returns:
        The page: its `address`, and `close()`.

    Raises:
        InputError: The run is not finished, or the server cannot start.
    """
    folder = run_folder(run)
    folder = run_of(folder) or folder
    words = [sys.executable, "-m", "pals", "review", str(folder), "--port", str(port), f"--name={name}"]
    server = subprocess.Popen(
        [*words, "--browser" if browser else "--no-browser"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "10000", "PYTHONUNBUFFERED": "1"},
    )
    assert server.stdout is not None
    for line in server.stdout:
        if found := ADDRESS.search(line):
            return ReviewPage(folder, server, found[0])
    reason = " ".join(server.communicate()[1].split()).removeprefix("Error: ")
    raise InputError(reason or f"The review of {folder} did not start.")
