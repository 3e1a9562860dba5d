"""Additions to MkDocs: formulas as MathML, navigation of the generated pages, search without records of measurements, the
version, and repository and edit links if pyproject.toml names a repository."""

from __future__ import annotations

import html
import re
import tomllib
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

import pals

ROOT = Path(__file__).resolve().parents[2]
REPLACED = {r"\arg": r"\operatorname{arg}", r"\lVert": r"\|", r"\rVert": r"\|"}
"""Symbols that the converter lacks, in terms of those it has."""
FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', flags=re.S)
UNSEARCHED = ("benchmarks/", "CHANGELOG.md", "reference/design.md")
"""They name everything and explain nothing."""
GENERATED = "reference/"


def on_config(config: Any) -> Any:
    config.site_name = f"PALS {pals.__version__}"
    config.copyright = config.site_name
    config.nav = [_with_generated_pages(entry, Path(config.docs_dir)) for entry in config.nav]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if repository := project.get("urls", {}).get("Repository"):
        config.repo_url, config.repo_name, config.edit_uri = repository, project["name"], "edit/main/"
        config.theme["features"].append("content.action.edit")
    return config


def _with_generated_pages(entry: Any, folder: Path) -> Any:
    """`reference/python/` and `reference/commands/` in the navigation stand for the pages in these folders, in their order."""
    if isinstance(entry, dict):
        return {title: _with_generated_pages(value, folder) for title, value in entry.items()}
    if isinstance(entry, list):
        return [_with_generated_pages(one, folder) for one in entry]
    if entry.endswith("/"):
        return [f"{entry}{name}" for name in (folder / entry / ".order").read_text(encoding="utf-8").split()]
    return entry


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    if page.file.src_uri.startswith(UNSEARCHED):
        page.meta["search"] = {"exclude": True}
    if page.edit_url:
        own = {"index.md": "README.md", "docs/notebook.md": "docs/notebook.ipynb"}.get(page.file.src_uri, page.file.src_uri)
        page.edit_url = None if own.startswith(GENERATED) else page.edit_url.replace(page.file.src_uri, own)
    return markdown


def on_page_content(content: str, **_: Any) -> str:
    return FORMULA.sub(_as_mathml, content)


def _as_mathml(found: re.Match[str]) -> str:
    """`\\(x\\)` within a line, `\\[x\\]` as a block."""
    text = html.unescape(found[2]).strip()[2:-2]
    for symbol, known in REPLACED.items():
        text = text.replace(symbol, known)
    if found[1] == "span":
        return str(convert(text, display="inline"))
    return f'<div class="formula">{convert(text, display="block")}</div>'
