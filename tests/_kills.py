"""Processes that are killed at a chosen point."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pals.training import run_log as runlog


def forked(work: Callable[[], Any]) -> int:
    """Do it in a process of its own, whose number is given: it is not waited for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of threads, of which there is one
        child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def in_a_child(work: Callable[[], Any], kill_after: float | None = None) -> bool:
    """Do it in a process of its own; whether that was killed."""
    child = forked(work)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """What a full disk is like: the system refuses to write on."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def dying_at(point: str, count: int, patch: pytest.MonkeyPatch) -> None:
    """Make this process kill itself the `count`-th time that it comes to a point."""
    left = itertools.count(1 - count)

    def now() -> bool:
        return next(left) == 0

    if point == "file written, not yet in place":
        patch.setattr(os, "fsync", lambda _: die() if now() else None)
    elif point == "file in place":
        replace = Path.replace
        patch.setattr(Path, "replace", lambda self, target: (replace(self, target), die() if now() else None)[0])
    else:
        append = runlog.RunLog.append

        def half(self: runlog.RunLog, event: str, **values: Any) -> None:
            append(self, event, **values)
            if now():
                if point == "half a line logged":
                    os.truncate(self.path, self.path.stat().st_size - 30)
                die()

        patch.setattr(runlog.RunLog, "append", half)


def started_processes(folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`python -m pals ...` in processes of their own in this folder, which do not outlive the fixture."""
    started: list[subprocess.Popen[str]] = []
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src"), "COLUMNS": "200"}
    environment["RAY_AUTH_MODE"] = "disabled"  # or it leaves a file in the home folder
    shared: Any = {"cwd": folder, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}

    def start(*arguments: str) -> subprocess.Popen[str]:
        started.append(subprocess.Popen([sys.executable, "-m", "pals", *arguments], **shared))
        return started[-1]

    yield start
    for one in started:
        with one:
            one.kill()


def until(happened: Callable[[], Any], running: subprocess.Popen[str] | None = None) -> None:
    patience = time.monotonic() + 240  # a busy machine takes its time
    while not happened():
        assert running is None or running.poll() is None, running.communicate()[0]
        assert time.monotonic() < patience
        time.sleep(0.01)
