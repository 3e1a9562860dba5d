"""The scripts in benchmarks/, which no other test runs: what they import from PALS is there."""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").rglob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_what_a_script_imports_is_there(script: Path) -> None:
    nodes = ast.walk(ast.parse(script.read_text(encoding="utf-8")))
    found = [node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "pals"]
    names = [(node.module or "", alias.name) for node in found for alias in node.names]
    missing = [name for name in names if not _is_there(*name)]
    assert not missing


def _is_there(module: str, name: str) -> bool:
    return hasattr(import_module(module), name) or find_spec(f"{module}.{name}") is not None
