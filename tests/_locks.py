"""Another process that holds the lock of a folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOLD = """
import sys, time
from pathlib import Path
from pals.util.locks import FolderLock
lock = FolderLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


@contextmanager
def held_by_another(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """It dies without a chance to clean up when this is left, or earlier if it is killed."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None and other.stdout.readline() == "held\n"
            yield other
        finally:
            other.kill()
