"""ALIM and the held-out items that it shares with IRNet: worked examples, slow loops, and how lambda is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_pico import assert_same_step, slow_contrast, slow_pass, slow_prototypes
from torch import Tensor

from _toy import assert_same, recorded, run_all, steps_of, toy_candidates, toy_data, toy_method, toy_trainer, watched_steps
from pals.data.dataset import Dataset
from pals.methods import Batch, find_method
from pals.methods.alim import discount_for, log_importance, margin
from pals.methods.bases.holdout import MIN_RATE_ITEMS, estimate_noise_rate
from pals.methods.parts.losses import soft_cross_entropy
from pals.pseudo_labels.simplex import one_hot

BOTH = ("alim-scale", "alim-onehot")
SET = torch.tensor([[True, True, False]])
SCORE = torch.tensor([[0.2, 0.3, 0.5]])
MARGINS = torch.tensor([3, 0.2, 0.5, 1.5, 0.6, 2, 4, 5, 6, 7])
seeds = st.integers(0, 2**31)


def target(name: str, score_BC: Tensor, allowed_BC: Tensor, discount: float, **options: Any) -> Tensor:
    """What the confidences move towards."""
    method: Any = find_method(name).__new__(find_method(name))  # nothing of it is asked but its options and classes
    method.__dict__ |= {"config": method.Config(**options), "num_classes": score_BC.shape[1]}
    made: Tensor = method.target(score_BC.log() + log_importance(allowed_BC, torch.tensor(discount)))
    return made


def random_case(seed: int, classes: int = 5, rows: int = 20) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    score = torch.randn(rows, classes, generator=generator).mul(3).softmax(dim=1)
    allowed = torch.rand(rows, classes, generator=generator) < 0.5
    return score, allowed | one_hot(torch.randint(classes, (rows,), generator=generator), classes)


@pytest.mark.parametrize(
    ("discount", "scale", "onehot"),
    [(0.0, [0.4, 0.6, 0.0], 1), (0.4, [0.28571, 0.42857, 0.28571], 1), (0.7, [0.23529, 0.35294, 0.41176], 2),
     (1.0, [0.2, 0.3, 0.5], 2), (0.5999, None, 1), (0.6001, None, 2)],
)  # fmt: skip
def test_targets_on_the_worked_example(discount: float, scale: list[float] | None, onehot: int) -> None:
    soft, hard = (target(name, SCORE, SET, discount)[0] for name in BOTH)
    if scale is not None:
        assert soft.tolist() == pytest.approx(scale, abs=1e-5)
    assert hard.tolist() == [float(c == onehot) for c in range(3)] and int(soft.argmax()) == onehot
    assert margin(SCORE, SET).tolist() == pytest.approx([0.6])


@given(seeds, st.floats(0, 1))
def test_targets_are_distributions_with_one_winner(seed: int, discount: float) -> None:
    score, allowed = random_case(seed)
    soft, hard = (target(name, score, allowed, discount) for name in BOTH)
    raw = score * torch.where(allowed, 1.0, torch.tensor(discount))
    torch.testing.assert_close(soft, raw / raw.sum(dim=1, keepdim=True), atol=1e-6, rtol=1e-4)
    assert torch.equal(soft.argmax(dim=1), hard.argmax(dim=1))
    goes_over = ~allowed.gather(1, hard.argmax(dim=1, keepdim=True)).squeeze(1)
    assert torch.equal(goes_over, margin(score, allowed) < discount)


def test_margins_powers_and_lambda_by_hand() -> None:
    raw = torch.tensor([0.2, 0.3, 0.2]) ** (1 / 2)
    soft = target("alim-scale", SCORE, SET, 0.4, scale_power=2.0)[0]
    torch.testing.assert_close(soft, raw / raw.sum())
    everything = torch.ones(1, 3, dtype=torch.bool)
    assert margin(SCORE, everything).tolist() == pytest.approx([5e8])
    assert torch.equal(log_importance(everything, torch.tensor(0.3)), torch.zeros(1, 3))
    assert float(discount_for(MARGINS, 0.3, 1.0)) == 1.0  # 1.5 before the cap
    assert float(discount_for(MARGINS, 0.3, 9.0)) == 1.5 and float(discount_for(MARGINS, 0.2, 1.0)) == pytest.approx(0.6)
    assert float(discount_for(MARGINS, 0.0, 1.0)) == 0.0
    scale, onehot = (find_method(name) for name in BOTH)
    assert set(vars(scale.Config())) - set(vars(onehot.Config())) == {"scale_power"}
    assert scale.reference == onehot.reference


@given(seeds, st.integers(1, 60), st.floats(0.01, 0.99))
def test_as_many_go_over_as_sets_are_noisy(seed: int, count: int, rate: float) -> None:
    margins = torch.randperm(100, generator=torch.Generator().manual_seed(seed))[:count].float()
    found = discount_for(margins, rate, 1e9)
    assert int((margins < found).sum()) == int(rate * count + 1e-9)


@pytest.mark.parametrize("name", BOTH)
def test_lambda_is_set_after_its_epoch_and_used_in_the_next(name: str, toy: Dataset) -> None:
    trainer = toy_trainer(name, toy, options={"noise_rate": 0.4, "adjust_from": 3}, train={"epochs": 5})
    seen = recorded(trainer.method, "loss", lambda *_: float(trainer.method.discount))
    records = run_all(trainer)
    values = [record["lambda"] for record in records]
    assert values[:2] == [0.0, 0.0] and all(0 < value <= 1 for value in values[2:])
    assert seen == [value for value in [0.0, *values[:4]] for _ in range(2)]
    assert {record["noise_rate"] for record in records} == {0.4}


def test_only_margins_of_this_epoch_count(toy: Dataset) -> None:
    trainer = toy_trainer("alim-scale", toy, options={"noise_rate": 0.5, "adjust_from": 1})
    method: Any = trainer.method
    for record in trainer.epochs():
        visited = method.margin_N[method.margin_N >= 0]
        assert len(visited) == 64  # two full batches of 32
        assert record["lambda"] == pytest.approx(min(1.0, float(visited.sort().values[32])))


def test_lambda_may_rise_in_steps_instead(toy: Dataset) -> None:
    options = {"lambda_step": 0.25, "lambda_most": 0.4, "adjust_from": 2}
    trainer = toy_trainer("alim-onehot", toy, options=options, train={"epochs": 5})
    assert [record["lambda"] for record in run_all(trainer)] == pytest.approx([0.0, 0.25, 0.4, 0.4, 0.4])
    assert not trainer.method.needs_holdout


def test_onehot_without_noise_and_mixup_is_pico(toy: Dataset) -> None:
    """Bit for bit, with PiCO's warm-up left out."""
    options = {"noise_rate": 0.0, "mixup_weight": 0.0, "adjust_from": 1}
    ours = toy_trainer("alim-onehot", toy, options=options)
    pico = toy_trainer("pico", toy, options={"prototypes_from": 1})
    assert [r["test_loss"] for r in run_all(ours)] == [r["test_loss"] for r in run_all(pico)]
    state = ours.method.state_dict()
    assert_same({key: state[key] for key in pico.method.state_dict()}, dict(pico.method.state_dict()))


