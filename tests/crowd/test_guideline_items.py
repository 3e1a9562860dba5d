"""Items where the best annotators agree with one another against the crowd."""

from __future__ import annotations

import numpy as np
import pytest

from _crowd import Row, votes_of
from pals.crowd.guideline_items import guideline_items
from pals.crowd.result import Result

ITEMS, PEOPLE = 60, 6
"""The first two annotators agree with the result nearly always, the others in two of three cases."""


def rows_with(disputed: set[int]) -> list[Row]:
    def answer(item: int, person: int) -> int:
        if item in disputed:
            return 1 if person < 2 else 0
        return 2 if person >= 2 and (item + person) % 3 == 0 else 0

    return [(item, person, answer(item, person)) for item in range(ITEMS) for person in range(PEOPLE)]


@pytest.mark.parametrize("label", [0, 1])
def test_disputed_items_are_found_whomever_the_result_follows(label: int) -> None:
    disputed = {7, 30}
    label_N = np.zeros(ITEMS, dtype=int)
    label_N[list(disputed)] = label
    found = guideline_items(Result(votes_of(rows_with(disputed), ITEMS, 3), np.eye(3)[label_N]))
    assert set(found.item_M) == disputed
    assert (found.best_label_M == 1).all() and (found.crowd_label_M == 0).all() and set(found.best_M) == {(0, 1)}


def test_gold_labels_one_best_annotator_and_no_names_list_nothing() -> None:
    rows, posterior_NC = rows_with({7}), np.eye(3)[np.zeros(ITEMS, dtype=int)]
    assert guideline_items(Result(votes_of(rows, ITEMS, 3), posterior_NC)).item_M.tolist() == [7]
    nothing = (
        votes_of(rows, ITEMS, 3, gold={7: 0}),
        votes_of([row for row in rows if row[1] != 1], ITEMS, 3),
        votes_of([(item, -1, label) for item, _, label in rows], ITEMS, 3),
        votes_of([], ITEMS, 3),
    )
    for votes in nothing:
        assert not len(guideline_items(Result(votes, posterior_NC)).item_M)
