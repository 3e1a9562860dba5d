"""How much memory there is to work with."""

from __future__ import annotations

import math
import re
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CONTAINER = Path("/sys/fs/cgroup/memory.max")


def available_memory() -> float:
    """Bytes that can be used without pushing out other programs, and no more than a container may use at all; infinite where
    the system does not say (all but Linux)."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB", _text(MEMINFO), re.MULTILINE)
    free = math.inf if found is None else 1024.0 * int(found.group(1))
    limit = _text(CONTAINER).strip()  # or "max"
    return min(free, float(limit)) if limit.isdigit() else free


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
