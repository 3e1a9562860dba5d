"""Command-line options from a class of options: a command names the class, Typer sees one option per field."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any

import typer

from pals.cli import completion
from pals.util.option import Option, options_of


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a command that is annotated with a class of options (`pals.util.option`) by its fields.

    Args:
        command: A function such as `train(options: TrainOptions, out: Out = None)`.

    Returns:
        The function that Typer registers: it builds the options from the command line and calls `command`.
    """
    classes: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation):
            classes[parameter.name] = parameter.annotation
            parameters += _parameters(parameter.annotation)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def call(**values: Any) -> None:
        objects = {name: cls(**{one.name: values.pop(one.name) for one in fields(cls)}) for name, cls in classes.items()}
        command(**objects, **values)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _parameters(cls: type[Any]) -> Iterator[inspect.Parameter]:
    defaults = {field.name: inspect.Parameter.empty if field.default is MISSING else field.default for field in fields(cls)}
    for name, kind, option in options_of(cls):
        annotation: Any = Annotated[kind, _typer_info(name, kind, defaults[name], option)]
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=annotation)


def _typer_info(name: str, kind: Any, default: Any, option: Option) -> Any:
    """A switch that is off by default has no --no-x; one that is on, or chosen for the user, has."""
    common: dict[str, Any] = {"help": option.help, "min": option.min, "max": option.max, "metavar": option.metavar}
    common["rich_help_panel"] = option.panel
    if option.complete:
        common["autocompletion"] = getattr(completion, option.complete)
    if option.argument:
        return typer.Argument(**common)
    word = name.strip("_").replace("_", "-")
    switch = kind in (bool, bool | None) and default is not False
    return typer.Option(*(option.flag or (f"--{word}/--no-{word}" if switch else f"--{word}")).split(), **common)
