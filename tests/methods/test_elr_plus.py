"""ELR+: worked examples, the averaged networks, and every step against a slow loop."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_pals_method import Linear
from torch import Tensor

from _toy import recorded, run_all, steps_of, toy_candidates, toy_data, toy_method, toy_trainer, watched_steps
from pals.data.dataset import Dataset
from pals.labels.candidates import CandidateSets
from pals.methods import Batch
from pals.methods.elr_plus import MIN_DISTANCE, disagreement, ema_decay, reweight, sigmoid_ramp

seeds = st.integers(0, 2**31)


def test_worked_examples() -> None:
    """Regulariser, labels times memory, and the share of the old weights."""
    memory = torch.tensor([[0.7, 0.2, 0.1]])
    logits = torch.tensor([[0.6, 0.3, 0.1]]).log().requires_grad_()
    value = disagreement(logits, memory)
    assert value.item() == pytest.approx(-0.6733446, abs=1e-6)
    assert 3 * value.item() == pytest.approx(-2.0200337, abs=1e-6)
    value.sum().backward()
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([-0.2470588, 0.1705882, 0.0764706], abs=1e-6)
    assert float(logits.grad.sum()) == pytest.approx(0, abs=1e-6)
    label = torch.tensor([[0.7, 0.3, 0], [0, 1, 0], [0, 0, 1]])
    memory = torch.tensor([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1], [0.9, 0.1, 0]])
    product = reweight(label, memory)
    assert product[0].tolist() == pytest.approx([0.8909091, 0.1090909, 0], abs=1e-6)
    assert torch.equal(product[1:], label[1:])  # one-hot labels stay, also where the memory excludes them
    step = torch.tensor([0.0, 19_999, 39_999, 10**6], dtype=torch.float64)
    ramp = ema_decay(step, 0.997, "ramp", 40_000).tolist()
    assert ramp == pytest.approx([0.0067194, 0.2856453, 0.997, 0.997], abs=1e-7)
    mean = ema_decay(torch.tensor([0.0, 1, 3, 10**6], dtype=torch.float64), 0.9999, "mean", 1).tolist()
    assert mean == [0, 0.5, 0.75, 0.9999] and sigmoid_ramp(step, 0).tolist() == [1, 1, 1, 1]
    ramp = sigmoid_ramp(torch.tensor([0.0, 20_000, 40_000, 50_000]), 40_000).tolist()
    assert ramp == pytest.approx([math.exp(-5), math.exp(-1.25), 1, 1])


@given(seeds, st.floats(0, 1), st.sampled_from([1.0, 30.0, 1000.0]))
def test_the_regulariser_has_bounds(seed: int, total: float, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(4, 5, generator=generator)
    memory = total * (scale * torch.randn(4, 5, generator=generator)).softmax(dim=1)
    for value in (disagreement(logits, memory), disagreement(logits, total * logits.softmax(dim=1))):
        assert (value <= 0).all()
        assert (value >= math.log(MIN_DISTANCE) - 0.01).all()  # 1 - 1e-4 is rounded
    assert (disagreement(logits, torch.zeros(4, 5)) == 0).all()


def test_memory_on_the_worked_example(noisy: CandidateSets) -> None:
    method: Any = toy_method("elr+", noisy, {"memory_momentum": 0.7})
    share = torch.tensor([0.6, 0.3, 0.1])
    batch = Batch(torch.tensor([4]), (share.log()[None],), None)
    for visits in range(1, 6):
        moved = method.update_memory(1, Linear(torch.eye(3)), batch)
        assert not moved.requires_grad
        method.memory_2NC[1, 4] = moved[0]
        if visits == 1:
            assert moved[0].tolist() == pytest.approx([0.18, 0.09, 0.03], abs=1e-6)
        torch.testing.assert_close(moved[0], (1 - 0.7**visits) * share)
        assert float(moved.sum()) <= 1
    assert not method.memory_2NC[0].any()


def by_hand(method: Any, k: int, part: Batch, batch: Batch) -> tuple[Tensor, Tensor]:
    """Loss of one network and the new memory of its items, row by row, with copies of the networks."""
    c, classes = method.config, method.num_classes
    own, peer = copy.deepcopy(method.pair.both()[k]), copy.deepcopy(method.ema.both()[1 - k])
    x, index, size = part.views[0], part.index_B.tolist(), len(part.index_B)
    with torch.no_grad():
        new = peer(x).logits.softmax(dim=1)
    memory = [c.memory_momentum * method.memory_2NC[k, i] + (1 - c.memory_momentum) * new[n] for n, i in enumerate(index)]
    w, order = float(batch.random["weight"][k]), batch.random["uniform"][k, :size].argsort().tolist()
    label = torch.eye(classes)[method.label_N]
    mixed = torch.stack([w * x[n] + (1 - w) * x[m] for n, m in enumerate(order)])
    share = own(mixed).logits.softmax(dim=1)
    loss = torch.zeros(())
    for n, m in enumerate(order):
        y = w * label[index[n]] + (1 - w) * label[index[m]]
        r = w * memory[n] + (1 - w) * memory[m]
        if c.reweight:
            y = y * r / (y * r).sum()
        loss = loss - (y * share[n].log()).sum()
        loss = loss + batch.random["memory_weight"] * (1 - (r * share[n].clamp(1e-4, 1 - 1e-4)).sum()).log()
    return loss / size, torch.stack(memory)


@pytest.mark.parametrize("options", [{}, {"reweight": True, "memory_ramp": 4}, {"slow_rule": "mean", "zeta": 0.3}], ids=str)
def test_every_step_is_the_loop(options: dict[str, Any], toy: Dataset) -> None:
    steps = 0

    def look(method: Any, batch: Batch, loss: Tensor) -> Callable[[], None]:
        nonlocal steps
        number, steps, c = steps, steps + 1, method.config
        parts = (batch, batch.groups["second"])
        assert float(batch.random["weight"].min()) >= 0.5
        ramp = math.exp(-5 * (1 - min(number, 4) / 4) ** 2) if c.memory_ramp else 1.0
        assert float(batch.random["memory_weight"]) == pytest.approx(3 * ramp, rel=1e-6)
        expected = [by_hand(method, k, part, batch) for k, part in enumerate(parts)]
        torch.testing.assert_close(loss, expected[0][0] + expected[1][0], atol=1e-4, rtol=1e-4)
        memory, slow = method.memory_2NC.clone(), copy.deepcopy(method.ema)
        for k, part in enumerate(parts):
            memory[k, part.index_B] = expected[k][1]

        def later() -> None:
            torch.testing.assert_close(method.memory_2NC, memory)
            assert (method.memory_2NC >= 0).all() and (method.memory_2NC.sum(dim=2) <= 1 + 1e-6).all()
            share = min(1 - 1 / (number + 1), 0.8)
            if c.slow_rule == "ramp":
                share = 0.8 * math.exp(-5 * (1 - (number + 1) / 40_000) ** 2)
            for old, new, fast in zip(slow.parameters(), method.ema.parameters(), method.pair.parameters(), strict=True):
                torch.testing.assert_close(new, share * old + (1 - share) * fast)

        return later

    # the loss is looked at after the norms have moved: batch statistics do not depend on that
    watched_steps("elr+", toy, look, options=options, train={"epochs": 2})
    assert steps == 6


def test_only_the_network_that_is_trained_changes(toy: Dataset) -> None:
    """Of the peer's average nothing but the statistics of its norms move, and nobody else is touched at all."""
    method, batch = steps_of(toy_trainer("elr+", toy, train={"epochs": 1}))[0]
    before = copy.deepcopy(method.state_dict())
    method.zero_grad(set_to_none=True)
    loss, _ = method.network_loss(0, method.pair.first, method.ema.second, batch, batch.random)
    loss.backward()
    assert all(p.grad is not None for p in method.pair.first.parameters())
    assert all(p.grad is None for m in (method.pair.second, method.ema) for p in m.parameters())
    moved = {key for key, value in method.state_dict().items() if not torch.equal(value, before[key])}
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    assert moved and all(key.endswith(statistics) for key in moved)
    assert {".".join(key.split(".")[:2]) for key in moved} == {"pair.first", "ema.second"}


