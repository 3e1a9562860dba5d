"""Numbers, names and what a file held, in sentences."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from reprlib import Repr


def how_many(count: int, thing: str, things: str | None = None) -> str:
    """ "1 tie", "1,200 ties", "no ties"."""
    things = things or f"{thing}s"
    return f"1 {thing}" if count == 1 else f"{count:,} {things}" if count else f"no {things}"


def quoted(value: object, longest: int = 60) -> str:
    """The value as Python writes it, cut in the middle where it is longer than a message can bear."""
    brief = Repr()
    brief.maxlevel = brief.maxlist = brief.maxdict = 2
    brief.maxstring = brief.maxlong = brief.maxother = longest
    return brief.repr(value)


def listed(names: Iterable[object], most: int = 8) -> str:
    """The first few names, quoted: "'a', 'b', ..."; "none" where there are none."""
    first = list(islice(names, most + 1))
    shown = [quoted(name, 24) for name in first[:most]]
    return ", ".join(shown + ["..."] * (len(first) > most)) or "none"
