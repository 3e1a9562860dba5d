"""docs/scale.md: its table is what the script prints, and the script's constants are what was measured."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
MODEL: dict[str, Any] = runpy.run_path(str(ROOT / "benchmarks" / "scale.py"))


def measured(name: str, **wanted: Any) -> dict[str, Any]:
    """The last result of this file with these values."""
    lines = (RESULTS / name).read_text(encoding="utf-8").splitlines()
    found = [row for row in map(json.loads, lines) if all(row.get(key) == value for key, value in wanted.items())]
    return found[-1]


def test_the_table_of_the_page_and_ranks() -> None:
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    assert MODEL["table"]() in page
    assert MODEL["ranks_for"](3600.0, 1) == 1 and MODEL["ranks_for"](3601.0, 1) == 2


@pytest.mark.parametrize(
    ("constant", "file", "wanted", "value", "size"),
    [("READ", "answers_cpu_2026-11-16.jsonl", {"answers": 10_000_000, "what": "read_votes"}, "cpu seconds", 1e7),
     ("READ_BYTES", "answers_cpu_2026-11-16.jsonl", {"answers": 10_000_000, "what": "read_votes"}, "peak GB", 1e-2),
     ("CONSENSUS", "answers_cpu_2026-11-16.jsonl", {"answers": 10_000_000, "what": "dawid_skene"}, "cpu seconds", 1e9),
     ("CONSENSUS_BYTES", "answers_cpu_2026-11-16.jsonl", {"answers": 10_000_000, "what": "dawid_skene"}, "peak GB", 1e-2),
     ("EPOCH", "epoch_h200_2026-11-15.jsonl", {"items": 50_000, "classes": 100, "growth": True}, "epoch_s", 50_000),
     ("NEAR_CPU", "labeling_cpu_2026-11-15.jsonl", {"variant": "torch"}, "seconds", 10_000**2 * 512 / 2),
     ("LABELING", "labeling_cpu_2026-11-15.jsonl", {"variant": "ours"}, "ms", 1000 * 20_000 * 100 / 2)],
)  # fmt: skip
def test_the_constants_are_what_was_measured(constant: str, file: str, wanted: dict[str, Any], value: str, size: float) -> None:
    assert MODEL[constant] == pytest.approx(measured(file, **wanted)[value] / size, rel=0.01)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "-"), (0.5, "0.5 s"), (119, "120 s"), (121, "2 min"), (7300, "2 h"), (86400 * 800, "2.2 years")]
)
def test_times_in_words(seconds: float, words: str) -> None:
    assert MODEL["time_of"](seconds) == words
