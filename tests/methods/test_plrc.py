"""PLRC: the check values of its sheet, slow loops beside the tables, invariants, and the rates that it finds out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from _allocations import Allocations
from _toy import run_all, small_network, toy_candidates, toy_data, toy_trainer
from pals.labels.candidates import CandidateSets
from pals.methods import Problem, method_options
from pals.methods.bases.holdout import estimate_partial_rate
from pals.methods.parts.ramps import linear_ramp
from pals.methods.plrc import (
    PLRC,
    Split,
    disagreement,
    neighbors_with_self,
    possible_labels,
    rebuild_sets,
    set_sizes,
    smooth_over_neighbors,
    split,
    split_counts,
    swap_worst,
    top_labels,
)
from pals.pseudo_labels.knn import Neighbors
from pals.pseudo_labels.simplex import masked_softmax


def share_at(epoch: int, warm_up: int, ramp: int, first: float, last: float) -> float:
    return first + (last - first) * linear_ramp(epoch - warm_up, ramp)


P_NC = torch.tensor([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1], [0.1, 0.2, 0.7], [0.2, 0.2, 0.6]])
LOGITS_NC = P_NC.log()
SETS = [{0, 1}, {1, 2}, {1, 2}, {0, 1}]
ALLOWED_NC = torch.tensor([[c in labels for c in range(3)] for labels in SETS])
PAIRS = Neighbors(torch.tensor([[0, 1], [1, 0], [2, 3], [3, 2]]), torch.tensor([[1, 0.9], [1, 0.9], [1, 0.8], [1, 0.8]]))


def near(actual: Tensor, expected: Any) -> None:
    torch.testing.assert_close(actual.float(), torch.tensor(expected), atol=1.5e-6, rtol=0)


def sets_of(allowed_NC: Tensor) -> list[set[int]]:
    return [set(row.nonzero().flatten().tolist()) for row in allowed_NC]


@pytest.mark.parametrize(
    ("epoch", "share", "normal", "noisy"),
    [(101, 0.703, 24_605, 10_545), (150, 0.85, 29_749, 12_751), (200, 1.0, 35_000, 15_000), (500, 1.0, 35_000, 15_000)],
)
def test_who_is_told_apart_when(epoch: int, share: float, normal: int, noisy: int) -> None:
    assert share_at(epoch, 100, 100, 0.7, 1.0) == pytest.approx(share)
    assert split_counts(50_000, share_at(epoch, 100, 100, 0.7, 1.0), 0.3) == (normal, noisy)
    assert 50_000 - normal - noisy == {101: 14_850, 150: 7_500}.get(epoch, 0)


def test_smoothed_predictions_and_disagreement() -> None:
    smoothed_NC = smooth_over_neighbors(PAIRS, P_NC)
    near(smoothed_NC[0], [0.476141, 0.322374, 0.201485])
    near(smoothed_NC[3], [0.222510, 0.241042, 0.536448])
    near(masked_softmax(LOGITS_NC, ALLOWED_NC)[1], [0.0, 0.8, 0.2])
    disagreement_N = disagreement(LOGITS_NC, ALLOWED_NC, smoothed_NC)
    near(disagreement_N, [0.872039, 1.216539, 0.791415, 1.462780])
    assert disagreement_N.argsort().tolist() == [2, 0, 1, 3]
    groups = split(disagreement_N, *split_counts(4, 1.0, 0.5))
    assert groups.noisy_N.tolist() == [False, True, False, True] and torch.equal(groups.normal_N, ~groups.noisy_N)


def test_sizes_of_new_sets() -> None:
    """Raw 2.2858, 2.2918, 2.1843, 2.1953: two labels each. Of 100 classes with q = .05 and a share of .4: 4.5, so 4."""
    vote_NC = smooth_over_neighbors(PAIRS, torch.tensor([[2 / 3, 1 / 3, 0], [0, 0.8, 0.2], [0, 2 / 9, 7 / 9], [0.5, 0.5, 0]]))
    options: dict[str, Any] = {"rule": "rate", "lamb": 1.5, "partial_rate": 0.5}
    assert set_sizes(vote_NC, ALLOWED_NC, torch.full((4,), 3), **options).tolist() == [2] * 4
    assert set_sizes(vote_NC, ALLOWED_NC, torch.ones(4, dtype=torch.int64), **options).tolist() == [1] * 4
    raw = [1.5 * (1 - peak) + 1.5 for peak in smooth_over_neighbors(PAIRS, P_NC).amax(dim=1).tolist()]
    assert raw == pytest.approx([2.2858, 2.2918, 2.1843, 2.1953], abs=6e-5)
    vote_NC = torch.full((1, 100), 0.6 / 99)
    vote_NC[0, 0] = 0.4
    everything_NC = torch.ones(1, 100, dtype=torch.bool)
    options: dict[str, Any] = {"rule": "rate", "lamb": 1.5, "partial_rate": 0.05}
    assert set_sizes(vote_NC, everything_NC, torch.tensor([100]), **options).tolist() == [4]
    assert set_sizes(vote_NC, everything_NC, torch.tensor([3]), **options).tolist() == [3]
    # shares .4 .3 .2 of what is allowed, .1 of what is not: above .4 / lamb or above 1 / lamb; one at least, three at most
    vote_NC, allowed_NC = torch.tensor([[0.4, 0.3, 0.2, 0.1]]), torch.tensor([[True, True, True, False]])
    sizes = {("relative", 1.5): 2, ("relative", 3.0): 3, ("relative", 1e9): 3, ("absolute", 4.0): 2, ("absolute", 1.5): 1}
    for (rule, lamb), size in sizes.items():
        options = {"rule": rule, "lamb": lamb, "partial_rate": 0.5}
        assert set_sizes(vote_NC, allowed_NC, torch.tensor([3]), **options).tolist() == [size]


def test_split_has_no_trap_at_zero() -> None:
    """With a noise rate of 0 nobody is noisy, and with a share of 1 nobody is hard; the counts never overlap."""
    order = [2, 0, 1, 3]
    for normal, noisy in ((4, 0), (0, 4), (2, 1), (0, 0), (3, 1)):
        groups = split(torch.tensor([0.8, 1.2, 0.7, 1.4]), normal, noisy)
        assert set(groups.normal_N.nonzero().flatten().tolist()) == set(order[:normal])
        assert set(groups.noisy_N.nonzero().flatten().tolist()) == set(order[4 - noisy :])
    for share, noise_rate in product((0.0, 0.333, 1.0), (0.0, 0.25, 0.999)):
        normal, noisy = split_counts(90, share, noise_rate)
        assert min(normal, noisy) >= 0 and normal + noisy == int(90 * share) and (noise_rate or not noisy)


def test_parts_of_new_sets_by_hand() -> None:
    allowed_NC = torch.tensor([[True, False, False], [True, False, True], [True, True, True]])
    made_NC = possible_labels(allowed_NC, torch.tensor([False, True, True]))
    assert sets_of(made_NC) == [{0}, {1}, {0, 1, 2}]  # a full set stays
    score_NC = torch.tensor([[0.1, 0.4, 0.3, 0.2], [0.0, 0.0, 0.0, 1.0], [0.25, 0.25, 0.25, 0.25]])
    allowed_NC = torch.tensor([[True, False, True, True], [True, True, False, False], [True, True, True, True]])
    assert sets_of(top_labels(score_NC, allowed_NC, torch.tensor([2, 1, 3]))) == [{2, 3}, {0}, {0, 1, 2}]
    assert sets_of(top_labels(score_NC, allowed_NC, torch.tensor([9, 9, 9]))) == sets_of(allowed_NC)
    logits_NC = torch.tensor([[3.0, 1.0, 2.0, 0.0], [0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0]])
    allowed_NC = torch.tensor([[True, True, False, False], [False, False, False, True], [True, True, True, True]])
    assert sets_of(swap_worst(allowed_NC, logits_NC)) == [{0, 2}, {2}, {0, 1, 2, 3}]
    alone = neighbors_with_self(torch.randn(1, 3), 5)
    assert (alone.index_NK.tolist(), alone.similarity_NK.tolist()) == ([[0]], [[1.0]])
    assert neighbors_with_self(torch.randn(3, 3), 5).index_NK.shape == (3, 3)
    found = neighbors_with_self(torch.randn(20, 3), 5)
    assert found.index_NK.shape == (20, 5) and found.index_NK[:, 0].tolist() == list(range(20))
    # Where the candidates' probabilities are 0 in float32, norm(P * Y) would be 0 and the disagreement, too.
    logits_NC, allowed_NC = torch.tensor([[300.0, 0.0, 1.0]]), torch.tensor([[False, True, True]])
    assert not (logits_NC.softmax(dim=1) * allowed_NC).any()
    smoothed_NC = torch.tensor([[0.9, 0.05, 0.05]])
    near(disagreement(logits_NC, allowed_NC, smoothed_NC), [-math.log(0.05 + 1e-6)])


def random_problem(seed: int, items: int, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    allowed_NC = torch.rand(items, classes, generator=generator) < 0.45
    allowed_NC[torch.arange(items), torch.randint(classes, (items,), generator=generator)] = True
    allowed_NC[seed % items] = True
    logits_NC = 2 * torch.randn(items, classes, generator=generator)
    return allowed_NC, logits_NC, torch.rand(items, 5, generator=generator)


def slow_softmax(row: list[float]) -> list[float]:
    total = sum(math.exp(value) for value in row)
    return [math.exp(value) / total for value in row]


def slow_vote(rows: list[int], unit: Tensor, table: dict[int, list[float]], k: int) -> dict[int, list[float]]:
    made = {}
    for i in rows:
        cosine = {j: float(unit[i] @ unit[j]) for j in rows}
        found = sorted(rows, key=lambda j, cosine=cosine: -cosine[j])[:k]
        made[i] = slow_softmax([sum(cosine[a] * table[a][c] for a in found) for c in range(len(table[i]))])
    return made


def slow_rebuild(
    allowed: list[set[int]], logits: list[list[float]], unit: Tensor, share: float, eta: float, q: float, k: int
) -> list[set[int]]:
    """The sheet, item by item, in Python's own numbers."""
    items, classes = len(allowed), len(logits[0])
    p = [slow_softmax(row) for row in logits]

    def cut(i: int, labels: set[int]) -> list[float]:
        total = sum(p[i][c] for c in labels)
        return [p[i][c] / total if c in labels else 0.0 for c in range(classes)]

    vote = slow_vote(list(range(items)), unit, dict(enumerate(p)), k)
    eck = [-sum(r * math.log(v + 1e-6) for r, v in zip(cut(i, allowed[i]), vote[i], strict=True)) for i in range(items)]
    order = sorted(range(items), key=lambda i: eck[i])
    chosen = int(items * share)
    normal = int(chosen * (1 - eta))
    first, last = order[:normal], order[items - (chosen - normal) :]
    everything = set(range(classes))
    may = {i: allowed[i] if i in first or allowed[i] == everything else everything - allowed[i] for i in first + last}
    vote = slow_vote(sorted(may), unit, {i: cut(i, may[i]) for i in may}, k)
    made = []
    for i in range(items):
        if i in may:
            count = int(min(max((1 - max(vote[i])) * q * classes + 1.5, 1), len(allowed[i])))
            made.append(set(sorted(may[i], key=lambda c, i=i: -vote[i][c])[:count]))
        elif allowed[i] == everything:
            made.append(set(everything))
        else:
            best = max(everything - allowed[i], key=lambda c, i=i: p[i][c])
            made.append((allowed[i] - {min(allowed[i], key=lambda c, i=i: p[i][c])}) | {best})
    return made


