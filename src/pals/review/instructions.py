"""Instructions for annotators: RUN/instructions.md, as HTML without any of its own tags."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from markupsafe import Markup

from pals.util.errors import InputError
from pals.util.files import write_text

INSTRUCTIONS_FILE = "instructions.md"
MAX_LETTERS = 50_000
FIRST_LEVEL = 3  # of its headings: those of the page come before


def keep_instructions(run: Path, path: Path) -> None:
    """Copy a Markdown file into the run, where every start finds it."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--instructions: cannot read {path} ({error}). Give a Markdown file in UTF-8.") from None
    write_text(run / INSTRUCTIONS_FILE, text)


def instructions_html(run: Path) -> Markup:
    """The instructions; "" if there are none, or if the file cannot be read."""
    path = run / INSTRUCTIONS_FILE
    try:
        return _html(path.read_text(encoding="utf-8-sig")[:MAX_LETTERS])
    except (OSError, UnicodeDecodeError):
        return Markup()


@lru_cache(maxsize=4)
def _html(text: str) -> Markup:
    from markdown_it import MarkdownIt

    tokens = (markdown := MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")).parse(text)
    levels = sorted({token.tag for token in tokens if token.type == "heading_open"})
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{FIRST_LEVEL + levels.index(token.tag)}"
    return Markup(markdown.renderer.render(tokens, markdown.options, {}))  # which has escaped all HTML
