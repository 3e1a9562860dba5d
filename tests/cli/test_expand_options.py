"""Options that are declared once: the class, the command line made from it, and the settings that it gives."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from pals.cli import app
from pals.cli.expand_options import expand_options
from pals.cli.options import FitOptions, UpdateOptions, run_settings
from pals.pipeline.fit_settings import FilesConfig
from pals.runs.run_config import DataConfig, EngineConfig, NetworkConfig, TrainConfig, VotesConfig
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


def test_a_command_gets_the_options_as_one_object_of_settings() -> None:
    code, called = run("digits", "--epochs", "3", "--no-mirror", "--set", "a=1", "--set", "b=2", "--out", "x")
    assert code == 0
    assert called == {
        "options": ExampleOptions("digits", 3, False, False, ["a=1", "b=2"]),
        "out": Path("x"),
    }
    assert run()[1] == {"options": ExampleOptions(), "out": None}
    options = ExampleOptions("digits", 3, mirror=True)
    assert settings_from(options) == {"data": {"name": "digits"}, "train": {"epochs": 3}}
    assert given(options) == {"data": "digits", "epochs": 3, "quick": False, "mirror": True}
    assert settings_from(ExampleOptions()) == {}
    options = FitOptions(item_column="photo", classes="newt, frog", trust=[], weights=Path("w.pt"), skip_bad=True, seed=3)
    assert run_settings(options) == {
        "data": {"columns": {"item": "photo"}, "class_names": ("newt", "frog"), "skip_bad": True},
        "network": {"weights": "w.pt"},
        "seed": 3,
    }
    assert run_settings(FitOptions()) == {"data": {}}


@pytest.mark.parametrize("arguments", [("--epochs", "0"), ("--no-quick",), ("--epochs", "many")])
def test_bounds_types_and_switches_are_checked(arguments: tuple[str, ...]) -> None:
    assert run(*arguments) == (2, {})


COMMANDS = {"train": TrainOptions, "fit": FitOptions, "update": UpdateOptions}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_key_is_a_setting_and_every_option_is_shown(name: str) -> None:
    known = {"data": VotesConfig, "network": NetworkConfig, "train": TrainConfig, "engine": EngineConfig, "files": FilesConfig}
    keys = {f"{section}.{field.name}" for section, config in known.items() for field in fields(config)}
    keys |= {"seed", *(f"method.{key}" for key in ("name", "preset")), *(f"data.{field.name}" for field in fields(DataConfig))}
    shown = " ".join(CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "300"}).output.split())
    for _, _, option in options_of(COMMANDS[name]):
        assert option.help in shown and (not option.key or option.key in keys)
