"""Numbers in sentences."""

from __future__ import annotations


def how_many(count: int, thing: str, things: str | None = None) -> str:
    """ "1 tie", "1,200 ties", "no ties"."""
    things = things or f"{thing}s"
    return f"1 {thing}" if count == 1 else f"{count:,} {things}" if count else f"no {things}"
