"""One process at a time, by `filelock`: the system takes a lock back from whoever is killed.

Locks of the system also hold between machines wherever the file system supports `flock` (NFS does). Where it does not, a run
folder is marked by a file that only one process can create, and the cache of pictures goes without.
"""

from __future__ import annotations

import inspect
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from pals.util.errors import InputError
from pals.util.files import write_json

POLL = 0.05  # seconds between two attempts
LOCK, MARKER, OWNER = ".lock", ".lock-marker", "lock.json"
"""In a folder: what the system locks, what takes its place where it cannot, and who holds it, for people to read."""


class BusyError(InputError):
    """Another process is at work there; `who` says which."""

    def __init__(self, folder: Path, who: str) -> None:
        super().__init__(f"{folder} is in use: {who}. Wait for it to end, or choose another --out.")
        self.who = who


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Wait until nobody else is in here with the same file. False if the place supports no locks (some network file systems)
    or may not be written to: then others may be at work."""
    lock = _take(FileLock, path, timeout=-1)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            lock.release()


class FolderLock:
    """Held by the process that works on a folder; a second one is told at once by whom. May be entered again once left. Work
    that fails before it has written anything leaves no trace of the lock, nor of a folder that was made for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: BaseFileLock | None = None
        self._made: list[Path] = []
        self._before = frozenset[str]()

    def acquire(self) -> None:
        """Nothing is done where this very object holds it. A folder that cannot be written to is not locked: whatever is
        written to it next says so."""
        if self._lock is not None:
            return
        with suppress(OSError):
            self._made = [place for place in (self.folder, *self.folder.parents) if not place.exists()]
            self.folder.mkdir(parents=True, exist_ok=True)
        self._before = _names_in(self.folder)
        try:
            self._lock = _take(FileLock, self.folder / LOCK) or _take(SoftFileLock, self.folder / MARKER)
        except Timeout:
            raise BusyError(self.folder, self._holder()) from None
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        with suppress(InputError):  # only people read it
            write_json(self.folder / OWNER, {"host": socket.gethostname(), "pid": os.getpid(), "since": since})

    def release(self) -> None:
        """The file itself stays, so that whoever tries for it meanwhile finds the same one."""
        if self._lock is None:
            return
        with suppress(OSError):
            (self.folder / OWNER).unlink(missing_ok=True)
        self._lock.release()
        self._lock = None

    def _remove_traces(self) -> None:
        """Where nothing but the lock has come into the folder."""
        if self._lock is None or LOCK in self._before or _names_in(self.folder) - {LOCK, OWNER} != self._before:
            return
        with suppress(OSError):
            (self.folder / OWNER).unlink(missing_ok=True)
            (self.folder / LOCK).unlink(missing_ok=True)
            for place in self._made:
                place.rmdir()

    def __enter__(self) -> FolderLock:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is not None:
            self._remove_traces()
        self.release()

    def _holder(self) -> str:
        try:
            owner = json.loads((self.folder / OWNER).read_text(encoding="utf-8"))
            who = f"process {owner['pid']} on {owner['host']} has been working on it since {owner['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            who = "another process is working on it"
        marker = self.folder / MARKER
        return f"{who}; if it no longer runs, delete {marker}" if marker.exists() else who


def _names_in(folder: Path) -> frozenset[str]:
    try:
        return frozenset(path.name for path in folder.iterdir())
    except OSError:
        return frozenset()


def is_lock(path: Path) -> bool:
    """Whether a file is one of those that a lock leaves behind when its process is killed."""
    return path.name in (LOCK, MARKER, OWNER)


def _take(kind: type[BaseFileLock], path: Path, timeout: float = 0) -> BaseFileLock | None:
    """The lock, or None where this kind cannot be had; `Timeout` if another process holds it."""
    options: dict[str, Any] = {"thread_local": False}  # a generator may be closed by another thread
    if "fallback_to_soft" in inspect.signature(BaseFileLock.__init__).parameters:  # newer versions; the choice is made here
        options["fallback_to_soft"] = False
    lock = kind(path, **options)
    try:
        lock.acquire(timeout=timeout, poll_interval=POLL)
    except Timeout:
        raise
    except (OSError, NotImplementedError):
        return None
    return lock
