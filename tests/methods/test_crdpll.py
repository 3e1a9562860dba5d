"""CRDPLL: the worked example of its equations, what holds for every batch, and the step as a whole."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from _toy import run_all, toy_candidates, toy_data, toy_method, toy_trainer
from pals.data.dataset import Dataset
from pals.methods import Batch, Context
from pals.methods.crdpll import CRDPLL, divergence, wrong_label_loss
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
    terms = [float(divergence([z], TARGET)) for z in LOGITS]
    assert terms == pytest.approx([0.4581454, 0.5697171, 0.1642520], abs=1e-6)
    total = float(divergence(LOGITS, TARGET))
    assert total == pytest.approx(1.1921145, abs=1e-6)
    wrong = float(wrong_label_loss(LOGITS[0], ALLOWED))
    assert wrong == pytest.approx(-math.log(0.7), abs=1e-6)
    assert wrong + 0.5 * total == pytest.approx(0.9527322, abs=1e-6)
    assert updated(LOGITS, ALLOWED)[0].tolist() == pytest.approx([0.682986, 0, 0.317014], abs=1e-6)


def test_the_whole_step_on_the_worked_example() -> None:
    """Through `loss` and `after_step`, with a network that gives the three predictions; epochs counted from 1."""
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


def test_the_weight_ramps_up_by_epochs() -> None:
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


@given(seeds)
def test_no_other_target_on_the_candidates_is_nearer(seed: int) -> None:
    logits, allowed = random_case(seed)
    target = updated(logits, allowed)
    best = divergence(logits, target)
    for z in logits:
        assert (divergence([z], target) >= -1e-5).all()
    noise = torch.randn(7, 5, generator=torch.Generator().manual_seed(seed))
    for size in (0.01, 0.3, 3.0):
        other = masked_softmax(target.clamp_min(1e-30).log() + size * noise, allowed)
        assert (divergence(logits, other) >= best - 1e-4).all()


@given(seeds)
def test_equal_views(seed: int) -> None:
    """One prediction three times: the target is it, cut to the candidates; what is left is the mass outside them."""
    (z, _, _), allowed = random_case(seed)
    target = updated([z] * 3, allowed)
    share = z.softmax(dim=1) * allowed
    torch.testing.assert_close(target, share / share.sum(dim=1, keepdim=True), atol=1e-5, rtol=0)
    torch.testing.assert_close(divergence([z] * 3, target), -3 * share.sum(dim=1).log(), atol=1e-4, rtol=1e-4)


def test_edges() -> None:
    assert float(wrong_label_loss(LOGITS[0], torch.ones(1, 3, dtype=torch.bool))) == 0
    sure = torch.tensor([[0.0, 200.0, 0.0]], requires_grad=True)  # of a label that is no candidate
    loss = wrong_label_loss(sure, ALLOWED).sum() + divergence([sure], TARGET).sum()
    loss.backward()
    assert 200 < float(loss.detach()) < 220 and sure.grad is not None and sure.grad.isfinite().all()
    assert updated([sure.detach()] * 3, ALLOWED).tolist() == [[0.5, 0.0, 0.5]]


def test_every_view_has_statistics_and_gradient_of_its_own(toy: Dataset) -> None:
    """The loss and its gradient are those of three passes, one after the other."""
    trainer = toy_trainer("crdpll", toy, options={"ramp": 1}, train={"epochs": 2})
    method, seen = trainer.method, []
    original = method.loss

    def spy(batch: Batch) -> Tensor:
        loss = original(batch)
        target, allowed = method.confidence_NC[batch.index_B], method.allowed_NC[batch.index_B]
        parameters = list(method.network.parameters())
        got = torch.autograd.grad(loss, parameters, retain_graph=True)
        logits = [method.network(view).logits for view in batch.views]
        share = logits[0].softmax(dim=1)
        expected = -(1 + 1e-7 - share).log()[~allowed].sum()
        for z in logits:
            inside = target[allowed] * (target[allowed].log() - z.log_softmax(dim=1)[allowed])
            expected = expected + method.weight * inside[target[allowed] > 0].sum()
        expected = expected / len(target)
        torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)
        for a, b in zip(got, torch.autograd.grad(expected, parameters), strict=True):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
        seen.append(float(method.weight))
        return loss

    method.loss = spy  # type: ignore[method-assign]
    run_all(trainer)
    assert seen == [0.0] * 3 + [1.0] * 3


def test_targets_stay_on_the_candidates(toy: Dataset) -> None:
    trainer = toy_trainer("crdpll", toy)
    uniform = trainer.method.confidence_NC.clone()
    run_all(trainer)
    target, allowed = trainer.method.confidence_NC, trainer.method.allowed_NC
    assert (target[~allowed] == 0).all()
    torch.testing.assert_close(target.sum(dim=1), torch.ones(90))
    one = allowed.sum(dim=1) == 1
    assert one.any() and torch.equal(target[one], uniform[one])
    assert (target[~one] != uniform[~one]).any(dim=1).all()  # everyone was visited


def test_views() -> None:
    candidates = toy_candidates(toy_data())
    assert CRDPLL.views == toy_method("crdpll", candidates).views == ("weak", "crdpll_strong", "crdpll_strong")
    assert toy_method("crdpll", candidates, {"view": "eval", "strong_views": 1}).views == ("eval", "crdpll_strong")
    (record,) = run_all(toy_trainer("crdpll", options={"strong_views": 3}, train={"epochs": 1}))
    assert math.isfinite(record["loss"])
