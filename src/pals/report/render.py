"""report.html: one file that holds everything, opens from disk, asks nothing of any server and runs no word of the data."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from pals.report.contents import SECTIONS, Page
from pals.report.escaping import environment
from pals.report.format import day, text
from pals.util.errors import InputError
from pals.util.files import read_json, write_text
from pals.util.old_names import with_current_keys

FORMAT = 1
STYLES = ("base.css", "parts.css", "tree.css", "print.css")
SCRIPTS = ("tools.js", "gallery.js", "heatmap.js", "tables.js")


def write_report(folder: Path) -> Path:
    """Turn folder/report.json into folder/report.html."""
    source = folder / "report.json"
    if not source.exists():
        raise InputError(f"{folder} holds no report.json. Give the folder that `pals fit --out` wrote, once it is finished.")
    data = read_json(source)
    if not isinstance(data, Mapping):
        raise InputError(f"{source} holds a {type(data).__name__} and not an object. Run `pals fit` again to rewrite it.")
    target = folder / "report.html"
    write_text(target, render(with_current_keys(source, data)))
    return target


def render(data: Mapping[str, Any]) -> str:
    """The page as HTML. The same data give the same bytes."""
    if data.get("format") != FORMAT:
        raise InputError(
            f"This report.json has the format {data.get('format')!r}, but this version reads format {FORMAT}. "
            f"Make the report again from its run, or use the version of PALS that made it."
        )
    style, script = _joined(STYLES), f'"use strict";\n(() => {{\n{_joined(SCRIPTS)}}})();\n'
    page = Page(data)
    return (
        _environment()
        .get_template("report.html")
        .render(
            title=text(data.get("title")) or "Untitled run",
            created=text(data.get("created")),
            version=text(data.get("version")),
            sections=_written(page),
            policy=(
                f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
                f"base-uri 'none'; form-action 'none'"
            ),
            style=Markup(style),
            script=Markup(script),
            data=embedded(page.for_script),
        )
    )


def embedded(value: Any) -> Markup:
    """JSON that is safe inside a script element: pure ASCII, and without the signs that could end or open a tag."""
    written = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(written.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _written(page: Page) -> list[dict[str, str | Markup]]:
    """The sections that have anything to show."""
    written: list[dict[str, str | Markup]] = []
    for section in SECTIONS:
        shown = section.build(page)
        if shown is not None:
            template = _environment().get_template(f"section_{section.key}.html")
            html = Markup(template.render(title=section.title, **shown))  # the template has escaped what it shows
            written.append({"key": section.key, "title": section.title, "html": html})
    return written


@cache
def _environment() -> Environment:
    found = environment("pals.report")
    found.filters |= {"day": day}
    return found


@cache
def _joined(names: tuple[str, ...]) -> str:
    """Read with newlines as the browser counts them, or the hashes of the policy would not fit."""
    folder = files("pals.report").joinpath("templates")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
