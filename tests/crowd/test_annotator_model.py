"""The annotator model: E and M step against slow loops, crowds that are recovered, and how far mistakes are shared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

from _crowd import Row, many_people, rows_of, simulated, votes_of
from pals.crowd import Consensus, dawid_skene, majority_vote
from pals.crowd.dawid_skene import annotator_model
from pals.crowd.dawid_skene.annotator_model import (
    MIN_CHANCE,
    UNLISTED_PENALTY,
    AnnotatorModel,
    Errors,
    answer_log_likelihood,
    design_effect,
    e_step,
    estimate_errors,
    information,
    log_likelihood,
    m_step,
)
from pals.crowd.dawid_skene.answer_table import FIRST, UNLISTED, AnswerTable, arrange
from pals.crowd.dawid_skene.correlation import estimate_correlation
from pals.crowd.dawid_skene.em import fit_answers
from pals.readers import Votes
from pals.util.errors import InputError


def graded(seed: int) -> tuple[AnswerTable, np.ndarray]:
    """Answers of all forms to 12 items of four classes, some unnamed or unsure, with weights and gold; and a posterior."""
    rng = np.random.default_rng(seed)
    rows, answer, rank, percent, sure = list[Row](), [], [], [], []
    for number in range(40):
        labels = rng.permutation(4)[: rng.choice([1, 1, 1, 2, 3])].tolist()
        kind, item, annotator = rng.integers(4), int(rng.integers(12)), int(rng.integers(-1, 4))
        for place, label in enumerate(labels):
            rows.append((item, annotator, label))
            answer.append(number)
            rank.append((place + 1, 0, int(place == 0), 0)[kind])
            percent.append((0.6, 0.3, 0.1)[place] if kind == 3 else np.nan)
        sure += [bool(rng.random() < 0.8)] * len(labels)
    weight = rng.choice([0.5, 1.0, 2.0], size=40)[answer].tolist()
    votes = votes_of(rows, 12, 4, answer=answer, weight=weight, gold={2: 1}, sure=sure)
    table = arrange(replace(votes, rank_R=np.array(rank), percent_R=np.array(percent)))
    posterior_NC = rng.dirichlet(np.ones(4), size=12)
    posterior_NC[2] = [0, 1, 0, 0]
    return table, posterior_NC


def labels_with(table: AnswerTable, answer: int, role: int) -> list[int]:
    labels = {int(table.label_R[row]) for row in np.flatnonzero(table.answer_R == answer) if table.role_R[row] == role}
    if role == UNLISTED:
        labels = set(range(table.num_classes)) - set(table.label_R[table.answer_R == answer].tolist())
    return sorted(labels)


def slow_m_step(table: AnswerTable, posterior_NC: np.ndarray, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """The chances of a hit and of the roles for each answer, by the others of its form and of its annotator."""
    answers, weight_A = range(len(table.item_A)), table.weight_A
    mass_A4 = np.array(
        [[sum(posterior_NC[table.item_A[a], labels_with(table, a, role)]) for role in range(4)] for a in answers]
    )
    mass_A4 *= weight_A[:, None]
    overall_4 = mass_A4.sum(axis=0) / mass_A4.sum()
    chance_A4 = np.array(
        [
            sum((mass_A4[b] for b in answers if b != a and table.form_A[b] == table.form_A[a]), strength * overall_4)
            for a in answers
        ]
    )
    form_A = np.clip(chance_A4[:, FIRST] / chance_A4.sum(axis=1), MIN_CHANCE, 1 - MIN_CHANCE)
    hit_A = form_A.copy()
    for a in answers:
        others = [b for b in answers if b != a and table.annotator_A[b] == table.annotator_A[a]]
        if table.annotator_A[a] >= 0:
            right = sum(mass_A4[b, FIRST] for b in others) + strength * form_A[a]
            expected = sum(weight_A[b] * form_A[b] for b in others) + strength * form_A[a]
            total = sum(weight_A[b] for b in others) + strength
            hit_A[a] = expit(logit(form_A[a]) + logit(right / total) - logit(expected / total))
    role_A4 = np.maximum(chance_A4, MIN_CHANCE * chance_A4.sum(axis=1, keepdims=True)) * (table.count_A4 > 0)
    role_A4[:, FIRST] = 0
    return hit_A, role_A4 / np.maximum(role_A4.sum(axis=1, keepdims=True), 1e-300)


def slow_likelihood(
    table: AnswerTable, posterior_NC: np.ndarray, weight_N: np.ndarray, model: AnnotatorModel, prior_CC: np.ndarray
) -> np.ndarray:
    """A x C: log P(answer | class) by the equations, with errors counted over all other answers."""
    answers, classes = range(len(table.item_A)), table.num_classes
    log_AC = np.zeros((len(table.item_A), classes))
    for a in answers:
        hit, role_4, tops = model.hit_A[a], model.role_A4[a], labels_with(table, a, FIRST)
        for role in range(4):
            for c in labels_with(table, a, role):
                chance = (hit if role == FIRST else (1 - hit) * role_4[role]) / len(labels_with(table, a, role))
                if role == UNLISTED:
                    count_C = np.zeros(classes)
                    for b in answers:
                        top = labels_with(table, b, FIRST)
                        if b != a and c not in top:
                            item = table.item_A[b]
                            count_C[top] += table.weight_A[b] * weight_N[item] * posterior_NC[item, c] / len(top)
                    total_C = count_C + prior_CC[c]
                    chance *= (classes - 1) * np.mean(total_C[tops]) / sum(total_C)
                log_AC[a, c] = table.weight_A[a] * np.log(chance)
    return log_AC


@pytest.mark.parametrize("seed", range(3))
def test_both_steps_against_slow_loops(seed: int) -> None:
    table, posterior_NC = graded(seed)
    weight_N = np.random.default_rng(seed).random(12) + 0.5
    errors = estimate_errors(table, posterior_NC, weight_N)
    model = m_step(table, posterior_NC, np.ones(12), errors, 5.0)
    hit_A, role_A4 = slow_m_step(table, posterior_NC, 5.0)
    np.testing.assert_allclose(model.hit_A, hit_A, rtol=1e-5)
    np.testing.assert_allclose(model.role_A4, role_A4, atol=1e-5)
    log_AC = slow_likelihood(table, posterior_NC, weight_N, model, errors.prior_CC)
    np.testing.assert_allclose(answer_log_likelihood(table, model, np.arange(40)), log_AC, rtol=1e-7)
    log_prior_C, expected_NC = np.log([0.4, 0.3, 0.2, 0.1]), np.zeros((12, 4))
    for item in range(12):
        own = np.flatnonzero(table.item_A == item)
        count = table.weight_A[own].sum()
        expected_NC[item] = log_prior_C + log_AC[own].sum(axis=0) / (1 + max(count - 1, 0) * 0.3)
        listed = set(table.label_R[np.isin(table.answer_R, own)].tolist()) if len(own) else set(range(4))
        expected_NC[item, [c for c in range(4) if c not in listed]] -= UNLISTED_PENALTY
    expected_NC = np.exp(expected_NC) / np.exp(expected_NC).sum(axis=1, keepdims=True)
    expected_NC[2] = [0, 1, 0, 0]
    np.testing.assert_allclose(e_step(table, model, log_prior_C, 0.3), expected_NC, rtol=1e-6)


def test_blocks_of_answers_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    table, posterior_NC = graded(0)

    def both() -> tuple[np.ndarray, np.ndarray]:
        errors = estimate_errors(table, posterior_NC, np.ones(12))
        return errors.count_CC, log_likelihood(table, m_step(table, posterior_NC, np.ones(12), errors, 5.0))

    whole = both()
    monkeypatch.setattr(annotator_model, "ANSWER_BLOCK", 12)
    for part, expected in zip(both(), whole, strict=True):
        np.testing.assert_allclose(part, expected)


def test_one_form_with_even_errors_is_one_coin() -> None:
    """An annotator's hits: by hand, with a prior of 10 answers of the mean skill; the answer that is judged is left out."""
    table = arrange(votes_of([(item, 0, 0) for item in range(4)] + [(item, 1, 1) for item in range(4)], 4))
    posterior_NC = np.tile([0.75, 0.25, 0.0], (4, 1))
    model = m_step(table, posterior_NC, np.ones(4), Errors.even(3), 10.0)
    np.testing.assert_allclose(model.skill_W, [(3 + 5) / 14, (1 + 5) / 14], rtol=1e-5)
    usual = (3 - 0.75 + 1 + 5) / (8 - 1 + 10)
    rate, expected = (2.25 + 10 * usual) / 13, (3 * usual + 10 * usual) / 13
    assert model.hit_A[0] == pytest.approx(expit(logit(usual) + logit(rate) - logit(expected)), rel=1e-5)
    log_MC = answer_log_likelihood(table, model, np.arange(8))
    np.testing.assert_allclose(np.exp(log_MC[0]), np.array([1, 0.5, 0.5]) * [model.hit_A[0], *[1 - model.hit_A[0]] * 2])