@pytest.mark.parametrize("name", BOTH)
def test_step_is_the_authors_in_slow_motion(name: str) -> None:
    """Confidences first, then the losses that read them; classifier scores for the contrast, prototypes for the confidences."""
    steps: list[float] = []

    def look(method: Any, batch: Batch, loss: Tensor) -> Callable[[], None]:
        steps.append(float(method.discount))
        epoch, other = (len(steps) + 1) // 2, batch.groups["partners"]
        allowed, prototypes = method.allowed_NC[batch.index_B], method.prototype_CD.clone()
        importance = torch.where(allowed, 1.0, steps[-1])
        query, logits, z, k = slow_pass(method, batch)
        label = (importance * logits.softmax(dim=1)).argmax(dim=1)
        score = (z @ prototypes.T / 0.07).softmax(dim=1).detach()
        raw = importance * score
        new = raw / raw.sum(dim=1, keepdim=True) if name == "alim-scale" else torch.eye(3)[raw.argmax(dim=1)]
        phi = 0.99 if epoch == 1 else 0.95 - 0.15 * (epoch - 2) / 4
        confidence = phi * method.confidence_NC[batch.index_B] + (1 - phi) * new
        pool = torch.cat([z, k, method.queue_MD])
        same = label[:, None] == torch.cat([label, label, method.queue_label_M])
        weight = batch.random["weight"]
        assert 0.5 <= float(weight) <= 1
        mixed = weight * batch.views[0] + (1 - weight) * other.views[0]
        mixed_target = weight * confidence + (1 - weight) * method.confidence_NC[other.index_B]
        l_mix = soft_cross_entropy(query(mixed)[0], mixed_target).mean()
        l_cont = slow_contrast(z, pool, same, 0.07).mean()
        expected = soft_cross_entropy(logits, confidence).mean() + 0.5 * l_cont + l_mix
        assert_same_step(method, query, loss, expected, atol=1e-3)

        def after() -> None:
            torch.testing.assert_close(method.confidence_NC[batch.index_B], confidence)
            torch.testing.assert_close(method.confidence_NC.sum(dim=1), torch.ones(32))
            moved = slow_prototypes(prototypes, z.detach(), one_hot(label, 3), 0.99)
            torch.testing.assert_close(method.prototype_CD, moved, atol=1e-5, rtol=0)
            for i, item in enumerate(batch.index_B.tolist()):
                inside, outside = score[i][allowed[i]].max(), score[i][~allowed[i]]
                ratio = float(inside / (1e-9 + (outside.max() if len(outside) else 0.0)))
                assert float(method.margin_N[item]) == pytest.approx(ratio, rel=1e-3)

        return after

    options = {"noise_rate": 0.3, "adjust_from": 1, "queue": 20}
    watched_steps(name, toy_data(items=32), look, options=options, train={"epochs": 4, "lr": 0.02, "batch_size": 16})
    assert steps[0] == 0 < steps[-1]


