"""The user's own comparison, from a small file: base settings, rows (methods) and columns (data)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pals.bench.paper.experiments import Experiment
from pals.util.config import merge, read_yaml
from pals.util.errors import InputError, unknown

GRID_DEFAULTS = {"data": {"name": "digits"}, "method": {"name": "pals"}}
GRID_KEYS = ("title", "base", "rows", "columns")


def read_grid(path: Path) -> list[Experiment]:
    """The experiments of a grid file: one for each row in each column.

    Args:
        path: a YAML file with `rows` and `columns`, each a mapping from a name to settings, and perhaps `title` and `base`.
            Later settings win: base, column, row.

    Raises:
        InputError: if the file or a setting in it is wrong; it names row and column.
    """
    values = read_yaml(path)
    for key in values:
        if key not in GRID_KEYS:
            raise InputError(f"{path}: {unknown('key', key, GRID_KEYS)}")
    title = str(values.get("title") or path.stem)
    base = _section(path, "base", values.get("base") or {})
    rows, columns = (_named_sections(path, key, values.get(key)) for key in ("rows", "columns"))
    experiments = [
        Experiment(
            name=f"{slug(title)}/{slug(column)}/{slug(row)}",
            table="grid",
            row=row,
            column=column,
            group=title,
            cell=slug(column),
            variant=slug(row),
            values=merge(GRID_DEFAULTS, base, for_column, for_row),
        )
        for column, for_column in columns.items()
        for row, for_row in rows.items()
    ]
    for experiment in experiments:
        try:
            experiment.full  # noqa: B018  checked here, so that an error names the place in the file
        except InputError as error:
            raise InputError(f"{path}, row {experiment.row!r}, column {experiment.column!r}: {error}") from None
    return experiments


def slug(name: str) -> str:
    """A name as the name of a folder: other characters than letters, digits, dot, plus, minus and underscore become a minus.

    Args:
        name: any text.

    >>> slug("K = 10 (ours)")
    'k-10-ours'
    """
    return re.sub(r"[^\w.+-]+", "-", name.lower()).strip("-.") or "x"


def _named_sections(path: Path, key: str, found: Any) -> dict[str, Mapping[str, Any]]:
    if not isinstance(found, Mapping) or not found:
        raise InputError(f"{path}: `{key}` should name at least one, each with its settings; found {found!r}.")
    names = {str(name): _section(path, f"{key}.{name}", values or {}) for name, values in found.items()}
    folders: dict[str, str] = {}
    for name in names:
        other = folders.setdefault(slug(name), name)
        if other != name:
            raise InputError(f"{path}: {key} {other!r} and {name!r} would share the folder {slug(name)!r}. Rename one.")
    return names


def _section(path: Path, where: str, found: Any) -> Mapping[str, Any]:
    if not isinstance(found, Mapping):
        raise InputError(f"{path}: `{where}` should hold settings such as `method: {{name: pals}}`; found {found!r}.")
    return found
