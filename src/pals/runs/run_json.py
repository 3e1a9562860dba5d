"""Reading `run.json` and checking that a folder is a run's, without importing torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pals.util.errors import InputError
from pals.util.files import read_object

RUN_FORMAT = 1
"""Format of run folders, in `run.json`. New settings do not change it."""


def read_about(folder: Path) -> dict[str, Any]:
    """The content of `run.json`; empty where there is no such file."""
    path = folder / "run.json"
    return read_object(path) if path.exists() else {}


def refuse_strange(folder: Path) -> None:
    """Refuse a folder that is not a run's, or has a newer format. Folders of early versions have no number."""
    if not (folder / "config.yaml").exists():
        raise InputError(f"{folder} is not a run folder: it has no config.yaml. Give the --out of `pals train` or `pals fit`.")
    found = read_about(folder).get("format", RUN_FORMAT)
    if not isinstance(found, int) or found > RUN_FORMAT:
        raise InputError(
            f"{folder} was written by a newer PALS (format {found!r}; this one reads up to {RUN_FORMAT}). Install that "
            f"version: pip install -U pals-learn."
        )
