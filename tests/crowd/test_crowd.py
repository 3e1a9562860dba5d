"""Answers and scores of classifiers fused, small and odd crowds, and regression on kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from _crowd import Row, rows_of, simulated, votes_of
from pals.crowd import Fusion, Result, closed_form, estimate_noise, fuse, leave_one_out, majority_vote, rank_doubts
from pals.pipeline.tables.result_tables import annotators_table, labels_table
from pals.util.errors import InputError

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def right(fusion: Fusion, truth_N: np.ndarray) -> float:
    return float((fusion.label_N == truth_N).mean())


def check(fusion: Fusion) -> None:
    """Posteriors are distributions, gold is certain, the interval contains the estimate."""
    for posterior_NC in (fusion.posterior_NC, fusion.mean_NC, fusion.prediction_NC, fusion.alone.posterior_NC):
        assert (posterior_NC >= 0).all()
        np.testing.assert_allclose(posterior_NC.sum(axis=1), 1)
    gold_N = fusion.alone.answers.gold_N
    known = np.flatnonzero(gold_N >= 0)
    assert (fusion.label_N[known] == gold_N[known]).all() and (fusion.confidence_N[known] == 1).all()
    noise = estimate_noise(fusion)
    assert 0 <= noise.low <= noise.labels_wrong <= noise.high <= 1 and 0 <= noise.answers_wrong <= 1
    assert (noise.low_N <= fusion.confidence_N + 1e-12).all() and (fusion.confidence_N <= noise.high_N + 1e-12).all()


# ---- small and odd crowds


@pytest.mark.parametrize(
    ("rows", "items", "gold"),
    [
        ([], 0, None),
        ([], 3, None),
        ([], 3, {0: 1, 2: 2}),
        ([(0, 0, 1)], 1, None),
        ([(0, 0, 1), (0, 1, 1), (0, 2, 2)], 1, None),
        ([(item, 0, item % 3) for item in range(9)], 9, None),
        ([(item, w, 1) for item in range(30) for w in range(3)], 30, None),
        ([(item, -1, item % 2) for item in range(30)], 31, {30: 2}),
        ([(item, w, (item + w) % 3) for item in range(20) for w in range(3)], 20, None),
        ([(item, w, item % 3) for item in range(20) for w in range(2)], 20, {item: item % 3 for item in range(20)}),
    ],
)
def test_odd_crowds(rows: list[Row], items: int, gold: dict[int, int] | None) -> None:
    votes = votes_of(rows, items, gold=gold)
    rng = np.random.default_rng(0)
    check(fuse(votes, [rng.normal(size=(items, 3))]))
    check(closed_form(votes, torch.from_numpy(rng.normal(size=(items, 4))).float()))


@pytest.mark.parametrize("weights", [(0.0, 1.0, 1e9), (1e-300, 1e300), (0.0,)])
def test_wild_weights(weights: tuple[float, ...]) -> None:
    votes, _ = simulated(40, [0.8, 0.7])
    weight = np.random.default_rng(0).choice(weights, size=80).tolist()
    check(fuse(votes_of(rows_of(votes), 40, weight=weight), [np.random.default_rng(1).normal(size=(40, 3))]))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 3), st.integers(0, 2)), max_size=30), st.booleans())
def test_whatever_is_answered_the_result_is_a_distribution(rows: list[Row], gold: bool) -> None:
    check(fuse(votes_of(rows, 6, gold={2: 1} if gold else None), [np.linspace(-1, 1, 18).reshape(6, 3)]))


@pytest.mark.parametrize("rows", [[], [(0, 0, 1), (1, 0, 2)]])
def test_answers_without_weight_are_no_answers(rows: list[Row]) -> None:
    votes = votes_of(rows, 2, weight=[0.0] * len(rows))
    fusion = fuse(votes, [np.eye(3)[:2]])
    np.testing.assert_allclose(fusion.posterior_NC, 1 / 3)
    np.testing.assert_allclose(majority_vote(votes), 1 / 3)
    assert labels_table(Result(votes, fusion.posterior_NC))["status"].tolist() == ["no-answer", "no-answer"]
    assert estimate_noise(fusion).labels_wrong == 0


def test_where_all_agree_nothing_is_doubtful() -> None:
    votes, truth_N = simulated(40, [1.0, 1.0])
    fusion = fuse(votes, [])
    assert right(fusion, truth_N) == 1 and not len(rank_doubts(Result(votes, fusion.posterior_NC)).answer_M)


def test_a_class_that_is_never_chosen_is_next_to_impossible() -> None:
    votes, _ = simulated(60, [0.9, 0.9])
    assert fuse(votes_of(rows_of(votes), 60, classes=4), []).mean_NC[:, 3].max() < 0.02


def test_an_annotator_with_one_answer_has_the_skill_of_all() -> None:
    votes, _ = simulated(200, [0.9, 0.9, 0.9])
    rows = [*rows_of(votes), (0, 3, int((votes.label_R[0] + 1) % 3))]
    skill_W = fuse(votes_of(rows, 200), []).alone.annotators.skill_W
    assert 0.8 < skill_W[3] < skill_W[:3].min()


def test_one_label_for_everything_is_no_better_than_chance() -> None:
    votes, _ = simulated(300, [0.85, 0.8, 0.75])
    both = votes_of([*rows_of(votes), *((item, 3, 2) for item in range(300))], 300)
    table = annotators_table(Result(both, fuse(both, []).posterior_NC)).set_index("annotator")
    assert abs(table.loc["w3", "above_chance"]) < 0.15 and table.loc["w0", "above_chance"] > 0.6


# ---- fusion


def test_scores_that_help_at_any_scale() -> None:
    votes, truth_N = simulated(800, [0.7, 0.7, 0.7])
    good_NC = 1.5 * np.eye(3)[truth_N] + np.random.default_rng(1).normal(size=(800, 3))
    helped, scaled = fuse(votes, [good_NC]), fuse(votes, [1000 * good_NC + 5])
    assert right(helped, truth_N) > right(fuse(votes, []), truth_N) + 0.03
    assert (scaled.label_N == helped.label_N).mean() > 0.99 and helped.gain > 50
    assert (helped.prediction_NC.argmax(axis=1) == truth_N).mean() > 0.6


def test_scores_that_hurt_leave_the_answers_alone() -> None:
    """Not nearly the same: the very same, bit for bit."""
    votes, truth_N = simulated(500, [0.7, 0.7, 0.7])
    alone, rng = fuse(votes, []), np.random.default_rng(3)
    for score_NC in (rng.normal(size=(500, 3)), -np.eye(3)[truth_N], np.zeros((500, 3))):
        fusion = fuse(votes, [score_NC])
        assert fusion.calibration is None and np.array_equal(fusion.posterior_NC, alone.posterior_NC)


def test_gold_is_certain_whatever_the_scores_are() -> None:
    votes, truth_N = simulated(100, [0.7, 0.7])
    known = replace(votes, gold_I=np.where(np.arange(100) < 10, (truth_N + 1) % 3, -1))
    fusion = fuse(known, [4 * np.eye(3)[truth_N]])
    assert (fusion.posterior_NC[np.arange(10), (truth_N[:10] + 1) % 3] == 1).all()


def test_scores_are_checked() -> None:
    votes, _ = simulated(10, [0.9])
    with pytest.raises(InputError, match=r"Scores 0 have shape \(9, 3\)"):
        fuse(votes, [np.zeros((9, 3))])
    with pytest.raises(InputError, match="Scores 1 hold NaN or infinity, first for item 4"):
        fuse(votes, [np.zeros((10, 3)), np.where(np.arange(30).reshape(10, 3) == 13, np.nan, 0.0)])
    with pytest.raises(InputError, match="do not belong together"):
        leave_one_out(torch.zeros(3, 2), np.zeros((4, 2)), generator=torch.Generator())
    with pytest.raises(InputError, match="item 1 hold NaN"):
        leave_one_out(torch.tensor([[0.0], [torch.nan]]), np.zeros((2, 2)), generator=torch.Generator())


# ---- regression on kernels


def test_leaving_one_out_against_really_leaving_it_out() -> None:
    """The formula gives what a regression on all other items predicts."""
    rng = np.random.default_rng(0)
    features_ND = torch.from_numpy(rng.normal(size=(30, 4))).float()
    target_NC = rng.dirichlet(np.ones(3), size=30)
    known_N = np.ones(30, dtype=bool)
    known_N[27:] = False
    found = leave_one_out(features_ND, target_NC, generator=torch.Generator().manual_seed(0), known_N=known_N, penalty=0.3)
    x = (features_ND - features_ND.mean(dim=0)).double()
    square = (x[:, None] - x).square().sum(dim=2)
    pairs = torch.triu_indices(30, 30, offset=1)
    spread = torch.Generator().manual_seed(0)
    order = torch.randperm(30, generator=spread)
    median = square[order][:, order][pairs[0], pairs[1]].median()
    kernel = torch.exp(-square / median)
    mean_C = target_NC[known_N].mean(axis=0)
    for item in (0, 13, 28):
        others = [i for i in range(30) if i != item and known_N[i]]
        gram = kernel[others][:, others] + 0.3 * torch.eye(len(others), dtype=torch.float64)
        weight = torch.linalg.solve(gram, torch.from_numpy(target_NC[others] - mean_C))
        expected = mean_C + (kernel[item, others] @ weight).numpy()
        np.testing.assert_allclose(found[item], expected, atol=1e-3)
