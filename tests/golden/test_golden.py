"""Everything that is computed is what was recorded, but for the last digits, which differ between processors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from golden import RECORDED, differences, record

TOLERANCE = 1e-4


@pytest.mark.slow
def test_nothing_changed(tmp_path: Path) -> None:
    record(tmp_path / "now")
    assert differences(RECORDED, tmp_path / "now", TOLERANCE) == []


def test_a_change_is_found_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a float, a cell and a file that is not there; a sentence may be reworded."""
    monkeypatch.setattr("golden.RENAMED", {})  # both sides are the recording
    shutil.copytree(RECORDED, tmp_path / "now")
    assert differences(RECORDED, tmp_path / "now") == []
    methods, labels, report = (tmp_path / "now" / name for name in ("methods.json", "unsure/labels.csv", "trained/report.json"))
    found = json.loads(methods.read_text())
    found["rc"]["epochs"][2]["loss"] *= 1.001
    methods.write_text(json.dumps(found))
    first, row, *rest = labels.read_text().splitlines()
    labels.write_text("\n".join([first, row.replace("i00.png", "i99.png"), *rest]))
    report.write_text(report.read_text().replace("items with", "pictures that have"))
    (tmp_path / "now" / "trained" / "classes.csv").unlink()
    lines = differences(RECORDED, tmp_path / "now", TOLERANCE)
    places = (
        "trained/classes.csv",
        "methods.json, .rc.epochs[2].loss: was",
        "unsure/labels.csv, row 2, item: was 'i00.png', is",
    )
    assert len(lines) == 3
    assert all(line.startswith(place) for line, place in zip(lines, places, strict=True))
