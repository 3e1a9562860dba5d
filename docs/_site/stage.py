"""Lay out the sources of the documentation site, each where it lies in the repository, so that links hold in both.

    python docs/_site/stage.py build/docs

README.md becomes the first page, and the notebook a page like the others. Reference pages are written from the code: the public
names, the commands, the layers; so are the tables of options and settings in other pages.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import notebook
from reference import write_reference
from tables import page_of, tables

from pals.methods import METHODS

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)|!\[[^\]]*\]\(([^)\s]+)\)")
ITEM = re.compile(r"(?:\d+\.|[-*]) +(?=\S)")


def stage(out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(ROOT / "docs", out / "docs", ignore=shutil.ignore_patterns("_site", "README.md"))
    (out / "benchmarks").mkdir()
    shutil.copytree(ROOT / "benchmarks" / "results", out / "benchmarks" / "results")
    shutil.copy(ROOT / "benchmarks" / "README.md", out / "benchmarks" / "README.md")
    shutil.copy(ROOT / "CHANGELOG.md", out)
    shutil.copy(ROOT / "README.md", out / "index.md")
    (out / "assets").mkdir()
    for name in ("iframe-worker.js", "site.css"):
        shutil.copy(ROOT / "docs" / "_site" / name, out / "assets")
    write_reference(out / "reference")
    write_notebook(out / "docs" / "notebook.ipynb")
    for page in (out / "docs").rglob("*.md"):
        page.write_text(tables(deepened(page.read_text(encoding="utf-8"))), encoding="utf-8")
    write_tags(out)
    for page in list(out.rglob("*.md")):
        page.write_text(page.read_text(encoding="utf-8").replace("notebook.ipynb)", "notebook.md)"), encoding="utf-8")
        for target in links(page):
            bring(page, target, out)


def write_notebook(path: Path) -> None:
    """The page with its pictures beside it; the notebook itself stays, to be downloaded."""
    text, pictures = notebook.as_markdown(notebook.read(path), path.stem)
    title, _, rest = text.partition("\n")
    download = '<a href="notebook.ipynb" download>Download the notebook</a>'
    path.with_suffix(".md").write_text(f"{title}\n\n{download}\n{rest}", encoding="utf-8")
    for name, png in pictures.items():
        (path.parent / name).write_bytes(png)


def write_tags(out: Path) -> None:
    """Method pages are tagged with the labels they are made for, and with their number of networks; one page lists the tags."""
    (out / "reference" / "tags.md").write_text("# Tags\n\n<!-- material/tags -->\n", encoding="utf-8")
    for name, method in METHODS.items():
        page = out / "docs" / "methods" / page_of(name)
        text = page.read_text(encoding="utf-8")
        if not text.startswith("---"):
            networks = {0: "no network", 1: "one network"}.get(method.networks, "several networks")
            page.write_text(f"---\ntags: [{method.kind}, {networks}]\n---\n\n{text}", encoding="utf-8")


def deepened(text: str) -> str:
    """What belongs to an item of a list is indented as far as its first line's words; MkDocs wants four spaces."""
    lines, width = [], 0
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if item := ITEM.match(line):
            lines += [""] if width and lines[-1] else []
            width = len(item[0])
        elif line and indent < width:
            width = 0
        lines.append(" " * (4 + indent - width) + line.lstrip() if line and width and indent >= width else line)
    return "\n".join(lines) + "\n"


def links(page: Path) -> Iterator[str]:
    for linked, shown in LINK.findall(page.read_text(encoding="utf-8")):
        target = linked or shown
        if "://" not in target and not target.startswith("mailto:"):
            yield target


def bring(page: Path, target: str, out: Path) -> None:
    """A file of the repository that a page links to, such as a test, to the same place."""
    there = (page.parent / target).resolve()
    if there.exists() or not there.is_relative_to(out.resolve()):
        return
    here = ROOT / there.relative_to(out.resolve())
    if here.is_file():
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(here, there)


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