def whole_step(allowed_NC: Tensor, logits_NC: Tensor, features_ND: Tensor, share: float, eta: float) -> tuple[Split, Tensor]:
    smoothed_NC = smooth_over_neighbors(neighbors_with_self(features_ND, 5), logits_NC.softmax(dim=1))
    groups = split(disagreement(logits_NC, allowed_NC, smoothed_NC), *split_counts(len(allowed_NC), share, eta))
    options: dict[str, Any] = {"neighbors": 5, "rule": "rate", "lamb": 1.5, "partial_rate": 0.4}
    return groups, rebuild_sets(allowed_NC, logits_NC, features_ND, groups, **options)


@pytest.mark.parametrize(("share", "eta"), [(0.7, 0.3), (1.0, 0.5), (0.5, 0.0), (0.0, 0.3), (1.0, 0.0)])
@pytest.mark.parametrize("seed", range(4))
def test_the_whole_step_against_a_slow_loop(seed: int, share: float, eta: float) -> None:
    allowed_NC, logits_NC, features_ND = random_problem(seed, 30, 6)
    _, made_NC = whole_step(allowed_NC, logits_NC, features_ND, share, eta)
    unit = torch.nn.functional.normalize(features_ND.double(), dim=1)
    expected = slow_rebuild(sets_of(allowed_NC), logits_NC.double().tolist(), unit, share, eta, 0.4, 5)
    assert sets_of(made_NC) == expected


