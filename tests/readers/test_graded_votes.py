"""Ranks, stated percentages and audited items in `Votes`: shares by hand, and what is written is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from _crowd import votes_of
from pals.labels.taxonomy import Taxonomy
from pals.readers import Votes, read_votes
from pals.util.csv_text import csv_text
from pals.util.errors import InputError

Write = Callable[..., Path]
NAN = np.nan


def graded(rank: list[int], percent: list[float], answer: list[int] | None = None) -> Votes:
    """One item; every label in turn."""
    rows = [(0, (answer or [0] * len(rank))[label], label) for label in range(len(rank))]
    votes = votes_of(rows, 1, max(len(rank), 2), answer=answer or [0] * len(rank))
    return replace(votes, rank_R=np.array(rank), percent_R=np.array(percent))


@pytest.mark.parametrize(
    ("rank", "percent", "share"),
    [
        ([0, 0, 0, 0], [NAN] * 4, [0.25] * 4),
        ([1, 2, 0, 0], [NAN] * 4, [6 / 11, 3 / 11, 1 / 11, 1 / 11]),
        ([1, 1, 2], [NAN] * 3, [1 / 3] * 3),
        ([1, 0, 0], [NAN] * 3, [2 / 3, 1 / 6, 1 / 6]),
        ([0, 0], [0.7, 0.3], [0.7, 0.3]),
        ([1, 2, 0], [0.6, NAN, NAN], [0.6, 0.24, 0.16]),
        ([1, 2], [1.0, NAN], [1, 0]),
        ([0, 0], [0.0, NAN], [0, 1]),
    ],
)
def test_shares_by_hand(rank: list[int], percent: list[float], share: list[float]) -> None:
    sets = graded(rank, percent).to_candidates()
    assert sets.frequency_NC is not None and sets.allowed_NC.all()
    assert sets.frequency_NC[0].tolist() == pytest.approx(share)


def test_a_doubtful_answer_weighs_less() -> None:
    sets = graded([0, 0], [0.2, 0.8], [0, 1]).to_candidates()
    assert sets.frequency_NC is not None and sets.frequency_NC[0].tolist() == pytest.approx([0.2, 0.8])


@pytest.mark.parametrize("change", [{"rank_R": [9, 0]}, {"rank_R": [1]}, {"percent_R": [1.1, 0]}, {"audit_I": [True] * 3}])
def test_grades_that_do_not_fit_are_refused(change: dict[str, list[float]]) -> None:
    (name,) = change
    with pytest.raises(InputError, match=name):
        replace(graded([1, 2], [NAN, NAN]), **{name: np.array(change[name])})


def test_names_of_version_02() -> None:
    votes = graded([1, 2], [NAN, NAN])
    for old, new in (("workers", "annotators"), ("worker_R", "annotator_R"), ("unknown_worker_U", "unknown_annotator_U")):
        with pytest.warns(DeprecationWarning, match=new):
            assert getattr(votes, old) is getattr(votes, new)
    assert not hasattr(votes, "worker")


def test_grades_follow_their_rows_and_items() -> None:
    votes = votes_of([(0, 0, 0), (0, 0, 1), (1, 0, 1)], 3, answer=[0, 0, 1])
    votes = replace(
        votes, rank_R=np.array([1, 2, 0]), percent_R=np.array([0.7, NAN, 0.2]), audit_I=np.array([False, True, True])
    )
    part = votes.take(np.array([2, 0]))
    assert part.rank_R.tolist() == [0, 1] and part.percent_R.tolist() == [0.2, 0.7]
    found, _ = votes.match(["new", "i2", "i1", "i0"])
    assert found.audit_I.tolist() == [False, True, True, False] and found.rank_R.tolist() == [1, 2, 0]
    assert found.trusting(["w0"]).audit_I.tolist() == found.audit_I.tolist()


TREE = Taxonomy.from_parents({"c": None, "a": "c", "b": "c", "d>a": None, "a:70": None})
NAMED = st.tuples(st.sampled_from("xyz"), st.sampled_from(["ann", "bob"]))
grade = st.tuples(st.integers(0, 2), st.none() | st.floats(0, 1))


@given(
    rows=st.lists(st.tuples(NAMED, st.lists(grade, min_size=4, max_size=4)), min_size=1),
    sizes=st.lists(st.integers(1, 4), min_size=1), separator=st.sampled_from(["|", None]), tree=st.booleans(), data=st.data(),
)  # fmt: skip
def test_any_grades_come_back(rows, sizes, separator, tree, data, tmp_path_factory) -> None:  # type: ignore[no-untyped-def]
    flat = [
        (item, who, label, answer, *grades[label])
        for answer, ((item, who), grades) in enumerate(rows)
        for label in range(sizes[answer % len(sizes)])
    ]
    items, people = sorted({row[0] for row in flat}), sorted({row[1] for row in flat})
    numbers = [(items.index(item), people.index(who), label) for item, who, label, *_ in flat]
    votes = votes_of(numbers, len(items), 4, answer=[row[3] for row in flat], gold={0: 1})
    votes = replace(
        votes, items=tuple(items), annotators=tuple(people), class_names=TREE.leaves, taxonomy=TREE if tree else None,
        rank_R=np.array([row[4] for row in flat]), percent_R=np.array([NAN if row[5] is None else row[5] for row in flat]),
        audit_I=np.array([data.draw(st.booleans()) for _ in items]),
    )  # fmt: skip
    path = tmp_path_factory.mktemp("grades") / "votes.csv"
    path.write_text(csv_text(votes.to_frame(separator)), encoding="utf-8", newline="")
    again = read_votes(path, separator=separator, taxonomy=votes.taxonomy, class_names=TREE.leaves)

    def found(votes: Votes) -> set[tuple[object, ...]]:
        answers: dict[int, list[tuple[object, ...]]] = {}
        for row, answer in enumerate(votes.answer_R.tolist()):
            percent = votes.percent_R[row]
            answers.setdefault(answer, []).append(
                (votes.class_names[votes.label_R[row]], int(votes.rank_R[row]), None if np.isnan(percent) else float(percent))
            )
        first = {answer: (votes.item_R[row], votes.annotator_R[row]) for row, answer in enumerate(votes.answer_R.tolist())}
        return {
            (votes.items[first[a][0]], votes.annotators[first[a][1]], *sorted(rows, key=str)) for a, rows in answers.items()
        }

    assert found(again) == found(votes)
    assert dict(zip(again.items, again.audit_I, strict=True)) == dict(zip(votes.items, votes.audit_I, strict=True))


def test_the_audit_column_of_a_queue(write: Write) -> None:
    queue = "rank,item,suggestion,confidence,second,reason,said,audit,label,annotator\n1,a,newt,0.5,frog,x,,true,newt,eve\n"
    votes = read_votes(write(queue + "2,b,newt,0.5,frog,x,,,frog,eve\n"))
    assert votes.audit_I.tolist() == [True, False] and not votes.graded
    notes = read_votes(write("item,annotator,label,audit,rank\na,ann,newt,who knows,x\n")).summary.notes
    assert "Columns not read: audit, rank" in notes
