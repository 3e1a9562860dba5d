"""Our additions to MkDocs: formulas become MathML, which browsers show without any script; search leaves out records of
measurements; the footer has the version."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

import pals

KNOWN = {r"\arg": r"\operatorname{arg}", r"\lVert": r"\|", r"\rVert": r"\|"}
"""What the converter has no sign for, in terms of what it has."""
FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', flags=re.S)


UNSEARCHED = "benchmarks/results/"
"""Records, with numbers and words of everything: whoever searches wants the pages that explain them."""


def on_config(config: Any) -> Any:
    config.copyright = f"PALS {pals.__version__}"
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    if page.file.src_uri.startswith(UNSEARCHED):
        page.meta["search"] = {"exclude": True}
    return markdown


def on_page_content(content: str, **_: Any) -> str:
    return FORMULA.sub(_as_mathml, content)


def _as_mathml(found: re.Match[str]) -> str:
    """`\\(x\\)` within a line, `\\[x\\]` as a block."""
    text = html.unescape(found[2]).strip()[2:-2]
    for ours, known in KNOWN.items():
        text = text.replace(ours, known)
    if found[1] == "span":
        return str(convert(text, display="inline"))
    return f'<div class="formula">{convert(text, display="block")}</div>'
