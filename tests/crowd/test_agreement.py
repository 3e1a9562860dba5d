"""Agreement beyond chance: published examples, reference packages, and whether the intervals hold what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from _crowd import Row, simulated, votes_of
from pals.crowd.agreement import (
    Agreement,
    agreement,
    cohen_kappa,
    fleiss_kappa,
    fleiss_kappa_of_classes,
    gwet_ac1,
    krippendorff_alpha,
)
from pals.readers import Votes
from pals.util.errors import InputError

# Krippendorff (2011), "Computing Krippendorff's alpha-reliability", part C: four observers, twelve units, some not answered.
UNITS = ("123321412...", "1233224125.3", ".3332342251.", "12332441251.")
# Fleiss (1971) as retold everywhere: ten items, fourteen raters, five categories.
RATED = """0 0 0 0 14  0 2 6 4 2  0 0 3 5 6  0 3 9 2 0  2 2 8 1 1  7 7 0 0 0  3 2 6 3 0  2 5 3 2 2  6 5 2 1 0  0 2 2 3 7"""

# Fleiss (1971), table 1: thirty patients, six psychiatrists each, five diagnoses (depression, ..., neurosis, other).
DIAGNOSES = """00060 03003 01401 00006 03030 20400 00402 20310 20040 00006 10050 11040 03300 10050 02031
00501 30012 51000 02040 10203 00006 01050 02013 20040 10041 05010 40002 02040 10500 00006"""


def units() -> Votes:
    rows: list[Row] = [
        (item, person, int(mark) - 1) for person, marks in enumerate(UNITS) for item, mark in enumerate(marks) if mark != "."
    ]
    return votes_of(rows, 12, 5)


def counts(votes: Votes) -> np.ndarray:
    count_NC = np.zeros((len(votes.items), len(votes.class_names)), dtype=int)
    np.add.at(count_NC, (votes.item_R, votes.label_R), 1)
    return count_NC


def test_krippendorffs_own_example() -> None:
    found = agreement(units(), rounds=50)
    assert found.alpha.value == pytest.approx(0.743, abs=5e-4)
    assert (found.items, found.answers) == (11, 40)  # one unit has a single answer


def test_fleiss_own_example() -> None:
    count_NC = np.array(RATED.split(), dtype=int).reshape(10, 5)
    assert fleiss_kappa(count_NC) == pytest.approx(0.210, abs=5e-4)


def test_gwets_ac1_is_high_where_one_class_is_rare_and_kappa_is_not() -> None:
    """Of ten items with two answers each nine agree on the first class: chance is 2 x .95 x .05 for AC1, 1 - that for kappa."""
    count_NC = np.array([[2, 0]] * 9 + [[1, 1]])
    assert gwet_ac1(count_NC) == pytest.approx((0.9 - 0.095) / (1 - 0.095))
    assert fleiss_kappa(count_NC) == pytest.approx((0.9 - 0.905) / (1 - 0.905))


def test_gwets_ac1_of_three_answers_to_three_classes() -> None:
    """Agreement (1 + 1/3 + 0 + 1/3) / 4; shares 1/2, 1/4, 1/4, so chance (1/4 + 3/16 + 3/16) / 2."""
    count_NC = np.array([[3, 0, 0], [2, 1, 0], [1, 1, 1], [0, 1, 2]])
    assert gwet_ac1(count_NC) == pytest.approx((5 / 12 - 5 / 16) / (1 - 5 / 16))


def test_fleiss_own_example_class_by_class() -> None:
    count_NC = np.array([[int(count) for count in row] for row in DIAGNOSES.split()])
    assert fleiss_kappa(count_NC) == pytest.approx(0.430, abs=5e-4)
    assert fleiss_kappa_of_classes(count_NC) == pytest.approx([0.245, 0.245, 0.520, 0.471, 0.566], abs=5e-4)


def test_cohens_kappa_of_a_table() -> None:
    one_X, other_X = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    assert cohen_kappa(np.array([[20, 5, 10, 15]]), one_X, other_X) == pytest.approx([0.4])


def test_pairs_are_cohens() -> None:
    votes, _ = simulated(80, (0.9, 0.7, 0.4), classes=4, seed=1)
    label_WN = votes.label_R.reshape(80, 3).T
    found = agreement(votes, rounds=50)
    assert [(pair.one, pair.other) for pair in found.pairs] == [(0, 1), (0, 2), (1, 2)]
    for pair in found.pairs:
        one_N, other_N = label_WN[pair.one], label_WN[pair.other]
        assert pair.items == 80
        assert pair.agree == pytest.approx((one_N == other_N).mean())
        assert pair.kappa.value == pytest.approx(cohen_kappa_score(one_N, other_N))
        assert pair.kappa.low < pair.kappa.value < pair.kappa.high


def test_people_who_seldom_meet_are_not_compared() -> None:
    rows: list[Row] = [(item, item % 2, 0) for item in range(40)] + [(item, 2, item % 3) for item in range(25)]
    found = agreement(votes_of(rows, 40, 3), rounds=10)
    assert [(pair.one, pair.other, pair.items) for pair in found.pairs] == [(0, 2, 13), (1, 2, 12)]


def test_of_a_large_crowd_those_who_answered_most_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Row] = [(item, person, item % 2) for person, items in enumerate((15, 30, 12, 25)) for item in range(items)]
    every = {(pair.one, pair.other): pair.items for pair in agreement(votes_of(rows, 30, 2), rounds=2).pairs}
    assert every == {(1, 3): 25, (0, 1): 15, (0, 3): 15, (0, 2): 12, (1, 2): 12, (2, 3): 12}
    monkeypatch.setattr("pals.crowd.agreement.MAX_MEETINGS", 25 + 2 * 15)
    some = {(pair.one, pair.other): pair.items for pair in agreement(votes_of(rows, 30, 2), rounds=2).pairs}
    assert some == {(1, 3): 25, (0, 1): 15, (0, 3): 15}


def test_the_last_answer_of_a_person_counts_and_nobodys_are_all_counted() -> None:
    again: list[Row] = [(item, person, 0) for item in range(12) for person in (0, 1)] + [
        (item, 0, item % 2) for item in range(12)
    ]
    assert agreement(votes_of(again, 12, 2), rounds=10).pairs[0].agree == 0.5
    unnamed: list[Row] = [(item, -1, number % 2) for item in range(12) for number in range(3)]
    found = agreement(votes_of(unnamed, 12, 2), rounds=10)
    assert (found.answers, found.pairs) == (36, ())


def test_answers_with_several_labels_take_no_side() -> None:
    votes, _ = simulated(30, (0.9, 0.8), seed=2)
    answer_R = votes.answer_R.copy()
    answer_R[1] = answer_R[0]  # the first two rows are one answer
    fewer = Votes(**{**{name: getattr(votes, name) for name in votes.__dataclass_fields__}, "answer_R": answer_R})
    found = agreement(fewer, rounds=10)
    assert (found.several, found.items) == (1, 29)


def test_intervals_hold_the_agreement_of_the_whole_crowd() -> None:
    """Samples of 100 items from 20,000; nominally 95%."""
    people = (0.9, 0.8, 0.6)
    votes, _ = simulated(20_000, people, seed=0)
    whole = krippendorff_alpha(counts(votes))
    held = 0
    for seed in range(60):
        found = agreement(simulated(100, people, seed=100 + seed)[0], rounds=300, seed=seed)
        held += found.alpha.low <= whole <= found.alpha.high
    assert 52 <= held <= 60


def nothing(found: Agreement) -> bool:
    return all(math.isnan(value) for value in (found.alpha.value, found.alpha.low, found.fleiss.value))


def test_groups_of_items_give_the_intervals_of_items(monkeypatch: pytest.MonkeyPatch) -> None:
    votes, _ = simulated(3000, (0.9, 0.8, 0.6), classes=4, seed=8)
    one = agreement(votes, rounds=400)
    monkeypatch.setattr("pals.crowd.agreement.MAX_GROUPS", 250)
    monkeypatch.setattr("pals.crowd.agreement.BLOCK_VALUES", 20_000)  # in parts, too
    other = agreement(votes, rounds=400)
    for measure in ("alpha", "fleiss"):
        whole, grouped = getattr(one, measure), getattr(other, measure)
        assert grouped.value == pytest.approx(whole.value)
        assert grouped.high - grouped.low == pytest.approx(whole.high - whole.low, rel=0.2)
    assert [found.value for found in other.alpha_of_class] == pytest.approx([found.value for found in one.alpha_of_class])


def test_where_there_is_nothing_to_compare() -> None:
    single: list[Row] = [(item, 0, item % 2) for item in range(20)]
    found = agreement(votes_of(single, 20, 2), rounds=10)
    assert (found.items, found.pairs) == (0, ())
    assert nothing(found)
    alike: list[Row] = [(item, person, 1) for item in range(20) for person in range(2)]
    assert nothing(agreement(votes_of(alike, 20, 2), rounds=10))  # there is no chance to be right by, nor to be wrong
    with pytest.raises(InputError, match="at least two"):
        agreement(votes_of(single, 20, 2), rounds=1)
