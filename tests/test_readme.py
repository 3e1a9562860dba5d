"""What the pages tell the reader to type exists. (That examples run is in test_docs.)"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from test_docs import PAGES, ROOT, code_of, name_of

KNOWN = {"make", "pals", "pip", "git", "cd", "export"}


def commands(page: Path) -> Iterator[list[str]]:
    """The lines of the page's bash blocks as words, without comments and variables set in front."""
    for line in code_of(page, "bash").splitlines():
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"\w+=.*", words[0]):
            words = words[1:]
        if words:
            yield words


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))


def extras() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return set(project["optional-dependencies"])


def test_the_readme_is_short_and_begins_with_commands_and_one_light_picture() -> None:
    shown = [" ".join(words) for words in commands(ROOT / "README.md")]
    assert {"make demo", "make test"} <= set(shown)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 420
    (picture,) = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert (ROOT / picture).stat().st_size < 200_000
    assert len(re.findall("^(?:pip|pals) .*", text.partition(f"]({picture})")[0], re.M)) == 4


def test_numbers_of_the_readme_and_extras_in_messages() -> None:
    """A row of the table of results names the file that it is from; all its numbers, as rounded, are there."""
    rows = re.findall(
        r"^\| (.*) \| (.*) \| (.*) \| \[.*\]\((\S+)\) \|$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M
    )
    assert len(rows) >= 4
    for _, yardstick, ours, file in rows:
        known = [float(one) for one in re.findall(r"\d+\.\d+", (ROOT / file).read_text(encoding="utf-8"))]
        for number in re.findall(r"\d+\.\d+", f"{yardstick} {ours}"):
            digits = len(number.partition(".")[2])
            assert float(number) in [round(one + 1e-9, digits) for one in known], f"{number} is not in {file}"
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")}
    assert [path.name for path, text in texts.items() if "pals-learn[" in text] == ["words.py"]
    named = {extra for text in texts.values() for extra in re.findall(r"pip_install\('([^']+)'\)", text)}
    assert {"export", "faiss", "timm", "parquet"} <= named <= extras()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_targets_and_extras_exist(page: Path) -> None:
    """A new kind of line in an example must be looked at by some test."""
    assert {words[0] for words in commands(page)} <= KNOWN
    text = page.read_text(encoding="utf-8")
    named = {word for words in commands(page) if words[0] == "make" for word in words[1:] if "=" not in word}
    named |= set(re.findall(r"`make ([a-z][\w-]*)`", text))
    assert named <= make_targets()
    groups = re.findall(r"pip install [^`\n]*\[([\w,-]+)\]", text)
    assert {extra for group in groups for extra in group.split(",")} <= extras()
