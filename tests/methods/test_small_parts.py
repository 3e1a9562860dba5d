"""Sampling, losses, mixing, schedules and metrics: hand-worked values and slow references."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pals.labels.candidates import Truth
from pals.labels.metrics import BINS, grade_selection, mean_and_std, posterior_histogram, score_predictions
from pals.methods.parts.losses import smoothed_cross_entropy, soft_cross_entropy
from pals.methods.parts.mixup import blend, draw_weights, partners
from pals.methods.parts.sampling import drawn, passes, shuffled
from pals.pseudo_labels.simplex import uniform_on
from pals.training.optim import TrainConfig, learning_rate


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(0, 5))
def test_shuffled_is_a_permutation_and_depends_on_the_generator_alone(items: list[int], seed: int) -> None:
    index_M = torch.tensor(items, dtype=torch.int64)
    order = shuffled(index_M, generator(seed))
    assert sorted(order.tolist()) == sorted(items)
    torch.manual_seed(seed + 99)
    assert torch.equal(order, shuffled(index_M, generator(seed)))


def test_shuffled_is_a_fair_permutation() -> None:
    """Every order and every selected item equally often, also among more items than float32 tells apart."""
    one = generator(1)
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(1200):
        order = tuple(shuffled(torch.arange(3), one).tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert all(140 < count < 260 for count in counts.values())  # 200 expected, standard deviation 13
    order = drawn(torch.tensor([False, True, True, False, True]), 30_000, generator())
    share = torch.bincount(order, minlength=5) / 30_000
    torch.testing.assert_close(share, torch.tensor([0.0, 1 / 3, 1 / 3, 0.0, 1 / 3]), atol=0.01, rtol=0)
    assert len(order) == 30_000
    selected_N = torch.zeros(2**24 + 9, dtype=torch.bool)
    selected_N[[3, 2**24 + 7, 2**24 + 8]] = True
    assert set(drawn(selected_N, 100, generator()).tolist()) == {3, 2**24 + 7, 2**24 + 8}


@given(st.integers(1, 9), st.integers(0, 40), st.integers(0, 5))
def test_passes_visit_everyone_before_anyone_again(items: int, length: int, seed: int) -> None:
    index_M = torch.arange(100, 100 + items)
    order = passes(index_M, length, generator(seed)).tolist()
    assert len(order) == length
    for start in range(0, length, items):
        one_pass = order[start : start + items]
        assert len(set(one_pass)) == len(one_pass) and set(one_pass) <= set(index_M.tolist())
    assert passes(index_M[:0], length, generator(seed)).tolist() == []
    first, second = passes(torch.arange(50), 100, generator(seed)).split(50)
    assert not torch.equal(first, second) and not torch.equal(first, torch.arange(50))  # shuffled for each pass


def test_label_smoothing_by_hand() -> None:
    """r = 0.5, p = (.7, .1, .1, .1), label 0: 0.5 * 0.3566749 + 0.125 * (0.3566749 + 3 * 2.3025851) = 1.0863912."""
    logits = torch.tensor([[0.7, 0.1, 0.1, 0.1]]).log()
    assert float(smoothed_cross_entropy(logits, torch.tensor([0]), 0.5)) == pytest.approx(1.0863912, abs=1e-6)
    assert float(smoothed_cross_entropy(logits, torch.tensor([0]), 0.0)) == pytest.approx(0.3566749, abs=1e-6)


def slow_soft(logits: list[float], target: list[float]) -> float:
    total = math.log(sum(math.exp(z) for z in logits))
    return sum(t * (total - z) for z, t in zip(logits, target, strict=True))


@given(st.integers(2, 6), st.floats(0, 0.99), st.integers(0, 1000))
def test_losses_against_slow_loops(classes: int, r: float, seed: int) -> None:
    logits = 3 * torch.randn(5, classes, generator=generator(seed))
    label = torch.randint(classes, (5,), generator=generator(seed))
    target = torch.rand(5, classes, generator=generator(seed + 1))
    target /= target.sum(dim=1, keepdim=True)
    expected_soft = [slow_soft(z, t) for z, t in zip(logits.tolist(), target.tolist(), strict=True)]
    smoothed = [[(1 - r) * (c == y) + r / classes for c in range(classes)] for y in label.tolist()]
    expected_hard = [slow_soft(z, t) for z, t in zip(logits.tolist(), smoothed, strict=True)]
    assert soft_cross_entropy(logits, target).tolist() == pytest.approx(expected_soft, rel=1e-4, abs=1e-5)
    assert smoothed_cross_entropy(logits, label, r).tolist() == pytest.approx(expected_hard, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_losses_are_float32_whatever_comes_in(dtype: torch.dtype) -> None:
    logits = torch.randn(4, 3, generator=generator()).to(dtype)
    target = torch.full((4, 3), 1 / 3)
    for loss in (smoothed_cross_entropy(logits, torch.tensor([0, 1, 2, 0]), 0.3), soft_cross_entropy(logits, target)):
        assert loss.dtype == torch.float32 and loss.shape == (4,)
    assert torch.equal(soft_cross_entropy(logits, target), soft_cross_entropy(logits.float(), target))
    extreme = torch.tensor([[1e4, -1e4, 0.0]])
    assert torch.isfinite(soft_cross_entropy(extreme, torch.tensor([[0.0, 0.5, 0.5]]))).all()
    assert torch.isfinite(smoothed_cross_entropy(extreme, torch.tensor([1]), 0.5)).all()


def test_mixup_weights() -> None:
    plain = draw_weights((3000, 2), 1.0, np.random.default_rng(0), fold=False)
    folded = draw_weights((3000, 2), 1.0, np.random.default_rng(0), fold=True)
    assert plain.shape == folded.shape == (3000, 2) and plain.dtype == torch.float32
    torch.testing.assert_close(folded, torch.maximum(plain, 1 - plain))
    assert float(plain.mean()) == pytest.approx(0.5, abs=0.015)  # Beta(1, 1) is uniform
    assert float(plain.var()) == pytest.approx(1 / 12, abs=0.004)
    assert float(folded.mean()) == pytest.approx(0.75, abs=0.01)
    sharp = draw_weights((3000,), 4.0, np.random.default_rng(0), fold=False)
    assert float(sharp.var()) == pytest.approx(1 / (4 * (2 * 4 + 1)), abs=0.004)  # Beta(a, a): 1 / (4 (2a + 1))


def test_partners_are_a_permutation_in_each_row() -> None:
    assert partners(torch.tensor([0.3, 0.1, 0.2])).tolist() == [1, 2, 0]
    uniform = torch.rand(4, 9, generator=generator())
    for row, one in zip(partners(uniform), uniform, strict=True):
        assert sorted(row.tolist()) == list(range(9)) and torch.equal(row, partners(one))


def test_blend_by_hand() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    blended = blend(x, torch.tensor([1, 2, 0]), torch.tensor(0.75))
    torch.testing.assert_close(blended, torch.tensor([[1.5, 2.5], [3.5, 4.5], [4.0, 5.0]]))
    assert torch.equal(blend(x, torch.tensor([1, 2, 0]), torch.tensor(1.0)), x)
    images = torch.randn(3, 2, 4, 4, generator=generator())
    partner = torch.tensor([2, 0, 1])
    torch.testing.assert_close(blend(images, partner, torch.tensor(0.6)), 0.6 * images + 0.4 * images[partner])
    assert blend(x.to(torch.bfloat16), torch.tensor([1, 2, 0]), torch.tensor(0.75)).dtype == torch.bfloat16


RATES: list[tuple[dict[str, Any], dict[float, float]]] = [  # settings; rate after so many of 500 epochs
    (
        {"schedule": "exponential", "lr": 0.05, "factor": 0.5, "period": 50},
        {0: 0.05, 1: 0.0493116, 25: 0.0353553, 25.7: 0.0353553, 50: 0.025, 249: 0.0015843},
    ),
    ({"schedule": "cosine", "lr": 0.1, "floor": 1e-4}, {0: 0.1, 250: 0.05005, 500: 1e-4}),  # published: half-way
    ({"schedule": "cosine-epoch", "lr": 0.1, "floor": 1e-4}, {250.9: 0.05005}),
    ({"schedule": "linear", "lr": 0.1, "floor": 1e-4}, {125: 0.075025}),
    ({"schedule": "cosine", "lr": 0.1, "floor": 0.0}, {500 / 3: 0.075}),
    ({"schedule": "short-cosine", "lr": 2.0}, {0: 2.0, 250: 1.54602, 500: 0.39018}),
    (
        {"schedule": "step", "lr": 0.05, "factor": 0.2, "milestones": (60, 120)},
        {0: 0.05, 59: 0.05, 60: 0.01, 119: 0.01, 120: 0.002},
    ),
    ({"schedule": "step", "lr": 0.05, "milestones": ()}, {100: 0.05}),
]


@pytest.mark.parametrize(("settings", "rates"), RATES, ids=lambda value: value.get("schedule", ""))
def test_learning_rates_by_hand(settings: dict[str, Any], rates: dict[float, float]) -> None:
    config = TrainConfig(**settings)
    assert [learning_rate(config, done, 500) for done in rates] == pytest.approx(list(rates.values()), abs=1e-5, rel=1e-5)


def slow_scores(logits: list[list[float]], labels: list[int], classes: int) -> dict[str, float]:
    right = [max(range(classes), key=row.__getitem__) == y for row, y in zip(logits, labels, strict=True)]
    per_class = []
    for c in range(classes):
        mine = [r for r, y in zip(right, labels, strict=True) if y == c]
        per_class += [sum(mine) / len(mine)] if mine else []
    losses = [slow_soft(row, [float(c == y) for c in range(classes)]) for row, y in zip(logits, labels, strict=True)]
    scores = {
        "accuracy": sum(right) / len(right),
        "class_accuracy": sum(per_class) / len(per_class),
        "loss": sum(losses) / len(losses),
    }
    if classes > 5:
        best = [sorted(range(classes), key=row.__getitem__)[-5:] for row in logits]
        scores["top5"] = sum(y in top for y, top in zip(labels, best, strict=True)) / len(labels)
    return scores


@given(st.integers(2, 9), st.integers(1, 12), st.integers(0, 100))
def test_scores_against_a_slow_loop(classes: int, items: int, seed: int) -> None:
    logits = torch.randn(items, classes, generator=generator(seed))
    label_N = torch.randint(classes, (items,), generator=generator(seed))
    scores = score_predictions(logits, Truth(label_N, tuple(map(str, range(classes)))))
    assert scores == pytest.approx(slow_scores(logits.tolist(), label_N.tolist(), classes), rel=1e-5)


def test_selections_and_seeds_by_hand() -> None:
    selected_N = torch.tensor([True, True, False, True])
    label_N = torch.tensor([0, 1, -1, 2])
    assert grade_selection(selected_N, label_N, Truth.of([0, 2, 1, 2])) == {"selected": 3, "correct": 2}
    nobody = torch.zeros(4, dtype=torch.bool)
    assert grade_selection(nobody, label_N, Truth.of([0, 2, 1, 2])) == {"selected": 0, "correct": 0}
    assert mean_and_std([90.0, 92.0, 97.0]) == pytest.approx({"mean": 93.0, "std": math.sqrt(13)})
    assert mean_and_std([5.0]) == {"mean": 5.0, "std": 0.0}
    allowed = torch.tensor([[True, False, True, False], [True] * 4, [False, False, True, False]])
    assert uniform_on(allowed).tolist() == [[0.5, 0, 0.5, 0], [0.25] * 4, [0, 0, 1, 0]]


def test_posterior_histogram_by_hand() -> None:
    posterior_NC = torch.tensor([[1.0, 0.0], [0.52, 0.48], [0.26, 0.74], [0.0, 1.0]])
    counts = posterior_histogram(posterior_NC, Truth.of([0, 1, 1, 0]))
    assert len(counts["right"]) == len(counts["wrong"]) == BINS == 20
    assert {b: n for b, n in enumerate(counts["right"]) if n} == {19: 1, 14: 1}  # 1.0 belongs to the last bin
    assert {b: n for b, n in enumerate(counts["wrong"]) if n} == {10: 1, 19: 1}
    assert posterior_histogram(posterior_NC, None)["all"] == [
        a + b for a, b in zip(counts["right"], counts["wrong"], strict=True)
    ]


def test_nothing_here_changes_its_arguments() -> None:
    x = torch.rand(4, 6, generator=generator())
    before, truth = x.clone(), Truth.of([0, 1, 2, 3], tuple("abcdef"))
    uniform_on(x > 0.3), blend(x, torch.arange(4), torch.tensor(0.3)), soft_cross_entropy(x, x)
    score_predictions(x, truth), posterior_histogram(x, None)
    assert torch.equal(x, before)
