"""Help texts read on their own: a phrase that says what an option is or does, not the rest of a sentence."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
import typer

from pals.cli import app

FRAGMENTS = ("Of ", "So many", "...", "As ", "Whose ", "Above ", "With a schedule")


def options(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    for param in command.params:
        if text := getattr(param, "help", None):
            yield f"{path} {param.opts[0]}", text
    for name, below in getattr(command, "commands", {}).items():
        yield from options(below, f"{path} {name}")


@pytest.mark.parametrize(("option", "text"), list(options(typer.main.get_command(app), "pals")))
def test_help_is_a_phrase_of_its_own(option: str, text: str) -> None:
    first = text.split("\n")[0]
    assert not first.startswith(FRAGMENTS)
    assert first.rstrip().endswith((".", "?", ")")), option
