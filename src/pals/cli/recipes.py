"""`pals recipes`: list the recipes of the paper's tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from pals.cli.base import app, console, say
from pals.util.errors import InputError

if TYPE_CHECKING:
    from pals.bench.paper.experiments import Experiment

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
        typer.echo(json.dumps([_facts(experiment, epochs) for experiment in found], indent=2, ensure_ascii=False))
    else:
        _list(found, epochs)


def _facts(experiment: Experiment, epochs: int | None) -> dict[str, Any]:
    keys = ("name", "table", "row", "column", "group", "method", "cell", "variant")
    published = None if experiment.published is None else experiment.published._asdict()
    own = {"published": published, "epochs": experiment.length(epochs), "note": experiment.note}
    return {**{key: getattr(experiment, key) for key in keys}, **own}


def _show(experiment: Experiment, seed: int, epochs: int | None, as_json: bool) -> None:
    from pals.util.config import to_yaml

    settings = experiment.config(seed, epochs).to_dict()
    if as_json:
        typer.echo(json.dumps({**_facts(experiment, epochs), "config": settings}, indent=2, ensure_ascii=False))
        return
    say(f"# {experiment.name}: {experiment.row}, {experiment.column}; published: {_published(experiment)}")
    if experiment.note:
        say(f"# {experiment.note}")
    say(to_yaml(settings).rstrip())


def _list(found: list[Experiment], epochs: int | None) -> None:
    from pals.bench.paper.published import caption, numbers

    for table in dict.fromkeys(experiment.table for experiment in found):
        title = f"{_title(table)}: {caption(table)}" if caption(table) else _title(table)
        shown = Table(title=escape(title), title_justify="left", box=None, pad_edge=False)
        shown.add_column("recipe", no_wrap=True)
        shown.add_column("row", overflow="fold")
        for heading in ("published", "epochs"):
            shown.add_column(heading, justify="right", no_wrap=True)
        for one in (one for one in found if one.table == table):
            shown.add_row(escape(one.name), escape(one.row), _published(one), f"{one.length(epochs):,}")
        console.print(shown, highlight=False)
        console.print()
    runs = len({(one.cell, one.variant, one.length(epochs)) for one in found})
    say(f"{len(found)} recipes, {runs} different runs for each seed.")
    say(f"The published numbers are from {numbers()['source']['where']}. `pals recipes NAME` shows the settings of one.")


def _published(experiment: Experiment) -> str:
    """As printed: an accuracy, or seconds per epoch."""
    from pals.bench.paper.published import epoch_seconds

    seconds = epoch_seconds(experiment.row, experiment.column) if experiment.table == "timing" else None
    return str(experiment.published or "-") if seconds is None else f"{seconds:g} s"


def _title(table: str) -> str:
    return f"Table {table}" if table.isdigit() else {"figure2": "Figure 2", "timing": "Training time"}.get(table, table)
