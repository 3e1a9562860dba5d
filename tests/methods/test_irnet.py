"""IRNet: which sets are corrected, when it starts, and every step against slow loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_pico import slow_contrast, slow_pass, slow_prototypes
from torch import Tensor

from _slow import rest_slow
from _toy import assert_same, run_all, toy_candidates, toy_data, toy_method, toy_trainer, watched_steps
from pals.data.dataset import Dataset
from pals.methods import Batch
from pals.methods.irnet import correct_confidence, has_plateaued, likelihood_ratio, missing_labels, symmetric_cross_entropy
from pals.methods.parts.losses import soft_cross_entropy
from pals.pseudo_labels.simplex import one_hot

SET = torch.tensor([[True, True, False, False]])
FIRST = torch.tensor([[0.24, 0.25, 0.27, 0.24]])
AGREES = torch.tensor([[0.25, 0.24, 0.265, 0.245]])
DIFFERS = torch.tensor([[0.25, 0.24, 0.245, 0.265]])
EARLY: dict[str, Any] = {"correct_from": 2, "tau": 0.0}
seeds = st.integers(0, 2**31)


@pytest.mark.parametrize(
    ("views", "tau", "found"),
    [
        ([FIRST, AGREES], 0.01, True),
        ([FIRST, DIFFERS], 0.01, False),
        ([FIRST, AGREES], 0.016, False),  # the second view wins by 0.015 only
        ([FIRST], 0.016, True),
        ([FIRST], 0.021, False),
        ([FIRST, AGREES, FIRST], 0.01, True),
        ([FIRST, AGREES, DIFFERS], 0.01, False),
    ],
)
def test_detection_on_the_worked_example(views: Sequence[Tensor], tau: float, found: bool) -> None:
    found_B, label_B = missing_labels(views, SET, torch.tensor(tau))
    assert found_B.tolist() == [found] and label_B.tolist() == [2]


@given(seeds, st.integers(1, 3), st.floats(0, 0.3), st.booleans())
def test_detection_is_the_loop(seed: int, views: int, limit: float, by_ratio: bool) -> None:
    """For the rule by ratio in the logarithms of the paper."""
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(30, 4, generator=generator)
    scores = [(base + 0.3 * torch.randn(30, 4, generator=generator)).softmax(dim=1) for _ in range(views)]
    allowed = torch.rand(30, 4, generator=generator) < 0.5
    allowed |= one_hot(torch.randint(4, (30,), generator=generator), 4)
    limit = 2 * limit + 0.4 if by_ratio else limit
    found_B, label_B = missing_labels(scores, allowed, torch.tensor(limit), by_ratio=by_ratio)
    for i in range(30):
        outside = [c for c in range(4) if not allowed[i, c]]
        inside = [c for c in range(4) if allowed[i, c]]
        expected, labels = bool(outside), set()
        for score in scores:
            if not outside:
                continue
            new = max(outside, key=lambda c: float(score[i, c]))
            old = max(float(score[i, c]) for c in inside)
            labels.add(new)
            gap = float(score[i, new]) - old
            by_logs = math.log(old) - math.log(float(score[i, new])) < math.log(limit) if limit else False
            expected &= by_logs if by_ratio else gap > limit
        expected &= len(labels) == 1
        assert bool(found_B[i]) == expected
        if expected:
            assert {int(label_B[i])} == labels


def test_worked_examples() -> None:
    """Sets of protocol g2 have 1 + q (C - 1) labels in the mean, noisy or not; without noise nothing is missing."""
    for q, classes, expected in ((0.3, 10, 0.2142857), (0.05, 100, 0.024)):
        assert likelihood_ratio(q + 0.3 / (classes - 1), 0.3) == pytest.approx(expected, abs=1e-7)
    for by_ratio in (False, True):
        found_B, _ = missing_labels([FIRST, AGREES], SET | True, torch.tensor(0.0), by_ratio=by_ratio)
        assert found_B.tolist() == [False]  # a full set
    assert likelihood_ratio(0.4, 0.0) == 0.0
    assert math.isfinite(likelihood_ratio(1.0, 0.3))  # full sets
    confidence = torch.tensor([[0.7, 0.3, 0.0, 0.0]])
    new, gone = one_hot(torch.tensor([2]), 4), torch.zeros(1, 4, dtype=torch.bool)
    score = torch.tensor([[0.3, 0.1, 0.15, 0.45]])
    found = correct_confidence(confidence, new, gone, score)
    assert found[0].tolist() == pytest.approx([0.6087, 0.26087, 0.13043, 0.0], abs=1e-5)
    swapped = correct_confidence(confidence, new, one_hot(torch.tensor([1]), 4), score)
    assert swapped[0].tolist() == pytest.approx([0.7 / 0.85, 0.0, 0.15 / 0.85, 0.0], abs=1e-6)
    logits, target = torch.tensor([[0.8, 0.1, 0.1]]).log(), torch.tensor([[1.0, 0.0, 0.0]])
    assert float(symmetric_cross_entropy(logits, target, 1, 0)) == pytest.approx(0.2236041, abs=1e-6)
    assert float(symmetric_cross_entropy(logits, target, 0, 1)) == pytest.approx(1.8420681, abs=1e-6)
    assert float(symmetric_cross_entropy(logits, target, 6, 1)) == pytest.approx(3.1836925, abs=1e-6)
    method: Any = toy_method("irnet", toy_candidates(toy_data(classes=4)), {**EARLY, "swap": True})
    method.working_NC[5], method.confidence_NC[5] = SET[0], torch.tensor([0.7, 0.3, 0.0, 0.0])
    method._correct(torch.tensor([5]), [FIRST, AGREES])  # class 0 has the lower score in the first view
    assert method.working_NC[5].tolist() == [False, True, True, False]
    assert method.confidence_NC[5].tolist() == pytest.approx([0.0, 0.3 / 0.57, 0.27 / 0.57, 0.0])


def slow_levelled(rates: Sequence[float], window: int) -> bool:
    """As described: smooth the whole curve, differences, mean of the last ten."""
    n, half = len(rates), window // 2
    smooth = np.array([np.mean(rates[max(0, i - half) : min(n - 1, i + half)]) for i in range(n)])
    return bool(np.diff(smooth)[-10:].mean() < 1e-6)


@given(seeds, st.integers(2, 40), st.integers(0, 60), st.floats(-0.01, 0.01))
def test_levelling_needs_the_last_rates_alone(seed: int, window: int, more: int, slope: float) -> None:
    count = window + more
    rates = (0.5 + slope * np.arange(count) + np.random.default_rng(seed).normal(0, 0.01, count)).tolist()
    assert has_plateaued(rates, window) == slow_levelled(rates, window)
    assert has_plateaued(rates[-(window // 2 + 11) :], window) == has_plateaued(rates, window)


def covering(rates: Sequence[float], toy: Dataset, **options: Any) -> list[tuple[int, int, int]]:
    """Train with these covering rates, one per epoch: (epoch, first epoch of correction as known after it, held out)."""
    trainer = toy_trainer("irnet", toy, options={"tau": 0.1, **options}, train={"epochs": len(rates)})
    method: Any = trainer.method
    left = iter(rates)
    method.holdout.covering_rate = lambda *_: next(left)
    return [(r["epoch"], int(method.started), 90 - len(method.trained_on())) for r in trainer.epochs()]


def test_it_starts_when_the_rate_no_longer_rises(toy: Dataset) -> None:
    flat = covering([0.6] * 8, toy, window=5)
    assert flat == [(1, 0, 9), (2, 0, 9), (3, 0, 9), (4, 0, 9), (5, 6, 0), (6, 6, 0), (7, 6, 0), (8, 6, 0)]
    rising = covering([0.05 * i for i in range(12)], toy, window=5)
    assert {started for _, started, _ in rising} == {0} and {held for *_, held in rising} == {9}
    rates = [0.1 * min(i, 4) for i in range(20)]
    begun = next(epoch for epoch, started, _ in covering(rates, toy, window=4) if started)
    assert begun == next(n for n in range(4, 21) if slow_levelled(rates[:n], 4)) > 12


@pytest.mark.parametrize("window", [1, 2, 3, 4])
def test_a_short_window_does_not_take_a_rise_for_level(window: int, toy: Dataset) -> None:
    """As in a run of 20 epochs, which shortens the published window of 100 in 1000 to 2."""
    assert {started for _, started, _ in covering([0.1 + 0.05 * i for i in range(8)], toy, window=window)} == {0}
    assert [started for _, started, _ in covering([0.6] * 5, toy, window=window)][-1] == max(window, 3) + 1


def test_covering_rate_is_that_of_the_held_out_items(toy: Dataset) -> None:
    trainer = toy_trainer("irnet", toy, options={"window": 100, "held_out": 0.3}, train={"epochs": 2})
    method: Any = trainer.method
    run_all(trainer)
    predicted = trainer.infer(method.predictor, toy.train.inputs).logits.argmax(dim=1)
    right = [bool(method.allowed_NC[i, predicted[i]]) for i in method.holdout.index_M.tolist()]
    assert len(right) == 27 and float(method.covering_E[-1]) == pytest.approx(sum(right) / 27)
    assert int(method.measured) == 2


@pytest.mark.parametrize(
    ("options", "held"),
    [({"correct_from": 3, "tau": 0.1}, 0), ({"correct_from": 3, "noise_rate": 0.2}, 0), ({"correct_from": 3}, 9),
     ({"tau": 0.1}, 9), ({"held_out": 0.0}, 0)],
)  # fmt: skip
def test_items_are_held_out_where_something_is_asked_of_them(options: dict[str, Any], held: int, toy: Dataset) -> None:
    trainer = toy_trainer("irnet", toy, options=options)
    run_all(trainer, stop_after=1)
    method: Any = trainer.method
    assert 90 - len(method.trained_on()) == held
    method.holdout.covering_rate = lambda *_: 0.0  # no better than before
    records = run_all(trainer)
    assert len(method.trained_on()) == 90
    asked = "tau" not in options and "noise_rate" not in options
    assert ("noise_rate" in records[-1]) == (asked or "noise_rate" in options)
    assert (float(method.holdout.rate) >= 0) == asked


@pytest.mark.parametrize("loss", ["cross-entropy", "symmetric"])
@pytest.mark.parametrize(
    "options",
    [
        {"correct_from": 99, "tau": 0.1},
        {"correct_from": 2, "tau": 1.0, "extra_weak": 0},  # no score reaches it
        {"correct_from": 2, "noise_rate": 0.0, "extra_weak": 0},  # the rule that follows from the rates
    ],
    ids=str,
)
def test_without_correction_it_is_pico(
    options: dict[str, Any], loss: str, toy: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, with PiCO's warm-up left out; with the symmetric loss it is PiCO with that loss."""
    if loss == "symmetric":
        monkeypatch.setattr("pals.methods.pico.soft_cross_entropy", lambda *two: symmetric_cross_entropy(*two, 6, 1))
    ours = toy_trainer("irnet", toy, options={"loss": loss, **options})
    pico = toy_trainer("pico", toy, options={"prototypes_from": 1})
    assert [r["test_loss"] for r in run_all(ours)] == [r["test_loss"] for r in run_all(pico)]
    assert torch.equal(ours.method.working_NC, ours.method.allowed_NC)
    state = ours.method.state_dict()
    assert_same({key: state[key] for key in pico.method.state_dict()}, dict(pico.method.state_dict()))


