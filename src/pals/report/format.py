"""From values as they stand in a file to words and numbers that a page can show: nothing missing, nothing that breaks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

MISSING = "–"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # file names that are not Unicode are read with these
_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")


def text(value: object) -> str:
    """A name or sentence; empty where there is none."""
    if value is None:
        return ""
    found = value if isinstance(value, str) else str(value)
    return found if found.isascii() else _LONE_SURROGATE.sub("\ufffd", found)


def number(value: object) -> float | None:
    """A finite number, or None. The tables are also read from CSV, where a number may be a text and a gap an empty one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def rows(value: object) -> list[Mapping[str, Any]]:
    """A list of objects; what is not an object is passed over."""
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def texts(value: object) -> list[str]:
    return [text(one) for one in value] if isinstance(value, list) else []


def percent(value: float | None) -> str:
    """With one decimal. Never 100.0% for what is less, nor 0.0% for what is more: nothing that was estimated is certain."""
    if value is None:
        return MISSING
    if 0 < value < 0.0005:
        return "<0.1%"
    if 0.9995 <= value < 1:
        return ">99.9%"
    return f"{round(100 * value, 1) + 0.0:.1f}%"  # no sign before a zero


def count(value: float | None) -> str:
    """5,000 for whole numbers, 12.5 for weights."""
    if value is None:
        return MISSING
    return f"{value:,.0f}" if abs(value - round(value)) < 0.05 else f"{value:,.1f}"


def isolated(name: str) -> str:
    """For use inside a sentence: a name written from right to left must not turn its surroundings round."""
    return name if name.isascii() else f"\u2068{name}\u2069"


def day(value: object) -> str:
    """`2026-11-15T10:00:00+00:00` as people write it; a text that is no date stays as it is."""
    written = text(value)
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        return written
    zone = ""
    if moment.tzinfo is not None:
        moment, zone = moment.astimezone(UTC), " UTC"
    return f"{moment.day} {_MONTHS[moment.month - 1]} {moment.year}, {moment:%H:%M}{zone}"


def pictures(value: object, wanted: Iterable[str]) -> dict[str, str]:
    """Of the pictures those that are wanted and really hold one: no address to fetch from ever reaches the page."""
    if not isinstance(value, Mapping):
        return {}
    known = {text(name): uri for name, uri in value.items()}
    return {
        name: known[name]
        for name in dict.fromkeys(wanted)
        if isinstance(known.get(name), str) and _PICTURE.fullmatch(known[name])
    }


_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
