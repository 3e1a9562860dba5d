"""Options of a command, declared once: a dataclass for the command line, the Python API and the docs.

    @dataclass(frozen=True)
    class TrainOptions:
        epochs: Annotated[int | None, Option("Training epochs.", key="train.epochs")] = None

`pals.cli.expand_options` makes a command-line option of each field, `settings_from` gives those that are settings of a run.
These are plain dataclasses, because `pals --help` must not load pydantic; `util.config.build` can check their values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, get_type_hints


@dataclass(frozen=True)
class Option:
    """Metadata of one field, in its `Annotated` type.

    Args:
        help: One sentence for `--help`, the API and the docs.
        key: Dotted setting of a run that the option gives ("train.epochs"); empty for an option that is no setting.
        flag: Its name on the command line ("--deterministic"); default made from the field's name.
        min: Smallest allowed number.
        max: Largest allowed number.
        complete: Name of the function in `pals.cli.completion` that lists its values.
        argument: Whether it is a positional argument.
        metavar: Name of its value in `--help`.
        panel: Panel of `--help` that shows it; by default the first, with the everyday options.
    """

    help: str
    key: str = ""
    flag: str = ""
    min: float | None = None
    max: float | None = None
    complete: str = ""
    argument: bool = False
    metavar: str | None = None
    panel: str | None = None


def options_of(cls: type[Any]) -> Iterator[tuple[str, Any, Option]]:
    """(name, type, metadata) of each field of a class of options, in its order; fields without an `Option` are left out.

    >>> from typing import Annotated
    >>> @dataclass(frozen=True)
    ... class ExampleOptions:
    ...     epochs: Annotated[int, Option("Training epochs.", key="train.epochs")] = 60
    >>> [(name, kind, option.help) for name, kind, option in options_of(ExampleOptions)]
    [('epochs', <class 'int'>, 'Training epochs.')]
    """
    hints = get_type_hints(cls, include_extras=True)
    for field in fields(cls):
        for metadata in getattr(hints[field.name], "__metadata__", ()):
            if isinstance(metadata, Option):
                yield field.name, hints[field.name].__origin__, metadata


def given(options: Any) -> dict[str, Any]:
    """The values that are not None, by field."""
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    return {name: value for name, value in values.items() if value is not None}


def settings_from(options: Any) -> dict[str, Any]:
    """The options that were given and are settings of a run, as sections for `RunConfig.of`."""
    values, settings = given(options), dict[str, Any]()
    for name, _, option in options_of(type(options)):
        if option.key and name in values:
            section, _, key = option.key.rpartition(".")
            (settings.setdefault(section, {}) if section else settings)[key] = values[name]
    return settings
