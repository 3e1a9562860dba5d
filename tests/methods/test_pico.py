"""PiCO and the trunk that it shares: worked examples, slow loops as references, and what every step must keep."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from _toy import run_all, toy_candidates, toy_data, toy_method, toy_trainer, watched_steps
from pals.data.dataset import Dataset
from pals.methods import METHODS, Batch, describe_options, find_method
from pals.methods.bases.prototypes import instance_contrast, supervised_contrast, update_prototypes
from pals.methods.parts.losses import soft_cross_entropy
from pals.methods.parts.ramps import momentum_at
from pals.pseudo_labels.simplex import best_candidate, one_hot
from pals.pseudo_labels.soft_vote import similarity
from pals.training.engine import Engine, EngineConfig
from pals.vision.augment import image_views, vector_views

Q = torch.tensor([[1.0, 0.0], [0.6, 0.8]])
K = torch.tensor([[0.8, 0.6], [0.0, 1.0]])
QUEUE = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
POOL = torch.cat([Q, K, QUEUE])
SAME = torch.tensor([0, 1])[:, None] == torch.tensor([0, 1, 0, 1, 0, 1])
seeds = st.integers(0, 2**31)


def unit(rows: int, width: int, generator: torch.Generator) -> Tensor:
    return nn.functional.normalize(torch.randn(rows, width, generator=generator), dim=1)


def test_losses_on_the_worked_examples() -> None:
    """The authors count epochs from 0, we from 1. Similarities do not lose precision."""
    for temperature, supervised, moco in ((0.5, (1.071427, 1.551336), 0.986561), (0.07, (1.487531, 2.480528), 1.817223)):
        assert supervised_contrast(Q, POOL, SAME, temperature).tolist() == pytest.approx(supervised, abs=2e-6)
        assert float(instance_contrast(Q, K, QUEUE, temperature).mean()) == pytest.approx(moco, abs=2e-6)
    z = torch.eye(2)
    pool = torch.cat([z, z, torch.tensor([[0.6, 0.8]])])
    same = torch.tensor([0, 1])[:, None] == torch.tensor([0, 1, 0, 1, 1])
    assert supervised_contrast(z, pool, same, 0.07).tolist() == pytest.approx([0.0032943, 1.4844165], abs=1e-6)
    score = torch.tensor([[3.0, -2e38, -3e38], [0.0, 0.0, 0.0]])
    allowed = torch.tensor([[False, True, True], [False, True, True]])
    assert best_candidate(score, allowed).tolist() == [1, 1]
    found = [momentum_at(epoch, 800, 0.95, 0.8) for epoch in (1, 2, 3, 401, 800)]
    assert found == pytest.approx([0.99, 0.95, 0.9498125, 0.8751875, 0.800375], abs=1e-9)
    first = update_prototypes(torch.zeros(2, 2), Q, one_hot(torch.tensor([0, 1]), 2), 0.99)
    torch.testing.assert_close(first, Q)
    second = update_prototypes(first, K, one_hot(torch.tensor([0, 0]), 2), 0.99)
    assert second[0].tolist() == pytest.approx([0.999870, 0.016131], abs=1e-6)
    torch.testing.assert_close(second[1], Q[1])
    turned = update_prototypes(QUEUE[:1], QUEUE[1:], torch.tensor([[True]]), 0.99)
    assert turned[0].tolist() == pytest.approx([0.99995, 0.01010], abs=1e-5)
    z = unit(8, 64, torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (z @ z.T).dtype == torch.bfloat16  # what is guarded against
        inside = similarity(z, z)
    assert inside.dtype == torch.float32 and torch.equal(inside, z @ z.T)


def slow_contrast(z: Tensor, pool: Tensor, positive: Tensor, temperature: float) -> Tensor:
    """As the equation stands, one item after the other."""
    losses = []
    for i in range(len(z)):
        others = [j for j in range(len(pool)) if j != i]
        below = sum(torch.exp(z[i] @ pool[j] / temperature) for j in others)
        chosen = [j for j in others if positive[i, j]]
        terms = [torch.log(torch.exp(z[i] @ pool[j] / temperature) / below) for j in chosen]
        losses.append(-sum(terms) / len(chosen))  # type: ignore[arg-type]
    return torch.stack(losses)


@given(seeds, st.integers(1, 6), st.integers(1, 9))
def test_supervised_contrast_is_the_loop_with_its_gradient(seed: int, batch: int, queue: int) -> None:
    """The gradient goes through both places of an embedding. What the own column says of itself is ignored."""
    generator = torch.Generator().manual_seed(seed)
    z, k, old = (unit(rows, 3, generator).double() for rows in (batch, batch, queue))
    positive = torch.rand(batch, 2 * batch + queue, generator=generator) < 0.5
    positive[:, batch : 2 * batch] |= torch.eye(batch, dtype=torch.bool)
    z.requires_grad_()
    pool = torch.cat([z, k, old])
    fast, slow = supervised_contrast(z, pool, positive, 0.2), slow_contrast(z, pool, positive, 0.2)
    torch.testing.assert_close(fast.double(), slow, atol=1e-5, rtol=1e-4)
    (got,), (expected,) = (torch.autograd.grad(loss.mean(), z, retain_graph=True) for loss in (fast, slow))
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)
    flipped = positive ^ torch.eye(batch, 2 * batch + queue, dtype=torch.bool)
    assert torch.equal(supervised_contrast(z, pool, flipped, 0.2), fast)


def slow_pass(method: Any, batch: Batch) -> tuple[Any, Tensor, Tensor, Tensor]:
    """A copy of the query network, its scores and embeddings of the weak view, and the key's of the strong one."""
    query, key = copy.deepcopy((method.query, method.key))
    logits, z = query(batch.views[0])
    return query, logits, z, key(batch.views[1])[1].detach()


