"""PaPi: schedules by the sheet, loss and updates against slow loops, and the quirk of the authors' pseudo-labels."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from _toy import WIDTH, small_network, toy_trainer
from pals.data.dataset import Dataset
from pals.labels.candidates import CandidateSets
from pals.methods import Batch, Problem, method_options
from pals.methods.papi import PaPi, best_product, mixed_divergence
from pals.methods.parts.ramps import momentum_at
from pals.pseudo_labels.simplex import best_candidate


def papi(candidates: CandidateSets, **options: Any) -> PaPi:
    return PaPi(method_options("papi", options), Problem(candidates, small_network(candidates.num_classes, seed=1)))


def a_batch(rows: int = 9) -> Batch:
    generator = torch.Generator().manual_seed(2)
    views = (torch.randn(rows, WIDTH, generator=generator), 2 * torch.randn(rows, WIDTH, generator=generator) + 1)
    random = {"weight": torch.tensor(0.3), "uniform": torch.rand(12, generator=generator)}
    return Batch(torch.arange(rows) * 2, views, None, random)


def in_step(method: PaPi, seed: int = 4) -> PaPi:
    """As in the middle of a training: prototypes somewhere, confidences uneven on the candidates."""
    generator = torch.Generator().manual_seed(seed)
    method.prototype_CD.copy_(nn.functional.normalize(torch.randn(method.prototype_CD.shape, generator=generator), dim=1))
    share_NC = torch.rand(method.confidence_NC.shape, generator=generator) * method.allowed_NC
    method.confidence_NC.copy_(share_NC / share_NC.sum(dim=1, keepdim=True))
    method.weight.fill_(0.7)
    return method.train()


def test_schedules_of_the_sheet() -> None:
    """After e = 250 of 500, which is the 251st counted from 0: phi .875 and prototypes .7. The first epoch has .99."""
    assert momentum_at(1, 500, 0.95, 0.8) == momentum_at(1, 500, 0.9, 0.5) == 0.99
    assert (momentum_at(252, 500, 0.95, 0.8), momentum_at(252, 500, 0.9, 0.5)) == (pytest.approx(0.875), pytest.approx(0.7))


@pytest.mark.parametrize(("epoch", "weight"), [(1, 0.0), (2, 0.1), (6, 0.5), (11, 1.0), (400, 1.0)])
def test_an_epoch_sets_all_that_changes_from_epoch_to_epoch(epoch: int, weight: float, toy: Dataset) -> None:
    trainer = toy_trainer("papi", toy, train={"epochs": 500})
    method = trainer.method

    class Ctx:
        generator, epochs = torch.Generator().manual_seed(0), 500

    ctx: Any = Ctx()
    ctx.epoch = epoch
    seen = method.plan_epoch(ctx)
    assert float(method.weight) == pytest.approx(weight)
    assert float(method.phi) == pytest.approx(momentum_at(epoch, 500, 0.95, 0.8))
    assert float(method.momentum) == pytest.approx(momentum_at(epoch, 500, 0.9, 0.5)) and seen.drop_last
    assert sorted(seen.groups["main"].order_M.tolist()) == list(range(90))


def slow_divergence(target: list[float], logits: list[float]) -> float:
    total = math.log(sum(math.exp(value) for value in logits))
    return sum(t * (math.log(t) - value + total) for t, value in zip(target, logits, strict=True) if t > 0)


def test_divergence_of_a_mixture_by_hand() -> None:
    logits_BC = torch.tensor([[1.0, 0.0, -1.0], [0.5, 0.5, 2.0]])
    target_BC = torch.tensor([[0.6, 0.4, 0.0], [0.0, 0.0, 1.0]])
    made_B = mixed_divergence(logits_BC, target_BC, torch.tensor([1, 0]), torch.tensor(0.3))
    t, z = target_BC.tolist(), logits_BC.tolist()
    expected = [0.3 * slow_divergence(t[i], z[i]) + 0.7 * slow_divergence(t[1 - i], z[i]) for i in (0, 1)]
    torch.testing.assert_close(made_B, torch.tensor(expected))


@pytest.mark.parametrize("official", [False, True])
def test_loss_against_one_pass_after_the_other(official: bool, noisy: CandidateSets) -> None:
    """Four passes, each with batch statistics of its own; only the weak view is classified."""
    batch = a_batch()
    method, other = (in_step(papi(noisy, official=official)) for _ in range(2))
    loss = method.loss(batch)
    weak, strong = batch.views
    partner_B, w = batch.random["uniform"][:9].argsort(), batch.random["weight"]
    confidence_BC = method.confidence_NC[batch.index_B]
    expected = -(other.query(weak)[0].log_softmax(dim=1) * confidence_BC).sum(dim=1).mean()
    for view in (weak, strong):
        _, embedding_BD = other.query(w * view + (1 - w) * view[partner_B])
        score_BC = embedding_BD @ other.prototype_CD.T / 0.3
        for part, target_BC in ((w, confidence_BC), (1 - w, confidence_BC[partner_B])):
            apart = nn.functional.kl_div(score_BC.log_softmax(dim=1), target_BC, reduction="batchmean")
            expected = expected + 0.7 * part * apart
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)


def test_the_pass_of_the_strong_view_needs_no_gradient(noisy: CandidateSets) -> None:
    """What comes of it goes into labels and prototypes alone, so a tenth of the view changes no gradient."""
    batch, gradients = a_batch(), []
    for _ in range(2):
        method = in_step(papi(noisy, prototype_weight=1.0))
        method.weight.zero_()
        method.loss(batch).backward()
        assert not method.cache.embedding_TD.requires_grad
        gradients.append([p.grad.clone() for p in method.query.network.parameters()])
        batch = replace(batch, views=(batch.views[0], batch.views[1] + 1))
    torch.testing.assert_close(*gradients)


def test_updates_against_a_slow_loop(noisy: CandidateSets) -> None:
    """Prototypes: the weak view's items one after the other, then the strong view's, then unit length."""
    batch = a_batch()
    method = in_step(papi(noisy))
    method.phi.fill_(0.9)
    method.momentum.fill_(0.8)
    old_CD, old_NC = method.prototype_CD.clone(), method.confidence_NC.clone()
    method.loss(batch)
    with torch.no_grad():
        fresh = in_step(papi(noisy))
        strong_BC, strong_BD = fresh.query(batch.views[1])
        weak_BC, weak_BD = fresh.query(batch.views[0])
        method.after_step(batch)
    allowed_BC, expected_CD = noisy.allowed_NC[batch.index_B], old_CD.clone()
    for logits_BC, embedding_BD in ((weak_BC, weak_BD), (strong_BC, strong_BD)):
        for row in range(9):
            label = max(allowed_BC[row].nonzero().flatten().tolist(), key=lambda c, row=row, z=logits_BC: float(z[row, c]))
            expected_CD[label] = 0.8 * expected_CD[label] + 0.2 * embedding_BD[row]
    torch.testing.assert_close(method.prototype_CD, nn.functional.normalize(expected_CD, dim=1), atol=1e-5, rtol=0)
    share_BC = weak_BC.softmax(dim=1) * allowed_BC
    share_BC = share_BC / share_BC.sum(dim=1, keepdim=True)
    expected_NC = old_NC.clone()
    expected_NC[batch.index_B] = 0.9 * old_NC[batch.index_B] + 0.1 * share_BC
    torch.testing.assert_close(method.confidence_NC, expected_NC, atol=1e-6, rtol=0)


def test_the_authors_pseudo_label_loses_negative_logits(noisy: CandidateSets) -> None:
    """Candidates 0 and 1 with logits -1 and -2: times the mask they are below the 0 of label 2."""
    logits_BC, allowed_BC = torch.tensor([[-1.0, -2.0, 5.0]]), torch.tensor([[True, True, False]])
    assert best_candidate(logits_BC, allowed_BC).tolist() == [0] and best_product(logits_BC, allowed_BC).tolist() == [2]
    assert best_product(logits_BC.abs(), allowed_BC).tolist() == [1]
    batch, labels = a_batch(), {}
    for official in (False, True):
        method = in_step(papi(noisy, official=official))
        with torch.no_grad():
            method.query.network.classifier.bias.fill_(-20.0)
        method.loss(batch)
        labels[official] = method.cache.label_T
    allowed_TC = noisy.allowed_NC[batch.index_B].repeat(2, 1)
    assert allowed_TC.gather(1, labels[False][:, None]).all() and not allowed_TC.gather(1, labels[True][:, None]).all()


def test_first_confidences_are_uniform_and_prototypes_of_unit_length(toy: Dataset, noisy: CandidateSets) -> None:
    method = papi(noisy)
    torch.testing.assert_close(method.confidence_NC, noisy.allowed_NC / noisy.allowed_NC.sum(dim=1, keepdim=True))
    assert not method.prototype_CD.any()
    trainer = toy_trainer("papi", toy, noisy)
    assert [record["steps"] for record in trainer.epochs()] == [2] * 4  # of 90 items the short batch is left out
    torch.testing.assert_close(trainer.method.prototype_CD.norm(dim=1), torch.ones(3))
