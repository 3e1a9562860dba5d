"""PiCO+: which items are reliable, their positives, and every step of its three stages against slow loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_pico import assert_same_step, slow_contrast, slow_pass, slow_prototypes, unit
from torch import Tensor

from _slow import rest_slow
from _toy import run_all, toy_candidates, toy_data, toy_method, toy_trainer, watched_steps
from pals.data.dataset import Dataset
from pals.methods import Batch
from pals.methods.bases.prototypes import log_shares
from pals.methods.parts.losses import soft_cross_entropy
from pals.methods.parts.ramps import momentum_at
from pals.methods.parts.sampling import part
from pals.methods.pico_plus import nearest_rows, nearest_share, strict_positives
from pals.pseudo_labels.simplex import one_hot
from pals.training.trainer import Trainer

STAGES: dict[str, Any] = {"prototypes_from": 2, "neighbors_from": 4, "neighbors": 5, "queue": 40}
seeds = st.integers(0, 2**31)


def test_worked_examples() -> None:
    distance = torch.tensor([0.3, -0.9, 0.1, -0.2, -0.8, 0.5, -0.1, -0.7, 0.9, -0.5])
    assert nearest_share(distance, 0.6).nonzero().flatten().tolist() == [1, 3, 4, 6, 7, 9]
    assert [part(0.29, 100), part(0.7, 10), part(0.6, 9), part(0.0, 5), part(1.0, 5)] == [29, 7, 5, 0, 5]
    assert int(0.29 * 100) == 28  # what is guarded against
    similarity = torch.tensor([0.2, 0.1, 0.0])
    sharpened = similarity.softmax(dim=0) ** (1 / 0.07)
    guess = (similarity / 0.07).softmax(dim=0)
    assert guess.tolist() == pytest.approx([0.77096, 0.18476, 0.04428], abs=1e-5)
    torch.testing.assert_close(sharpened / sharpened.sum(), guess)
    method: Any = toy_method("pico+", toy_candidates(toy_data(classes=4)))
    method.confidence_NC[7] = torch.tensor([0.5, 0.0, 0.5, 0.0])
    method.phi.fill_(0.95)
    moved = method.move_confidence(torch.tensor([7]), one_hot(torch.tensor([2]), 4).float())
    assert moved[0].tolist() == pytest.approx([0.475, 0.0, 0.525, 0.0])
    assert momentum_at(402, 800, 0.95, 0.8) == pytest.approx(0.875)  # set after the authors' epoch 400, counted from 0


@given(seeds, st.integers(1, 40), st.floats(0, 1))
def test_reliable_items_are_the_nearest(seed: int, count: int, share: float) -> None:
    distance = torch.randint(5, (count,), generator=torch.Generator().manual_seed(seed)).float()  # with ties
    near = nearest_share(distance, share)
    assert int(near.sum()) == math.floor(share * count + 1e-9)
    if near.any() and not near.all():
        assert distance[near].max() <= distance[~near].min()


def test_selection_uses_the_distances_of_the_epoch_before(toy: Dataset) -> None:
    trainer = toy_trainer("pico+", toy, options={**STAGES, "delta": 0.5}, train={"epochs": 4})
    method: Any = trainer.method
    assert method.reliable_N.all()
    distance, epochs = method.distance_N.clone(), trainer.epochs()
    for number, record in enumerate(epochs, start=1):
        expected = torch.ones(90, dtype=torch.bool) if number == 1 else nearest_share(distance, 0.5)
        assert torch.equal(method.reliable_N, expected) and ("selected" in record) == (number > 1)
        if number > 1:
            assert record["selected"] == 45 >= record["correct"]
        assert not torch.equal(method.distance_N, distance)
        distance = method.distance_N.clone()


@given(seeds, st.integers(1, 6), st.integers(1, 12), st.integers(1, 8), st.booleans())
def test_strict_positives_are_the_loop(seed: int, batch: int, queue: int, neighbors: int, crowded: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    z, k, old = (unit(rows, 4, generator) for rows in (batch, batch, queue))
    label, reliable, flags = (torch.randint(2, (n,), generator=generator) for n in (batch, batch, queue))
    reliable, flags = reliable.bool(), flags.bool()
    pool, pool_label = torch.cat([z, k, old]), torch.cat([label, label, torch.randint(2, (queue,), generator=generator)])
    pool_flag = torch.cat([reliable, reliable, flags])
    same = label[:, None] == pool_label
    near = nearest_rows(log_shares(z, pool, 0.07), neighbors - 1) if crowded else None
    strict = strict_positives(same, reliable, pool_flag, near)
    for i in range(batch):
        if reliable[i]:
            expected = {j for j in range(len(pool)) if pool_label[j] == label[i] and pool_flag[j]}
        elif crowded:  # the item itself takes one of the places
            others = sorted((j for j in range(len(pool)) if j != i), key=lambda j: -float(z[i] @ pool[j]))
            expected = set(others[: neighbors - 1])
        else:
            expected = set()
        found = set(strict[i].nonzero().flatten().tolist())
        assert found - {i} == (expected | {batch + i}) - {i}
        if not reliable[i]:
            usable = len(found - {i})
            assert usable == 1 or crowded
            if crowded and neighbors < len(pool):
                assert usable == (neighbors - 1 if batch + i in expected else neighbors)


def slow_loss(
    method: Any, batch: Batch, epoch: int, forward: Any, reliable: Tensor, confidence: Tensor, label: Tensor
) -> Tensor:
    """The loss of the second and third stage as published, one item after the other where it matters."""
    query, logits, z, k = forward
    size = len(reliable)
    guess = ((z @ method.prototype_CD.T).softmax(dim=1) ** (1 / 0.07)).detach()
    guess = guess / guess.sum(dim=1, keepdim=True)
    target = torch.stack([confidence[i] if reliable[i] else guess[i] for i in range(size)])
    l_mix = torch.tensor(0.0)
    if method.config.mixup_weight:
        order, weight = batch.random["uniform"][:size].argsort(), batch.random["weight"]
        mixed = weight * batch.views[0] + (1 - weight) * batch.views[0][order]
        mixed_target = weight * target + (1 - weight) * target[order]
        l_mix = method.config.mixup_weight * soft_cross_entropy(query(mixed)[0], mixed_target).mean()
    own = soft_cross_entropy(logits, confidence)[reliable]
    guessed = soft_cross_entropy(logits, guess)[~reliable]
    l_rel = own.mean() if len(own) else torch.tensor(0.0)
    l_unrel = guessed.mean() if len(guessed) else torch.tensor(0.0)
    pool = torch.cat([z, k, method.queue_MD])
    same = label[:, None] == torch.cat([label, label, method.queue_label_M])
    strict = torch.zeros_like(same)
    flags = torch.cat([reliable, reliable, method.queue_reliable_M])
    for i in range(size):
        if reliable[i]:
            strict[i] = same[i] & flags
        elif epoch >= 4:
            strict[i, (pool @ z[i]).topk(5).indices] = True  # itself among them
        strict[i, size + i] = True
    row = torch.where(reliable, 0.5, 0.1) if epoch >= 4 else torch.ones(size)
    l_strict = (row * slow_contrast(z, pool, strict, 0.07)).mean()
    return l_mix + 2 * l_rel + 0.1 * l_unrel + l_strict + 0.1 * slow_contrast(z, pool, same, 0.07).mean()


@pytest.mark.parametrize(("delta", "mixup"), rest_slow(2, [(0.5, 1.0), (0.5, 0.0), (1.0, 1.0), (0.0, 1.0), (0.5, 2.0)]))
def test_step_is_the_authors_in_slow_motion(delta: float, mixup: float) -> None:
    """Loss, gradient, distances, confidences, prototypes and queue of each step; two steps an epoch."""
    paths: list[str] = []

    def look(method: Any, batch: Batch, loss: Tensor) -> Callable[[], None]:
        paths.append(method.graph_key)
        epoch, rows = (len(paths) + 1) // 2, torch.arange(10)
        allowed, reliable = method.allowed_NC[batch.index_B], method.reliable_N[batch.index_B]
        prototypes, phi = method.prototype_CD.clone(), 0.95 - 0.15 * (epoch - 2) / 5
        confidence, place = method.confidence_NC[batch.index_B].clone(), int(method.queue_start)
        query, logits, z, k = slow_pass(method, batch)
        best, free = (logits.softmax(dim=1) * allowed).argmax(dim=1), logits.argmax(dim=1)
        label = torch.where(reliable, best, free)
        if epoch >= 2:
            vote = ((z @ prototypes.T).softmax(dim=1) * allowed).argmax(dim=1)
            confidence = phi * confidence + (1 - phi) * torch.eye(3)[vote]
            assert bool(batch.random) == bool(mixup)
            expected = slow_loss(method, batch, epoch, (query, logits, z, k), reliable, confidence, label)
        else:
            assert not batch.random
            score = torch.cat([(z * k).sum(dim=1, keepdim=True), z @ method.queue_MD.T], dim=1) / 0.07
            moco = torch.nn.functional.cross_entropy(score, torch.zeros(10, dtype=torch.int64))
            expected = soft_cross_entropy(logits, confidence).mean() + 0.5 * moco
        assert_same_step(method, query, loss, expected, atol=2e-3)

        def after() -> None:
            distance = torch.stack([-(z[i] @ prototypes[best[i]]) for i in range(10)])
            torch.testing.assert_close(method.distance_N[batch.index_B], distance.detach(), atol=1e-5, rtol=0)
            torch.testing.assert_close(method.confidence_NC[batch.index_B], confidence)
            moved = slow_prototypes(prototypes, z.detach(), one_hot(label, 3) & reliable[:, None], 0.99)
            torch.testing.assert_close(method.prototype_CD, moved, atol=1e-5, rtol=0)
            queue = (place + rows) % 15
            assert torch.equal(method.queue_reliable_M[queue], reliable)
            assert torch.equal(method.queue_label_M[queue], label)
            if not reliable.any():
                torch.testing.assert_close(method.prototype_CD, prototypes)

        return after

    options = {**STAGES, "delta": delta, "queue": 15, "mixup_weight": mixup}
    train = {"epochs": 5, "lr": 0.02, "batch_size": 10}
    watched_steps("pico+", toy_data(items=20), look, options=options, train=train)
    assert paths == ["moco"] * 2 + ["prototypes"] * 4 + ["neighbors"] * 4


def test_ends_of_the_options(toy: Dataset) -> None:
    runs = [
        run_all(toy_trainer("pico+", toy, options={**STAGES, "delta": 1.0, **more}, train={"epochs": 5}))
        for more in ({}, {"guess_weight": 7.0, "guess_temperature": 1.0, "unreliable_weight": 3.0, "neighbors": 2})
    ]
    assert [r["loss"] for r in runs[0]] == [r["loss"] for r in runs[1]]
    records = run_all(toy_trainer("pico+", toy, options={**STAGES, "neighbors": 1000}))
    assert all(math.isfinite(record["loss"]) for record in records)
    given = toy_trainer("pico+", toy, options={**STAGES, "noise_rate": 0.3}, train={"epochs": 3})
    assert "noise_rate" not in run_all(given)[-1]
    assert int(given.method.reliable_N.sum()) == 54  # 0.9 - 0.3 of 90
    none = toy_trainer("pico+", toy, options={**STAGES, "noise_rate": 0.95}, train={"epochs": 2})
    run_all(none)
    assert not none.method.reliable_N.any()


def test_reliable_items_are_cleaner() -> None:
    """The reason for it all: fewer of the trusted sets miss the true label than of the others."""
    data = toy_data(items=180)
    trainer = toy_trainer("pico+", data, options={**STAGES, "delta": 0.7}, train={"epochs": 10})
    run_all(trainer)
    right = trainer.method.allowed_NC.gather(1, data.truth.label_N[:, None]).squeeze(1).float()
    chosen: Tensor = trainer.method.reliable_N  # type: ignore[assignment]
    assert float(right[chosen].mean()) > 0.97 > 0.8 > float(right[~chosen].mean())


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_the_noise_rate_is_estimated_when_the_warm_up_ends(noise: float, tmp_path: Path) -> None:
    data = toy_data(items=400)
    candidates = toy_candidates(data, eta=noise)

    def trainer() -> Trainer:
        options = {**STAGES, "prototypes_from": 4, "neighbors_from": 5}
        return toy_trainer("pico+", data, candidates, options=options, train={"epochs": 6}, folder=tmp_path)

    records = run_all(trainer(), stop_after=4)
    assert ["noise_rate" in record for record in records] == [False, False, False, True]
    missed_N = ~candidates.allowed_NC.gather(1, data.truth.label_N[:, None]).squeeze(1)
    estimate = records[-1]["noise_rate"]
    assert estimate == pytest.approx(float(missed_N.float().mean()), abs=0.08)
    later = trainer()
    assert later.resume()
    assert [record["noise_rate"] for record in run_all(later)] == [estimate] * 2  # asked once
    assert int(later.method.reliable_N.sum()) == part(0.9 - estimate, 400)
