"""APL: each loss worked by hand, against a slow loop, and what makes the bounded ones special."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from _toy import assert_same_state, run_all, steps_of, toy_method, toy_trainer
from pals.labels.candidates import CandidateSets
from pals.methods.apl import APL
from pals.methods.parts.losses import absolute_error, focal_loss, generalized_cross_entropy, huber_cross_entropy, squared_error
from pals.pseudo_labels.simplex import uniform_on

P = [0.5, 0.3, 0.2]
LOGITS = torch.tensor([P]).log()
LOSSES = ("mae", "mse", "gce", "huber", "ce", "focal")
seeds = st.integers(0, 2**31)


def label_losses(name: str, logits: Tensor, **options: Any) -> Tensor:
    sets = CandidateSets.from_matrix(torch.ones(len(logits), logits.shape[1], dtype=torch.bool))
    method = toy_method(APL, sets, {"loss": name, **options})
    assert isinstance(method, APL)
    return method.label_losses(logits)


def average(name: str, logits: Tensor, allowed: Tensor, **options: Any) -> Tensor:
    return (label_losses(name, logits, **options) * uniform_on(allowed)).sum(dim=1)


def random_case(seed: int, rows: int = 6, classes: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    allowed = torch.rand(rows, classes, generator=generator) < 0.5
    allowed[torch.arange(rows), torch.randint(classes, (rows,), generator=generator)] = True
    return 3 * torch.randn(rows, classes, generator=generator), allowed


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        ([1, 0, 0], (1.0, 0.38, 0.5491826, 0.6931472, 0.6931472, 0.4901291)),
        ([1, 1, 0], (1.2, 0.58, 0.6813687, 0.9485600, 0.9485600, 0.7487225)),
        ([1, 1, 1], (1.3333333, 0.7133333, 0.7760880, 1.1688526, 1.1688526, 0.9789900)),
    ],
)
def test_worked_examples(candidates: list[int], expected: tuple[float, ...]) -> None:
    allowed = torch.tensor([candidates], dtype=torch.bool)
    for name, value in zip(LOSSES, expected, strict=True):
        assert float(average(name, LOGITS, allowed)) == pytest.approx(value, abs=1e-6), name


def slow(name: str, p: list[float], c: int) -> float:
    """As the definitions stand."""
    onehot = [float(k == c) for k in range(len(p))]
    return {
        "mae": lambda: sum(abs(a - b) for a, b in zip(p, onehot, strict=True)),
        "mse": lambda: sum((a - b) ** 2 for a, b in zip(p, onehot, strict=True)),
        "gce": lambda: (1 - p[c] ** 0.7) / 0.7,
        "huber": lambda: -math.log(p[c]) if p[c] > 0.1 else -math.log(0.1) + 1 - p[c] / 0.1,
        "ce": lambda: -math.log(p[c]),
        "focal": lambda: -((1 - p[c]) ** 0.5) * math.log(p[c]),
    }[name]()


@pytest.mark.parametrize("name", LOSSES)
@given(seeds)
def test_the_average_is_a_loop_over_the_candidates(name: str, seed: int) -> None:
    logits, allowed = random_case(seed)
    share = logits.double().softmax(dim=1).tolist()
    inside = [[c for c in range(5) if row[c]] for row in allowed.tolist()]
    expected = [sum(slow(name, p, c) for c in cs) / len(cs) for p, cs in zip(share, inside, strict=True)]
    found = average(name, logits, allowed)
    assert found.tolist() == pytest.approx(expected, abs=1e-6, rel=1e-5)
    assert torch.equal(found, average(name, logits, allowed))  # no state
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(average(name, logits[:, order], allowed[:, order]), found)


def test_sums_over_all_labels_and_the_tangent_of_huber() -> None:
    assert float(absolute_error(LOGITS).sum()) == pytest.approx(4, abs=1e-6)
    total = float(generalized_cross_entropy(LOGITS, 0.7).sum())
    assert total == pytest.approx(2.3282641, abs=1e-6)
    lowest, highest = (3 - 3**0.3) / 0.7, 2 / 0.7
    assert [lowest, highest] == pytest.approx([2.2994440, 2.8571429], abs=1e-6) and lowest < total < highest
    assert float(squared_error(LOGITS).sum()) == pytest.approx(3 - 2 + 3 * 0.38, abs=1e-6)

    def value(p: float) -> Tensor:
        return huber_cross_entropy(torch.tensor([[p, 1 - p]], dtype=torch.float64).log(), 0.1)[0, 0]

    assert float(value(0.05)) == pytest.approx(2.8025851, abs=1e-6)
    assert float(huber_cross_entropy(torch.tensor([[-200.0, 0.0]]), 0.1)[0, 0]) == pytest.approx(3.3025851, abs=1e-6)
    for beside in (0.0999, 0.1001):  # continuous, and so is the slope
        assert float(value(beside)) == pytest.approx(-math.log(0.1) - (beside - 0.1) / 0.1, abs=2e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_extreme_logits_have_a_finite_loss_and_gradient(name: str) -> None:
    logits = torch.tensor([[300.0, 0.0, -300.0], [0.0, 90.0, 0.0], [20.0, 0.0, 0.0]], requires_grad=True)
    loss = average(name, logits, torch.tensor([[True, True, True], [False, True, False], [False, False, True]]))
    loss.sum().backward()
    assert loss.isfinite().all() and logits.grad is not None and logits.grad.isfinite().all()
    assert label_losses(name, torch.randn(2, 3).bfloat16()).dtype == torch.float32


@pytest.mark.parametrize(
    ("loss", "option", "function"),
    [("gce", "power", generalized_cross_entropy), ("huber", "cut", huber_cross_entropy), ("focal", "focus", focal_loss)],
)
def test_options_reach_their_loss(loss: str, option: str, function: Callable[[Tensor, float], Tensor]) -> None:
    """GCE lies between the absolute error and cross-entropy."""
    torch.testing.assert_close(generalized_cross_entropy(LOGITS, 1.0), absolute_error(LOGITS) / 2, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(generalized_cross_entropy(LOGITS, 1e-4), -LOGITS, atol=1e-3, rtol=0)
    torch.testing.assert_close(label_losses(loss, LOGITS, **{option: 0.4}), function(LOGITS, 0.4))
    assert not torch.equal(function(LOGITS, 0.4), label_losses(loss, LOGITS))


def test_focal_without_focus_and_ce_are_the_plain_average() -> None:
    torch.testing.assert_close(focal_loss(LOGITS, 0.0), -LOGITS)
    same = [toy_trainer("average"), toy_trainer("apl", options={"loss": "ce", "warm_up": 0})]
    for trainer in same:
        run_all(trainer)
    for a, b in zip(same[0].method.parameters(), same[1].method.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_warm_up_is_with_cross_entropy() -> None:
    steps = steps_of(toy_trainer("apl", options={"loss": "mae", "warm_up": 2}, train={"epochs": 4}))
    assert [method.graph_key for method, _ in steps] == ["ce"] * 6 + ["mae"] * 6
    for method, batch in steps:
        total_B = label_losses(method.graph_key, method.network(batch.views[0]).logits).sum(dim=1)
        assert bool(((total_B - 4).abs() < 1e-5).all()) == (method.graph_key == "mae")
    plain = toy_trainer("apl", options={"loss": "ce", "warm_up": 0}, train={"epochs": 4})
    warm = toy_trainer("apl", options={"loss": "gce", "warm_up": 4}, train={"epochs": 4})
    run_all(plain), run_all(warm)
    assert_same_state(plain, warm)
