"""report.html from report.json: one file, which needs no server and runs no text from the data as code."""

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

from pals.report.format import REPORT_FORMAT, day, environment, valid_unicode
from pals.report.sections import sections
from pals.util.errors import InputError
from pals.util.files import read_json, write_text
from pals.util.old_names import with_current_keys

STYLE_SHEETS = ("base.css", "parts.css", "tree.css", "print.css")
SCRIPTS = ("tools.js", "gallery.js", "heatmap.js", "tables.js")


def write_report(folder: Path) -> Path:
    """Write `folder/report.html` from `folder/report.json`; returns its path.

    Raises:
        InputError: There is no report.json, or another version of PALS wrote it.
    """
    source, target = folder / "report.json", (folder / "report.html").resolve()  # of the current round
    if not source.exists():
        raise InputError(f"{folder} holds no report.json. Give the folder that `pals fit --out` wrote, once it is finished.")
    data = read_json(source)
    found = data.get("format") if isinstance(data, dict) else None
    if found != REPORT_FORMAT:
        raise InputError(
            f"{source} has the format {found!r}, but this version reads format {REPORT_FORMAT}. Run `pals fit` again to "
            f"rewrite it, or use the version of PALS that made it."
        )
    write_text(target, render(with_current_keys(source, data)))
    return folder / target.name


def render(data: Mapping[str, Any]) -> str:
    """The page as HTML; the same data give the same bytes.

    Args:
        data: The content of report.json, see `pals.report.data.report_data`.
    """
    data = valid_unicode(dict(data))
    style, script = _joined(STYLE_SHEETS), f'"use strict";\n(() => {{\n{_joined(SCRIPTS)}}})();\n'
    found, script_data = sections(data)
    written = []
    for section in found:
        template = _environment().get_template(f"section_{section.key}.html")
        html = Markup(template.render(title=section.title, **(section.values or {})))  # the template has escaped all names
        written.append({"key": section.key, "title": section.title, "html": html})
    return (
        _environment()
        .get_template("report.html")
        .render(
            title=data["title"],
            created=data["created"],
            version=data["version"],
            sections=written,
            policy=(
                f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
                f"base-uri 'none'; form-action 'none'"
            ),
            style=Markup(style),
            script=Markup(script),
            data=embedded(script_data),
        )
    )


def embedded(value: Any) -> Markup:
    """JSON for a script element: ASCII, without the characters that could open or close a tag."""
    written = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(written.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


@cache
def _environment() -> Environment:
    found = environment("pals.report")
    found.filters |= {"day": day}
    return found


@cache
def _joined(names: tuple[str, ...]) -> str:
    """The files as text, with the newlines that a browser counts: the hashes of the policy depend on them."""
    folder = files("pals.report").joinpath("templates")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
