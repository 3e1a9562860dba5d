"""The comparison with other tools: the script runs without them, and the page has the numbers of the results file."""

from __future__ import annotations

import importlib
import re
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "compare_tools_cpu_2026-11-16.md"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("compare_tools")
    monkeypatch.delitem(sys.modules, "compare_tools")
    return module


def test_tools_that_are_missing_are_named(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(package: str) -> str:
        if package == "pals-learn":
            return "1"
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(script.metadata, "version", version)
    votes, truth_N, features_ND = script.simulated(0)
    script.compare(script.case_of(votes, features_ND), truth_N, seed=0)
    rows = capsys.readouterr().out.splitlines()[2:]
    assert sum("not installed" in row for row in rows) == len(script.TOOLS) - 2
    right = [float(found[1]) for row in rows if (found := re.search(r"([\d.]+)%", row))]
    assert right == sorted(right) and right[0] < 80 < 95 < right[-1]  # majority, answers alone, answers and features


def test_labels_in_the_order_of_the_items_and_numbers_of_the_page(script: ModuleType) -> None:
    """A tool that answers with a table by item, in any order, is read by item."""
    votes, truth_N, features_ND = script.simulated(0)
    case: Any = script.case_of(votes, features_ND)
    assert case.long.groupby("task")["label"].size().tolist() == [script.ANSWERS] * len(truth_N)
    item, worker, label = (int(case.long[name].iloc[7]) for name in ("task", "worker", "label"))
    assert case.wide_NW[item, worker] == label == case.by_item[item][worker]
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    shown = re.findall(r"(\d\d\.\d\d)%", page)
    assert len(shown) > 10 and set(shown) <= set(re.findall(r"(\d\d\.\d\d)%", RESULTS.read_text(encoding="utf-8")))