def test_design_effect_and_information() -> None:
    table = arrange(votes_of([(0, w, 0) for w in range(5)] + [(1, 0, 0)], 3))
    assert design_effect(table, 0.25).ravel().tolist() == [2.0, 1.0, 1.0]
    np.testing.assert_allclose(information(np.array([1 / 3, 0.5]), 3), [0, np.log(2)], atol=1e-12)


# ---- crowds


def right(found: Consensus, truth_N: np.ndarray) -> float:
    return float((found.label_N == truth_N).mean())


def counted(votes: Votes, truth_N: np.ndarray) -> float:
    return float((majority_vote(votes).argmax(axis=1) == truth_N).mean())


def test_majority_by_hand() -> None:
    votes = votes_of([(0, 0, 0), (0, 1, 0), (0, 2, 1), (1, 0, 0), (1, 0, 1), (1, 1, 1)], 2, answer=[0, 1, 2, 3, 3, 4])
    np.testing.assert_allclose(majority_vote(votes), [[2 / 3, 1 / 3, 0], [1 / 4, 3 / 4, 0]])


def test_skills_and_errors_are_recovered() -> None:
    """Whoever misses class 0 writes 1, whoever misses another class writes any."""
    rng, skill_W = np.random.default_rng(0), np.array([0.95, 0.85, 0.7, 0.5, 0.4])
    truth_N = rng.integers(4, size=1500)
    rows = [
        (item, w, c if rng.random() < skill else (1 if c == 0 else int((c + rng.integers(1, 4)) % 4)))
        for item, c in enumerate(truth_N.tolist())
        for w, skill in enumerate(skill_W)
    ]
    votes = votes_of(rows, 1500, 4)
    found = dawid_skene(votes, correlation=0.0)
    assert right(found, truth_N) > counted(votes, truth_N) + 0.03
    np.testing.assert_allclose(found.annotators.skill_W, skill_W, atol=0.05)
    np.testing.assert_allclose(found.annotators.errors.error_CC[0], [0, 1, 0, 0], atol=0.1)
    np.testing.assert_allclose(found.annotators.errors.error_CC[2], [1 / 3, 1 / 3, 0, 1 / 3], atol=0.1)
    np.testing.assert_allclose(found.confusion_CC.sum(axis=1), 1)


