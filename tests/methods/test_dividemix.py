"""DivideMix: worked examples, the division of the items, a whole step against a slow loop, and what a network may touch."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from test_pals_method import Linear
from torch import Tensor

from _toy import assert_same, recorded, run_all, steps_of, toy_candidates, toy_data, toy_method, toy_trainer
from pals.data.dataset import Dataset
from pals.labels.candidates import CandidateSets
from pals.methods import Batch
from pals.methods.bases.two_networks import single_labels
from pals.methods.dividemix import LABELED, UNLABELED, clean_probability, divide, prior_penalty, scale_to_unit, sharpen
from pals.methods.parts.losses import negative_entropy


def votes(*rows: list[float]) -> CandidateSets:
    share_NC = torch.tensor(rows)
    ids = tuple(map(str, range(len(rows))))
    return CandidateSets(share_NC > 0, ids, tuple("abc"), share_NC)


def drawn_shares(candidates: CandidateSets, how: Any, row: int = 0) -> list[float]:
    many = candidates.take(torch.full((20_000,), row))
    label_N = single_labels(many, how, torch.Generator().manual_seed(0))
    return (torch.bincount(label_N, minlength=3) / 20_000).tolist()


def test_ways_to_one_label() -> None:
    said = votes([0.5, 0.3, 0.2], [0.4, 0.2, 0.4])
    assert drawn_shares(said, "majority") == [1, 0, 0]
    assert drawn_shares(said, "majority", 1) == pytest.approx([0.5, 0, 0.5], abs=0.02)  # a tie
    assert drawn_shares(said, "votes") == pytest.approx([0.5, 0.3, 0.2], abs=0.02)
    assert drawn_shares(said, "candidates") == pytest.approx([1 / 3] * 3, abs=0.02)
    uncounted = CandidateSets.from_matrix([[1, 0, 1]])
    for how in ("majority", "votes", "candidates"):
        assert drawn_shares(uncounted, how) == pytest.approx([0.5, 0, 0.5], abs=0.02)
    share_NC = torch.tensor([[0.1, 0.3, 0.6], [0, 0, 1]])  # answers that are no candidate do not count
    said = CandidateSets(torch.tensor([[1, 1, 0], [1, 1, 0]]), ("0", "1"), tuple("abc"), share_NC)
    assert drawn_shares(said, "majority") == [0, 1, 0]
    assert drawn_shares(said, "votes") == pytest.approx([0.25, 0.75, 0], abs=0.02)
    assert drawn_shares(said, "majority", 1) == pytest.approx([0.5, 0.5, 0], abs=0.02)


def test_labels_follow_their_own_seed(noisy: CandidateSets) -> None:
    """Not that of the run, so that runs can be compared; and they are kept."""
    pairs = ((0, 1), (0, 2), (1, 1))
    one, same, other = (toy_method("dividemix", noisy, {"label_seed": own}, seed=seed).label_N for own, seed in pairs)
    assert torch.equal(one, same) and not torch.equal(one, other) and noisy.allowed_NC.gather(1, one[:, None]).all()
    assert "label_N" in toy_method("elr+", noisy).state_dict()


def test_sharpening_on_the_worked_example() -> None:
    v = torch.tensor([[0.5, 0.3, 0.2], [1, 0, 0]])
    assert sharpen(v, 0.5)[0].tolist() == pytest.approx([0.65789, 0.23684, 0.10526], abs=1e-5)
    torch.testing.assert_close(sharpen(v, 1.0), v)
    assert torch.equal(sharpen(v, 0.5)[1], v[1])
    assert torch.equal(sharpen(v, 0.001)[0], torch.tensor([1.0, 0, 0]))  # the powers would all be 0
    share = torch.tensor([[0.5, 0.25, 0.25], [1 / 3] * 3])
    assert negative_entropy(share.log()).tolist() == pytest.approx([-1.5 * math.log(2), -math.log(3)], abs=1e-6)


def test_weight_of_the_unlabelled_items() -> None:
    method: Any = toy_method("dividemix", toy_candidates(toy_data()), {"warm_up": 10, "ramp": 16, "unlabeled_weight": 25.0})
    method.in_warm_up, method.own_steps, weights = False, (1, 1), []
    for epoch in (1, 11, 15, 27, 301):
        ctx: Any = SimpleNamespace(epoch=epoch, batch_size=4, rng=np.random.default_rng(0), generator=torch.Generator())
        weights.append(float(method.random_inputs(ctx, 1)["unlabeled_weight"][0, 0]))
    assert weights == [0, 0, 6.25, 25, 25]


def test_prior_penalty_on_the_worked_example() -> None:
    rows = torch.tensor([[0.7, 0.2, 0.1], [0.3, 0.4, 0.3]])  # their mean is .5, .3, .2
    assert float(prior_penalty(rows.log())) == pytest.approx(0.0702403, abs=1e-6)
    in_turn = torch.stack([torch.tensor([0.5, 0.3, 0.2]).roll(places) for places in range(3)])  # whose mean is uniform
    assert float(prior_penalty(in_turn.log())) == pytest.approx(0, abs=1e-6)
    assert float(prior_penalty(torch.tensor([[9.0, 0], [0, 9.0]]))) == pytest.approx(0, abs=1e-6)
    assert float(prior_penalty(torch.tensor([[400.0, 0.0]]))) == pytest.approx(200 - math.log(2), rel=1e-5)  # p underflows


def two_piles(seed: int = 0) -> Tensor:
    jitter = 0.02 * torch.randn(200, generator=torch.Generator().manual_seed(seed))
    return torch.cat([torch.full((100,), 0.05), torch.full((100,), 0.9)]) + jitter


def test_the_mixture_finds_two_piles() -> None:
    for items in (1, 2, 50):  # equal losses are clean
        level = scale_to_unit(torch.full((items,), 0.7))
        assert torch.equal(level, torch.zeros(items)) and torch.equal(clean_probability(level, 0), torch.ones(items))
    loss = two_piles()
    clean = clean_probability(scale_to_unit(loss), 0)
    assert (clean[:100] > 0.99).all() and (clean[100:] < 0.01).all()
    between = torch.cat([loss, torch.linspace(0.06, 0.89, 50)])
    falling = clean_probability(scale_to_unit(between), 0)[200:]
    assert (falling.diff() <= 1e-9).all() and falling[0] > 0.9 > 0.1 > falling[-1]
    assert clean_probability(torch.tensor([0.0, 1.0]), 0).tolist() == pytest.approx([1, 0], abs=1e-6)
    clean = torch.tensor([0.9, 0.1, 0.6, 0.5, 0.7])
    cases: list[tuple[float, int, list[int], list[int]]] = [
        (0.5, 2, [0, 4, 2], [3, 1]),
        (0.65, 1, [0, 4], [2, 3, 1]),
        (0.95, 2, [0, 4], [2, 3, 1]),  # a batch at least
        (0.0, 2, [0, 4, 2, 3, 1], [3, 1]),  # nobody is left: the least likely
        (0.5, 99, [0, 4, 2, 3, 1], [0, 4, 2, 3, 1]),
    ]
    for threshold, size, labeled, unlabeled in cases:
        assert [part.tolist() for part in divide(clean, threshold, size)] == [labeled, unlabeled]


def network_loss_by_hand(
    method: Any, networks: tuple[Any, Any], batch: Batch, other: Batch, random: Mapping[str, Tensor]
) -> Any:
    """Targets, mixed targets and loss of one network, row by row; `networks` are itself and its peer, both copies."""
    own, peer = networks
    c, classes = method.config, method.num_classes
    assert batch.target is not None
    with torch.no_grad():
        x, x2, u, u2 = ([row.softmax(dim=0) for row in own(v).logits] for v in (*batch.views, *other.views))
        peer.eval()
        v, v2 = ([row.softmax(dim=0) for row in peer(view).logits] for view in other.views)

    def sharp(share: Tensor) -> Tensor:
        power = share ** (1 / c.temperature)
        return power / power.sum()

    refined = []
    for i, (index, w) in enumerate(zip(batch.index_B.tolist(), batch.target.tolist(), strict=True)):
        label = torch.eye(classes)[int(method.label_N[index])]
        refined.append(sharp(w * label + (1 - w) * (x[i] + x2[i]) / 2))
    guessed = [sharp((u[i] + u2[i] + v[i] + v2[i]) / 4) for i in range(len(u))]
    inputs = torch.cat([*batch.views, *other.views])
    targets = torch.stack([*refined, *refined, *guessed, *guessed])
    order, w = random["uniform"].argsort().tolist(), float(random["weight"])
    rows = 2 * len(refined) if c.train_on == "labeled" else len(inputs)
    mixed = torch.stack([w * inputs[i] + (1 - w) * inputs[order[i]] for i in range(rows)])
    soft = torch.stack([w * targets[i] + (1 - w) * targets[order[i]] for i in range(rows)])
    share = own(mixed).logits.softmax(dim=1)
    labeled = 2 * len(refined)
    loss = -(soft[:labeled] * share[:labeled].log()).sum() / labeled
    loss = loss + sum(1 / classes * (1 / classes / mean).log() for mean in share.mean(dim=0))
    if c.train_on == "all":
        error = (share[labeled:] - soft[labeled:]) ** 2
        loss = loss + random["unlabeled_weight"] * error.sum() / (len(guessed) * 2 * classes)
    return targets, soft, loss


def main_steps(data: Dataset, **options: Any) -> list[tuple[Any, Batch]]:
    """Method, as it was, and batch of the steps after the warm-up."""
    trainer = toy_trainer("dividemix", data, options={"warm_up": 1, **options}, train={"epochs": 3, "batch_size": 16})
    return [(then, batch) for then, batch in steps_of(trainer) if not then.in_warm_up]


@pytest.mark.parametrize(
    "options", [{}, {"train_on": "labeled", "zeta": 0.5}, {"temperature": 0.8, "labels": "votes"}], ids=str
)
def test_a_step_is_the_loop(options: dict[str, Any], toy: Dataset) -> None:
    steps = main_steps(toy, **options)
    for method, batch in (steps[0], steps[-1]):
        groups = {"main": batch, **batch.groups}
        assert float(batch.random["weight"].min()) >= 0.5
        twin, total = copy.deepcopy(method), 0.0
        for k, (own, peer) in enumerate(zip(twin.pair.both(), reversed(twin.pair.both()), strict=True)):
            random = {name: rows[k] for name, rows in batch.random.items()}
            labeled, unlabeled = groups[LABELED[k]], groups[UNLABELED[k]]
            made = [copy.deepcopy(network) for network in (own, peer)]
            mine = torch.cat([t for t in twin.soft_targets(*copy.deepcopy(made), labeled, unlabeled) for _ in range(2)])
            targets, soft, loss = network_loss_by_hand(method, (made[0], made[1]), labeled, unlabeled, random)
            torch.testing.assert_close(mine, targets)
            for table in (mine, soft):
                assert (table >= 0).all()
                torch.testing.assert_close(table.sum(dim=1), torch.ones(len(table)))
            alone = twin.mixed_loss(own, peer, labeled, unlabeled, random)
            torch.testing.assert_close(alone, loss)
            total += float(random["active"] * loss.detach())
        assert float(method.loss(batch).detach()) == pytest.approx(total, rel=1e-4)


def test_refinement_on_the_worked_example(noisy: CandidateSets) -> None:
    """w = .8, the label 0 and a mean prediction .2, .5, .3 give .84, .10, .06; w = 1 gives the label itself."""
    method: Any = toy_method("dividemix", noisy)
    method.label_N.zero_()

    scores = Linear(torch.eye(3))  # whose inputs are the scores themselves
    one, other, guess = (torch.tensor([p, p]).log() for p in ([0.1, 0.6, 0.3], [0.3, 0.4, 0.3], [0.5, 0.3, 0.2]))
    labeled = Batch(torch.tensor([0, 1]), (one, other), torch.tensor([0.8, 1.0]))
    unlabeled = Batch(torch.tensor([2, 3]), (guess, guess), None)
    refined, guessed = method.soft_targets(scores, scores, labeled, unlabeled)
    assert refined[0].tolist() == pytest.approx([0.98109, 0.01390, 0.00501], abs=1e-5)
    assert torch.equal(refined[1], torch.tensor([1.0, 0, 0]))
    assert guessed[0].tolist() == pytest.approx([0.65789, 0.23684, 0.10526], abs=1e-5)


def test_only_the_network_that_is_trained_changes(toy: Dataset) -> None:
    """Its peer keeps its parameters and its statistics, and gets no gradient."""
    method, batch = main_steps(toy)[0]
    own, peer = method.pair.both()
    before = copy.deepcopy(peer.state_dict())
    random = {name: batch.random[name][0] for name in ("weight", "uniform")}
    random["unlabeled_weight"] = torch.tensor(3.0)
    moved = copy.deepcopy(own.state_dict())
    method.zero_grad(set_to_none=True)
    method.mixed_loss(own, peer, batch, batch.groups["main_unlabeled"], random).backward()
    assert_same(peer.state_dict(), before)
    assert peer.training and all(p.grad is None for p in peer.parameters())
    assert all(p.grad is not None for p in own.parameters())
    norms = [name for name in moved if name.endswith("num_batches_tracked")]
    assert all(own.state_dict()[name] == moved[name] + 5 for name in norms)  # four views for the targets, then the mixed rows


def test_warm_up_on_both_networks(toy: Dataset) -> None:
    """Batches of twice the size, one weak view, an order for each; the penalty is the negative entropy."""
    options = {"warm_up": 2, "warm_up_penalty": 1.0}
    trainer = toy_trainer("dividemix", toy, options=options, train={"epochs": 2, "batch_size": 16})
    losses = recorded(trainer.method, "loss")
    steps = steps_of(trainer)
    for (method, batch), loss in zip(steps, losses, strict=True):
        expected = 0.0
        for network, part in zip(method.pair.both(), (batch, batch.groups["second"]), strict=True):
            share = network(part.views[0]).logits.double().softmax(dim=1)
            for row, index in zip(share, part.index_B, strict=True):
                value = -row[method.label_N[index]].log() + (row * row.log()).sum()
                expected += float(value.detach()) / len(share)
        assert float(loss.detach()) == pytest.approx(expected, rel=1e-4)
    assert len(steps) == 6
    first = torch.cat([batch.index_B for _, batch in steps[:3]])
    second = torch.cat([batch.groups["second"].index_B for _, batch in steps[:3]])
    assert sorted(first.tolist()) == list(range(90)) and set(second.tolist()) == set(range(90))
    assert not torch.equal(first, second[:90]) and trainer.method.posterior() is None


@pytest.mark.parametrize("history", [1, 3])
def test_each_learns_from_what_the_other_found(history: int, toy: Dataset) -> None:
    """By losses that may be averaged over the last epochs."""
    options = {"warm_up": 2, **({"history": history} if history > 1 else {})}
    trainer = toy_trainer("dividemix", toy, options=options, train={"epochs": 6, "batch_size": 16})
    method: Any = trainer.method
    plan_epoch, plans, past = method.plan_epoch, [], [[], []]

    def spy(ctx: Any) -> Any:
        rng = copy.deepcopy(ctx.rng)
        plan = plan_epoch(ctx)
        if not method.in_warm_up:
            expected = []
            for losses, network in zip(past, method.pair.both(), strict=True):
                loss = torch.nn.functional.cross_entropy(ctx.outputs(network).logits, method.label_N, reduction="none")
                losses.append((loss - loss.min()) / (loss.max() - loss.min()))
                expected.append(clean_probability(torch.stack(losses[-history:]).mean(dim=0), int(rng.integers(2**31))))
            plans.append((plan, expected))
        return plan

    method.plan_epoch = spy
    records = run_all(trainer)
    assert len(plans) == 4
    for (plan, clean), record in zip(plans, records[2:], strict=True):
        sizes = []
        for k in range(2):
            labeled, unlabeled, theirs = plan.groups[LABELED[k]], plan.groups[UNLABELED[k]], clean[1 - k]
            torch.testing.assert_close(labeled.target, theirs, atol=1e-4, rtol=0)
            kept = set((labeled.target > 0.5).nonzero().flatten().tolist())
            assert 16 <= len(kept) < 90 and set(labeled.order_M.tolist()) == kept
            assert not kept & set(unlabeled.order_M.tolist())
            sizes.append(len(kept))
        assert [record["labeled_0"], record["labeled_1"]] == sizes and record["steps"] == math.ceil(max(sizes) / 16)
        assert {len(group.order_M) for group in plan.groups.values()} == {16 * record["steps"]}
        assert abs(record["selected"] - int((sum(clean) / 2 > 0.5).sum())) <= 1


def test_each_makes_one_pass_and_waits() -> None:
    """The other one may have been given far more items: that is no reason to learn one's own by heart."""
    trainer = toy_trainer("dividemix", toy_data(), options={"warm_up": 0, "ramp": 2}, train={"epochs": 1, "batch_size": 16})
    method: Any = trainer.method
    clean = torch.zeros(2, 90)
    clean[0, :80], clean[1, :20] = 1, 1  # found by the first, for the second, and the other way round
    method._clean_probabilities = lambda ctx: clean
    original, gradients, weights = method.loss, [], []

    def spy(batch: Batch) -> Tensor:
        loss = original(batch)
        found = [torch.autograd.grad(loss, list(n.parameters()), retain_graph=True) for n in method.pair.both()]
        gradients.append([any(bool(g.any()) for g in grads) for grads in found])
        weights.append(batch.random["unlabeled_weight"].tolist())
        return loss

    method.loss = spy
    (record,) = run_all(trainer)
    assert (record["labeled_0"], record["labeled_1"], record["steps"]) == (20, 80, 5)
    assert gradients == [[True, True]] * 2 + [[False, True]] * 3
    assert weights[:2] == [[0, 0], pytest.approx([25 / 4, 25 / 10])]  # each by how far its own pass is


