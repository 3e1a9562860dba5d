"""Names of version 0.2 in the files of a run, replaced by the current names when they are read."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

OLD_NAMES = {"worker": "annotator"}
"""Columns of tables and keys of report.json: name in version 0.2, name now."""


class OldRunWarning(UserWarning):
    """A file of a run of version 0.2 is read."""


def current_names(path: Path, names: Iterable[str]) -> list[str]:
    """The current names of the columns of a run's table."""
    names = list(names)
    old = [name for name in names if name in OLD_NAMES and OLD_NAMES[name] not in names]
    for name in old:
        _warn(path, name)
    return [OLD_NAMES[name] if name in old else name for name in names]


def with_current_keys(path: Path, data: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object of a run with the current names of its keys, on every level."""
    used: set[str] = set()

    def renamed(value: Any) -> Any:
        if isinstance(value, Mapping):
            used.update(OLD_NAMES.keys() & value.keys())
            return {OLD_NAMES.get(key, key): renamed(entry) for key, entry in value.items()}
        return [renamed(entry) for entry in value] if isinstance(value, list) else value

    found: dict[str, Any] = renamed(data)
    for name in sorted(used):
        _warn(path, name)
    return found


def _warn(path: Path, old: str) -> None:
    text = f"{path} was written by version 0.2: {old!r} in it is read as {OLD_NAMES[old]!r}."
    warnings.warn(text, OldRunWarning, stacklevel=3)