def test_a_spammer_is_found() -> None:
    votes, truth_N = simulated(400, [0.85, 0.8, 0.75], classes=4)
    rng = np.random.default_rng(1)
    for labels in (rng.integers(4, size=400), np.full(400, 2)):
        both = votes_of([*rows_of(votes), *((item, 3, int(label)) for item, label in enumerate(labels))], 400, 4)
        found = dawid_skene(both, correlation=0.0)
        assert found.annotators.skill_W.argmin() == 3 and found.annotators.skill_W[3] < 0.4
        assert right(found, truth_N) > right(dawid_skene(votes, correlation=0.0), truth_N) - 0.02


def test_an_annotator_who_swaps_two_classes_does_not_swap_them() -> None:
    """The anchor: a class is what most annotators call it, even if one who is always right swaps it."""
    votes, truth_N = simulated(600, [0.8, 0.8, 0.8, 1.0])
    swapped = [(item, w, (1, 0, 2)[label] if w == 3 else label) for item, w, label in rows_of(votes)]
    found = dawid_skene(votes_of(swapped, 600), correlation=0.0)
    for label in range(3):
        assert (found.label_N == truth_N)[truth_N == label].mean() > 0.75
    assert found.annotators.skill_W[3] < 0.6


def test_unnamed_answers_come_close_to_named_ones_and_classes_keep_their_sizes() -> None:
    votes, truth_N = simulated(500, [0.8, 0.8, 0.75, 0.7], classes=4)
    unnamed = votes_of([(item, -1, label) for item, _, label in rows_of(votes)], 500, 4)
    found = dawid_skene(unnamed, correlation=0.0)
    assert right(found, truth_N) > right(dawid_skene(votes, correlation=0.0), truth_N) - 0.03
    np.testing.assert_allclose(np.bincount(found.label_N) / 500, found.answers.class_share_C, atol=0.04)
    assert np.unique(found.annotators.skill_W).size == 0


@pytest.mark.parametrize("classes", [2, 10])
def test_few_items_are_no_worse_than_counted(classes: int) -> None:
    pairs = []
    for seed in range(5):
        votes, truth_N = simulated(100, [0.8] * 4, classes=classes, seed=seed)
        pairs.append((counted(votes, truth_N), right(dawid_skene(votes, correlation=0.0), truth_N)))
    by_count, by_model = np.mean(pairs, axis=0)
    assert by_model >= by_count - 0.01


