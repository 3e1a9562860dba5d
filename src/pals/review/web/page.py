"""HTML from the templates, with all data escaped, and the static files."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment

from pals.report.format import environment
from pals.util.words import how_many, percent

STATIC = {
    "base.css": "text/css",
    "review.css": "text/css",
    "common.js": "text/javascript",
    "item.js": "text/javascript",
    "grid.js": "text/javascript",
    "overview.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
HOMES = {"base.css": "pals.report"}
"""Where a file lies that is not of this page alone."""


def page(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**values)


@cache
def static_file(name: str) -> bytes:
    home = files(HOMES.get(name, "pals.review.web"))
    return home.joinpath("templates" if name in HOMES else "static", name).read_bytes()


def whole_percent(share: float) -> str:
    """Without decimals; no estimate is certain."""
    return "<1%" if 0 < share < 0.005 else ">99%" if 0.995 <= share < 1 else f"{100 * share:.0f}%"


def _estimate(found: tuple[float, float, float]) -> str:
    """A share with as many digits as its interval allows."""
    return percent(found[0], found[2] - found[1])


def _interval(found: tuple[float, float, float]) -> str:
    return " to ".join(percent(end, found[2] - found[1]) for end in found[1:])


@cache
def _environment() -> Environment:
    found = environment("pals.review.web")
    found.filters |= {"whole": whole_percent, "estimate": _estimate, "interval": _interval}
    found.globals |= {"how_many": how_many}
    return found
