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

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pals.fitting.page import none_of_these, sections
from pals.fitting.page.tree import tree
from pals.fitting.page.values import count, day, percent, pictures, shortened, text, texts
from pals.util.errors import InputError
from pals.util.files import read_json, write_text

FORMAT = 1
STYLES = ("base.css", "parts.css", "tree.css", "print.css")
SCRIPTS = ("tools.js", "gallery.js", "heatmap.js", "tables.js")
TITLES = {
    "overview": "Overview",
    "doubtful": "Doubtful answers",
    "none-of-these": "None of these",
    "confusion": "Mix-ups",
    "tree": "Taxonomy",
    "people": "People",
    "classes": "Classes",
    "examples": "Easy and hard",
    "training": "Training",
    "repeat": "Repeat this run",
}


def write_report(folder: Path) -> Path:
    """Turn folder/report.json into folder/report.html."""
    source = folder / "report.json"
    if not source.exists():
        raise InputError(f"{folder} holds no report.json. Give the folder that `pals fit --out` wrote, once it is finished.")
    data = read_json(source)
    if not isinstance(data, Mapping):
        raise InputError(f"{source} holds a {type(data).__name__} and not an object. Make it again from its run.")
    target = folder / "report.html"
    write_text(target, render(data))
    return target


def render(data: Mapping[str, Any]) -> str:
    """The page as HTML. The same data give the same bytes."""
    if data.get("format") != FORMAT:
        raise InputError(
            f"This report.json has the format {data.get('format')!r}, but this version reads format {FORMAT}. "
            f"Make the report again from its run, or use the version of PALS that made it."
        )
    style, script = _joined(STYLES), f'"use strict";\n(() => {{\n{_joined(SCRIPTS)}}})();\n'
    content, for_script = _content(data)
    return (
        _environment()
        .get_template("report.html")
        .render(
            **content,
            policy=(
                f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
                f"base-uri 'none'; form-action 'none'"
            ),
            style=Markup(style),
            script=Markup(script),
            data=embedded(for_script),
        )
    )


def embedded(value: Any) -> Markup:
    """JSON that is safe inside a script element: pure ASCII, and without the signs that could end or open a tag."""
    written = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(written.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _content(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the template shows, and what the script needs."""
    entries = sections.gallery(data)
    by_person, by_result, by_pair = sections.doubted(entries)
    confusion = sections.confusion(data, by_pair)
    heat = confusion["script"] if confusion else None
    shown: dict[str, Any] = {
        "title": text(data.get("title")) or "Untitled run",
        "created": text(data.get("created")),
        "version": text(data.get("version")),
        "command": text(data.get("command")),
        "settings": text(data.get("settings")),
        "summary": texts(data.get("summary")),
        "warnings": texts(data.get("warnings")),
        "tiles": sections.tiles(data),
        "noise": sections.noise(data),
        "entries": len(entries),
        "status_words": sections.status_words(entries),
        "confusion": confusion,
        "people": sections.people(data, by_person, with_confusion=confusion["people"] if confusion else []),
        "pairs": sections.pairs_of_people(data),
        "class_table": sections.class_table(data, by_result),
        "easy": sections.examples(data.get("easy")),
        "hard": sections.examples(data.get("hard")),
        "curves": sections.curves(data),
        "tree": tree(data),
        "missing": none_of_these.groups(data),
    }
    here = {
        "tree": shown["tree"],
        "none-of-these": shown["missing"],
        "confusion": shown["confusion"],
        "people": shown["people"],
        "classes": shown["class_table"],
        "examples": shown["easy"] or shown["hard"],
        "training": shown["curves"],
        "repeat": shown["command"] or shown["settings"],
    }
    shown["titles"] = {key: title for key, title in TITLES.items() if here.get(key, True)}
    wanted = [entry["item"] for entry in entries]
    wanted += [one["item"] for entry in entries for one in entry["neighbors"]]
    wanted += [one["item"] for one in (*shown["easy"], *shown["hard"])]
    wanted += [one["item"] for group in shown["missing"] for one in group["shown"]]
    thumbs = pictures(data.get("thumbs"), wanted)
    shown["thumbs"] = thumbs
    return shown, {"gallery": entries, "thumbs": thumbs, "heat": heat, "statusWords": sections.STATUS_WORDS}


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("pals.fitting.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"percent": percent, "count": count, "day": day, "shortened": shortened}
    return found


@cache
def _joined(names: tuple[str, ...]) -> str:
    """Read with newlines as the browser counts them, or the hashes of the policy would not fit."""
    folder = files("pals.fitting.page").joinpath("templates")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