def test_both_see_all_items_in_orders_of_their_own(toy: Dataset) -> None:
    trainer = toy_trainer("elr+", toy, train={"epochs": 1, "batch_size": 16})
    method: Any = trainer.method
    plans = recorded(method, "plan_epoch")
    (record,) = run_all(trainer)
    first, second = (plans[0].groups[name].order_M for name in ("main", "second"))
    assert record["steps"] == 6 and sorted(first.tolist()) == sorted(second.tolist()) == list(range(90))
    assert not torch.equal(first, second) and (method.memory_2NC.sum(dim=2) > 0.1).all()


def test_belief_is_what_is_remembered_and_the_trained_networks_answer(toy: Dataset, noisy: CandidateSets) -> None:
    trainer = toy_trainer("elr+", toy, train={"epochs": 2})
    method: Any = trainer.method
    assert method.posterior() is None
    run_all(trainer)
    total = method.memory_2NC[0] + method.memory_2NC[1]
    torch.testing.assert_close(method.posterior(), total / total.sum(dim=1, keepdim=True))
    method.memory_2NC[:, 3] = 0
    assert method.posterior()[3].tolist() == pytest.approx([1 / 3] * 3)
    method: Any = toy_method("elr+", noisy)
    assert method.predictor is method.pair
    starts = [network.classifier.weight for pair in (method.pair, method.ema) for network in pair.both()]
    assert len({float(weight.detach().sum()) for weight in starts}) == 4  # four first weights, as published


def test_the_memory_holds_out_against_wrong_labels() -> None:
    """Trained for long, predictions for items with a wrong label stay with the truth; those of plain mix-up less."""
    data = toy_data(items=90, apart=4.0)
    candidates = toy_candidates(data, q=0.3, eta=0.2)
    right = []
    for weight in (3.0, 0.0):
        train = {"epochs": 30, "schedule": "constant"}
        trainer = toy_trainer("elr+", data, candidates, options={"memory_weight": weight}, train=train)
        run_all(trainer)
        method: Any = trainer.method
        wrong = method.label_N != data.truth.label_N
        predicted = trainer.infer(method.predictor, trainer.inputs).logits.argmax(dim=1)
        right.append(float((predicted == data.truth.label_N)[wrong].float().mean()))
    assert right[0] > 0.8 and right[1] < 0.7
