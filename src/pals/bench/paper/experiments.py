"""All recipes by name, and how to choose among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from types import MappingProxyType

from pals.bench.paper import experiment_tables as tables
from pals.bench.paper.experiment import Recipe
from pals.bench.paper.published import Published
from pals.util.errors import InputError, unknown

__all__ = ["RECIPES", "TABLES", "Published", "Recipe", "find", "narrowed", "no_recipe", "select"]


def _all() -> Iterator[Recipe]:
    for make in (
        tables.table1, tables.table2, tables.table3, tables.table4, tables.table5, tables.table6, tables.table7,
        tables.figure2, tables.timing, tables.partial_check, tables.noisy_comparison,
    ):  # fmt: skip
        yield from make()


def _by_name(recipes: Iterable[Recipe]) -> Mapping[str, Recipe]:
    found: dict[str, Recipe] = {}
    for recipe in recipes:
        assert recipe.name not in found, recipe.name
        found[recipe.name] = recipe
    return MappingProxyType(found)


RECIPES: Mapping[str, Recipe] = _by_name(_all())
TABLES: tuple[str, ...] = tuple(dict.fromkeys(recipe.table for recipe in RECIPES.values()))
"""What `select` takes as table: "1" to "7", "figure2", "timing", "partial-check", "noisy-comparison"."""


def find(name: str) -> Recipe:
    if name not in RECIPES:
        raise no_recipe(name, RECIPES)
    return RECIPES[name]


def no_recipe(name: str, known: Iterable[str]) -> InputError:
    """Too many to name them all."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    hint = f": did you mean {near[0]!r}?" if near else "."
    return InputError(
        f"No recipe is called {name!r}{hint} `pals recipes` lists all; `pals bench` takes patterns too: '*/pals'."
    )


def select(
    table: str | int | None = None, methods: Sequence[str] | None = None, cells: Sequence[str] | None = None
) -> list[Recipe]:
    """The recipes of a table, of these methods (as printed or as registered: "PALS", "alim-scale") and cells (patterns such as
    "cifar10-*", for the folder or the printed column), in the order of the paper. Case does not matter."""
    if table is not None and str(table) not in TABLES:
        raise unknown("table", table, TABLES)
    return narrowed([recipe for recipe in RECIPES.values() if table is None or recipe.table == str(table)], methods, cells)


def narrowed(
    recipes: Iterable[Recipe], methods: Sequence[str] | None = None, cells: Sequence[str] | None = None
) -> list[Recipe]:
    """Those of the recipes that are of these methods and cells."""
    found = list(recipes)
    for method in methods or ():
        if method.lower() not in {name for recipe in found for name in _names(recipe)}:
            raise unknown("method", method, {recipe.row for recipe in found} | {recipe.method for recipe in found})
    if methods:
        wanted = {method.lower() for method in methods}
        found = [recipe for recipe in found if wanted & _names(recipe)]
    for pattern in cells or ():
        if not any(_is_of(recipe, pattern) for recipe in found):
            known = ", ".join(dict.fromkeys(recipe.cell for recipe in found))
            raise InputError(f"No cell is called {pattern!r}. These are there: {known}.")
    if cells:
        found = [recipe for recipe in found if any(_is_of(recipe, pattern) for pattern in cells)]
    return found


def _names(recipe: Recipe) -> set[str]:
    return {recipe.row.lower(), recipe.method}


def _is_of(recipe: Recipe, pattern: str) -> bool:
    return any(fnmatchcase(name.lower(), pattern.lower()) for name in (recipe.cell, recipe.column))
