"""FREDIS: worked examples of loss and round, a slow loop for the round, and both phases in the real trainer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from _toy import recorded, run_all, steps_of, toy_candidates, toy_data, toy_method, toy_trainer, watched_steps
from pals.data.dataset import Dataset
from pals.methods import Batch
from pals.methods.bases.holdout import Holdout
from pals.methods.crdpll import wrong_label_loss
from pals.methods.fredis import FREDIS, edit_sets, lower_threshold
from pals.vision.networks import Output

SHARES = [torch.tensor([p]) for p in ([0.5, 0.3, 0.2], [0.4, 0.4, 0.2], [0.6, 0.2, 0.2])]
seeds = st.integers(0, 2**31)


class Told(torch.nn.Module):
    """Says what it is shown."""

    def each(self, views: tuple[Tensor, ...]) -> list[Output]:
        return [Output(view, view) for view in views]


def one_item(**options: Any) -> tuple[Any, Batch]:
    """A method whose item 1 has candidates 0 and 1 and the confidence (.5, .5, 0), and the three views of the sheet."""
    method: Any = toy_method(FREDIS, toy_candidates(toy_data()), options)
    method.allowed_NC[1] = torch.tensor([True, True, False])
    method.confidence_NC[1] = torch.tensor([0.5, 0.5, 0.0])
    method.network = Told()
    return method, Batch(torch.tensor([1]), tuple(share.log() for share in SHARES), None)


def test_worked_examples_of_loss_and_confidence() -> None:
    method, batch = one_item(consistency_weight=10.0, wrong_weight=0.1, temperature=1.0)
    assert float(method.loss(batch)) == pytest.approx(0.8455410 + 0.6694307, abs=1e-6)  # the warm-up
    method.in_warm_up = False
    assert float(method.loss(batch)) == pytest.approx(8.5223526, abs=2e-6)
    for weights, expected in (((1.0, 0.0), 0.8455410), ((0.0, 1.0), 0.6694307)):
        method, batch = one_item(consistency_weight=weights[0], wrong_weight=weights[1], temperature=1.0)
        method.in_warm_up = False
        assert float(method.loss(batch)) == pytest.approx(expected, abs=1e-6)
    method, batch = one_item(consistency_weight=1.0, wrong_weight=0.0, temperature=1.0)
    method.in_warm_up = False
    each = [float(method.loss(replace(batch, views=(view,)))) for view in batch.views]
    assert each == pytest.approx([0.2554128, 0.2231436, 0.3669846], abs=1e-6)
    method, batch = one_item()
    method.loss(batch)
    method.after_step(batch)
    assert method.confidence_NC[1].tolist() == pytest.approx([0.63099, 0.36901, 0], abs=1e-5)
    assert method.posterior_NC[1].tolist() == pytest.approx([0.5, 0.3, 0.2], abs=1e-6)
    assert method.posterior_NC[0].tolist() == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("temperature", [0.8, 2.0])
def test_the_temperature_divides_all_logits_but_not_in_the_warm_up(temperature: float) -> None:
    method, batch = one_item(temperature=temperature)
    colder, same = one_item(temperature=1.0)
    for warm in (True, False):
        method.in_warm_up = colder.in_warm_up = warm
        scaled = batch if warm else Batch(batch.index_B, tuple(view / temperature for view in same.views), None)
        assert float(method.loss(batch)) == pytest.approx(float(colder.loss(scaled)), abs=1e-5)
        method.after_step(batch)
        colder.after_step(scaled)
        torch.testing.assert_close(method.confidence_NC, colder.confidence_NC)
        torch.testing.assert_close(method.posterior_NC, colder.posterior_NC)


def test_a_step_is_three_passes_with_statistics_of_their_own(toy: Dataset) -> None:
    steps = steps_of(toy_trainer("fredis", toy, train={"epochs": 1}))
    for method, batch in steps:
        loss, parameters = method.loss(batch), list(method.network.parameters())
        target, allowed = method.confidence_NC[batch.index_B], method.allowed_NC[batch.index_B]
        agree, wrong, temperature = (1.0, 1.0, 1.0) if method.graph_key == "warm-up" else (10.0, 0.1, 3.0)
        expected = torch.zeros(())
        for view in batch.views:
            log_share = (method.network(view).logits / temperature).log_softmax(dim=1)
            inside = (target * (target.clamp_min(1e-30).log() - log_share))[allowed & (target > 0)].sum()
            outside = -(1 + 1e-7 - log_share.exp()).log()[~allowed].sum()
            expected = expected + (agree * inside + wrong * outside) / len(target)
        torch.testing.assert_close(loss, expected, atol=1e-4, rtol=1e-4)
        got, by_hand = (torch.autograd.grad(value, parameters) for value in (loss, expected))
        torch.testing.assert_close(got, by_hand, atol=1e-3, rtol=1e-3)
    assert [method.graph_key for method, _ in steps] == ["warm-up"] * 4 + ["main"] * 2  # a short last batch is left out


def edit(allowed: Any, posterior: Any, seed: int = 0, **options: Any) -> tuple[Tensor, float]:
    usual = {"add_below": 0.0, "remove_above": 1.0, "remove_step": 0.0, "changes": 10**6, "removals": 1, "strict_cap": False}
    allowed, posterior = torch.as_tensor(allowed, dtype=torch.bool), torch.as_tensor(posterior)
    return edit_sets(allowed, posterior, generator=torch.Generator().manual_seed(seed), **{**usual, **options})


def test_worked_example_of_a_round() -> None:
    """r = (.6, .3, .1), so the gaps are 0, .3 and .5."""
    row = [[0.6, 0.3, 0.1]]
    added, _ = edit([[0, 0, 1]], row, add_below=0.35)
    assert added.tolist() == [[True, True, True]]
    removed, _ = edit([[1, 1, 1]], row, remove_above=0.45)
    assert removed.tolist() == [[True, True, False]]
    both, threshold = edit([[0, 0, 1]], row, add_below=0.35, remove_above=0.45)
    assert both.tolist() == [[True, True, False]] and threshold == 0.45


def slow_round(
    allowed: Tensor, posterior: Tensor, *, theta: float, delta: float, dec: float, times: int
) -> tuple[Tensor, float]:
    """Without caps, entry by entry; a threshold that finds no more labels stops at 0."""
    rows, classes = allowed.shape
    gap = [[max(row) - p for p in row] for row in posterior.tolist()]
    old, new = allowed.tolist(), allowed.tolist()
    added = 0
    for i in range(rows):
        for c in range(classes):
            if gap[i][c] < theta:
                added += not old[i][c]
                new[i][c] = True

    def found(threshold: float) -> int:
        return sum(old[i][c] and gap[i][c] > threshold for i in range(rows) for c in range(classes))

    while dec > 0 and found(delta) < min(times * added, found(0.0)):
        delta = max(0.0, delta - dec)
    for i in range(rows):
        for c in range(classes):
            if gap[i][c] > delta:
                new[i][c] = False
        if not any(new[i]):
            new[i] = old[i]
    return torch.tensor(new), delta


def random_case(seed: int, rows: int = 12, classes: int = 5) -> tuple[Tensor, Tensor]:
    """Probabilities in 64ths, so that no sum or difference is rounded."""
    generator = torch.Generator().manual_seed(seed)
    allowed = torch.rand(rows, classes, generator=generator) < 0.5
    allowed[torch.arange(rows), torch.randint(classes, (rows,), generator=generator)] = True
    draws = [torch.randint(classes, (64,), generator=generator) ** 2 % classes for _ in range(rows)]
    return allowed, torch.stack([torch.bincount(draw, minlength=classes) for draw in draws]) / 64


@given(seeds, st.integers(0, 40), st.integers(0, 64), st.sampled_from([0, 1, 3, 16]), st.integers(1, 3))
def test_a_round_is_the_slow_loop(seed: int, theta: int, delta: int, dec: int, times: int) -> None:
    allowed, posterior = random_case(seed)
    expected, threshold = slow_round(allowed, posterior, theta=theta / 64, delta=delta / 64, dec=dec / 64, times=times)
    found, lower = edit(allowed, posterior, add_below=theta / 64, remove_above=delta / 64, remove_step=dec / 64, removals=times)
    assert torch.equal(found, expected) and lower == pytest.approx(threshold, abs=1e-6)


@given(seeds, st.integers(1, 40), st.integers(0, 64), st.booleans(), st.integers(1, 9))
def test_what_every_round_keeps(seed: int, theta: int, delta: int, strict: bool, changes: int) -> None:
    allowed, posterior = random_case(seed)
    options: dict[str, Any] = {"add_below": theta / 64, "remove_above": delta / 64, "remove_step": 1 / 64, "removals": 2}
    found, lower = edit(allowed, posterior, seed, changes=changes, strict_cap=strict, **options)
    assert found.any(dim=1).all() and 0 <= lower <= delta / 64
    gap = posterior.amax(dim=1, keepdim=True) - posterior
    top = gap == 0
    assert not (allowed & ~found & top).any()  # the likeliest label is never removed
    assert not (found & ~allowed & (gap >= theta / 64)).any() and not (allowed & ~found & (gap <= lower)).any()
    assert int((found != allowed).sum()) <= changes + 2 * changes
    assert torch.equal(found, edit(allowed, posterior, seed, changes=changes, strict_cap=strict, **options)[0])
    free, _ = edit(allowed, posterior, **options)
    assert free[top].all()  # without a cap it is always in


def test_thresholds_of_a_round() -> None:
    allowed, posterior = random_case(0)
    found, lower = edit(allowed, posterior, remove_step=0.01, removals=5)
    assert torch.equal(found, allowed) and lower == 1.0  # closed, they change nothing
    _, lower = edit(torch.ones_like(allowed), posterior, add_below=0.5, remove_above=0.9, remove_step=0.01)
    assert lower == 0.9  # without an addition it stays
    gap = torch.tensor([[0.0, 0.35, 0.62], [0.0, 0.11, 0.0]])
    assert lower_threshold(1.0, 0.1, gap, 0) == 1.0 and lower_threshold(1.0, 0.1, gap, 1) == pytest.approx(0.6)
    assert lower_threshold(0.5, 0.1, gap, 1) == 0.5 and lower_threshold(1.0, 0.1, gap, 3) == pytest.approx(0.1)
    assert lower_threshold(1.0, 0.3, gap, 3) == pytest.approx(0.1)
    assert lower_threshold(1.0, 0.6, gap, 99) == 0.0  # there are only three
    assert lower_threshold(1.0, 0.0, gap, 3) == 1.0
    tight = lower_threshold(0.35, 1e-9, gap, 2)  # less than the gaps' precision: still below
    assert (gap > tight).sum() == 2


def test_caps() -> None:
    """Of 300 empty top labels at most 10 are added. Strictly, 10 are; else 10 are drawn among all 600 that are near."""
    posterior = torch.tensor([[0.5, 0.3, 0.2]]).repeat(600, 1)
    allowed = torch.tensor([[False, True, True]]).repeat(600, 1)
    allowed[300:, 0] = True
    strict, _ = edit(allowed, posterior, add_below=1e-6, changes=10, strict_cap=True)
    assert int((strict & ~allowed).sum()) == 10
    counts = [int((edit(allowed, posterior, s, add_below=1e-6, changes=10)[0] & ~allowed).sum()) for s in range(40)]
    assert max(counts) <= 10 and 4 < sum(counts) / 40 < 6
    exact, _ = edit(allowed, posterior, add_below=1e-6, changes=300)
    assert exact[:, 0].all()
    few, _ = edit(allowed, posterior, remove_above=0.1, changes=7, removals=3, strict_cap=True)
    assert int((allowed & ~few).sum()) == 21


def test_phases_and_rounds(toy: Dataset) -> None:
    options = {"warm_up": 3, "update_every": 2}
    trainer = toy_trainer("fredis", toy, options=options, train={"epochs": 5, "lr": 0.02})
    records = run_all(trainer)
    assert [r["phase"] for r in records] == ["warm-up"] * 3 + ["main"] * 5
    assert [r["lr"] for r in records][:4:3] == [0.05, 0.02]
    assert ["added" in r for r in records] == [False] * 3 + [True, False, True, False, True]
    method: Any = trainer.method
    given = toy_candidates(toy).allowed_NC
    changed = sum(r.get("added", 0) for r in records) + sum(r.get("removed", 0) for r in records)
    assert changed >= int((method.allowed_NC != given).sum()) > 0
    assert (method.confidence_NC[~method.allowed_NC] == 0).all()
    torch.testing.assert_close(method.confidence_NC.sum(dim=1), torch.ones(90))
    default = toy_method(FREDIS, toy_candidates(toy))
    assert default.phase(0).epochs is None  # type: ignore[union-attr]


def test_the_warm_up_ends_with_a_look_at_all_items(toy: Dataset) -> None:
    """No step of the main phase is made before probabilities and confidences come from the network as it is."""
    trainer = toy_trainer("fredis", toy, options={"warm_up": 1}, train={"epochs": 1})
    then = next(method for method, _ in steps_of(trainer) if method.graph_key == "main")
    torch.testing.assert_close(then.posterior_NC, trainer.infer(then.network, trainer.inputs).logits.softmax(dim=1))
    assert (then.confidence_NC[~then.allowed_NC] == 0).all()


def test_thresholds_open_while_few_labels_move(toy: Dataset) -> None:
    options = {"warm_up": 1, "update_every": 1, "add_step": 0.25, "remove_step": 0.25, "changes": 10**6}
    trainer = toy_trainer("fredis", toy, options=options, train={"epochs": 6})
    method: Any = trainer.method
    thresholds = [(float(method.add_below), float(method.remove_above)) for _ in trainer.epochs()]
    add, remove = zip(*thresholds, strict=True)
    assert add[0] == pytest.approx(1e-6)  # the warm-up
    assert all(b - a == pytest.approx(0.25, abs=1e-6) or b == a for a, b in pairwise(add))
    assert add[-1] <= 0.9 + 0.25 and all(b <= a for a, b in pairwise(remove)) and min(remove) >= 0
    busy: Any = toy_trainer("fredis", toy, options={**options, "changes": 1, "strict_cap": True}, train={"epochs": 1})
    busy.method.posterior_NC.copy_(torch.eye(3)[torch.arange(90) % 3])
    busy.method.remove_above.fill_(0.5)
    before = float(busy.method.add_below)
    busy.method._edit_sets(busy.generator)
    assert busy.method.counts["added"] + busy.method.counts["removed"] >= 1
    assert float(busy.method.add_below) == before  # enough has moved


def weights(module: torch.nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten().clone() for p in module.parameters()])


def test_with_closed_thresholds_it_is_crdpll_with_a_constant_weight(toy: Dataset) -> None:
    """At the temperature 1 and without averaging: same gradients, same confidences from visit to visit. What differs are the
    wrong labels of the strong views, and that a round starts the confidences anew, though it edits nothing."""
    other: Any = toy_method("crdpll", toy_candidates(toy))
    steps, kept = 0, torch.empty(0)

    def look(method: Any, batch: Batch, loss: Tensor) -> Callable[[], None]:
        nonlocal steps
        assert torch.equal(weights(method.network), kept) or steps == 0  # a round leaves them alone
        if steps in (4, 6):  # two in an epoch: the main phase begins, and goes on after its first round
            assert not torch.allclose(method.confidence_NC, other.confidence_NC)
            other.confidence_NC.copy_(method.confidence_NC)
        steps += 1
        other.network, allowed = copy.deepcopy(method.network), method.allowed_NC[batch.index_B]
        other.weight.fill_(1.0 if method.graph_key == "warm-up" else 10.0)
        strong = [other.network(view).logits for view in batch.views[1:]]
        more = torch.stack([wrong_label_loss(logits, allowed) for logits in strong]).sum(dim=0).mean()
        expected = other.loss(batch) + more
        torch.testing.assert_close(loss, expected)
        assert float(more.detach()) > 0
        got = torch.autograd.grad(loss, list(method.network.parameters()), retain_graph=True)
        for a, b in zip(got, torch.autograd.grad(expected, list(other.network.parameters())), strict=True):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)

        def after() -> None:
            nonlocal kept
            other.after_step(batch)
            torch.testing.assert_close(method.confidence_NC, other.confidence_NC)
            kept = weights(method.network)

        return after

    closed = {"add_below": 0.0, "add_step": 0.0, "remove_step": 0.0, "averaging": 0.0}
    options = {**closed, "warm_up": 2, "update_every": 2, "temperature": 1.0, "consistency_weight": 10.0, "wrong_weight": 1.0}
    records = watched_steps("fredis", toy, look, options=options, train={"epochs": 3, "lr": 0.01})
    assert steps == 10 and {(r["added"], r["removed"]) for r in records if "added" in r} == {(0, 0)}


@pytest.mark.parametrize("average_with", ["last", "first"])
def test_weights_go_back_in_a_round(average_with: str, toy: Dataset) -> None:
    options = {"warm_up": 1, "update_every": 1, "averaging": 0.25, "average_with": average_with}
    trainer = toy_trainer("fredis", toy, options=options, train={"epochs": 3})
    method: Any = trainer.method
    anchor = weights(method.network)  # "first": the very first weights
    after_steps = recorded(method, "after_step", lambda *_: weights(method.network))
    for number, _ in enumerate(trainer.epochs()):
        now = weights(method.network)
        if number == 0:  # the warm-up
            torch.testing.assert_close(now, after_steps[-1])
            anchor = now if average_with == "last" else anchor
        elif average_with == "last" or number == 1:
            torch.testing.assert_close(now, 0.75 * after_steps[-1] + 0.25 * anchor)
            anchor = now
        else:
            torch.testing.assert_close(now, after_steps[-1])


def test_held_out_items_are_neither_trained_on_nor_edited(toy: Dataset) -> None:
    options = {"warm_up": 1, "update_every": 1, "held_out": 0.3, "add_below": 0.9, "remove_above": 0.1}
    trainer = toy_trainer("fredis", toy, options=options, train={"epochs": 3})
    method: Any = trainer.method
    visits = recorded(method, "loss", lambda _, batch: batch.index_B.tolist())
    run_all(trainer)
    held, trained = method.holdout.index_M, method.holdout.others_M
    assert len(held) == 27 and len(trained) == 63 and set().union(*visits) <= set(trained.tolist())
    given = toy_candidates(toy).allowed_NC
    assert torch.equal(method.allowed_NC[held], given[held]) and not torch.equal(method.allowed_NC, given)
    options = {"warm_up": 1, "held_out": 0.3, "patience": 2}
    short = run_all(toy_trainer("fredis", toy, options=options, train={"epochs": 30}))
    assert len(short) < 30
    full = run_all(toy_trainer("fredis", toy, options={**options, "held_out": 0.0}, train={"epochs": 30}))
    assert len(full) == 31


def test_held_out_counts() -> None:
    held = Holdout(50, 0.2)
    assert sorted([*held.index_M.tolist(), *held.others_M.tolist()]) == list(range(50))
    assert len(held.index_M) == 10 and len(Holdout(3, 0.2).index_M) == 0
    rates = [0.10, 0.12, 0.11, 0.11, 0.11, 0.11, 0.11]  # none of them counts as better than the second
    assert [held.should_stop(rate, 5, strict=False) for rate in rates] == [False] * 6 + [True]
    held.reset()
    assert [held.should_stop(0.5, 2, strict=False) for _ in range(5)] == [False] * 5
    held.reset()
    assert [held.should_stop(0.5, 2, strict=True) for _ in range(3)] == [False, False, True]

    class Outputs:
        def outputs(self, network: Any = None, *, rows_M: Tensor) -> Output:
            return Output(torch.eye(4)[rows_M % 4], torch.zeros(len(rows_M), 1))

    allowed = torch.zeros(50, 4, dtype=torch.bool)
    covered = held.index_M[:3]
    allowed[covered, covered % 4] = True
    context: Any = Outputs()
    assert held.covering_rate(context, allowed) == pytest.approx(0.3) and len(Holdout(50, 0.0).estimation_items()) == 50