@given(st.integers(0, 10_000), st.integers(1, 25), st.integers(2, 7), st.floats(0, 1), st.floats(0, 0.99))
def test_what_must_hold_of_all(seed: int, items: int, classes: int, share: float, eta: float) -> None:
    allowed_NC, logits_NC, features_ND = random_problem(seed, items, classes)
    groups, made_NC = whole_step(allowed_NC, logits_NC, features_ND, share, eta)
    selected_N, full_N = groups.normal_N | groups.noisy_N, allowed_NC.all(dim=1)
    assert not (groups.normal_N & groups.noisy_N).any() and made_NC.any(dim=1).all()
    size_N, given_N = made_NC.sum(dim=1), allowed_NC.sum(dim=1)
    assert (size_N <= given_N)[selected_N].all() and not (made_NC & ~allowed_NC)[groups.normal_N].any()
    assert not (made_NC & allowed_NC)[groups.noisy_N & ~full_N].any()
    assert torch.equal(size_N[~selected_N], given_N[~selected_N])
    assert ((made_NC & ~allowed_NC).sum(dim=1)[~selected_N & ~full_N] == 1).all()


def test_memory_grows_with_items_times_classes() -> None:
    items, classes = 400, 50
    allowed_NC, logits_NC, features_ND = random_problem(1, items, classes)
    groups = split(torch.rand(items), 200, 100)
    with Allocations() as seen:
        options: dict[str, Any] = {"neighbors": 5, "rule": "rate", "lamb": 1.5, "partial_rate": 0.3}
        rebuild_sets(allowed_NC, logits_NC, features_ND, groups, **options)
    assert seen.largest <= 8 * items * max(classes, items)


