"""Very many answers, of which only the classes that an item may be of are looked at, against tables of all classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pals.crowd.dawid_skene.annotators import confusion_matrices

from _crowd import many_people
from pals.crowd import blocks, dawid_skene, fuse, majority_vote
from pals.crowd.dawid_skene import sparse, sparse_em
from pals.crowd.dawid_skene.em import Consensus
from pals.crowd.next_answer import typical_person
from pals.readers import Votes


def crowd(kind: str) -> Votes:
    """Twelve classes, three answers an item."""
    votes, _ = many_people(300, 40, 12, seed=11)
    rng = np.random.default_rng(2)
    if kind == "weights":
        votes = replace(votes, weight_R=rng.choice([0.0, 0.5, 2.0], size=len(votes.item_R)))
    if kind == "unnamed":
        votes = replace(votes, annotator_R=np.where(rng.random(len(votes.item_R)) < 0.4, -1, votes.annotator_R))
    if kind == "gold":
        gold_I = np.where(rng.random(300) < 0.1, rng.integers(12, size=300), -1)
        votes = replace(votes, gold_I=gold_I).take(np.flatnonzero(votes.item_R % 25 > 0))  # and items that nobody has seen
    if kind == "unknown":
        votes = replace(votes, unknown_item_U=np.arange(30), unknown_annotator_U=np.arange(30) % 7)
    return votes


def both_ways(votes: Votes, monkeypatch: pytest.MonkeyPatch, **options: object) -> tuple[Consensus, Consensus]:
    expected = dawid_skene(votes, **options)  # type: ignore[arg-type]
    monkeypatch.setattr(sparse_em, "MANY", 0)
    found = dawid_skene(votes, **options)  # type: ignore[arg-type]
    assert isinstance(expected.annotators.count_PC, np.ndarray) and not isinstance(found.annotators.count_PC, np.ndarray)
    return expected, found


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("kind", ["plain", "weights", "gold", "unknown", "unnamed"])
def test_few_classes_find_what_all_classes_do(kind: str, hard: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where hardly any class is left out, to many digits."""
    votes = crowd(kind)
    for module in (sparse_em, sparse):
        monkeypatch.setattr(module, "LEAST", 1e-7)
    expected, found = both_ways(votes, monkeypatch, hard_items=hard, strength=30.0, tolerance=1e-6)
    assert found.converged == expected.converged
    assert found.posterior_NC == pytest.approx(expected.posterior_NC, abs=5e-4)
    assert found.found.hard_NC == pytest.approx(expected.found.hard_NC, abs=5e-4)
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-6)
    assert found.prior_C == pytest.approx(expected.prior_C, abs=1e-4)
    assert found.annotators.count_PC.toarray() == pytest.approx(expected.annotators.count_PC, abs=5e-3)
    assert found.annotators.care_W == pytest.approx(expected.annotators.care_W, abs=1e-4)
    assert found.annotators.hard_C == pytest.approx(expected.annotators.hard_C, abs=1e-4)


def test_what_is_left_out_moves_little(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, found = both_ways(crowd("plain"), monkeypatch, strength=30.0)
    assert found.converged and expected.converged
    assert np.abs(found.posterior_NC - expected.posterior_NC).sum(axis=1).mean() < 1e-3
    assert (found.label_N == expected.label_N).mean() > 0.995


def test_parts_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_em, "MANY", 0)
    votes = crowd("gold")
    whole = dawid_skene(votes, hard_items=True, strength=30.0)
    monkeypatch.setattr(blocks, "BLOCK", 3000)
    assert dawid_skene(votes, hard_items=True, strength=30.0).posterior_NC == pytest.approx(whole.posterior_NC, abs=1e-9)


@pytest.mark.parametrize(("people", "skill"), [(8, (2.5, 1.5)), (300, (4.0, 1.3))])
def test_the_same_strength_is_chosen(people: int, skill: tuple[float, float], monkeypatch: pytest.MonkeyPatch) -> None:
    votes, _ = many_people(600, people, 4, seed=people, skill=skill)
    expected, found = both_ways(votes, monkeypatch)
    assert found.annotators.strength == expected.annotators.strength
    assert found.label_N.tolist() == expected.label_N.tolist()


def test_an_item_whose_class_is_overlooked_at_first_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of one class each, the majority's, are not all that is looked at in the end."""
    votes, _ = many_people(300, 10, 5, seed=3, skill=(2.0, 2.0))
    monkeypatch.setattr(sparse_em, "COARSE", 1.0)
    expected, found = both_ways(votes, monkeypatch, strength=30.0, tolerance=1e-6)
    assert (expected.label_N != majority_vote(votes).argmax(axis=1)).sum() > 5
    assert (found.label_N == expected.label_N).mean() > 0.99


def test_what_follows_from_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Confusion matrices, the next person to be asked, and the correlation of answers."""
    votes = crowd("plain")
    correlation = fuse(votes, (), strength=30.0).correlation
    expected, found = both_ways(votes, monkeypatch, strength=30.0)
    only_K = np.array([2, 5])
    matrices = [confusion_matrices(one.answers, one.annotators, only_K) for one in (found, expected)]
    assert matrices[0] == pytest.approx(matrices[1], abs=1e-3)
    people = [typical_person(one.answers, one.annotators).easy_CC for one in (found, expected)]
    assert people[0] == pytest.approx(people[1], abs=1e-3)
    assert fuse(votes, (), strength=30.0).correlation == pytest.approx(correlation, abs=1e-3)
