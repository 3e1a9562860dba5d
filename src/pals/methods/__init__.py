"""Methods by name. To add one: a file in this folder and a line in this table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from pydantic.fields import FieldInfo

from pals.config import build
from pals.errors import unknown
from pals.methods.average import Average
from pals.methods.base import Batch, Context, Group, Method, Phase, Plan, Problem, Selection
from pals.methods.pals import PALS

__all__ = [
    "METHODS",
    "Batch",
    "Context",
    "Group",
    "Method",
    "Phase",
    "Plan",
    "Problem",
    "Selection",
    "find_method",
    "method_options",
]

METHODS: dict[str, type[Method]] = {
    "pals": PALS,
    "average": Average,
}


def find_method(name: str) -> type[Method]:
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def method_options(name: str, given: Mapping[str, Any]) -> Any:
    """The method's checked options: its defaults, then the named preset, then what was given."""
    cls = find_method(name)
    preset = str(given.get("preset", next(iter(cls.PRESETS), "")))
    if cls.PRESETS and preset not in cls.PRESETS:
        raise unknown(f"preset of {name}", preset, cls.PRESETS)
    return build(cls.Config, {**cls.PRESETS.get(preset, {}), **given}, "method")


def describe_options(method: type[Method]) -> Iterator[tuple[str, str, str]]:
    """(option, default, meaning) of each option, for people."""
    described: Mapping[str, FieldInfo] = getattr(method.Config, "__pydantic_fields__", {})
    for field in fields(method.Config):
        yield field.name, str(described[field.name].default), described[field.name].description or ""
