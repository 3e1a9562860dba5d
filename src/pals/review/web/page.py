"""HTML from the templates, with all data escaped, and the static files."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment

from pals.report.format import environment
from pals.util.words import duration, how_many

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


@cache
def _environment() -> Environment:
    found = environment("pals.review.web")
    found.filters |= {"duration": duration}
    found.globals |= {"how_many": how_many}
    return found
