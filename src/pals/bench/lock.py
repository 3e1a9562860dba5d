"""Who is working on a run folder: a small file beside it, so that several commands and machines can share one set of runs."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pals.util.files import write_json
from pals.util.lock import locked

BEAT = 30.0  # seconds between signs of life
STALE = 600.0  # without a sign for so long, a process on another machine is taken to be gone
SETTLE = 2.0  # seconds after which, where the file system knows no locks, everybody sees who came last


class BusyError(Exception):
    """Somebody else is at work there; the message says who."""


def lock_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")  # not inside: a folder is the run's only once it has settings


@contextmanager
def working_on(folder: Path, base: Path) -> Iterator[None]:
    """Nobody else may work on this folder meanwhile. `base` is what all processes share."""
    path = lock_file(folder)
    me = {"host": socket.gethostname(), "pid": os.getpid(), "born": _born(os.getpid())}
    with _one_at_a_time(base) as alone:
        owner = _read(path)
        if owner is not None and alive(owner, path):
            raise BusyError(_said(owner))
        write_json(path, me)
    if not alone:  # two may have found the folder free: the last to write has it
        time.sleep(SETTLE)
        owner = _read(path)
        if owner is not None and owner != me:
            raise BusyError(_said(owner))
    ended = threading.Event()
    beat = threading.Thread(target=_show_life, args=(path, ended), daemon=True)
    beat.start()
    try:
        yield
    finally:
        ended.set()
        beat.join()
        with _one_at_a_time(base):
            if _read(path) == me:
                path.unlink(missing_ok=True)


def alive(owner: Mapping[str, Any], path: Path) -> bool:
    """Whether the process that wrote a lock still runs; of another machine only its signs of life are known."""
    if owner["host"] != socket.gethostname() or sys.platform == "win32":  # where asking after a process would end it
        return time.time() - path.stat().st_mtime < STALE
    pid = int(owner["pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it is there, but not ours
    return bool(owner["born"] == _born(pid))  # its number may have gone to another


@contextmanager
def _one_at_a_time(base: Path) -> Iterator[bool]:
    """False where that cannot be promised."""
    base.mkdir(parents=True, exist_ok=True)
    with locked(base / ".lock") as alone:
        yield alone


def _said(owner: Mapping[str, Any]) -> str:
    return f"process {owner['pid']} on {owner['host']} is working on it"


def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and {"host", "pid", "born"} <= set(found) else None


def _born(pid: int) -> str | None:
    """When a process began, as far as the system tells: with its number this names it for good."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _show_life(path: Path, ended: threading.Event) -> None:
    while not ended.wait(BEAT):
        with contextlib.suppress(OSError):
            path.touch()
