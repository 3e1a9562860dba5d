"""The command that lists the pretrained encoders."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from pals.cli.base import Plugin, app, console, say

if TYPE_CHECKING:
    from pals.vision.encoders import KnownEncoder


@app.command()
def encoders(as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False, plugin: Plugin = None) -> None:
    """List the encoders that features of pictures can come from: size, input, licence, and how to get those that are missing.

    Example:  pals encoders
    """
    from pals.vision.encoders import ENCODERS

    facts = [_facts(known) for known in ENCODERS.values()]
    if as_json:
        typer.echo(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("encoder", "input", "features", "weights", "licence", "learned from"):
        table.add_column(heading, no_wrap=heading != "learned from")
    for fact in facts:
        table.add_row(*_row(fact))
    console.print(table, highlight=False)
    for fact in facts:
        if not fact["ready"]:
            say(fact["reason"])
    say("Also: timm:NAME with a file of weights, or the file of an EfficientNet-Lite or a torchvision ResNet.")


def _facts(known: KnownEncoder) -> dict[str, Any]:
    from pals.vision.encoders import availability

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
    colour = {"here": "green", "damaged": "red"}.get(fact["state"], "yellow")
    size = f", {fact['megabytes']} MB" if fact["megabytes"] else ""
    return [
        escape(fact["name"]),
        f"{fact['input']} px" if fact["input"] else "any",
        f"{fact['features']:,}",
        f"[{colour}]{fact['state']}[/]{size}" if fact["needed"] else "none needed",
        escape(fact["licence"]),
        escape(fact["about"]),
    ]
