"""`pals encoders`: list the pretrained encoders."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from pals.cli.base import Plugin, app, console, say

if TYPE_CHECKING:
    from pals.vision.pretrained import KnownEncoder

WEIGHT_STATES = {"here": ("ready", "green"), "missing": ("missing", "yellow"), "damaged": ("damaged", "red")}
"""Text and colour for the state of a file of weights."""


@app.command()
def encoders(as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False, plugin: Plugin = None) -> None:
    """List the image encoders: input size, licence, and how to install missing weights.

    Example:  pals encoders
    """
    from pals.vision.pretrained import ENCODERS

    facts = [_facts(known) for known in ENCODERS.values()]
    if as_json:
        typer.echo(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("encoder", "input", "features", "weights", "licence", "trained on"):
        table.add_column(heading, no_wrap=heading != "trained on")
    for fact in facts:
        table.add_row(*_row(fact))
    console.print(table, highlight=False)
    for fact in facts:
        if not fact["ready"]:
            say(fact["reason"])
    say(
        "Also: --encoder timm:NAME --weights FILE for any network of timm, --encoder FILE for the weights of an "
        "EfficientNet-Lite or a torchvision ResNet, and your own with --plugin. How to choose one: docs/encoders.md."
    )


def _facts(known: KnownEncoder) -> dict[str, Any]:
    from pals.vision.pretrained import availability

    found = availability(known)
    return {
        "name": known.name,
        "megabytes": known.megabytes,
        "input": known.size,
        "features": known.features,
        "needed": bool(known.file),
        "ready": found.ready,
        "state": found.state,
        "reason": found.reason,
        "install": known.install,
        "licence": known.licence,
        "sha256": known.sha256 or None,
        "about": known.about,
    }


def _row(fact: dict[str, Any]) -> list[str]:
    state, colour = WEIGHT_STATES[fact["state"]]
    size = f", {fact['megabytes']} MB" if fact["megabytes"] else ""
    return [
        escape(fact["name"]),
        f"{fact['input']} px" if fact["input"] else "any",
        f"{fact['features']:,}",
        f"[{colour}]{state}[/]{size}" if fact["needed"] else "none needed",
        escape(fact["licence"]),
        escape(fact["about"]),
    ]
