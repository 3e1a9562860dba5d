"""CRDPLL: the worked example of its equations, what holds for every batch, and the step as a whole."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from _toy import steps_of, toy_candidates, toy_data, toy_method, toy_trainer
from pals.data.dataset import Dataset
from pals.methods import Batch, Context
from pals.methods.crdpll import divergence, wrong_label_loss
from pals.pseudo_labels.simplex import masked_softmax

ALLOWED = torch.tensor([[True, False, True]])
TARGET = torch.tensor([[0.5, 0.0, 0.5]])
SHARES = [torch.tensor([p]) for p in ([0.5, 0.3, 0.2], [0.4, 0.4, 0.2], [0.6, 0.1, 0.3])]
LOGITS = [p.log() for p in SHARES]
seeds = st.integers(0, 2**31)


class At:
    """As much of a context as the ramp wants."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch


def planned(method: Any, epoch: int) -> float:
    context: Context = At(epoch)  # type: ignore[assignment]
    assert method.plan_epoch(context) is None
    return float(method.weight)


def random_case(seed: int, classes: int = 5, rows: int = 7) -> tuple[list[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = [5 * torch.randn(rows, classes, generator=generator) for _ in range(3)]
    allowed = torch.rand(rows, classes, generator=generator) < 0.5
    allowed[torch.arange(rows), torch.randint(classes, (rows,), generator=generator)] = True
    return logits, allowed


def updated(logits: list[Tensor], allowed: Tensor) -> Tensor:
    """The new target as the method computes it."""
    return masked_softmax(torch.stack(logits).mean(dim=0), allowed)


def test_worked_example() -> None:
    """By parts, then through `loss` and `after_step` with a network that gives the three predictions; epochs count from 1."""
    terms = [float(divergence([z], TARGET)) for z in LOGITS]
    assert terms == pytest.approx([0.4581454, 0.5697171, 0.1642520], abs=1e-6)
    total = float(divergence(LOGITS, TARGET))
    assert total == pytest.approx(1.1921145, abs=1e-6)
    wrong = float(wrong_label_loss(LOGITS[0], ALLOWED))
    assert wrong == pytest.approx(-math.log(0.7), abs=1e-6) and wrong + 0.5 * total == pytest.approx(0.9527322, abs=1e-6)
    assert updated(LOGITS, ALLOWED)[0].tolist() == pytest.approx([0.682986, 0, 0.317014], abs=1e-6)
    data = toy_data(items=3)
    method = toy_method("crdpll", toy_candidates(data))
    method.allowed_NC[1], method.confidence_NC[1] = ALLOWED[0], TARGET[0]

    class Told(torch.nn.Module):
        def each(self, views: tuple[Tensor, ...]) -> list[Any]:
            return [type("Output", (), {"logits": view}) for view in views]

    method.network = Told()
    batch = Batch(torch.tensor([1]), tuple(LOGITS), None)
    planned(method, 1)
    assert float(method.loss(batch)) == pytest.approx(0.3566749, abs=1e-6)
    planned(method, 51)
    assert float(method.loss(batch)) == pytest.approx(0.9527322, abs=1e-6)
    method.after_step(batch)
    assert method.confidence_NC[1].tolist() == pytest.approx([0.682986, 0, 0.317014], abs=1e-6)
    method = toy_method("crdpll", toy_candidates(toy_data()), {"consistency_weight": 2.0})
    weights = [planned(method, epoch) for epoch in (1, 51, 101, 200)]
    assert weights == pytest.approx([0.0, 1.0, 2.0, 2.0])
    assert planned(toy_method("crdpll", toy_candidates(toy_data()), {"ramp": 1}), 2) == 1.0


@given(seeds)
def test_target_is_the_geometric_mean_on_the_candidates(seed: int) -> None:
    logits, allowed = random_case(seed)
    target = updated(logits, allowed)
    share = torch.stack([z.double().softmax(dim=1) for z in logits])
    mean = share.prod(dim=0) ** (1 / 3) * allowed
    torch.testing.assert_close(target.double(), mean / mean.sum(dim=1, keepdim=True), atol=1e-5, rtol=0)
    torch.testing.assert_close(target.sum(dim=1), torch.ones(7))
    assert (target[~allowed] == 0).all()
    one = allowed.sum(dim=1) == 1
    assert torch.equal(target[one], allowed[one].float())


def test_edges() -> None:
    assert float(wrong_label_loss(LOGITS[0], torch.ones(1, 3, dtype=torch.bool))) == 0
    sure = torch.tensor([[0.0, 200.0, 0.0]], requires_grad=True)  # of a label that is no candidate
    loss = wrong_label_loss(sure, ALLOWED).sum() + divergence([sure], TARGET).sum()
    loss.backward()
    assert 200 < float(loss.detach()) < 220 and sure.grad is not None and sure.grad.isfinite().all()
    assert updated([sure.detach()] * 3, ALLOWED).tolist() == [[0.5, 0.0, 0.5]]


def test_every_view_has_statistics_and_gradient_of_its_own(toy: Dataset) -> None:
    """The loss and its gradient are those of three passes, one after the other."""
    steps = steps_of(toy_trainer("crdpll", toy, options={"ramp": 1}, train={"epochs": 2}))
    for method, batch in steps:
        target, allowed = method.confidence_NC[batch.index_B], method.allowed_NC[batch.index_B]
        loss, parameters = method.loss(batch), list(method.network.parameters())
        logits = [method.network(view).logits for view in batch.views]
        expected = -(1 + 1e-7 - logits[0].softmax(dim=1)).log()[~allowed].sum()
        for z in logits:
            inside = target[allowed] * (target[allowed].log() - z.log_softmax(dim=1)[allowed])
            expected = expected + method.weight * inside[target[allowed] > 0].sum()
        expected = expected / len(target)
        torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)
        got, by_hand = (torch.autograd.grad(value, parameters) for value in (loss, expected))
        torch.testing.assert_close(got, by_hand, atol=1e-4, rtol=1e-4)
    assert [float(method.weight) for method, _ in steps] == [0.0] * 3 + [1.0] * 3