def test_partners_are_another_pass_over_the_data(toy: Dataset) -> None:
    """Independent of the order of the batch, seen in the weak view alone; none without mix-up."""
    method: Any = toy_method("alim-scale", toy_candidates(toy))
    trainer = toy_trainer(method, toy)
    orders = recorded(method, "plan_epoch")
    run_all(trainer)
    for plan in orders:
        main, partners = (plan.groups[name].order_M for name in ("main", "partners"))
        assert torch.equal(main.sort().values, partners.sort().values) and not torch.equal(main, partners)
        assert plan.groups["partners"].views == ("pico_weak",) and plan.drop_last
    assert list(toy_method("alim-scale", toy_candidates(toy), {"mixup_weight": 0.0}).random_inputs(None, 3)) == []  # type: ignore[arg-type]


def test_confidences_rest_until_their_epoch(toy: Dataset) -> None:
    trainer = toy_trainer("alim-scale", toy, options={"confidence_from": 3, "noise_rate": 0.2})
    method: Any = trainer.method
    first, paths = method.confidence_NC.clone(), []
    for record in trainer.epochs():
        paths.append(method.graph_key)
        assert torch.equal(method.confidence_NC, first) == (record["epoch"] < 3)
    assert paths == ["uniform"] * 2 + ["settled"] * 2


def test_items_are_held_out_until_the_rate_is_known(toy: Dataset) -> None:
    trainer = toy_trainer("alim-scale", toy, options={"adjust_from": 2, "held_out": 0.2}, train={"batch_size": 9})
    method: Any = trainer.method
    held, visits = [], []
    for record in trainer.epochs():
        held.append(90 - len(method.trained_on()))
        visits.append(record["steps"] * 9)
        assert ("noise_rate" in record) == (record["epoch"] >= 2)
    for options, expected in (({"noise_rate": 0.3}, 0), ({"held_out": 0.0}, 0), ({}, 9)):  # nobody for nothing
        other = toy_trainer("alim-onehot", toy, options={"adjust_from": 4, **options})
        run_all(other, stop_after=1)
        assert len(other.method.holdout.index_M) == 90 - len(other.method.trained_on()) == expected
    assert held == [18, 0, 0, 0] and visits == [72, 72, 90, 90] and 0 <= record["noise_rate"] <= 1


def test_held_out_items_are_neither_visited_nor_partners(toy: Dataset) -> None:
    for method, batch in steps_of(toy_trainer("alim-scale", toy, options={"adjust_from": 3, "held_out": 0.3})):
        for part in (batch, batch.groups["partners"]):
            assert torch.isin(part.index_B, method.trained_on()).all()
            assert not torch.isin(part.index_B, method.holdout.index_M).any() or bool(method.holdout.released)


@pytest.mark.parametrize("eta", [0.0, 0.3])
def test_estimated_rate_is_near_the_true_one(eta: float) -> None:
    data = toy_data(items=600)
    candidates = toy_candidates(data, q=0.3, eta=eta)
    missing = 1 - float(candidates.allowed_NC.gather(1, data.truth.label_N[:, None]).float().mean())
    trainer = toy_trainer("alim-scale", data, candidates, options={"adjust_from": 6, "held_out": 0.25}, train={"epochs": 6})
    assert run_all(trainer)[-1]["noise_rate"] == pytest.approx(missing, abs=0.08)


def test_estimate_asks_the_surest_quarter() -> None:
    """Of 1000 items the 250 surest are right, 40% of their sets are noisy; what the others say does not matter."""
    generator = torch.Generator().manual_seed(0)
    label = torch.randint(4, (1000,), generator=generator)
    sure = torch.arange(1000) % 4 == 0
    logits = torch.where(sure, 1.0, 0.5)[:, None] * one_hot(label, 4)  # sure of little, and right all the same
    noisy = torch.rand(1000, generator=generator) < 0.4
    allowed = one_hot(torch.where(noisy | ~sure, (label + 1) % 4, label), 4)
    share = float(noisy[sure].double().mean())
    assert estimate_noise_rate(logits.softmax(dim=1), allowed) == pytest.approx(share)
    few = torch.arange(60)
    everyone = 1 - float(allowed[few].gather(1, logits[few].argmax(dim=1, keepdim=True)).double().mean())
    assert len(few) < MIN_RATE_ITEMS
    assert estimate_noise_rate(logits[few].softmax(dim=1), allowed[few]) == pytest.approx(everyone)
