"""Settings: frozen dataclasses checked by pydantic, read from YAML, changed by assignments `section.key=value`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import yaml

from pals.util.errors import InputError, unknown
from pals.util.words import quoted

if TYPE_CHECKING:
    from pydantic import ConfigDict
    from pydantic.fields import FieldInfo

STRICT: ConfigDict = {"extra": "forbid", "use_attribute_docstrings": True, "allow_inf_nan": False}
"""For `@dataclass(frozen=True, config=STRICT)` of pydantic: unknown keys, NaN and infinity are errors, the text under a field
describes it."""

SETTINGS_HINT = "Fix it, or restore it from a copy."
MAX_YAML_VALUES = 1_000_000  # in one file of settings

SEEDS = 2**32  # numpy's legacy generator takes no more

T = TypeVar("T")


def build(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Builds a settings object from plain values.

    Args:
        cls: The class of settings.
        values: Values by key; sections are mappings.
        where: Section that an error names before the key; default none.

    Raises:
        InputError: An unknown key, or a value of the wrong type or range; it names the key.
    """
    from pydantic import TypeAdapter, ValidationError  # only here: commands without settings start faster

    _refuse_unknown(cls, values, where)
    try:
        return TypeAdapter(cls).validate_python(dict(values))
    except ValidationError as error:
        first, *others = error.errors()
        if not first["loc"]:  # a rule between settings, with a message of its own
            raise InputError(first["msg"].removeprefix("Value error, ")) from None
        place = _place(first["loc"], values)
        kinds = [first, *(other for other in others if _place(other["loc"], values) == place)]  # of a union of types
        key, reason = ".".join([where, *map(str, place)]).strip("."), ", or: ".join(kind["msg"] for kind in kinds)
        raise InputError(f"Setting {key} = {quoted(first['input'])}: {reason}.") from None


def _place(location: tuple[int | str, ...], values: Any) -> tuple[int | str, ...]:
    """The keys of an error's location, without the name of the type that pydantic tried."""
    found: list[int | str] = []
    for part in location:
        if not (part in values if isinstance(values, Mapping) else isinstance(part, int)):
            break
        found.append(part)
        values = values[part]
    return tuple(found)


def _refuse_unknown(cls: type[Any], values: Mapping[str, Any], where: str) -> None:
    known = get_type_hints(cls)
    for key, value in values.items():
        if key not in known:
            raise unknown("setting", f"{where}.{key}".strip("."), [f"{where}.{name}".strip(".") for name in known])
        kind = known[key]
        if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, Mapping):
            _refuse_unknown(kind, value, f"{where}.{key}".strip("."))


def describe(config: type[Any]) -> Iterator[tuple[str, Any, str]]:
    """(name, default, meaning) of each setting in a class of settings; a required one has the default None."""
    levels: list[Mapping[str, FieldInfo]] = [vars(level).get("__pydantic_fields__", {}) for level in config.__mro__]
    for field in fields(config):
        found = [level[field.name] for level in levels if field.name in level]  # subclasses do not inherit a description
        default = None if found[0].is_required() else found[0].get_default(call_default_factory=True)
        meaning = next((info.description for info in found if info.description), "")
        yield field.name, default, " ".join(meaning.split())


def override(values: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """A copy of the values with each assignment `section.key=value` applied; the value is read as YAML."""
    result: dict[str, Any] = _copy(values)
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            raise InputError(f"Cannot read the setting {quoted(assignment)}; write section.key=value, such as train.lr=0.05.")
        place = result
        for key in keys[:-1]:
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                raise InputError(f"Setting {path!r}: {key!r} is a value, not a section.")
        place[keys[-1]] = _parse(text, f"the setting {quoted(assignment)}")
    return result


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """One mapping from several: later layers override earlier ones, and sections are merged key by key."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            both = isinstance(value, Mapping) and isinstance(result.get(key), dict)
            result[key] = merge(result[key], value) if both else _copy(value)
    return result


def read_yaml(path: Path) -> dict[str, Any]:
    """The settings in a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Cannot read the settings file {path}: {error}. {SETTINGS_HINT}") from None
    values = _parse(text, str(path), f" {SETTINGS_HINT}")
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InputError(f"{path} should hold sections such as `train:`; found {type(values).__name__}. {SETTINGS_HINT}")
    return values


def to_yaml(values: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)


def to_dict(settings: Any) -> dict[str, Any]:
    """Plain values, as YAML can hold them."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(settings).items()}


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every key whose value differs, as (dotted key, old, new)."""
    for key in [*old, *(k for k in new if k not in old)]:
        a, b = old.get(key), new.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from differences(a, b, f"{prefix}{key}.")
        elif a != b:
            yield f"{prefix}{key}", a, b


def _parse(text: str, where: str, hint: str = "") -> Any:
    try:
        value = yaml.safe_load(text)
    except RecursionError:
        raise InputError(f"Cannot read {where}: it is nested too deeply. Settings are at most sections of sections.") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        raise InputError(f"Cannot read {where}{line}: {reason}.{hint}") from None
    _check_size(value, where)
    if isinstance(value, str):  # YAML 1.1 reads 1e-3 as a string
        with suppress(ValueError):
            return float(value)
    return value


def _check_size(value: Any, where: str) -> None:
    """With references (`*name`), a few lines can expand to billions of values, or refer to themselves."""
    waiting, count = [value], 0
    while waiting:
        found = waiting.pop()
        inside = list(found.values()) if isinstance(found, dict) else found if isinstance(found, list) else []
        waiting += inside
        count += len(inside)
        if count > MAX_YAML_VALUES:
            raise InputError(f"Cannot read {where}: it stands for over {MAX_YAML_VALUES:,} values. Write them without `*`.")


def _copy(value: Any) -> Any:
    return {key: _copy(item) for key, item in value.items()} if isinstance(value, Mapping) else value
