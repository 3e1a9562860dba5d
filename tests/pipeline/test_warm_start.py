"""An update finds what a fit of all answers finds, and compares it with the labels of the run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from _crowd import many_people
from pals import fit
from pals.pipeline import update
from pals.pipeline.stages.warm_start import earlier_labels


def test_earlier_labels_are_read_where_they_can_be(tmp_path: Path) -> None:
    votes, _ = many_people(20, 4, 3, seed=1)
    earlier = str(tmp_path / "votes.csv")
    assert earlier_labels(votes, None) is None and earlier_labels(votes, earlier) is None
    (tmp_path / "labels.csv").write_text("item,label\ni1,c2\ni2,unheard of\nnobody,c0\n")
    label_N = earlier_labels(votes, earlier)
    assert label_N is not None
    known = votes.items.index("i1")
    assert label_N[known] == votes.class_names.index("c2") and (np.delete(label_N, known) == -1).all()


def test_an_update_finds_what_a_fit_of_all_answers_finds(tmp_path: Path) -> None:
    votes, _ = many_people(90, 8, 3, seed=2)
    table = votes.to_frame()[["item", "annotator", "label"]].replace("c0", "=c0")  # a class that a spreadsheet would run
    table.iloc[:-40].to_csv(tmp_path / "first.csv", index=False)
    table.iloc[-40:].to_csv(tmp_path / "second.csv", index=False)
    table.to_csv(tmp_path / "all.csv", index=False)
    fit(None, tmp_path / "first.csv", out=tmp_path / "run", no_images=True)
    updated = update(tmp_path / "run", tmp_path / "second.csv", out=tmp_path / "updated")
    whole = fit(None, tmp_path / "all.csv", out=tmp_path / "whole", no_images=True)
    both = pd.merge(updated.labels, whole.labels, on="item")
    assert len(both) == 90 and (both["label_x"] == both["label_y"]).mean() > 0.99
    assert both["confidence_x"].to_numpy() == pytest.approx(both["confidence_y"].to_numpy(), abs=0.02)
    assert updated.noise.earlier is not None
