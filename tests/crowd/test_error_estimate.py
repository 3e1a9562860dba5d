"""How sure a result is: powers of posteriors, intervals of items and of the share of wrong labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from _crowd import many_people, rows_of, simulated, votes_of
from pals.crowd import closed_form, estimate_noise, fuse
from pals.crowd.dawid_skene.answer_table import arrange
from pals.crowd.uncertainty import exponent, num_replicates, raised, reported


def test_a_power_leaves_the_label() -> None:
    rng = np.random.default_rng(0)
    posterior_NC = rng.dirichlet(np.full(4, 0.3), size=50)
    for power in (0.1, 0.7, 1.0, 3.0):
        raised_NC = raised(posterior_NC, np.full((50, 1), power))
        np.testing.assert_allclose(raised_NC.sum(axis=1), 1)
        assert (raised_NC.argmax(axis=1) == posterior_NC.argmax(axis=1)).all()
    np.testing.assert_allclose(raised(posterior_NC, np.ones((50, 1))), posterior_NC)
    assert raised(np.array([[0.8, 0.2]]), np.array([[0.5]])).tolist() == [pytest.approx([2 / 3, 1 / 3])]


def test_the_power_by_hand() -> None:
    """Five answers with a visible correlation of 0.1 and an assumed one of 0.25, without and with images; a single answer;
    none."""
    table = arrange(votes_of([(0, w, 0) for w in range(5)] + [(1, 0, 0)], 3))
    np.testing.assert_allclose(exponent(table, 0.1, False, 0.25).ravel(), [1.4 / 2, 1, 1])
    np.testing.assert_allclose(exponent(table, 0.1, True, 0.25).ravel(), [1.4 / 2.25, 1 / 1.25, 1])
    assert exponent(table, 0.4, False, 0.25).tolist() == [[1]] * 3  # never surer than the fit
    posterior_NC = np.array([[0.9, 0.1, 0], [0.7, 0.2, 0.1], [0.5, 0.3, 0.2]])
    assert (reported(table, posterior_NC, 0.1, True).max(axis=1) <= posterior_NC.max(axis=1)).all()


@pytest.mark.parametrize(("items", "replicates"), [(0, 12), (1000, 12), (1_000_000, 2), (10_000_000, 1)])
def test_number_of_replicates(items: int, replicates: int) -> None:
    table = arrange(votes_of([], 1))
    assert num_replicates(replace(table, gold_N=np.broadcast_to(np.int64(-1), (items,)))) == replicates


def test_estimate_and_confidence_agree_and_intervals_contain_them() -> None:
    votes, _ = many_people(300, 40, 5, seed=0)
    fusion = fuse(votes, [])
    noise = estimate_noise(fusion)
    assert noise.labels_wrong == pytest.approx(1 - fusion.confidence_N.mean())
    assert noise.low < noise.labels_wrong < noise.high
    assert (noise.low_N <= fusion.confidence_N).all() and (fusion.confidence_N <= noise.high_N).all()
    assert (noise.high_N - noise.low_N).max() > 0.05
    again = estimate_noise(fusion)
    assert (again.low, again.high) == (noise.low, noise.high) and (again.low_N == noise.low_N).all()


def test_gold_labels_are_right() -> None:
    votes, truth_N = many_people(300, 40, 5, seed=0)
    half = replace(votes, gold_I=np.where(np.arange(300) < 150, truth_N, -1))
    fusion = fuse(half, [])
    noise = estimate_noise(fusion)
    assert noise.labels_wrong == pytest.approx((1 - fusion.confidence_N[150:]).sum() / 300)
    assert (noise.low_N[:150] == 1).all() and (noise.high_N[:150] == 1).all()
    everything = estimate_noise(fuse(replace(votes, gold_I=truth_N), []))
    assert (everything.labels_wrong, everything.low, everything.high) == (0, 0, 0)
    assert everything.answers_wrong == pytest.approx((votes.label_R != truth_N[votes.item_R]).mean())


@pytest.mark.parametrize("named", [True, False])
def test_independent_annotators(named: bool) -> None:
    """Rather too high than too low, since shared mistakes would look much the same."""
    votes, truth_N = simulated(600, [0.8, 0.75, 0.75, 0.7], classes=5)
    if not named:
        votes = votes_of([(item, -1, label) for item, _, label in rows_of(votes)], 600, 5)
    fusion = fuse(votes, [])
    noise, wrong = estimate_noise(fusion), (fusion.label_N != truth_N).mean()
    assert noise.low - 0.02 < wrong <= noise.high and wrong - 0.01 < noise.labels_wrong < wrong + 0.06
    assert noise.answers_wrong == pytest.approx((votes.label_R != truth_N[votes.item_R]).mean(), abs=0.05)


def test_an_earlier_result_is_judged_by_the_same_fit() -> None:
    """Of ten labels that are changed to others, about nine and a half were right; items without an earlier label count with
    the present one."""
    votes, truth_N = simulated(200, [0.9, 0.9, 0.9])
    fusion = fuse(replace(votes, gold_I=np.where(np.arange(200) < 20, truth_N, -1)), [])
    same = estimate_noise(fusion, earlier_N=np.full(200, -1))
    assert same.earlier is not None and same.earlier == pytest.approx((same.labels_wrong, same.low, same.high))
    for changed in (slice(10), slice(100, 110)):  # gold, and not
        earlier_N = fusion.label_N.copy()
        earlier_N[changed] = (earlier_N[changed] + 1) % 3
        then = estimate_noise(fusion, earlier_N=earlier_N).earlier
        assert then is not None and then[1] <= then[0] <= then[2]
        assert then[0] - same.labels_wrong == pytest.approx(10 / 200, abs=0.01)


def test_models_differ_where_images_change_labels() -> None:
    votes, truth_N = many_people(100, 20, 4, seed=1)
    alone = fuse(votes, [])
    assert estimate_noise(alone).models_differ == 0
    features_ND = torch.from_numpy(4 * np.eye(4)[truth_N] + np.random.default_rng(0).normal(size=(100, 4))).float()
    found = closed_form(votes, features_ND)
    assert estimate_noise(found).models_differ == (found.label_N != alone.label_N).mean() > 0
