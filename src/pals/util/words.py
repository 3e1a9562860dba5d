"""Numbers, names and values of files, as parts of sentences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from itertools import islice
from reprlib import Repr
from typing import Any


def how_many(count: int, thing: str, things: str | None = None) -> str:
    """ "1 tie", "1,200 ties", "no ties"."""
    things = things or f"{thing}s"
    return f"1 {thing}" if count == 1 else f"{count:,} {things}" if count else f"no {things}"


def duration(seconds: float | None, *, exact: bool = False) -> str:
    """ "46 s", "13 min", "2.5 h", "unknown"; if `exact`, also "13 min 14 s" and "2 h 05 min"."""
    if seconds is None:
        return "unknown"
    if exact:
        minutes, rest = divmod(round(seconds), 60)
        if minutes < 1:
            return f"{rest} s"
        return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
    if seconds < 119.5:
        return f"{max(1, round(seconds))} s"
    hours = seconds / 3600
    return f"{seconds / 60:.0f} min" if seconds < 7170 else f"{hours:.1f} h" if hours < 9.95 else f"{hours:.0f} h"


def percent(share: float, width: float) -> str:
    """A share in percent, with as many digits as are known: one decimal if its 95% interval is narrower than ten points.

    Args:
        share: From 0 to 1.
        width: Width of its 95% interval, from 0 to 1.

    >>> percent(0.849, 0.04), percent(0.849, 0.2)
    ('84.9%', '85%')
    """
    return f"{100 * share:.{1 if width < 0.1 else 0}f}%"


def pip_install(extra: str) -> str:
    """The command that installs an extra of this package, quoted because brackets are a pattern in some shells."""
    return f"pip install 'pals-learn[{extra}]'"


def one_line(text: str) -> str:
    """The text without the line breaks that names from a file may hold."""
    return " ".join(text.splitlines())


def in_short(reason: object, longest: int = 120) -> str:
    """A library's message, or a name from a damaged file, on one line and truncated."""
    return " ".join(str(reason)[: 100 * longest].split()).rstrip(".")[:longest]


def quoted(value: object, longest: int = 60) -> str:
    """The value as Python writes it, shortened in the middle."""
    brief = Repr()
    brief.maxlevel = brief.maxlist = brief.maxdict = 2
    brief.maxstring = brief.maxlong = brief.maxother = longest
    return brief.repr(value)


def in_brief(thing: Any) -> str:
    """The `repr` of a dataclass with each field shortened, as some have a name for every item."""
    return (
        f"{type(thing).__name__}({', '.join(f'{field.name}={quoted(getattr(thing, field.name))}' for field in fields(thing))})"
    )


def listed(names: Iterable[object], most: int = 8) -> str:
    """The first few names, quoted: "'a', 'b', ..."; "none" if there are none."""
    first = list(islice(names, most + 1))
    shown = [quoted(name, 24) for name in first[:most]]
    return ", ".join(shown + ["..."] * (len(first) > most)) or "none"
