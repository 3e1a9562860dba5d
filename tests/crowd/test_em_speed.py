"""The quick way to Dawid and Skene's model, in parts and with few classes looked at twice, against the slow one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import _slow_consensus as slow
from _crowd import many_people, votes_of
from _slow import rest_slow
from pals.crowd import blocks
from pals.crowd.answers import arrange
from pals.crowd.dawid_skene import em
from pals.crowd.dawid_skene.em import STRENGTHS, choose_strength, dawid_skene
from pals.labels.taxonomy import Taxonomy
from pals.readers import Votes

TREE = Taxonomy.from_parents({"a": None, "b": None, **{f"a{k}": "a" for k in range(3)}, **{f"b{k}": "b" for k in range(2)}})


def crowd(kind: str, items: int = 40, classes: int = 5) -> Votes:
    """Three answers an item. Some of them, by kind, name two labels or a branch, are unsure, or weigh more; somebody does not
    know; some labels are gold; every fifth answer has no name, some of them to one item and the same."""
    rng = np.random.default_rng(7)
    truth_N = rng.integers(classes, size=items)
    rows, answer, sure, weight = [], [], [], []
    unknown = [(int(rng.integers(items)), 3) for _ in range(8)] if kind == "marked" else []
    for number in range(3 * items):
        item, person = number // 3, max(int(rng.integers(-2, 8)), -1)
        label = int(truth_N[item]) if rng.random() < 0.7 else int(rng.integers(classes))
        labels = [label]
        if kind in ("sets", "marked") and rng.random() < 0.25:
            labels = sorted({label, int(rng.integers(classes))})
        if kind == "tree" and rng.random() < 0.25:
            labels = [0, 1, 2] if label < 3 else [3, 4]
        rows += [(item, person, label) for label in labels]
        answer += [number] * len(labels)
        sure += [kind != "marked" or bool(rng.random() < 0.7)] * len(labels)
        weight += [float(rng.choice([0.0, 0.5, 2.0])) if kind == "weights" else 1.0] * len(labels)
    gold = {4: 1, 9: 3} if kind == "weights" else {}
    votes = votes_of(rows, items + 1, classes, answer=answer, sure=sure, weight=weight, unknown=unknown, gold=gold)
    return replace(votes, class_names=TREE.leaves, taxonomy=TREE) if kind == "tree" else votes


@pytest.mark.parametrize("hard", rest_slow(1, [True, False]))
@pytest.mark.parametrize("kind", rest_slow(3, ["sets", "weights", "tree", "plain", "marked"]))
def test_the_quick_way_finds_what_the_slow_one_does(kind: str, hard: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    votes = crowd(kind)
    expected = slow.estimate(arrange(votes), 10.0, hard, tolerance=1e-3)
    for numbers in (blocks.BLOCK, 40):  # in one part, and in many
        monkeypatch.setattr(blocks, "BLOCK", numbers)
        found = dawid_skene(votes, hard_items=hard, strength=10.0, tolerance=1e-3)
        assert found.found.easy_NC == pytest.approx(expected.easy_NC, abs=1e-7)
        assert found.found.hard_NC == pytest.approx(expected.hard_NC, abs=1e-7)
        answered_N = found.answers.answered_N & (found.answers.gold_N < 0)
        assert found.found.evidence_N[answered_N] == pytest.approx(expected.evidence_N[answered_N], abs=1e-5)


def test_tables_too_large_for_double_precision_find_the_same_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    votes, _ = many_people(400, 30, 6, seed=3)
    whole = dawid_skene(votes, hard_items=True, strength=30.0)
    monkeypatch.setattr(blocks, "SINGLE", 100)
    found = dawid_skene(votes, hard_items=True, strength=30.0)
    assert found.found.easy_NC.dtype == np.float32 and found.annotators.count_PC.dtype == np.float32
    assert found.posterior_NC == pytest.approx(whole.posterior_NC, abs=1e-4)


@pytest.mark.parametrize(("people", "skill"), [(8, (2.5, 1.5)), (40, (4.0, 1.3)), (300, (4.0, 1.3))])
def test_the_climb_ends_at_the_strength_that_is_best_of_all(
    people: int, skill: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    votes, _ = many_people(900, people, 4, seed=people, skill=skill)
    answers = arrange(votes)
    best = choose_strength(answers)
    tried: list[float] = []
    begin = em._alternate
    monkeypatch.setattr(em, "_alternate", lambda a, p, *rest: tried.append(p.strength) or begin(a, p, *rest))
    monkeypatch.setattr(em, "QUICK", 0)
    assert choose_strength(answers) == best
    assert len(tried) <= len(STRENGTHS)


def test_what_a_fit_begins_with_stays_as_it_is() -> None:
    """The answers' own consensus is kept beside that with an opinion, which goes on from it."""
    votes, _ = many_people(100, 10, 3, seed=5)
    alone = dawid_skene(votes, hard_items=True, strength=30.0)
    kept = alone.found.easy_NC.copy(), alone.annotators.count_PC.copy()
    prior_NC = np.log(np.random.default_rng(0).dirichlet(np.ones(3), size=100))
    again = em.expectation_maximisation(
        alone.answers, alone.annotators, alone.found, lambda found: prior_NC, tolerance=1e-5, iterations=5
    )
    assert (alone.found.easy_NC == kept[0]).all() and (alone.annotators.count_PC == kept[1]).all()
    assert np.abs(again.found.easy_NC - kept[0]).max() > 0.1
