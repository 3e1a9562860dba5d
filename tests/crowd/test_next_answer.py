"""What one more answer is worth: by hand, against slow loops, and how it follows from who can be asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from _crowd import simulated
from pals.crowd import fuse
from pals.crowd.answer_forecast import forecast
from pals.crowd.next_answer import (
    ENOUGH,
    EXPERT,
    ONE_MORE,
    Answerer,
    Standing,
    as_sure_as,
    decide,
    expert,
    gain_of_one,
    gain_per_answer,
    paid_for,
    standing_of,
    typical_annotator,
)


def held(*belief: list[float]) -> Standing:
    return Standing(np.array(belief), np.array(belief))


def right_for(share: float, classes: int = 2) -> np.ndarray:
    return expert(classes, share)


# ---- by hand


def test_one_answer_by_hand() -> None:
    """At 0.6 to 0.4 a person who is right for 0.8 turns the label when they contradict: 0.48 + 0.32 are right then. At 0.9 to
    0.1 they do not (0.18 against 0.08), so that one answer is worth nothing."""
    gain_N = gain_of_one(held([0.6, 0.4], [0.9, 0.1], [1.0, 0.0]), right_for(0.8))
    assert gain_N.tolist() == pytest.approx([0.2, 0.0, 0.0])


def test_two_answers_can_turn_what_one_cannot() -> None:
    """0.9 to 0.1: who contradicts once (0.26) is followed by a second, who contradicts as well: 0.064 against 0.036. A third
    then adds 0.016 with probability 0.1."""
    standing = held([0.9, 0.1])
    assert gain_per_answer(standing, right_for(0.8), ahead=1).tolist() == [0.0]
    assert gain_per_answer(standing, right_for(0.8), ahead=2).tolist() == pytest.approx([0.028 / 1.26])
    assert gain_per_answer(standing, right_for(0.8), ahead=3).tolist() == pytest.approx([0.044 / 1.36])


def test_labels_turn_by_what_decides() -> None:
    """What is believed is less sure than what decides; an answer that does not turn the label adds nothing to it."""
    standing = Standing(np.array([[0.9, 0.1]]), np.array([[0.6, 0.4]]))
    assert gain_of_one(standing, right_for(0.8)).tolist() == [0.0]
    assert standing.right_N.tolist() == [0.6]


# ---- against slow loops


def random_case(seed: int, classes: int) -> tuple[Standing, np.ndarray]:
    rng = np.random.default_rng(seed)
    decides_NC, belief_NC = rng.dirichlet(np.full(classes, 0.5), size=(2, 4))
    order = np.argsort(np.argsort(-decides_NC, axis=1), axis=1)  # the same likeliest class
    belief_NC = np.take_along_axis(-np.sort(-belief_NC, axis=1), order, axis=1)
    return Standing(decides_NC, belief_NC), (rng.dirichlet(np.ones(classes), size=classes) + np.eye(classes)) / 2


def slow_best(standing: Standing, chance_CC: np.ndarray, item: int, ahead: int, price: float) -> float:
    """Labels right less the price of the answers, of the best plan that begins with asking."""
    classes = standing.belief_NC.shape[1]

    def value(said: tuple[int, ...], must_ask: bool) -> float:
        seen = [float(np.prod(chance_CC[c, list(said)])) for c in range(classes)]
        label = max(range(classes), key=lambda c: standing.decides_NC[item, c] * seen[c])
        stop = standing.belief_NC[item, label] * seen[label]
        if len(said) == ahead:
            return float(stop)
        probable = sum(standing.belief_NC[item, c] * seen[c] for c in range(classes))
        go_on = sum(value((*said, a), False) for a in range(classes)) - price * probable
        return float(go_on if must_ask else max(stop, go_on))

    return value((), True) - float(standing.right_N[item])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_the_best_plan_is_found(seed: int, ahead: int) -> None:
    """At the price of its own rate the best plan just breaks even: no plan is better, one is as good."""
    standing, person = random_case(seed, classes=3)
    rate_N = gain_per_answer(standing, person, ahead)
    for item, rate in enumerate(rate_N):
        assert slow_best(standing, person, item, ahead, rate) == pytest.approx(0.0, abs=1e-7) or rate == 0
        assert slow_best(standing, person, item, ahead, rate + 0.01) < 0


def test_one_answer_is_weighed_over_all_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    standing, person = random_case(9, classes=7)
    exact = [max(slow_best(standing, person, item, 1, 0.0), 0.0) for item in range(4)]
    assert gain_of_one(standing, person).tolist() == pytest.approx(exact)
    monkeypatch.setattr("pals.crowd.next_answer.MAX_EXACT_CLASSES", 6)
    assert gain_of_one(standing, person).tolist() == pytest.approx(exact, abs=0.02)


# ---- people


def test_a_typical_annotator_has_the_mean_skill_and_answers_that_share_mistakes_tell_less() -> None:
    votes, _ = simulated(200, [0.9, 0.7, 0.6], classes=4)
    fusion = fuse(votes, [])
    consensus = replace(fusion.consensus, correlation=0.0)
    chance_CC = typical_annotator(replace(fusion, consensus=consensus))
    np.testing.assert_allclose(chance_CC, consensus.confusion_CC, atol=1e-9)
    assert np.diag(chance_CC).mean() == pytest.approx(consensus.annotators.hit_A.mean())
    shared_CC = typical_annotator(replace(fusion, consensus=replace(consensus, correlation=0.5)))
    np.testing.assert_allclose(shared_CC.sum(axis=1), 1)
    assert (np.diag(shared_CC) < np.diag(chance_CC)).all()


def test_answers_come_as_often_as_is_expected() -> None:
    """Of a fit that has seen two of three answers, the share of third answers that contradict is the share that is expected."""
    votes, _ = simulated(1500, [0.75, 0.75, 0.75], classes=4, seed=3)
    fusion = fuse(votes.take(np.flatnonzero(votes.annotator_R < 2)), [], strength=30.0)
    standing = standing_of(fusion)
    expected_NC = standing.belief_NC @ typical_annotator(fusion)
    third = votes.label_R[votes.annotator_R == 2]
    expected = 1 - expected_NC[np.arange(len(third)), standing.label_N].mean()
    assert (third != standing.label_N).mean() == pytest.approx(expected, abs=0.06)


# ---- decisions


def test_enough_one_more_or_an_expert() -> None:
    """Ties that an annotator can break and an item that is settled; of the second item no annotator is left to be asked."""
    standing = held([0.55, 0.45], [0.55, 0.45], [0.999, 0.001])
    crowd = Answerer("", 1.0, (right_for(0.9),), np.array([0, -1, 0]), np.full(3, 9))
    sources = [crowd, replace(Answerer.anybody(right_for(0.98), 3, cost=5.0), expert=True)]
    found = decide(standing, sources, worth=0.01)
    assert found.kind_N.tolist() == [ONE_MORE, EXPERT, ENOUGH]
    assert found.gain_N[1] == pytest.approx(0.98 - 0.55) and found.rate_N[1] == pytest.approx(0.43 / 5)
    assert decide(standing, sources, worth=0.2).kind_N.tolist() == [ONE_MORE, ENOUGH, ENOUGH]


def test_nobody_is_asked_who_is_not_there() -> None:
    standing = held([0.55, 0.45], [0.9, 0.1], [0.9, 0.1])
    source = Answerer("ana", 1.0, (right_for(0.8),), np.array([-1, 0, 0]), np.array([1, 1, 3]))
    found = decide(standing, [source], worth=0.01)
    assert found.kind_N.tolist() == [ENOUGH, ENOUGH, ONE_MORE]  # a single answer cannot turn the second item


def test_as_sure_as_the_estimate() -> None:
    standing = held([0.9, 0.1], [0.7, 0.3], [0.6, 0.4])
    for right in (0.65, 0.9):
        found = as_sure_as(standing, right, np.array([0, 1]))
        assert found.right_N[:2].mean() == pytest.approx(right, abs=1e-3)
        assert (np.argsort(found.right_N) == np.argsort(standing.right_N)).all()
    assert 0.9 < as_sure_as(standing, 1.0, np.arange(3)).right_N.mean() < 1
    assert as_sure_as(standing, 0.9, np.array([], dtype=int)) is standing


# ---- the forecast


def test_a_forecast_is_what_was_expected() -> None:
    """A thousand items at 0.6 to 0.4: each of the first answers adds 0.2 labels right, a second one nothing more."""
    standing = held(*[[0.6, 0.4]] * 1000)
    once = Answerer("", 1.0, (right_for(0.8),), np.zeros(1000, dtype=int), np.ones(1000, dtype=int))
    found = forecast(standing, [once], 500)
    assert found.answers_K[[0, -1]].tolist() == [0, 500] and found.cost_K[-1] == 500
    assert found.right_K[[0, -1]].tolist() == pytest.approx([0.6, 0.7], abs=0.01)
    assert forecast(standing, [once], 5000).answers_K[-1] == 1000  # there are no more
    assert (standing.belief_NC == held(*[[0.6, 0.4]] * 1000).belief_NC).all()  # nothing is changed


@pytest.mark.parametrize(
    ("cost", "money", "paid"), [([5, 1, 5, 1, 1], 7, "11010"), ([5, 1], 1, "01"), ([2, 2], 1, "00"), ([], 9, "")]
)
def test_money_is_spent_in_turn_on_what_it_pays_for(cost: list[float], money: float, paid: str) -> None:
    assert "".join(str(int(one)) for one in paid_for(np.array(cost), money)) == paid


def test_a_budget_is_kept_and_an_expert_has_the_last_word() -> None:
    standing = held(*[[0.5, 0.5]] * 40)
    knows = Answerer("expert", 3.0, (expert(2, 1.0),), np.zeros(40, dtype=int), np.full(40, 9), expert=True)
    found = forecast(standing, [Answerer.anybody(right_for(0.55), 40), knows], 1000)
    assert found.answers_K[-1] == 40 and found.cost_K[-1] == 120 and found.right_K[-1] == pytest.approx(1.0)
    assert forecast(standing, [knows], 10).cost_K[-1] == 9  # a fourth would cost too much
    assert forecast(standing, [knows], 2).answers_K.tolist() == [0]
