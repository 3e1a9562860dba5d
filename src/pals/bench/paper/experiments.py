"""All recipes by name, and how to choose among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from types import MappingProxyType

from pals.bench.paper import experiment_tables as tables
from pals.bench.paper.experiment import Recipe
from pals.bench.paper.published import Published
from pals.util.errors import InputError, unknown

__all__ = ["TABLES", "Published", "Recipe", "all_recipes", "find", "narrowed", "no_recipe", "select"]


_TABLES: Mapping[str, Callable[[], Iterator[Recipe]]] = {
    "1": tables.table1,
    "2": tables.table2,
    "3": tables.table3,
    "4": tables.table4,
    "5": tables.table5,
    "6": tables.table6,
    "7": tables.table7,
    "figure2": tables.figure2,
    "timing": tables.timing,
    "partial-check": tables.partial_check,
    "noisy-comparison": tables.noisy_comparison,
}
TABLES: tuple[str, ...] = tuple(_TABLES)
"""What `select` takes as table."""


@cache
def _recipes_of(table: str) -> tuple[Recipe, ...]:
    return tuple(_TABLES[table]())


@cache
def all_recipes() -> Mapping[str, Recipe]:
    """Every recipe by its name. They are made at the first call: the studies check the settings of many runs."""
    return MappingProxyType({recipe.name: recipe for table in TABLES for recipe in _recipes_of(table)})


def find(name: str) -> Recipe:
    if name not in all_recipes():
        raise no_recipe(name, all_recipes())
    return all_recipes()[name]


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
    return narrowed(all_recipes().values() if table is None else _recipes_of(str(table)), methods, cells)


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
