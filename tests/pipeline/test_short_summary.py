"""The last lines of `pals fit` and `pals update`: result, what to check, warnings, files, next command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from pals.pipeline import Findings, fit, update
from pals.pipeline.short_summary import short_summary
from pals.util.files import read_json

MAX_LINES = 8


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Findings:
    monkeypatch.chdir(tmp_path)
    rows = [(item, who, "xy"[item % 2 if who != "cy" else 0]) for item in range(30) for who in ("al", "bo", "cy")]
    return fit(None, pd.DataFrame(rows, columns=["item", "annotator", "label"]), out="my run", no_images=True)


def test_the_estimate_the_last_line_and_all_sentences(found: Findings, tmp_path: Path) -> None:
    noise = replace(found.noise, labels_wrong=0.0762, low=0.0571, high=0.0968)
    assert (
        "About 7.6% of the labels are still wrong (5.7 to 9.7), not counting"
        in short_summary(replace(found, noise=noise), 1)[0]
    )
    noise = replace(found.noise, labels_wrong=0.0762, low=0.021, high=0.196, earlier=(0.104, 0.05, 0.2))
    assert "About 8% of the labels are still wrong (2 to 20), 10% before" in short_summary(replace(found, noise=noise), 1)[0]
    *_, files, following = short_summary(found, 75)
    assert files == f"Wrote my run in 75 s; open {Path('my run/report.html')}" and following == "Next: pals review 'my run'"
    assert read_json(tmp_path / "my run/summary.json")["sentences"] == found.summary
    pd.DataFrame({"item": range(9), "annotator": "di", "label": "x"}).to_csv("more.csv", index=False)
    assert "before the update" in short_summary(update("my run", "more.csv"), 1)[0]


@pytest.mark.parametrize(("items", "right", "majority"), [(1000, "84.9%", "76.6%"), (100, "85%", "77%")])
def test_where_the_truth_is_known_the_result_is_graded(found: Findings, items: int, right: str, majority: str) -> None:
    grades = {"labels": 0.849, "majority": 0.766, "items": items}
    assert short_summary(replace(found, grades=grades), 1)[0] == f"{right} of the labels are right (majority {majority})."
    numbers = {**found.numbers, "status": {**found.numbers["status"], "gold": 3}}  # which are not graded
    first = short_summary(replace(found, grades=grades, numbers=numbers), 1)[0]
    assert first.startswith(f"{right} of the labels of the {items:,} items that are not final are right")


@pytest.mark.parametrize("count", [0, 4, 5, 9])
def test_warnings_are_marked_and_few(found: Findings, count: int) -> None:
    lines = short_summary(replace(found, warnings=[f"check {number}" for number in range(count)]), 1)
    marked = [line for line in lines if line.startswith("Warning: ")]
    assert len(marked) == min(count, 4) and len(lines) == 4 + len(marked) <= MAX_LINES
    assert ("in the report" in "".join(marked)) == (count > 4)
    if count == 5:
        assert marked[-1].startswith("Warning: 2 more")
