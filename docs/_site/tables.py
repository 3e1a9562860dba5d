"""Tables of options and settings, made from the classes that hold them. A page asks for one with a comment:

    <!-- table: options proden -->

`tables` puts the table in its place: on the site every option has a row, and no page repeats the code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

import yaml
from reference import api_groups, page_name

import pals
from pals.data import dataset_loader
from pals.methods import METHODS, find_method, method_options
from pals.runs.published_settings import published_settings
from pals.runs.run_config import DataConfig, NetworkConfig, RunConfig, VotesConfig
from pals.training.engine import EngineConfig
from pals.training.optim import TrainConfig
from pals.util.config import describe

ASKED = re.compile(r"^<!-- table: (\w+)((?: [\w+-]+)*) -->$", flags=re.M)
SECTIONS: Mapping[str, type[Any]] = {
    "data": DataConfig,
    "fit": VotesConfig,
    "network": NetworkConfig,
    "train": TrainConfig,
    "engine": EngineConfig,
}


def tables(page: str) -> str:
    """The page with every table that it asks for."""
    return ASKED.sub(lambda found: KINDS[found[1]](*found[2].split()), page)


def options(method: str) -> str:
    """Every option of a method: its default, or its value in each preset, and what it means."""
    cls = find_method(method)
    presets = {f"`{name}`": method_options(method, {"preset": name}) for name in cls.PRESETS}
    presets = presets or {"default": method_options(method, {})}
    rows = [
        [f"`{name}`", *(_value(getattr(preset, name)) for preset in presets.values()), _meaning(cls.Config, name, text)]
        for name, _, text in describe(cls.Config)
    ]
    return _table(["option", *presets, "meaning"], rows)


def settings(method: str) -> str:
    """What a method is trained with, per data set, where that differs from the data set's recipe. Equal columns are one."""
    special = {data: methods[method] for data, methods in published_settings()["methods"].items() if method in methods}
    keys = _keys(special.values())
    columns: dict[tuple[str, ...], list[str]] = {}
    for data in special:
        actual = RunConfig.of({"data": {"name": data}, "method": {"name": method}}).to_dict()
        values = tuple(_value(actual[section][key]) for section, _, key in (name.partition(".") for name in keys))
        columns.setdefault(values, []).append(f"`{data}`")
    rows = [[f"`{key}`", *(values[number] for values in columns)] for number, key in enumerate(keys)]
    return _table(["setting", *(", ".join(names) for names in columns.values())], rows)


def section(*names: str) -> str:
    """Every key of these sections of the settings."""
    rows = [
        [f"`{'data' if name == 'fit' else name}.{key}`", _value(default), _meaning(SECTIONS[name], key, text)]
        for name in names
        for key, default, text in describe(SECTIONS[name])
    ]
    return _table(["key", "default", "meaning"], rows)


def recipes() -> str:
    """What each data set is trained with; a blank cell is the default."""
    found = published_settings()["data_sets"]
    rows = []
    for name in _keys(found.values()):
        part, _, key = name.partition(".")
        cells = (_value(recipe[part][key]) if key in recipe.get(part, {}) else "" for recipe in found.values())
        rows.append([f"`{name}`", *cells])
    return _table(["recipe", *(f"`{name}`" for name in found)], rows)


def dataset(name: str) -> str:
    """The options that a data set has of its own."""
    loader = dataset_loader(name, {})
    if loader is None:
        raise SystemExit(f"The data set {name} has no options.")
    kind = type(loader.config)
    rows = [[f"`data.{key}`", _value(default), _meaning(kind, key, text)] for key, default, text in describe(kind)]
    return _table(["option", "default", "meaning"], rows)


def methods() -> str:
    """One row per method, with its page."""
    rows = [[f"[`{name}`]({page_of(name)})", cls.kind, f"{cls.cost:g}", cls.reference] for name, cls in METHODS.items()]
    return _table(["method", "made for", "cost of a step", "reference"], rows)


def names(*wanted: str) -> str:
    """Names of the public API, each with the first sentence of its docstring."""
    group_of = {name: page_name(heading) for heading, names in api_groups().items() for name in names}
    rows = []
    for name in wanted:
        text = (inspect.getdoc(getattr(pals, name)) or "").split("\n\n")[0].replace("\n", " ")
        rows.append(
            [
                f"[`{name}`](../reference/python/{group_of[name]}.md#pals{name.lower()})",
                re.split(r"(?<=\.) (?=[A-Z`])", text)[0],
            ]
        )
    return _table(["name", "what it is"], rows)


KINDS: Mapping[str, Callable[..., str]] = {
    "options": options,
    "settings": settings,
    "section": section,
    "recipes": recipes,
    "dataset": dataset,
    "methods": methods,
    "names": names,
}


def page_of(method: str) -> str:
    """File name of a method's page; alim-scale and alim-onehot share one."""
    return {"pico+": "pico_plus", "alim-scale": "alim", "alim-onehot": "alim"}.get(method, method) + ".md"


def _keys(settings: Iterable[Mapping[str, Any]]) -> list[str]:
    """Every `section.key` that occurs, in the order of the classes."""
    return sorted({f"{part}.{key}" for values in settings for part in values for key in values[part]}, key=_order)


def _order(key: str) -> tuple[int, str]:
    part, _, name = key.partition(".")
    names = [field for field, _, _ in describe(SECTIONS[part])] if part in SECTIONS else []
    return ["data", "method", "network", "train"].index(part), f"{names.index(name):03}" if name in names else name


def _meaning(kind: type[Any], name: str, text: str) -> str:
    """With the values to choose from, where these are words."""
    if not text:
        raise SystemExit(f"{kind.__qualname__}.{name} has no text. Write one below it: the documentation is made from it.")
    words = [word for word in _words(get_type_hints(kind)[name]) if isinstance(word, str)]
    return f"{text} Values: {', '.join(f'`{word}`' for word in words)}." if words else text


def _words(hint: Any) -> Iterable[Any]:
    if get_origin(hint) is Literal:
        return get_args(hint)
    return [word for part in get_args(hint) for word in _words(part)]


def _value(value: Any) -> str:
    """As YAML and `--set` write it."""
    if isinstance(value, str):
        return value if yaml.safe_load(value) == value else f'"{value}"'
    if isinstance(value, float):
        return repr(value)
    return str(yaml.safe_dump(list(value) if isinstance(value, tuple) else value, default_flow_style=True)).split("\n")[0]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "&#124;") for cell in line) + " |" for line in lines)