def test_belief_is_label_and_prediction(toy: Dataset) -> None:
    trainer = toy_trainer("dividemix", toy, train={"epochs": 3})
    method: Any = trainer.method
    epochs = trainer.epochs()
    next(epochs), next(epochs)
    share = sum(trainer.infer(network, trainer.inputs).logits.softmax(dim=1) for network in method.pair.both()) / 2
    kept = recorded(method, "plan_epoch")
    next(epochs)
    clean = (kept[0].groups["main"].target + kept[0].groups["second"].target) / 2
    expected = clean[:, None] * torch.eye(3)[method.label_N] + (1 - clean[:, None]) * share
    torch.testing.assert_close(method.posterior(), expected)


def test_all_steps_have_one_shape() -> None:
    """However the items divide: a captured step is made for one."""
    steps = main_steps(toy_data(items=50), warm_up=0)
    assert len({tuple(tensor.shape for tensor in batch.tensors()) for _, batch in steps}) == 1
    assert len({method.graph_key for method, _ in steps}) == 1


@pytest.mark.parametrize(
    "options", [{"train_on": "labeled", "zeta": 0.5, "warm_up_penalty": 1.0}, {"history": 5, "threshold": 0.6}], ids=str
)
def test_variants_find_the_right_labels(options: dict[str, Any]) -> None:
    data = toy_data(items=180)
    candidates = toy_candidates(data)
    trainer = toy_trainer("dividemix", data, candidates, options=options, train={"epochs": 12})
    record = run_all(trainer)[-1]
    method: Any = trainer.method
    right = float((method.label_N == data.truth.label_N).float().mean())
    assert record["test_accuracy"] >= 0.85 and record["correct"] / record["selected"] > right + 0.1
    assert record["correct"] >= 0.9 * right * 180
