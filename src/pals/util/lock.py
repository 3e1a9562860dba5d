"""One process at a time: a lock that the system takes back from whoever is killed."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    def _try_to_lock(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_to_lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


TAKEN = {errno.EAGAIN, errno.EACCES, errno.EDEADLK, errno.EINTR}


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Wait until nobody else is in here with the same file. False if the place knows no locks (some network file systems)
    or may not be written to: then others may be at work."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:
        yield False
        return
    try:
        yield _wait_for(handle)
    finally:
        os.close(handle)  # which unlocks it


def _wait_for(handle: int) -> bool:
    while True:
        try:
            _try_to_lock(handle)
            return True
        except OSError as error:
            if error.errno not in TAKEN:
                return False
        time.sleep(0.05)
