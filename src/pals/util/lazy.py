"""Packages that import a module when one of its names is first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazily(package: str, names_of: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package that exports names of its modules.

    Args:
        package: Name of the package.
        names_of: Exported names by module.
    """
    home = {name: module for module, names in names_of.items() for name in names}

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home[name]}"), name)

    return load
