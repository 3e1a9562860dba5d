"""Options that are declared once: the class, the command line made from it, and the settings that it gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from pals.cli import app
from pals.cli.expand_options import expand_options
from pals.runs.run_config import RunConfig
from pals.runs.train_options import TrainOptions
from pals.util.option import Option, given, options_of, settings_from


@dataclass(frozen=True)
class ExampleOptions:
    data: Annotated[str | None, Option("Data set.", key="data.name", argument=True)] = None
    epochs: Annotated[int | None, Option("Training epochs.", key="train.epochs", min=1)] = None
    quick: Annotated[bool, Option("Off unless given.")] = False
    mirror: Annotated[bool | None, Option("Chosen unless given.")] = None
    set_: Annotated[list[str] | None, Option("Any setting.")] = None


def run(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code, and what the command was called with."""
    called: dict[str, Any] = {}
    program = typer.Typer()

    @program.command()
    @expand_options
    def command(options: ExampleOptions, out: Annotated[Path | None, typer.Option(help="Folder.")] = None) -> None:
        called.update(options=options, out=out)

    return CliRunner().invoke(program, arguments).exit_code, called


def test_a_command_gets_the_options_as_one_object() -> None:
    code, called = run("digits", "--epochs", "3", "--no-mirror", "--set", "a=1", "--set", "b=2", "--out", "x")
    assert code == 0
    assert called == {
        "options": ExampleOptions("digits", 3, False, False, ["a=1", "b=2"]),
        "out": Path("x"),
    }
    assert run()[1] == {"options": ExampleOptions(), "out": None}


@pytest.mark.parametrize("arguments", [("--epochs", "0"), ("--no-quick",), ("--epochs", "many")])
def test_bounds_types_and_switches_are_checked(arguments: tuple[str, ...]) -> None:
    assert run(*arguments) == (2, {})


def test_settings_are_those_that_were_given_and_have_a_key() -> None:
    options = ExampleOptions("digits", 3, mirror=True)
    assert settings_from(options) == {"data": {"name": "digits"}, "train": {"epochs": 3}}
    assert given(options) == {"data": "digits", "epochs": 3, "quick": False, "mirror": True}
    assert settings_from(ExampleOptions()) == {}


def test_every_key_of_train_is_a_setting_of_a_run() -> None:
    values = RunConfig.of({}).to_dict()
    values["method"]["preset"] = "paper"
    keys = [option.key for _, _, option in options_of(TrainOptions) if option.key]
    assert [key for key in keys if key.partition(".")[2] not in values[key.partition(".")[0]]] == []


def test_train_shows_every_option_with_its_help() -> None:
    shown = " ".join(CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "300"}).output.split())
    for _, _, option in options_of(TrainOptions):
        assert option.help in shown