def plrc(candidates: CandidateSets, **options: Any) -> PLRC:
    return PLRC(method_options("plrc", options), Problem(candidates, small_network(candidates.num_classes, seed=1)))


def test_partial_rate_by_the_size_of_the_sets() -> None:
    for eta, mean, classes, q in ((0.0, 5.5, 10, 0.5), (0.3, 5.2, 10, 0.5), (0.0, 1.0, 10, 0.0), (0.3, 0.9, 3, 0.1)):
        large = round(mean % 1 * 10)
        size_N1 = torch.tensor([math.floor(mean)] * (10 - large) + [math.ceil(mean)] * large)[:, None]
        assert estimate_partial_rate(torch.arange(classes) < size_N1, eta) == pytest.approx(q)


def test_rates_are_estimated_unless_given() -> None:
    """A fifth of the sets lack the label; after the warm-up the items held out for it are trained on as well."""
    data = toy_data(items=600)
    candidates = toy_candidates(data, q=0.3, eta=0.4)
    effective = 1 - float(candidates.allowed_NC.gather(1, data.truth.label_N[:, None]).float().mean())
    trainer = toy_trainer("plrc", data, candidates, train={"epochs": 8}, options={"warm_up": 6, "held_out": 0.3})
    method: Any = trainer.method
    *_, before, found, after = [(record, len(method.trained_on())) for record in trainer.epochs()]
    assert before[1] == 420 and "noise_rate" not in before[0] and found[1] == after[1] == 600
    assert found[0]["noise_rate"] == after[0]["noise_rate"] == pytest.approx(effective, abs=0.08)
    assert found[0]["partial_rate"] == pytest.approx(0.3, abs=0.1)
    given = toy_trainer("plrc", data, candidates, train={"epochs": 3}, options={"noise_rate": 0.3, "partial_rate": 0.5})
    last = run_all(given)[-1]
    assert (last["noise_rate"], last["partial_rate"]) == (0.3, 0.5)
    assert last["normal"] + last["noisy"] == int(600 * share_at(3, 2, 100, 0.7, 1.0))
    assert len(given.method.holdout.index_M) == 0


