"""Who clicks without looking is found in simulated crowds; honest people are left in peace, also where items come in series."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from _crowd import Row, votes_of
from pals.crowd import majority_vote
from pals.crowd.annotator_flags import among_others, repeated_answers
from pals.readers import Votes

CLASSES = 5


def crowd(seed: int, kinds: tuple[str, ...] = (), *, honest: int = 10, items: int = 400, ordered: bool = False) -> Votes:
    """Three answers an item, each by another person. The first people are clickers of these kinds, all others honest."""
    rng = np.random.default_rng(seed)
    truth_N = rng.integers(CLASSES, size=items)
    truth_N = np.sort(truth_N) if ordered else truth_N
    people = len(kinds) + honest
    skill_W = rng.uniform(0.6, 0.95, size=people)
    given = [0] * people
    rows: list[Row] = []
    for item, label in enumerate(truth_N.tolist()):
        for person in rng.choice(people, 3, replace=False).tolist():
            blind = int(rng.integers(CLASSES))
            said = {"any": blind, "same": 2, "series": given[person] // 8 % CLASSES}
            looks = label if rng.random() < skill_W[person] else blind
            rows.append((item, person, said[kinds[person]] if person < len(kinds) else looks))
            given[person] += 1
    return votes_of(rows, items, CLASSES)


def flagged(votes: Votes) -> tuple[np.ndarray, np.ndarray]:
    return repeated_answers(votes, majority_vote(votes).argmax(axis=1)).flagged_W, among_others(votes).flagged_W


@pytest.mark.parametrize("ordered", [False, True])
def test_honest_people_are_left_in_peace(ordered: bool) -> None:
    """Fifteen crowds, 150 people: nobody is flagged, neither in any order nor with the file sorted by class."""
    found = [flagged(crowd(seed, ordered=ordered)) for seed in range(15)]
    assert np.sum(found) == 0


@pytest.mark.parametrize("kind", ["any", "same", "series"])
def test_clickers_are_found(kind: str) -> None:
    """Two of twelve, with some 200 answers each; nobody else is flagged with them."""
    repeats, chance = np.zeros(12, dtype=int), np.zeros(12, dtype=int)
    for seed in range(6):
        again, blind = flagged(crowd(100 + seed, (kind, kind), items=800))
        repeats += again
        chance += blind
    assert chance[:2].sum() >= 11
    assert repeats[:2].sum() == (12 if kind == "series" else 0)  # whoever says one thing always does so by their own habit
    assert chance[2:].sum() == repeats[2:].sum() == 0


def test_times_tell_the_order_that_a_file_does_not() -> None:
    """The file is in the order of nothing; a time that is missing leaves the person's answers in that order."""
    votes = crowd(100, ("series", "series"), items=800)
    votes = replace(votes, time_R=np.arange(len(votes.item_R), dtype=float))
    votes = votes.take(np.random.default_rng(0).permutation(len(votes.item_R)))
    assert flagged(votes)[0].nonzero()[0].tolist() == [0, 1]
    time_R = np.where(np.arange(len(votes.time_R)) == (votes.annotator_R == 1).argmax(), np.nan, votes.time_R)
    assert flagged(replace(votes, time_R=time_R))[0].nonzero()[0].tolist() == [0]


def test_what_the_items_explain_by_hand() -> None:
    """w0 says 0 0 1 | 1 where the results are 0 0 0 | 1. Of the first three answers two are 0, so that two in a row are alike
    with chance 1/3; the last step is from one of those to a 1, which is alike with chance 1/3."""
    votes = votes_of([(0, 0, 0), (1, 0, 0), (2, 0, 1), (3, 0, 1)], 4, 2)
    found = repeated_answers(votes, np.array([0, 0, 0, 1]))
    assert found.steps_W.tolist() == [3]
    assert found.same_W == pytest.approx([2 / 3]) and found.expected_W == pytest.approx([1 / 3])


def test_agreement_with_others_by_hand() -> None:
    """w0 says 0, 0, 1 where the others said {0, 1}, {0}, {0}: shares 1/2, 1, 0. Others say 0 with 5/6: chance is 2/3 * 5/6 +
    1/3 * 1/6 = 11/18."""
    votes = votes_of([(0, 0, 0), (0, 1, 0), (0, 2, 1), (1, 0, 0), (1, 1, 0), (2, 0, 1), (2, 1, 0)], 3, 2)
    found = among_others(votes)
    assert found.agree_W[0] == pytest.approx(0.5) and found.chance_W[0] == pytest.approx(11 / 18)
    assert found.answers_W.tolist() == [3, 3, 1]


def test_unnamed_and_several_labels_are_nobodys() -> None:
    votes = crowd(1, ("series",))
    unnamed = replace(votes, annotator_R=np.where(votes.annotator_R == 0, -1, votes.annotator_R))
    assert repeated_answers(unnamed, majority_vote(unnamed).argmax(axis=1)).steps_W[0] == 0
    doubled = replace(votes, answer_R=np.repeat(np.arange(len(votes.item_R) // 3), 3))  # all name several labels
    assert repeated_answers(doubled, np.zeros(len(votes.items), dtype=int)).steps_W.sum() == 0
    assert among_others(doubled).answers_W.sum() == 0
