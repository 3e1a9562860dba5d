"""People who never differ: named where they would on their own, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from _crowd import rows_of, simulated, votes_of
from pals.crowd.agreement import agreement
from pals.crowd.copied_answers import never_differ
from pals.readers import Votes


def found(votes: Votes) -> list[tuple[tuple[int, ...], int]]:
    return [(same.people, same.items) for same in never_differ(votes, agreement(votes, rounds=2))]


def copied(votes: Votes, original: int, copies: int) -> Votes:
    """With further people who give the answers of one."""
    rows, people = rows_of(votes), len(votes.annotators)
    more = [(item, people + copy, label) for copy in range(copies) for item, who, label in rows if who == original]
    return votes_of([*rows, *more], len(votes.items), len(votes.class_names))


def test_everybody_copies_one() -> None:
    votes, _ = simulated(300, [0.8], classes=5)
    assert found(copied(votes, 0, 4)) == [((0, 1, 2, 3, 4), 300)]


def test_one_of_several_copies_another() -> None:
    votes, _ = simulated(600, [0.9, 0.8, 0.7], classes=5)
    assert found(copied(votes, 1, 1)) == [((1, 3), 600)]


def test_few_items_name_nobody() -> None:
    votes, _ = simulated(90, [0.8], classes=5)
    assert found(copied(votes, 0, 4)) == []


@pytest.mark.parametrize("items", [150, 400])
def test_honest_people_who_hardly_ever_err_are_not_named(items: int) -> None:
    for seed in range(30):
        votes, _ = simulated(items, [0.99] * 5, classes=5, seed=seed)
        assert found(votes) == []


def test_where_nearly_all_items_are_of_one_class_agreement_is_no_wonder() -> None:
    label = np.where(np.arange(600) < 6, 1, 0)
    rows = [(item, person, said) for person in range(3) for item, said in enumerate(label.tolist())]
    assert found(votes_of(rows, 600, 2)) == []