def test_items_held_out_are_looked_at_before_they_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then nothing is known of them."""
    data = toy_data(items=90)
    trainer = toy_trainer("plrc", data, train={"epochs": 3}, options={"warm_up": 2, "held_out": 0.2})
    method: Any = trainer.method
    held_M = method.holdout.index_M.clone()
    start_NC = method.logits_NC.clone()
    records = trainer.epochs()
    next(records)
    next(records)
    assert torch.equal(method.logits_NC[held_M], start_NC[held_M]) and not method.features_ND[held_M].any()
    seen: dict[str, Tensor] = {}
    original = method._neighbors

    def spy(ctx: Any) -> Any:
        seen["logits"] = method.logits_NC[held_M].clone()
        seen["expected"] = ctx.outputs(rows_M=held_M).logits.clone()
        seen["length"] = method.features_ND[held_M].norm(dim=1)
        return original(ctx)

    monkeypatch.setattr(method, "_neighbors", spy)
    next(records)
    torch.testing.assert_close(seen["logits"], seen["expected"])
    torch.testing.assert_close(seen["length"], torch.ones(18))


def test_rates_given_are_kept_and_new_sets_are_trained_on(noisy: CandidateSets, toy: Any) -> None:
    given, estimated = plrc(noisy, noise_rate=0.3), plrc(noisy)
    assert given.noise_rate == 0.3  # not the float32 next to it, which would move a border by one item
    assert (len(given.holdout.index_M), len(estimated.holdout.index_M), estimated.noise_rate) == (0, 9, -1.0)
    method = plrc(noisy)
    method.rebuilt_NC.copy_(~noisy.allowed_NC | torch.tensor([True, False, False]))
    index_B = torch.arange(7)
    assert torch.equal(method.sets(index_B), method.rebuilt_NC[:7])


@pytest.mark.parametrize("eta", [0.0, 0.4])
def test_invariants_through_a_run(eta: float) -> None:
    data = toy_data(items=120)
    noisy = toy_candidates(data, eta=0.3)
    options = {"warm_up": 2, "ramp": 4, "noise_rate": eta}
    trainer = toy_trainer("plrc", data, noisy, train={"epochs": 8}, options=options)
    method: Any = trainer.method
    for record in trainer.epochs():
        assert torch.equal(method.allowed_NC, noisy.allowed_NC)
        if record["epoch"] <= 2:
            assert torch.equal(method.rebuilt_NC, noisy.allowed_NC)
            assert "normal" not in record and "selected" not in record
            continue
        groups, made_NC = method.groups, method.rebuilt_NC
        normal, noisy_count = split_counts(120, share_at(record["epoch"], 2, 4, 0.7, 1.0), eta)
        assert (record["normal"], record["noisy"], record["selected"]) == (normal, noisy_count, normal + noisy_count)
        assert made_NC.any(dim=1).all() and record["set_size"] == pytest.approx(float(made_NC.sum()) / 120)
        assert not (made_NC & ~noisy.allowed_NC)[groups.normal_N].any()
        assert not (made_NC & noisy.allowed_NC)[groups.noisy_N & ~noisy.allowed_NC.all(dim=1)].any()
    assert record["normal"] + record["noisy"] == 120


def test_noisy_sets_get_their_label_back() -> None:
    """A quarter of the sets lack the true label: of the noisy items most have it in the new set."""
    data = toy_data(items=240)
    noisy = toy_candidates(data, q=0.3, eta=0.4)
    trainer = toy_trainer("plrc", data, noisy, train={"epochs": 14}, options={"warm_up": 6, "ramp": 4})
    record = run_all(trainer)[-1]
    label_N1 = data.truth.label_N[:, None]
    before, after = (float(sets.gather(1, label_N1).float().mean()) for sets in (noisy.allowed_NC, trainer.method.rebuilt_NC))
    assert record["test_accuracy"] >= 0.9 and before < 0.75 and after > before + 0.1


def test_features_differ_and_frozen_ones_stay(noisy: CandidateSets, toy: Any) -> None:
    made = {}
    for features in ("own", "input", "network"):
        trainer = toy_trainer("plrc", toy, noisy, options={"features": features, "warm_up": 1})
        method: Any = trainer.method
        records = trainer.epochs()
        next(records)
        next(records)
        first_ND, near_1 = (method.frozen_ND if features == "input" else method.features_ND).clone(), method.frozen_near
        next(records)
        again_ND = method.frozen_ND if features == "input" else method.features_ND
        assert torch.equal(first_ND, again_ND) == (features != "own")
        assert (near_1 is method.frozen_near) and (near_1 is None) == (features == "own")
        made[features] = method.rebuilt_NC.clone()
    standard = (toy.train.inputs - toy.train.inputs.mean(dim=0)) / toy.train.inputs.std(dim=0)
    trainer = toy_trainer("plrc", toy, noisy, options={"features": "input", "warm_up": 0})
    next(trainer.epochs())
    torch.testing.assert_close(trainer.method.frozen_ND, standard, atol=1e-4, rtol=1e-4)
    assert not torch.equal(made["own"], made["input"])


@pytest.mark.parametrize(
    "options",
    [{"share_first": 0.2}, {"neighbors": 20}, {"size_rule": "relative"}, {"size_rule": "absolute"}, {"lamb": 2.9},
     {"noise_rate": 0.6}, {"partial_rate": 1.0}, {"ramp": 1}, {"share_last": 0.75, "ramp": 1}],
    ids=str,
)  # fmt: skip
def test_every_option_changes_the_sets(options: Mapping[str, Any]) -> None:
    data = toy_data(items=120, classes=5)
    common = {"warm_up": 1, "noise_rate": 0.2}
    plain, changed = (toy_trainer("plrc", data, train={"epochs": 3}, options=given) for given in (common, common | options))
    run_all(plain), run_all(changed)
    assert not torch.equal(plain.method.rebuilt_NC, changed.method.rebuilt_NC)