def assert_same_step(method: Any, query: Any, loss: Tensor, expected: Tensor, atol: float = 1e-3) -> None:
    """The same loss, and the same gradient of the query network."""
    torch.testing.assert_close(loss, expected, atol=1e-4, rtol=1e-4)
    got = torch.autograd.grad(loss, list(method.query.parameters()), retain_graph=True)
    torch.testing.assert_close(got, torch.autograd.grad(expected, list(query.parameters())), atol=atol, rtol=atol)


def slow_prototypes(prototype: Tensor, z: Tensor, member: Tensor, momentum: float) -> Tensor:
    """One item after the other, in the order of the batch."""
    prototype = prototype.clone()
    for i, c in member.nonzero().tolist():
        prototype[c] = momentum * prototype[c] + (1 - momentum) * z[i]
    length = prototype.norm(dim=1, keepdim=True)
    return torch.where(length > 0, prototype / length.clamp_min(1e-30), prototype)


@given(seeds, st.integers(1, 40), st.sampled_from([0.0, 0.5, 0.99, 1.0]), st.booleans())
def test_prototypes_all_at_once_are_the_loop(seed: int, batch: int, momentum: float, everyone: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    z, old = unit(batch, 4, generator), unit(5, 4, generator)
    old[3:] = 0
    member = one_hot(torch.randint(4, (batch,), generator=generator), 5)  # nobody moves the last class
    if not everyone:
        member &= torch.rand(batch, 1, generator=generator) < 0.5
    moved = update_prototypes(old, z, member, momentum)
    torch.testing.assert_close(moved, slow_prototypes(old, z, member, momentum), atol=2e-6, rtol=0)
    length = moved.norm(dim=1)
    assert (((length - 1).abs() < 1e-5) | (length == 0)).all() and length[4] == 0


watched = partial(watched_steps, "pico")


def test_queue_goes_round(toy: Dataset) -> None:
    """Exactly the batch's rows change, at the pointer; 40 is no multiple of 32, so the third step wraps around."""
    starts = []

    def look(method: Any, batch: Batch, _: Tensor) -> Callable[[], None]:
        before, labels, start = method.queue_MD.clone(), method.queue_label_M.clone(), int(method.queue_start)
        starts.append(start)

        def after() -> None:
            rows = [(start + i) % 40 for i in range(32)]
            rest = [row for row in range(40) if row not in rows]
            assert int(method.queue_start) == (start + 32) % 40
            torch.testing.assert_close(method.queue_MD[rows], method.cache.key_BD)
            assert torch.equal(method.queue_label_M[rows], method.cache.label_B)
            assert (method.queue_MD[rows] != before[rows]).any(dim=1).all()
            assert torch.equal(method.queue_MD[rest], before[rest])
            assert torch.equal(method.queue_label_M[rest], labels[rest])
            torch.testing.assert_close(method.queue_MD.norm(dim=1), torch.ones(40))

        return after

    records = watched(toy, look, options={"queue": 40}, train={"epochs": 3})
    assert starts == [0, 32, 24, 16, 8, 0]
    assert [r["steps"] for r in records] == [2] * 3  # 90 items: the short batch is left out


@pytest.mark.parametrize(("items", "queue", "batch", "length"), [(90, 8192, 32, 90), (90, 8, 32, 8), (20, 8192, 512, 20)])
def test_queue_fits_the_data_and_bears_any_batch(items: int, queue: int, batch: int, length: int) -> None:
    trainer = toy_trainer("pico", toy_data(items=items), options={"queue": queue}, train={"batch_size": batch, "epochs": 3})
    method: Any = trainer.method
    assert method.queue_MD.shape == (length, 128) and (method.queue_label_M == -1).all()
    torch.testing.assert_close(method.queue_MD.norm(dim=1), torch.ones(length))
    assert all(math.isfinite(record["loss"]) for record in run_all(trainer))
    last = method.cache.key_BD[-length:]
    rows = (int(method.queue_start) - len(last) + torch.arange(len(last))) % length
    torch.testing.assert_close(method.queue_MD[rows], last)


def test_key_network_follows_slowly(toy: Dataset) -> None:
    """By (1 - m)(query - key) after each step, parameters only; and the key in a step is the one the authors would have used:
    moved by the query network as it is in that step."""
    state: dict[str, Any] = {}

    def look(method: Any, batch: Batch, loss: Tensor) -> Callable[[], None]:
        assert all(p.grad is None and not p.requires_grad for p in method.key.parameters())
        before = [p.clone() for p in method.key.parameters()]
        if state:
            for slow, old, fast in zip(before, state["old"], method.query.parameters(), strict=True):
                torch.testing.assert_close(slow, 0.9 * old + 0.1 * fast)
        state["old"] = before
        statistics = method.key.network.layers[1].running_mean.clone()

        def after() -> None:
            for slow, old, fast in zip(method.key.parameters(), before, method.query.parameters(), strict=True):
                assert slow.grad is None
                torch.testing.assert_close(slow - old, 0.1 * (fast - old), atol=1e-6, rtol=1e-4)
            assert torch.equal(method.key.network.layers[1].running_mean, statistics)

        return after

    first = toy_method("pico", toy_candidates(toy))
    assert all(torch.equal(*pair) for pair in zip(first.query.parameters(), first.key.parameters(), strict=True))
    watched(toy, look, options={"key_momentum": 0.9})
    assert state


def test_key_network_has_statistics_of_its_own_and_may_be_frozen(toy: Dataset) -> None:
    trainer = toy_trainer("pico", toy, options={"key_momentum": 1.0}, train={"epochs": 2})
    method: Any = trainer.method
    first = copy.deepcopy(list(method.key.parameters()))
    run_all(trainer)
    assert all(torch.equal(*pair) for pair in zip(first, method.key.parameters(), strict=True))
    key, query = (embedder.network.layers[1] for embedder in (method.key, method.query))
    assert int(key.num_batches_tracked) == int(query.num_batches_tracked) == 4  # batch norm in training mode
    assert not torch.equal(key.running_mean, query.running_mean)


@pytest.mark.slow
def test_step_is_the_authors_in_slow_motion(toy: Dataset) -> None:
    """Loss, targets, pseudo-labels, votes and prototypes of each step of three epochs, written out as published."""
    losses, seen_paths = [], []

    def look(method: Any, batch: Batch, loss: Tensor) -> Callable[[], None]:
        allowed, prototypes = method.allowed_NC[batch.index_B], method.prototype_CD.clone()
        target, queue = method.confidence_NC[batch.index_B].clone(), method.queue_MD.clone()
        epoch, queue_label = len(losses) // 2, method.queue_label_M.clone()  # from 0; two steps each
        query, logits, z, k = slow_pass(method, batch)
        label = (logits.softmax(dim=1) * allowed).argmax(dim=1)
        if epoch >= 1:
            phi = 0.95 - 0.15 * (epoch - 1) / 3
            vote = ((z @ prototypes.T).softmax(dim=1) * allowed).argmax(dim=1)
            target = phi * target + (1 - phi) * torch.eye(3)[vote]
            assert allowed[torch.arange(32), vote].all()
            pool, pool_label = torch.cat([z, k, queue]), torch.cat([label, label, queue_label])
            positive = label[:, None] == pool_label
            assert positive[:, 32:64].diagonal().all()  # so nobody is without a positive
            contrast = slow_contrast(z, pool, positive, 0.07)
        else:
            score = torch.cat([(z * k).sum(dim=1, keepdim=True), z @ queue.T], dim=1) / 0.07
            contrast = nn.functional.cross_entropy(score, torch.zeros(32, dtype=torch.int64), reduction="none")
        expected = (soft_cross_entropy(logits, target) + 0.5 * contrast).mean()
        assert_same_step(method, query, loss, expected)
        losses.append(loss)
        seen_paths.append(method.graph_key)
        assert allowed[torch.arange(32), label].all()

        def after() -> None:
            torch.testing.assert_close(method.confidence_NC[batch.index_B], target)
            moved = slow_prototypes(prototypes, z.detach(), one_hot(label, 3), 0.99)
            torch.testing.assert_close(method.prototype_CD, moved, atol=1e-5, rtol=0)

        return after

    watched(toy, look, options={"queue": 64}, train={"epochs": 3})
    assert seen_paths == ["moco"] * 2 + ["prototypes"] * 4


def test_targets_move_by_phi_and_stay_on_the_candidates(toy: Dataset) -> None:
    method: Any = toy_method("pico", toy_candidates(toy), {"prototypes_from": 1})
    method.allowed_NC[0], method.confidence_NC[0] = torch.tensor([True, False, True]), torch.tensor([0.5, 0.0, 0.5])
    inputs = toy.train.inputs[:8]
    with torch.no_grad():
        z = method.query(inputs)[1][0]
        method.prototype_CD.copy_(torch.stack([0.1 * z, z, -z]))  # the nearest is no candidate
        method.phi.fill_(0.95)
        method.uses_prototypes = True
        batch = Batch(torch.arange(8), (inputs, inputs), None)
        method.loss(batch)
        method.after_step(batch)
    assert method.confidence_NC[0].tolist() == pytest.approx([0.525, 0.0, 0.475])


def test_targets_rest_until_the_prototypes_vote(toy: Dataset) -> None:
    trainer = toy_trainer("pico", toy, options={"prototypes_from": 4}, train={"epochs": 4})
    method: Any = trainer.method
    uniform, paths, changed = method.confidence_NC.clone(), [], []
    for _ in trainer.epochs():
        paths.append(method.graph_key)
        changed.append(not torch.equal(method.confidence_NC, uniform))
    assert paths == ["moco"] * 3 + ["prototypes"] and changed == [False] * 3 + [True]
    assert method.prototype_CD.norm(dim=1).tolist() == pytest.approx([1.0] * 3)  # they have moved all along


def test_the_head_learns_from_the_contrast_alone_in_full_precision(toy: Dataset) -> None:
    trainer = toy_trainer("pico", toy, options={"contrast_weight": 0.0}, train={"weight_decay": 0.0})
    head = copy.deepcopy(trainer.method.query.head.state_dict())
    run_all(trainer)
    assert all(torch.equal(value, head[name]) for name, value in trainer.method.query.head.state_dict().items())
    trainer = toy_trainer("pico", toy)
    trainer.engine = Engine(EngineConfig(device="cpu", precision="bf16"))
    records = run_all(trainer)
    method: Any = trainer.method
    assert method.cache.embedding_BD.dtype == method.cache.key_BD.dtype == torch.float32
    torch.testing.assert_close(method.cache.key_BD.norm(dim=1), torch.ones(32))
    assert all(math.isfinite(record["loss"]) for record in records)


def test_the_head_is_as_wide_as_the_network_and_options_are_described() -> None:
    method: Any = toy_method("pico", toy_candidates(toy_data()), {"embedding": 7})
    assert [tuple(p.shape) for p in method.query.head.parameters()] == [(16, 16), (16,), (7, 16), (7,)]
    assert method.prototype_CD.shape == (3, 7) and method.predictor is method.query.network
    trained = {id(p) for p in method.parameters() if p.requires_grad}
    assert trained == {id(p) for p in method.query.parameters()}
    described = {option: meaning for option, _, meaning in describe_options(find_method("pico"))}
    assert described["queue"].startswith("Number of keys") and described["prototypes_from"].startswith("First epoch")


def test_vectors_have_a_view_for_every_name_that_images_have() -> None:
    own = {name: view for method in METHODS.values() for name, view in method.own_views.items()}
    assert set(own) == {"pico_weak", "pico_strong", "crdpll_strong", "fixmatch_strong", "promix_strong"}
    views = vector_views(torch.zeros(2), torch.ones(2)).including(own)
    assert set(views.names) == set(image_views((0.5,), (0.25,), pad=1, flip=False).including(own).names)
    inputs = torch.zeros(500, 2)

    def spread(name: str) -> float:
        return float(views.make(name, inputs, torch.Generator().manual_seed(0)).std())

    for name in views.names:
        assert spread(name) == spread("eval" if name == "eval" else "strong" if "strong" in name else "weak")
