"""What a run's folder says of itself (`run.json`), which needs no library for learning to be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pals.util.errors import InputError
from pals.util.files import read_object

FORMAT = 1
"""Of run folders, in `run.json`. Settings that are added do not change it."""


def read_about(folder: Path) -> dict[str, Any]:
    """What `run.json` says of a run; nothing where there is no such file."""
    path = folder / "run.json"
    return read_object(path) if path.exists() else {}


def refuse_strange(folder: Path) -> None:
    """A folder that is none of a run, or of a format that is not known here. (One of an early version has no number.)"""
    if not (folder / "config.yaml").exists():
        raise InputError(
            f"{folder} is not a run folder: it has no config.yaml. Give the folder that `pals train` or `pals fit` wrote "
            "(their --out)."
        )
    found = read_about(folder).get("format", FORMAT)
    if not isinstance(found, int) or found > FORMAT:
        raise InputError(
            f"{folder} was written by a newer PALS (format {found!r}; this one reads up to {FORMAT}). Install that version: "
            f"pip install -U pals-learn."
        )
