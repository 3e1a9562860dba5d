"""How templates become HTML, on every page: what comes from data is escaped, and a name that is not there is an error."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from pals.report.format import count, percent


def environment(package: str) -> Environment:
    """For the templates of a package."""
    found = Environment(
        loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    found.filters |= {"percent": percent, "count": count}
    return found
