"""The truth is for grading alone, and nothing that was given is graded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from _crowd import votes_of
from _refused import refused
from pals.crowd import Result, dawid_skene, rank_doubts
from pals.pipeline.evaluate import grade, read_truth
from pals.readers import Votes


@pytest.fixture
def votes() -> Votes:
    """Two people, six items, of which the first three are gold (and people are wrong about them)."""
    rows = [(item, person, 1 if item < 3 or item == 5 else 0) for item in range(6) for person in range(2)]
    return votes_of(rows, 6, 2, gold={0: 0, 1: 0, 2: 0})


def truth_of(path: Path, items: range) -> Path:
    path.write_text("item,label\n" + "".join(f"i{item},c0\n" for item in items))
    return path


def test_gold_is_never_graded(votes: Votes, tmp_path: Path) -> None:
    """All is c0: people are right about two of the three items that are not gold, and so is the result. Gold would make it five
    of six."""
    known = read_truth(truth_of(tmp_path / "truth.csv", range(6)), votes)
    assert known.row_G.tolist() == [3, 4, 5] and known.whole
    result = Result(votes, np.eye(2)[[0, 0, 0, 0, 0, 1]])
    doubts = rank_doubts(result)
    assert len(doubts.answer_M) == 6  # all about gold items, hence doubtful for sure
    found = grade(known, result, doubts.answer_M, dawid_skene(votes))
    assert found["items"] == 3 and found["doubtful"] == 0
    assert found["labels"] == found["majority"] == pytest.approx(2 / 3)


def test_part_of_the_truth_and_nothing_to_grade(votes: Votes, tmp_path: Path) -> None:
    known = read_truth(truth_of(tmp_path / "truth.csv", range(1, 5)), votes)
    assert known.row_G.tolist() == [3, 4] and not known.whole
    refused("whose right label the answers give as gold", read_truth, truth_of(tmp_path / "truth.csv", range(3)), votes)
    refused("no label for any item with answers", read_truth, truth_of(tmp_path / "truth.csv", range(7, 9)), votes)
