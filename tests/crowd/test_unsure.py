"""What unsure answers are worth, and what "don't know" says: learned from simulated people."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from pals.crowd.dawid_skene.annotators import initial_annotators
from pals.crowd.dawid_skene.e_step import e_step
from pals.crowd.dawid_skene.unsure import Caution, Unsure

from _crowd import many_people, votes_of
from pals.crowd import gibbs
from pals.crowd.agreement import agreement
from pals.crowd.answers import arrange, vote_shares
from pals.crowd.closed_form import closed_form
from pals.crowd.dawid_skene import annotators as annotators_module
from pals.crowd.dawid_skene.em import Consensus, dawid_skene
from pals.crowd.error_estimate import estimate_noise
from pals.crowd.fusion import fuse
from pals.readers import Votes

CLASSES = 4


def guessing(trust_W: list[float], seed: int, items: int = 300, unsure: float = 0.4) -> tuple[Votes, np.ndarray]:
    """Three answers an item; four of ten are unsure, and each person's are as good as sure ones with a probability of their
    own, else anything."""
    rng = np.random.default_rng(seed)
    truth_N = rng.integers(CLASSES, size=items)
    rows, sure = [], []
    for item, label in enumerate(truth_N.tolist()):
        for person in rng.choice(len(trust_W), 3, replace=False).tolist():
            sure.append(bool(rng.random() > unsure))
            if not sure[-1] and rng.random() > trust_W[person]:
                label_given = int(rng.integers(CLASSES))
            else:
                label_given = label if rng.random() < 0.85 else int((label + rng.integers(1, CLASSES)) % CLASSES)
            rows.append((item, person, label_given))
    return votes_of(rows, items, CLASSES, sure=sure), truth_N


def all_sure(votes: Votes) -> Votes:
    return replace(votes, sure_R=np.ones(len(votes.item_R), dtype=bool))


def right(consensus: Consensus, truth_N: np.ndarray) -> float:
    return float((consensus.label_N == truth_N).mean())


def trust_of(consensus: Consensus) -> np.ndarray:
    assert consensus.annotators.unsure is not None
    return consensus.annotators.unsure.trust_W[:-1]  # without the unnamed


# ---- arrangement


def test_an_unsure_answer_has_a_symbol_of_its_own() -> None:
    rows = [(0, 0, 1), (1, 0, 1), (2, 0, 1), (2, 1, 0), (2, 1, 2), (1, 1, 0), (1, 1, 2)]
    sure = [True, False, False, True, False, False, False]  # who names one label surely is sure of the set
    answers = arrange(votes_of(rows, 3, answer=[0, 1, 2, 3, 3, 4, 4], sure=sure))

    def said(symbol: int) -> tuple[int, list[int], bool]:
        labels = answers.label_P[answers.members_SP[symbol].indices]
        return int(answers.annotator_S[symbol]), sorted(labels.tolist()), bool(answers.sure_S[symbol])

    assert [sorted(said(symbol) for symbol in answers.given_NS[item].indices) for item in range(3)] == [
        [(0, [1], True)],
        [(0, [1], False), (1, [0, 2], False)],
        [(0, [1], False), (1, [0, 2], True)],
    ]


def test_where_labels_are_only_counted_an_unsure_one_is_half_a_vote() -> None:
    votes = votes_of([(0, 0, 1), (0, 1, 2)], 1, sure=[False, True])
    assert vote_shares(votes)[0].tolist() == pytest.approx([0, 1 / 3, 2 / 3])
    frequency_NC = votes.to_candidates().frequency_NC
    assert frequency_NC is not None and frequency_NC[0].tolist() == pytest.approx([0, 1 / 3, 2 / 3])


def test_one_step_by_hand() -> None:
    """An unsure answer is, with the probability of trust, a sure one, and else a label by its frequency."""
    rows = [(0, 0, 1), (0, 1, 2), (1, 2, 0), (2, 2, 0)]
    votes = votes_of(rows, 3, sure=[False, True, True, True])
    people = initial_annotators(arrange(votes), 10.0, hard=False)
    assert people.unsure is not None
    trust, base_C = float(people.unsure.trust_W[0]), np.array([3, 2, 2]) / 7  # of four answers, each class one more

    def of_item_0(*which: int) -> np.ndarray:
        """Up to a factor, the probability of these answers by each class, if they are sure."""
        sure = votes_of([rows[i] for i in which] + rows[2:], 3)
        same = replace(initial_annotators(arrange(sure), 10.0, hard=False), habit_WC=people.habit_WC)
        found = e_step(arrange(sure), same, np.zeros(3))
        return np.asarray(found.posterior_NC[0] * np.exp(found.evidence_N[0]))

    expected_C = (trust * of_item_0(0) + (1 - trust) * base_C[1]) * of_item_0(1)
    found = e_step(arrange(votes), people, np.zeros(3))
    np.testing.assert_allclose(found.posterior_NC[0], expected_C / expected_C.sum(), rtol=1e-12)


# ---- what unsure answers are worth


def test_guesses_count_little_and_knowledge_counts_in_full() -> None:
    for share, low, high in ((0.0, 0.0, 0.3), (1.0, 0.8, 1.0)):
        trust_W = trust_of(dawid_skene(guessing([share] * 8, seed=1)[0]))
        assert low <= trust_W.min() and trust_W.max() <= high


def test_each_person_has_a_worth_of_their_own() -> None:
    votes, _ = guessing([0.05, 0.95] * 4, seed=2, items=400)
    trust_W = trust_of(dawid_skene(votes))
    assert trust_W[0::2].mean() < 0.35 and trust_W[1::2].mean() > 0.65
    assert trust_W[0::2].max() < trust_W[1::2].min()


def test_labels_are_better_than_with_marks_ignored_or_answers_dropped() -> None:
    gain_ignored, gain_dropped = [], []
    for seed in range(3):
        votes, truth_N = guessing([0.05, 0.95] * 4, seed)
        found = right(dawid_skene(votes), truth_N)
        gain_ignored.append(found - right(dawid_skene(all_sure(votes)), truth_N))
        gain_dropped.append(found - right(dawid_skene(votes.take(np.flatnonzero(votes.sure_R))), truth_N))
    assert np.mean(gain_ignored) > 0.01
    assert np.mean(gain_dropped) > 0.03


def test_with_pictures_too() -> None:
    votes, truth_N = guessing([0.1] * 8, seed=3)
    rng = np.random.default_rng(0)
    pictures = torch.from_numpy(np.eye(CLASSES)[truth_N] + 0.7 * rng.normal(size=(len(truth_N), CLASSES))).float()
    marked, ignored = closed_form(votes, pictures), closed_form(all_sure(votes), pictures)
    assert right(marked.consensus, truth_N) > right(ignored.consensus, truth_N)
    assert trust_of(marked.consensus).mean() < 0.35
    wrong, expected = 1 - right(marked.consensus, truth_N), estimate_noise(votes, marked)
    assert expected.low <= wrong <= expected.high


def test_the_draws_learn_it_too() -> None:
    """By Gibbs sampling with answers alone, where ignoring the marks makes labels look worse than they are."""
    votes, _ = guessing([0.0] * 6, seed=4, items=150)
    fusion = fuse(votes, [])
    chain = gibbs.Chain(
        fusion.consensus.answers,
        None,
        gibbs.Start(fusion.consensus.posterior_NC, fusion.consensus.annotators, 0.0),
        np.random.default_rng(0),
    )
    drawn = []
    for sweep in range(40):
        chain.sweep(draw_correlation=False)
        assert chain.unsure is not None
        if sweep >= 20:
            drawn.append(chain.unsure.trust_W[:-1].mean())
    assert np.mean(drawn) < 0.3


# ---- don't know


def puzzled(seed: int, ratio: float, items: int = 400) -> tuple[Votes, np.ndarray, np.ndarray]:
    """Four people an item are asked. Of hard items half of the answers are wrong, and `ratio` times as many do not know; every
    second person is three times as cautious."""
    rng = np.random.default_rng(seed)
    truth_N, hard_N = rng.integers(CLASSES, size=items), rng.random(items) < 0.3
    rows, unknown = [], []
    for item, label in enumerate(truth_N.tolist()):
        for person in rng.choice(10, 4, replace=False).tolist():
            if rng.random() < (0.03, 0.09)[person % 2] * (ratio if hard_N[item] else 1):
                unknown.append((item, person))
                continue
            knows = rng.random() < (0.5 if hard_N[item] else 0.95)
            rows.append((item, person, label if knows else int((label + rng.integers(1, CLASSES)) % CLASSES)))
    return votes_of(rows, items, CLASSES, unknown=unknown), truth_N, hard_N


def silent(votes: Votes) -> Votes:
    return replace(votes, unknown_item_U=np.empty(0), unknown_annotator_U=np.empty(0))


def told_apart(consensus: Consensus, hard_N: np.ndarray) -> float:
    """AUROC of the probability that an item is hard."""
    share_N = consensus.found.hard_NC.sum(axis=1)
    return float((share_N[hard_N][:, None] > share_N[~hard_N]).mean())


def test_dont_know_tells_which_items_are_hard_and_who_is_cautious() -> None:
    votes, truth_N, hard_N = puzzled(seed=0, ratio=6.0)
    found, without = (dawid_skene(v, hard_items=True, strength=30) for v in (votes, silent(votes)))
    assert told_apart(found, hard_N) > told_apart(without, hard_N) + 0.02
    caution = found.annotators.caution
    assert caution is not None
    assert caution.ratio > 2.5
    assert 2 < caution.caution_W[1:-1:2].mean() / caution.caution_W[0:-1:2].mean() < 4
    own = np.arange(len(truth_N)), truth_N
    assert np.log(found.posterior_NC[own]).mean() > np.log(without.posterior_NC[own]).mean()  # less sure where it should be


def test_dont_know_that_has_nothing_to_do_with_hardness_changes_little() -> None:
    for seed in range(1, 6):
        votes, _, _ = puzzled(seed, ratio=1.0)
        found, without = (dawid_skene(v, hard_items=True, strength=30) for v in (votes, silent(votes)))
        caution = found.annotators.caution
        assert caution is not None and caution.ratio < 1.3
        assert np.abs(found.posterior_NC - without.posterior_NC).max() < 0.05


def test_dont_know_is_neither_an_answer_nor_a_disagreement() -> None:
    votes, _, _ = puzzled(seed=2, ratio=6.0, items=60)
    assert len(votes.unknown_item_U) > 10
    assert agreement(votes, rounds=20) == agreement(silent(votes), rounds=20)
    np.testing.assert_array_equal(arrange(votes).count_N, arrange(silent(votes)).count_N)
    plain = dawid_skene(silent(votes), strength=30)  # without hard items it says nothing at all
    np.testing.assert_array_equal(dawid_skene(votes, strength=30).posterior_NC, plain.posterior_NC)


# ---- without marks


def test_without_marks_nothing_of_this_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are to the last bit those of a model that knows nothing of marks."""

    def never(*_: object) -> None:
        raise AssertionError("there are no marks")

    votes, truth_N = many_people(60, 6, 3, seed=0)
    monkeypatch.setattr(annotators_module, "learned_unsure", never)
    for name in ("mixed", "without_guesses", "drawn"):
        monkeypatch.setattr(Unsure, name, never)
    for name in ("log_hard_N1", "learned", "drawn"):
        monkeypatch.setattr(Caution, name, never)
    found = closed_form(votes, torch.from_numpy(np.eye(3)[truth_N]).float())
    estimate_noise(votes, found)
    assert found.consensus.annotators.unsure is None and found.consensus.annotators.caution is None
