"""Unsure answers and "don't know" among the votes: whatever is done to the rows, they stay with their own."""

from __future__ import annotations

import numpy as np
import pytest

from _crowd import rows_of, votes_of
from _refused import refused
from pals.pipeline.stages.read_answers import answered_first, fingerprint
from pals.readers import Votes


@pytest.fixture
def votes() -> Votes:
    rows = [(0, 0, 1), (0, 1, 2), (1, 1, 0), (3, 2, 1), (3, 0, 1)]
    return votes_of(rows, 4, sure=[True, False, True, False, True], unknown=[(0, 2), (2, 1), (3, -1)])


def unknown_of(votes: Votes) -> list[tuple[str, str | None]]:
    pairs = zip(votes.unknown_item_U.tolist(), votes.unknown_annotator_U.tolist(), strict=True)
    return [(votes.items[item], votes.annotators[annotator] if annotator >= 0 else None) for item, annotator in pairs]


def test_marks_stay_with_their_rows_or_are_refused(votes: Votes) -> None:
    plain = votes_of([(0, 0, 1), (0, 1, 2)], 1)
    assert plain.sure_R.tolist() == [True, True] and plain.sure_R.dtype == bool
    assert not len(plain.unknown_item_U) and not plain.marked
    refused("sure_R of the votes must hold 2", votes_of, [(0, 0, 1), (0, 1, 2)], 1, sure=[True])
    refused("unknown_item_U", votes_of, [(0, 0, 1)], 1, unknown=[(1, 0)])
    matched, _ = votes.match(["i3", "new", "i0"])
    assert rows_of(matched) == [(2, 0, 1), (2, 1, 2), (0, 2, 1), (0, 0, 1)]
    assert matched.sure_R.tolist() == [True, False, False, True]
    assert unknown_of(matched) == [("i0", "w2"), ("i3", None)]
    trusting = votes.trusting(["w1"])
    assert trusting.gold_I.tolist() == [-1, 0, -1, -1]  # not of item 0, where w1 is unsure
    assert trusting.sure_R.tolist() == [True, False, False, True] and len(trusting.unknown_item_U) == 3
    assert unknown_of(answered_first(votes)) == unknown_of(votes)
    assert fingerprint(votes) != fingerprint(votes.take(np.arange(5)[::-1]))
    rows = rows_of(votes)
    marks = {fingerprint(votes), fingerprint(votes_of(rows, 4)), fingerprint(votes_of(rows, 4, unknown=[(0, 2)]))}
    assert len(marks) == 3


def test_marks_in_a_table(votes: Votes) -> None:
    frame = votes.to_frame()
    assert frame["sure"].tolist() == [True, False, True, False, True, True, True, True]
    unknown = frame[frame["label"] == "don't know"]
    assert unknown[["item", "annotator"]].to_numpy().tolist() == [["i0", "w2"], ["i2", "w1"], ["i3", ""]]
    plain = votes_of(rows_of(votes), 4).to_frame()
    assert "sure" not in plain and len(plain) == 5
    votes = votes_of([(0, 0, 1), (0, 0, 2)], 1, answer=[0, 0], sure=[True, False])
    assert votes.to_frame()[["label", "sure"]].to_numpy().tolist() == [["c1", True], ["c2", False]]
    both = votes_of([(0, 0, 1), (0, 0, 2)], 1, answer=[0, 0], sure=[False, False])
    assert both.to_frame()[["label", "sure"]].to_numpy().tolist() == [["c1|c2", False]]
