"""docs/notebook.ipynb runs from top to bottom in under three minutes, and is stored small, with what it printed and drew."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pals.util.registry import PROGRAM, TABLES

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


@pytest.fixture
def notebook() -> Iterator[ModuleType]:
    """The script that runs notebooks and makes pages of them."""
    spec = importlib.util.spec_from_file_location("_notebook", ROOT / "docs" / "_site" / "notebook.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("_notebook", None)
    for table in TABLES:
        table.forget(PROGRAM)


def test_outputs_are_stored_small_and_on_the_page(notebook: ModuleType) -> None:
    cells = notebook.read(NOTEBOOK)["cells"]
    kinds = [output["output_type"] for cell in cells for output in cell.get("outputs", ())]
    assert kinds.count("stream") >= 4 and kinds.count("display_data") == 1 and NOTEBOOK.stat().st_size < 150_000
    cells = notebook.read(NOTEBOOK)["cells"]
    text, pictures = notebook.as_markdown({"cells": cells}, "notebook")
    assert all("".join(cell["source"]) in text for cell in cells)
    assert [name for name in pictures if f"({name})" in text] == ["notebook-1.png"]
    assert pictures["notebook-1.png"].startswith(b"\x89PNG")


@pytest.mark.slow
def test_it_runs_from_top_to_bottom(notebook: ModuleType) -> None:
    fresh = notebook.read(NOTEBOOK)
    began = time.process_time()
    notebook.run(fresh)
    assert time.process_time() - began < 180
    stored = notebook.read(NOTEBOOK)
    assert [len(cell.get("outputs", ())) for cell in fresh["cells"]] == [
        len(cell.get("outputs", ())) for cell in stored["cells"]
    ]
