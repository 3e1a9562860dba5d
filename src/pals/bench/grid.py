"""A comparison of one's own, from a small file: base settings, rows (methods) and columns (data)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pals.bench.paper.experiment import Recipe
from pals.util.config import merge, read_yaml
from pals.util.errors import InputError, unknown

UNLESS_SAID = {"data": {"name": "digits"}, "method": {"name": "pals"}}
KEYS = ("title", "base", "rows", "columns")


def read_grid(path: Path) -> list[Recipe]:
    """One recipe for each row in each column; later settings win: base, column, row."""
    values = read_yaml(path)
    for key in values:
        if key not in KEYS:
            raise InputError(f"{path}: {unknown('key', key, KEYS)}")
    title = str(values.get("title") or path.stem)
    base = _section(path, "base", values.get("base") or {})
    rows, columns = (_named_sections(path, key, values.get(key)) for key in ("rows", "columns"))
    recipes = [
        Recipe(
            name=f"{slug(title)}/{slug(column)}/{slug(row)}",
            table="grid",
            row=row,
            column=column,
            group=title,
            cell=slug(column),
            variant=slug(row),
            values=merge(UNLESS_SAID, base, for_column, for_row),
            published=None,
        )
        for column, for_column in columns.items()
        for row, for_row in rows.items()
    ]
    for recipe in recipes:
        _check(path, recipe)
    return recipes


def _check(path: Path, recipe: Recipe) -> None:
    """Wrong settings are known by their place in the file."""
    try:
        recipe.config(1)
    except InputError as error:
        raise InputError(f"{path}, row {recipe.row!r}, column {recipe.column!r}: {error}") from None


def slug(name: str) -> str:
    """As a folder: what is not a letter, digit, dot, plus, minus or underscore becomes a minus."""
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
