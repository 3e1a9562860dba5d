"""Answers arranged for the annotator model: roles, forms, weights and parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from _crowd import rows_of, simulated, votes_of
from pals.crowd.dawid_skene.answer_table import FIRST, LISTED, SECOND, UNLISTED, AnswerTable, arrange


def one_answer(labels: list[int], rank: list[int] | None = None, percent: list[float] | None = None) -> AnswerTable:
    """A single answer to one item, of five classes."""
    votes = votes_of([(0, 0, label) for label in labels], 1, 5, answer=[0] * len(labels))
    return arrange(replace(votes, rank_R=np.array(rank or []), percent_R=np.array(percent or [])))


def role_of(table: AnswerTable) -> dict[int, int]:
    return dict(zip(table.label_R.tolist(), table.role_R.tolist(), strict=True))


@pytest.mark.parametrize(
    ("labels", "rank", "percent", "roles"),
    [
        ([3], None, None, {3: FIRST}),
        ([3, 1], None, None, {3: FIRST, 1: FIRST}),
        ([3, 3], None, None, {3: FIRST}),
        ([3, 1, 0], [1, 2, 3], None, {3: FIRST, 1: SECOND, 0: LISTED}),
        ([3, 1, 0], [1, 0, 0], None, {3: FIRST, 1: LISTED, 0: LISTED}),
        ([3, 1], [1, 1], None, {3: FIRST, 1: FIRST}),
        ([3, 1, 0], [1, 2, 2], None, {3: FIRST, 1: SECOND, 0: SECOND}),
        ([3, 1, 0], None, [0.2, 0.7, 0.1], {3: SECOND, 1: FIRST, 0: LISTED}),
        ([3, 1], None, [0.5, 0.5], {3: FIRST, 1: FIRST}),
        ([3, 1], None, [np.nan, 0.6], {3: LISTED, 1: FIRST}),
        ([3, 1], [1, 2], [0.3, 0.7], {3: FIRST, 1: SECOND}),
    ],
)
def test_roles(labels: list[int], rank: list[int] | None, percent: list[float] | None, roles: dict[int, int]) -> None:
    """A rank goes before a stated percentage; without both, all labels are first."""
    table = one_answer(labels, rank, percent)
    assert role_of(table) == roles
    expected = [list(roles.values()).count(role) for role in range(4)]
    expected[UNLISTED] = 5 - len(roles)
    assert table.count_A4.tolist() == [expected]
    first = [label for label, role in roles.items() if role == FIRST]
    assert table.top_A.tolist() == [first[0] if len(first) == 1 else -1]


def test_forms_differ_by_what_else_was_written() -> None:
    rows = [(0, 0, 0), (1, 0, 0), (1, 0, 1), (2, 0, 2), (3, 0, 0), (4, 0, 1), (5, 0, 2)]
    votes = votes_of(rows, 6, answer=[0, 1, 1, 2, 3, 4, 5], sure=[True] * 6 + [False])
    percent_R = [np.nan, np.nan, np.nan, np.nan, 0.55, 0.6, np.nan]
    form_A = arrange(replace(votes, percent_R=np.array(percent_R))).form_A
    assert form_A[0] == form_A[2]  # the label does not matter
    assert form_A[3] == form_A[4]  # of one group of percentages
    assert len({*form_A.tolist()}) == 4  # a label, a set, a stated percentage, unsure


def test_weights_are_relative_and_shared_by_the_answers_of_one_annotator() -> None:
    rows = [(0, 0, 1), (0, 0, 1), (0, -1, 1), (0, -1, 1), (1, 0, 2), (1, 1, 2)]
    table = arrange(votes_of(rows, 3, weight=[2.0] * 5 + [0.0]))
    assert table.weight_A.tolist() == [0.5, 0.5, 1, 1, 1, 0]
    assert table.count_N.tolist() == [3, 1, 0]
    assert table.answered_N.tolist() == [True, True, False]


def test_shares_and_listed_classes_by_hand() -> None:
    """Item 0: "0 or 1", and 1; item 1: gold; item 2: an answer without weight; item 3: 2, with 0 as possible."""
    rows = [(0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 0, 0), (2, 0, 0), (3, 0, 2), (3, 0, 0)]
    votes = votes_of(rows, 4, answer=[0, 0, 1, 2, 3, 4, 4], weight=[1.0] * 4 + [0.0, 1.0, 1.0], gold={1: 2})
    table = arrange(replace(votes, rank_R=np.array([0, 0, 0, 0, 0, 1, 0])))
    assert table.share_NC.tolist() == [[0.25, 0.75, 0], [0, 0, 1], [0, 0, 0], [0, 0, 1]]
    assert table.named_NC.tolist() == [[True, True, False], [True, False, False], [True] * 3, [True, False, True]]
    assert table.known_N.tolist() == [True, True, False, True]
    np.testing.assert_allclose(table.class_share_C, np.array([1.25, 1.75, 3]) / 6)
    np.testing.assert_allclose(table.part_R, [0.5, 0.5, 1, 1, 1, 1, 1])


def test_some_items_have_the_answers_that_they_had() -> None:
    votes, _ = simulated(20, [0.8, 0.6, 0.5])
    rows = [*rows_of(votes), (3, 0, 0), (3, 0, 1)]
    table = arrange(votes_of(rows, 20, answer=[*range(60), 60, 60], gold={7: 1}))
    items = np.array([7, 3, 11])
    part = table.take(items)
    assert part.item_A.tolist().count(1) == 4 and part.gold_N.tolist() == [1, -1, -1]
    np.testing.assert_array_equal(part.share_NC, table.share_NC[items])
    np.testing.assert_array_equal(part.named_NC, table.named_NC[items])
    assert part.count_N.tolist() == table.count_N[items].tolist()
    assert part.num_annotators == 3 and part.num_forms == table.num_forms


@pytest.mark.parametrize(("seed", "tells"), [(0, True), (1, True), (2, False), (3, False)])
def test_sets_are_ranked_by_their_order_only_if_it_tells(seed: int, tells: bool) -> None:
    """Of two labels the right one is written first, or any; three other answers to the item mostly give it."""
    rng, rows = np.random.default_rng(seed), []
    truth_N = rng.integers(5, size=60)
    for item, label in enumerate(truth_N.tolist()):
        both = [label, int((label + rng.integers(1, 5)) % 5)]
        rows += [(item, 0, both[k]) for k in ([0, 1] if tells else rng.permutation(2))]
        rows += [(item, w, label) for w in (1, 2) if rng.random() < 0.9]
    answer = np.unique([item * 3 + w for item, w, _ in rows], return_inverse=True)[1].tolist()
    table = arrange(votes_of(rows, 60, 5, answer=answer))
    assert (table.role_R == SECOND).any() == tells and (table.count_A4[:, FIRST] == 1).all() == tells
    ordered = [(item, 0, label) for item in range(60) for label in (1, 3)]  # as boxes that are ticked
    assert (arrange(votes_of(ordered, 60, 5, answer=(np.arange(120) // 2).tolist())).role_R == FIRST).all()


def test_another_single_label_for_each_answer() -> None:
    table = arrange(votes_of([(0, 0, 0), (0, 0, 1), (1, 1, 2)], 2, answer=[0, 0, 1]))
    drawn = table.with_tops(np.array([2, 0]))
    assert drawn.top_A.tolist() == [2, 0] and drawn.count_A4.tolist() == [[2, 1, 0, 0]] * 2
    assert drawn.share_NC.tolist() == [[0, 0, 1], [1, 0, 0]]


@pytest.mark.parametrize("items", [0, 3])
def test_no_answers(items: int) -> None:
    table = arrange(votes_of([], items))
    assert table.share_NC.tolist() == [[0.0] * 3] * items and table.num_forms == 0
    assert not table.known_N.any() and table.named_NC.all() and table.top_A.tolist() == []
    np.testing.assert_allclose(table.class_share_C, 1 / 3)
