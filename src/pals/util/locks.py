"""Locks between processes, by `filelock`: the system releases the lock of a process that is killed.

They also work between machines if the file system supports `flock`, as NFS does. If not, a run folder is marked by a file that
only one process can create, and the cache of images is not locked.
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

LOCK_POLL_SECONDS = 0.05
LOCK, MARKER, OWNER = ".lock", ".lock-marker", "lock.json"
"""Files in a folder: the one that is locked, its replacement without `flock`, and a record of the owner for messages."""


class BusyError(InputError):
    """The folder is locked by another process, which `who` describes."""

    def __init__(self, folder: Path, who: str) -> None:
        super().__init__(f"{folder} is in use: {who}. Wait for it to end, or choose another --out.")
        self.who = who


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Waits for the lock on a file and holds it within the block.

    Yields False if there can be no lock (some network file systems, or a read-only folder), so other processes may be active.
    """
    lock = _take(FileLock, path, timeout=-1)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            lock.release()


class FolderLock:
    """The lock of the process that works on a folder; a second process gets a `BusyError` at once.

    It can be acquired again after its release. Work that fails before it has written anything leaves neither files of the lock
    nor a folder that was made for it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: BaseFileLock | None = None
        self._made: list[Path] = []
        self._before = frozenset[str]()

    def acquire(self) -> None:
        """Takes the lock, unless this object has it. A read-only folder is not locked: the first write to it raises."""
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
        with suppress(InputError):  # the record serves messages alone
            write_json(self.folder / OWNER, {"host": socket.gethostname(), "pid": os.getpid(), "since": since})

    def release(self) -> None:
        """Releases the lock. The locked file stays, so that all waiting processes lock the same one."""
        if self._lock is None:
            return
        with suppress(OSError):
            (self.folder / OWNER).unlink(missing_ok=True)
        self._lock.release()
        self._lock = None

    def __enter__(self) -> FolderLock:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        unchanged = LOCK not in self._before and _names_in(self.folder) - {LOCK, OWNER} == self._before
        if error is not None and self._lock is not None and unchanged:
            with suppress(OSError):
                (self.folder / OWNER).unlink(missing_ok=True)
                (self.folder / LOCK).unlink(missing_ok=True)
                for place in self._made:
                    place.rmdir()
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
    """Whether this is a file that the lock of a killed process leaves behind."""
    return path.name in (LOCK, MARKER, OWNER)


def _take(kind: type[BaseFileLock], path: Path, timeout: float = 0) -> BaseFileLock | None:
    """The lock, or None if this kind is not supported there. Raises `Timeout` if another process has it."""
    options: dict[str, Any] = {"thread_local": False}  # a generator may be closed by another thread
    if "fallback_to_soft" in inspect.signature(BaseFileLock.__init__).parameters:  # in newer versions; decided here
        options["fallback_to_soft"] = False
    lock = kind(path, **options)
    try:
        lock.acquire(timeout=timeout, poll_interval=LOCK_POLL_SECONDS)
    except Timeout:  # an OSError too
        raise
    except (OSError, NotImplementedError):
        return None
    return lock
