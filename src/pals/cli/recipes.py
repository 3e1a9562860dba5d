"""The command that lists the recipes of the paper's tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from pals.cli.base import app, console, say
from pals.util.errors import InputError
from pals.util.words import duration

if TYPE_CHECKING:
    from pals.bench.paper.experiments import Recipe

Which = Annotated[
    str | None, typer.Option("--table", help="Table: 1 to 7, figure2, timing, partial-check or noisy-comparison.")
]
Methods = Annotated[str | None, typer.Option(help="Methods, named as in the table or in `pals methods`, e.g. PALS,ALIM-Scale.")]
Cells = Annotated[str | None, typer.Option(help="Cells to include, with wildcards, e.g. 'cifar10-*,cifar100-q0.05-*'.")]


def words(text: str | None) -> list[str] | None:
    """A list with commas, as options have it."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


@app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(help="Show all settings of this recipe as YAML.")] = None,
    table: Which = None,
    methods: Methods = None,
    cells: Cells = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Show the recipe with this many epochs.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed in the settings shown.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the recipes that reproduce the numbers of the paper's tables.

    Example:  pals recipes --table 1 --methods PALS --cells 'cifar10-*'
    """
    from pals.bench.paper.experiments import find, select

    if name is not None:
        if table is not None or methods is not None or cells is not None:
            raise InputError("A name is one recipe; drop --table, --methods and --cells, or the name.")
        _show(find(name), seed, epochs, as_json)
        return
    found = select(table, words(methods), words(cells))
    if as_json:
        typer.echo(json.dumps([_facts(recipe, epochs) for recipe in found], indent=2, ensure_ascii=False))
    else:
        _list(found, epochs)


def _facts(recipe: Recipe, epochs: int | None) -> dict[str, Any]:
    from pals.bench.paper.cost import estimate

    seconds = estimate(recipe, epochs)
    return {
        "name": recipe.name,
        "table": recipe.table,
        "row": recipe.row,
        "column": recipe.column,
        "group": recipe.group,
        "method": recipe.method,
        "cell": recipe.cell,
        "variant": recipe.variant,
        "published": None if recipe.published is None else recipe.published._asdict(),
        "epochs": recipe.length(epochs),
        "about_gpu_hours": None if seconds is None else round(seconds / 3600, 2),
        "note": recipe.note,
    }


def _show(recipe: Recipe, seed: int, epochs: int | None, as_json: bool) -> None:
    from pals.bench.paper.cost import estimate
    from pals.util.config import to_yaml

    settings = recipe.config(seed, epochs).to_dict()
    if as_json:
        typer.echo(json.dumps({**_facts(recipe, epochs), "config": settings}, indent=2, ensure_ascii=False))
        return
    say(f"# {recipe.name}: {recipe.row}, {recipe.column}; published: {_published(recipe)}")
    say(f"# One run on one H200: about {duration(estimate(recipe, epochs))}")
    if recipe.note:
        say(f"# {recipe.note}")
    say(to_yaml(settings).rstrip())


def _list(found: list[Recipe], epochs: int | None) -> None:
    from pals.bench.paper.cost import estimate
    from pals.bench.paper.published import caption, numbers

    runs: dict[tuple[str, str, int], float] = {}  # recipes that are the same run are paid for once
    for table in dict.fromkeys(recipe.table for recipe in found):
        title = f"{_title(table)}: {caption(table)}" if caption(table) else _title(table)
        shown = Table(title=escape(title), title_justify="left", box=None, pad_edge=False)
        shown.add_column("recipe", no_wrap=True)
        shown.add_column("row", overflow="fold")
        for heading in ("published", "about"):
            shown.add_column(heading, justify="right", no_wrap=True)
        for recipe in (recipe for recipe in found if recipe.table == table):
            seconds = estimate(recipe, epochs)
            runs[recipe.cell, recipe.variant, recipe.length(epochs)] = seconds or 0.0
            shown.add_row(escape(recipe.name), escape(recipe.row), _published(recipe), duration(seconds))
        console.print(shown, highlight=False)
        console.print()
    total = duration(sum(runs.values()))
    say(f"{len(found)} recipes, {len(runs)} different runs. One seed of each on one H200: about {total}.")
    say(f"The published numbers are from {numbers()['source']['where']}. `pals recipes NAME` shows the settings of one.")


def _published(recipe: Recipe) -> str:
    """As printed: an accuracy, or seconds per epoch."""
    from pals.bench.paper.published import epoch_seconds

    seconds = epoch_seconds(recipe.row, recipe.column) if recipe.table == "timing" else None
    return str(recipe.published or "-") if seconds is None else f"{seconds:g} s"


def _title(table: str) -> str:
    return f"Table {table}" if table.isdigit() else {"figure2": "Figure 2", "timing": "Training time"}.get(table, table)
