"""Tables of names: built-in entries, entry points of installed packages, and entries added by a program or a plug-in file.

Packages are loaded only for a name that is not built in, or to list all names, so most commands do not pay for them, and a
broken package affects only the commands that use it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, NamedTuple, TypeVar, cast

from pals.util.errors import InputError, unknown

T = TypeVar("T")

BUILT_IN = "PALS itself"
PROGRAM = "this program"
_origin: ContextVar[str] = ContextVar("_origin", default=PROGRAM)
TABLES: list[Registry[Any]] = []


class PluginWarning(UserWarning):
    """A plug-in of an installed package cannot be used."""


class Added(NamedTuple, Generic[T]):
    """An entry added by a program or a plug-in file."""

    value: T
    origin: str


class Registry(MutableMapping[str, T]):
    """A table that can be extended, `table["mine"] = Mine`, under a name that is not in use.

    Args:
        kind: What the entries are, for messages: "method".
        group: Group of the entry points.
        built_in: Built-in entries.
        check: Raises an InputError for a value that cannot be an entry; default none.

    >>> from pals.util.registry import Registry
    >>> colours = Registry("colour", "pals.colours", {"red": 1})
    >>> colours["green"] = 2
    >>> sorted(colours), colours["green"]
    (['green', 'red'], 2)
    """

    def __init__(
        self, kind: str, group: str, built_in: Mapping[str, T], check: Callable[[str, Any], None] = lambda name, value: None
    ) -> None:
        self.kind, self.group = kind, group
        self._built_in, self._check = dict(built_in), check
        self._added: dict[str, Added[T]] = {}
        self._loaded: dict[str, T] = {}
        self._broken: dict[str, str] = {}
        self._warned: set[str] = set()
        self._offers: dict[str, list[EntryPoint]] | None = None
        TABLES.append(self)

    def find(self, name: str) -> T:
        """The entry of this name; raises an InputError with the reason if there is none."""
        if name in self:
            return self[name]
        if name in self._broken:
            raise InputError(self._broken[name])
        raise InputError(f"{unknown(self.kind, name, self)} Load your own with --plugin FILE.py.")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._built_in or name in self._added or self._load(name))

    def __getitem__(self, name: str) -> T:
        if name in self._built_in:
            return self._built_in[name]
        if name in self._added:
            return self._added[name].value
        if self._load(name):
            return self._loaded[name]
        raise KeyError(name)

    def __setitem__(self, name: str, value: T) -> None:
        origin, owner = _origin.get(), self.owner(name)
        if owner is not None and not owner == origin == PROGRAM:  # a notebook cell may run twice
            raise InputError(f"Two {self.kind}s are called {name!r}: one from {owner}, one from {origin}. Rename one of them.")
        self._check(name, value)
        self._added[name] = Added(value, origin)

    def __delitem__(self, name: str) -> None:
        if name not in self._added:
            raise KeyError(name)
        del self._added[name]

    def __iter__(self) -> Iterator[str]:
        for name in self._packaged():
            if not self._load(name) and name not in self._warned:
                self._warned.add(name)
                warnings.warn(f"Skipped: {self._broken[name]}", PluginWarning, stacklevel=2)
        return iter([*self._built_in, *self._added, *self._loaded])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def owner(self, name: str) -> str | None:
        """The origin of the entry of this name, for messages."""
        if name in self._built_in:
            return BUILT_IN
        if name in self._added:
            return self._added[name].origin
        return _package_of(self._packaged()[name][0]) if name in self._packaged() else None

    def added_by(self, origin: str) -> list[str]:
        return [name for name, entry in self._added.items() if entry.origin == origin]

    def forget(self, origin: str) -> None:
        """Removes the entries of this origin."""
        for name in self.added_by(origin):
            del self._added[name]

    def forget_entry_points(self) -> None:
        """Reads the entry points of installed packages again at the next access."""
        self._offers, self._loaded, self._broken, self._warned = None, {}, {}, set()

    def _packaged(self) -> dict[str, list[EntryPoint]]:
        """Entry points of installed packages by name; lists, because two packages may use one name."""
        if self._offers is None:
            self._offers = {}
            unique = {(entry.name, entry.value, _package_of(entry)): entry for entry in entry_points(group=self.group)}
            for entry in sorted(unique.values(), key=_package_of):
                self._offers.setdefault(entry.name, []).append(entry)
        return self._offers

    def _load(self, name: str) -> bool:
        """Whether an installed package has this name; imports that package the first time."""
        if name in self._loaded or name in self._broken or name not in self._packaged():
            return name in self._loaded
        owners = [*([BUILT_IN] if name in self._built_in else []), *map(_package_of, self._packaged()[name])]
        try:
            if len(owners) > 1:
                who = ", ".join(f"one from {owner}" for owner in owners)
                raise InputError(f"Two {self.kind}s are called {name!r}: {who}. Uninstall one, or have it renamed.")
            with registering(owners[0]):
                value = self._packaged()[name][0].load()
            self._check(name, value)
            self._loaded[name] = cast(T, value)
        except InputError as error:
            self._broken[name] = str(error)
        except Exception as error:  # code of another package
            reason = f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
            self._broken[name] = (
                f"The {self.kind} {name!r} from {owners[0]} cannot be loaded ({reason}). Update or uninstall that package."
            )
        return name in self._loaded


def _package_of(entry: EntryPoint) -> str:
    return f"the package {entry.dist.name} {entry.dist.version}" if entry.dist is not None else f"the module {entry.module}"


@contextmanager
def registering(origin: str) -> Iterator[None]:
    """Entries added within the block are of this origin."""
    token = _origin.set(origin)
    try:
        yield
    finally:
        _origin.reset(token)