def test_ranks_and_marks_make_labels_better() -> None:
    """Second choices are often right where first ones are not, and unsure answers are worth less."""
    rng, rows, rank, sure = np.random.default_rng(0), list[Row](), [], []
    truth_N = rng.integers(6, size=400)
    for item, label in enumerate(truth_N.tolist()):
        for w in range(2):
            hard = bool(rng.random() < 0.5)
            other = int((label + rng.integers(1, 6)) % 6)
            first, second = (other, label) if hard and rng.random() < 0.7 else (label, other)
            rows += [(item, w, first), (item, w, second)]
            rank += [1, 2]
            sure += [not hard] * 2
    answer_R = np.arange(1600) // 2
    votes = votes_of(rows, 400, 6, answer=answer_R.tolist(), sure=sure)
    votes = replace(votes, rank_R=np.array(rank))
    found = dawid_skene(votes, correlation=0.0)
    tops = dawid_skene(replace(votes.take(np.arange(0, 1600, 2)), sure_R=np.ones(800, dtype=bool)), correlation=0.0)
    assert right(found, truth_N) > right(tops, truth_N) + 0.1
    unsure_A = ~votes.sure_R[::2]
    assert found.annotators.hit_A[unsure_A].max() < found.annotators.hit_A[~unsure_A].min() - 0.2


def test_gold_is_certain_and_items_without_answers_have_the_class_shares() -> None:
    votes, _ = simulated(50, [0.8, 0.8])
    found = dawid_skene(votes_of(rows_of(votes), 53, gold={3: 2, 50: 0}))
    assert found.posterior_NC[[3, 50]].tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    np.testing.assert_allclose(found.posterior_NC[51:], np.tile(found.answers.class_share_C, (2, 1)))
    counts = majority_vote(votes_of(rows_of(votes), 52))
    np.testing.assert_allclose(counts[51], majority_vote(votes).mean(axis=0))


def test_only_proportions_of_weights_matter() -> None:
    votes, _ = simulated(80, [0.8, 0.7, 0.6])
    weight = np.tile([1.0, 2.0, 0.5], 80)
    one = dawid_skene(votes_of(rows_of(votes), 80, weight=weight.tolist())).posterior_NC
    for scale in (1e-300, 1e300):
        scaled = votes_of(rows_of(votes), 80, weight=(scale * weight).tolist())
        np.testing.assert_allclose(dawid_skene(scaled).posterior_NC, one, atol=1e-9)


def test_refused() -> None:
    with pytest.raises(InputError, match="nothing to tell apart"):
        dawid_skene(votes_of([(0, 0, 0)], 1, classes=1))
    with pytest.raises(InputError, match="above zero"):
        dawid_skene(votes_of([(0, 0, 0)], 1), strength=0)


# ---- correlation


def crowd_with(rho: float, seed: int) -> AnswerTable:
    """Four annotators, right for 70%; with probability sqrt(rho) an answer follows the item's common chance."""
    rng = np.random.default_rng(seed)
    truth_N, common_N = rng.integers(5, size=400), rng.random(400)
    rows = []
    for item, label in enumerate(truth_N.tolist()):
        for w in range(4):
            chance = common_N[item] if rng.random() < np.sqrt(rho) else rng.random()
            rows.append((item, w, label if chance < 0.7 else int((label + rng.integers(1, 5)) % 5)))
    return arrange(votes_of(rows, 400, 5))


def test_shared_mistakes_are_told_from_independent_ones() -> None:
    none, some = ([estimate_correlation(crowd_with(rho, seed), fit_answers) for seed in range(3)] for rho in (0.0, 0.4))
    assert max(none) < 0.12 and np.mean(some) > 0.25 and min(some) > max(none)
    assert estimate_correlation(crowd_with(0.4, 0), fit_answers) == some[0]  # deterministic


def test_of_few_pairs_nothing_is_estimated() -> None:
    table = crowd_with(0.7, 0)
    assert estimate_correlation(table, fit_answers, np.arange(49)) == 0.0
    single, _ = many_people(200, 20, 4, seed=0)
    assert estimate_correlation(arrange(single.take(np.arange(0, 600, 3))), fit_answers) == 0.0
    weightless = replace(table, weight_A=np.zeros(len(table.weight_A)))
    assert estimate_correlation(weightless, fit_answers) == 0.0