@pytest.mark.parametrize("options", [{**EARLY}, {"correct_from": 2, "noise_rate": 0.3}, {**EARLY, "extra_strong": 1}])
def test_step_is_the_authors_in_slow_motion(options: dict[str, Any]) -> None:
    """The first view meets the prototypes as they were, the others those just moved; sets change for the next visit."""
    views: list[int] = []
    corrected = []

    def look(method: Any, batch: Batch, loss: Tensor) -> Callable[[], None]:
        views.append(len(batch.views))
        epoch, index, tau = (len(views) + 1) // 2, batch.index_B, options.get("tau")
        allowed, prototypes = method.working_NC[index], method.prototype_CD.clone()
        query, logits, z, k = slow_pass(method, batch)
        label = (logits.softmax(dim=1) * allowed).argmax(dim=1)
        vote = ((z @ prototypes.T).softmax(dim=1) * allowed).argmax(dim=1)
        phi = 0.99 if epoch == 1 else 0.95 - 0.15 * (epoch - 2) / 5
        confidence = phi * method.confidence_NC[index] + (1 - phi) * torch.eye(3)[vote]
        pool = torch.cat([z, k, method.queue_MD])
        same = label[:, None] == torch.cat([label, label, method.queue_label_M])
        expected = (soft_cross_entropy(logits, confidence) + 0.5 * slow_contrast(z, pool, same, 0.07)).mean()
        torch.testing.assert_close(loss, expected, atol=1e-4, rtol=1e-4)
        moved = slow_prototypes(prototypes, z.detach(), one_hot(label, 3), 0.99)
        others = [query(view) for view in batch.views[2:]]
        if tau is None:
            scores = [logits.softmax(dim=1), *(other[0].softmax(dim=1) for other in others)]
            wrong = (float(method.allowed_NC.sum(dim=1).double().mean()) - 1 + 0.3) / 2
            k_ = wrong * 0.3 / ((1 - wrong) * 0.7)
        else:
            scores = [(z @ prototypes.T).softmax(dim=1), *((other[1] @ moved.T).softmax(dim=1) for other in others)]

        def after() -> None:
            sets = allowed.clone()
            for i in range(16) if epoch >= 2 else ():
                inside, outside = allowed[i].nonzero().flatten(), (~allowed[i]).nonzero().flatten()
                if not len(outside):
                    continue
                new = {int(outside[score[i, outside].argmax()]) for score in scores}
                gaps = [(float(score[i, inside].max()), float(score[i, outside].max())) for score in scores]
                beaten = all(old < k_ * best for old, best in gaps) if tau is None else all(b - a > tau for a, b in gaps)
                if beaten and len(new) == 1:
                    n = new.pop()
                    sets[i, n] = True
                    confidence[i, n] = scores[0][i, n].detach()
                    confidence[i] /= confidence[i].sum()
                    corrected.append(int(index[i]))
            assert torch.equal(method.working_NC[index], sets)
            torch.testing.assert_close(method.confidence_NC[index], confidence.detach(), atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(method.prototype_CD, moved, atol=1e-5, rtol=0)

        return after

    expected_views = 3 + options.get("extra_strong", 0)
    train = {"epochs": 5, "lr": 0.02, "batch_size": 16}
    watched_steps("irnet", toy_data(items=32), look, options={**options, "queue": 20}, train=train)
    assert views == [2] * 2 + [expected_views] * 8  # views that nobody asks for are not made
    assert corrected


@pytest.mark.parametrize("swap", [False, True])
def test_sets_only_grow_and_confidences_follow(swap: bool, toy: Dataset) -> None:
    """At most one label more per visit; confidences sum to one and are zero outside the working set. With `swap` sets keep
    their size, and are never empty."""
    grown: list[int] = []
    given: list[Any] = []

    def look(method: Any, batch: Batch, _: Tensor) -> Callable[[], None]:
        before = method.working_NC.clone()

        def after() -> None:
            now, rows = method.working_NC, batch.index_B
            rest = torch.ones(90, dtype=torch.bool).index_fill(0, rows, False)
            assert torch.equal(now[rest], before[rest])
            given[:] = [method.allowed_NC.tolist()]  # what annotators answered is not overwritten
            added, gone = (now & ~before).sum(dim=1), (before & ~now).sum(dim=1)
            assert int(added.max()) <= 1 and torch.equal(gone, added * swap)
            grown.append(int(added.sum()))
            torch.testing.assert_close(method.confidence_NC.sum(dim=1), torch.ones(90))
            assert (method.confidence_NC[~now] == 0).all() and now.any(dim=1).all()

        return after

    records = watched_steps("irnet", toy, look, options={**EARLY, "correct_from": 3, "swap": swap}, train={"epochs": 6})
    assert grown[:4] == [0] * 4 and sum(grown) > 0 and given == [toy_candidates(toy).allowed_NC.tolist()]
    if not swap:
        assert [r["added"] for r in records] == np.cumsum(grown)[1::2].tolist()


@pytest.mark.parametrize("options", rest_slow(1, [{"tau": 0.02}, {}]))
def test_corrected_sets_are_less_noisy(options: dict[str, Any]) -> None:
    """Both rules find true labels."""
    data = toy_data(items=300)
    trainer = toy_trainer("irnet", data, options={"correct_from": 6, **options}, train={"epochs": 20})
    added = run_all(trainer)[-1]["added"]
    method: Any = trainer.method
    given, now = (sets.gather(1, data.truth.label_N[:, None]).sum() for sets in (method.allowed_NC, method.working_NC))
    assert int(now - given) >= 0.8 * added > 0 and float(now / 300) > 0.95 > 0.9 > float(given / 300)


def test_tau_may_change_in_a_line(toy: Dataset) -> None:
    trainer = toy_trainer("irnet", toy, options={"correct_from": 3, "tau": 0.02, "tau_end": 0.01}, train={"epochs": 7})
    method: Any = trainer.method
    limits, paths = [], []
    for _ in trainer.epochs():
        limits.append(float(method.limit))
        paths.append(method.graph_key)
    assert limits[2:] == pytest.approx([0.02, 0.0175, 0.015, 0.0125, 0.01])
    assert paths == ["settled"] * 2 + ["settled, correcting"] * 5
