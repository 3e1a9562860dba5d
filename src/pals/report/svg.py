"""The one way in which drawings are written: every name and value is escaped, every number is short."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape


def tag(name: str, *inside: str, **attributes: str | float) -> Markup:
    """`tag("text", "cat", x=1.25, text_anchor="end")`; a trailing underscore keeps a name from being a Python word."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{_short(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{written}>{''.join(escape(part) for part in inside)}</{name}>")


def joined(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)


def _short(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else f"{round(value, 1):g}"
