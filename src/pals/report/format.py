"""Numbers and names as the HTML pages show them, and the template environment that both the report and the review use."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

REPORT_FORMAT = 1
DASH = "–"
"""Stands for a number that is not known."""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # in names of files that are not Unicode


def environment(package: str) -> Environment:
    """The templates of a package: names from data are escaped, and an unknown variable is an error."""
    found = Environment(
        loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    found.filters |= {"percent": percent, "count": count}
    return found


def valid_unicode(value: Any) -> Any:
    """The same plain value with lone surrogates, which UTF-8 cannot encode, replaced in all names and texts."""
    if isinstance(value, str):
        return value if value.isascii() else _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {valid_unicode(key): valid_unicode(inner) for key, inner in value.items()}
    return [valid_unicode(inner) for inner in value] if isinstance(value, list) else value


def percent(value: float | None) -> str:
    """With one decimal. A value below 1 is never written as 100.0%, nor one above 0 as 0.0%: no estimate is certain."""
    if value is None:
        return DASH
    if 0 < value < 0.0005:
        return "<0.1%"
    if 0.9995 <= value < 1:
        return ">99.9%"
    return f"{round(100 * value, 1) + 0.0:.1f}%"  # + 0.0: no minus sign before a zero


def count(value: float | None) -> str:
    """5,000 for whole numbers, 12.5 for weights."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if abs(value - round(value)) < 0.05 else f"{value:,.1f}"


def isolated(name: str) -> str:
    """A name inside a sentence, marked so that right-to-left script does not reorder the words around it."""
    return name if name.isascii() else f"\u2068{name}\u2069"


def day(value: str) -> str:
    """`2026-11-15T10:00:00+00:00` as "15 November 2026, 10:00 UTC"."""
    moment = datetime.fromisoformat(value).astimezone(UTC)
    return f"{moment.day} {moment:%B %Y, %H:%M} UTC"
