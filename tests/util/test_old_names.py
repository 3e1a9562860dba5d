"""Runs of version 0.2 are read with a warning under the names of today."""

from __future__ import annotations

from pathlib import Path

import pytest

from pals.pipeline.finished_run import read_columns
from pals.util.old_names import OldRunWarning, with_current_keys


def test_old_names_warn_and_current_ones_do_not(tmp_path: Path) -> None:
    (tmp_path / "votes.csv").write_text("item,worker,label,weight,is_gold\na,ann,newt,1,False\n")
    with pytest.warns(OldRunWarning, match="'worker'"):
        table = read_columns(tmp_path, "votes.csv")
    assert table["annotator"] == ["ann"]
    with pytest.warns(OldRunWarning):
        data = with_current_keys(Path("report.json"), {"gallery": [{"votes": [{"worker": "ann"}]}], "title": "worker"})
    assert data == {"gallery": [{"votes": [{"annotator": "ann"}]}], "title": "worker"}
    (tmp_path / "votes.csv").write_text("item,annotator,label,weight,is_gold\na,ann,newt,1,False\n")
    assert read_columns(tmp_path, "votes.csv")["annotator"] == ["ann"]
    assert with_current_keys(Path("report.json"), {"a": [1]}) == {"a": [1]}
