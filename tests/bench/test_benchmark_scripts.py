"""The scripts in benchmarks/, which no other test runs, and the rows of docs/speed.md, which name their results."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from test_docs import ROOT, table_rows

SCRIPTS = sorted((ROOT / "benchmarks").rglob("*.py"))
ROWS = list(table_rows(ROOT / "docs" / "speed.md", "version"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_what_a_script_imports_is_there(script: Path) -> None:
    nodes = ast.walk(ast.parse(script.read_text(encoding="utf-8")))
    found = [node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "pals"]
    names = [(node.module or "", alias.name) for node in found for alias in node.names]
    modules = [import_module(module) for module, _ in names]
    missing = [
        f"{module}.{name}"
        for (module, name), found in zip(names, modules, strict=True)
        if not hasattr(found, name) and not (hasattr(found, "__path__") and find_spec(f"{module}.{name}"))
    ]
    assert not missing


def test_the_page_on_speed_has_rows() -> None:
    assert len(ROWS) >= 5


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["version"][:30])
def test_the_file_of_a_row_has_the_seconds_and_the_commit(row: dict[str, str]) -> None:
    link = re.search(r"\]\(\.\./([^)#]+)", row["file"])
    assert link
    text = (ROOT / link[1]).read_text(encoding="utf-8")
    assert row["commit"].replace(" ", "") in text
    seconds = {f"{float(number):.2f}" for number in re.findall(r"(?<![\d.])\d+\.\d+(?![\d.])", text)}
    assert row["seconds"].strip("*") in seconds
