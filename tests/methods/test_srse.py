"""SRSE: the check values of its sheet worked by hand, slow loops beside the tables, every switch, and who is salvaged when."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from test_pals_method import Linear, slow_sum
from torch import Tensor, nn

from _allocations import Allocations
from _context import Offered
from _toy import WIDTH, run_all, small_network, toy_candidates, toy_data, toy_trainer
from pals.data.dataset import Dataset
from pals.labels.candidates import CandidateSets
from pals.methods import Batch, Problem, method_options
from pals.methods.srse import SRSE, salvage_window
from pals.pseudo_labels.knn import nearest
from pals.pseudo_labels.reliable_subset import agreeing_counts
from pals.pseudo_labels.simplex import floor_quantile
from pals.pseudo_labels.soft_vote import (
    blend_with_prediction,
    consensus,
    entropy,
    kernel_weight,
    mixedness,
    relative_peak,
    select_own,
    soft_vote,
    trust,
    update_class_means,
)
from pals.vision.networks import Output

# Six unit vectors in the plane, three classes, three neighbours with the item itself.
ANGLE_N = torch.tensor([0.0, 15.0, 30.0, 75.0, 90.0, 100.0]).deg2rad()
FEATURES_ND = torch.stack([ANGLE_N.cos(), ANGLE_N.sin()], dim=1)
SETS = [{0, 1}, {0}, {0, 2}, {1, 2}, {1}, {0}]
ALLOWED_NC = torch.tensor([[c in labels for c in range(3)] for labels in SETS])
Y_NC = ALLOWED_NC.float()
P_NC = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.2, 0.1, 0.7], [0.1, 0.6, 0.3], [0.1, 0.8, 0.1], [0.1, 0.85, 0.05]])
NEAR = nearest(FEATURES_ND, 2)


def near(actual: Tensor, expected: Any) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected), atol=1.5e-6, rtol=0)


def first_vote() -> Tensor:
    return soft_vote(NEAR.index_NK, kernel_weight(*NEAR, Y_NC), Y_NC)


def second_vote() -> tuple[Tensor, Tensor]:
    """What goes into it and what comes out, in the sixth epoch of a ramp of ten."""
    blend_NC = blend_with_prediction(first_vote(), P_NC, Y_NC, 0.25)
    return blend_NC, soft_vote(NEAR.index_NK, kernel_weight(*NEAR, blend_NC), blend_NC)


def test_check_values_of_the_sheet() -> None:
    rows = [set(row) for row in ("012", "102", "210", "345", "453", "543")]
    assert [set(map(str, row)) for row in NEAR.index_NK.tolist()] == rows
    near(trust(*NEAR, Y_NC, 2.0), [0.579214, 1.0, 0.579214, 0.508188, 1.0, 1.0])
    near((-trust(*NEAR, Y_NC, 1.0).log()).clamp_min(0).sqrt(), [0.522534, 0.0, 0.522534, 0.581766, 0.0, 0.0])
    mixed_N = mixedness(*NEAR, Y_NC, 0.5)
    near(mixed_N, [0.660116, 0.665131, 0.660116, 0.890888, 0.911911, 0.921353])
    near(0.1 + 0.5 * mixed_N.square(), [0.317876, 0.321200, 0.317876, 0.496841, 0.515791, 0.524445])
    weight_NK = kernel_weight(*NEAR, Y_NC)
    near(weight_NK[[0, 1, 5]], [[0.579214, 0.809990, 0.263803], [1.0, 0.470181, 0.470181], [1.0, 0.944125, 0.361510]])
    expected = [[0.628542, 0.214779, 0.156679], [0.262542, 0.520313, 0.217145], [0.346551, 0.470439, 0.183010]]
    near(first_vote()[[0, 3, 5]], expected)
    near(relative_peak(first_vote(), P_NC), [0.473107, 0.533089, 0.473107, 0.464435, 0.387892, 0.356275])
    blend_NC, posterior_NC = second_vote()
    near(blend_NC[[0, 5]], [[0.694558, 0.231316, 0.074126], [0.767193, 0.167605, 0.065202]])
    near(posterior_NC[[0, 5]], [[0.624531, 0.192019, 0.183450], [0.310667, 0.464049, 0.225284]])
    assert posterior_NC.argmax(dim=1).tolist() == [0, 0, 0, 1, 1, 1]
    pool_C = agreeing_counts(posterior_NC, ALLOWED_NC)
    assert pool_C.tolist() == [3, 2, 0]  # item 5 is not eligible: 1 is not in {0}
    assert [floor_quantile(pool_C, delta) for delta in (0.25, 0.5, 1.0)] == [1, 2, 3]
    cases = [([1, 4], 0.5), ([0, 1, 2, 3], 0.25), ([4, 4, 4, 4], 0.25), ([0, 0, 0, 8], 1.0), ([29, 29, 29], 0.3)]
    assert [floor_quantile(torch.tensor(pools), delta) for pools, delta in cases] == [2, 0, 4, 8, 29]
    for quota, most in [(0, 0), (1, 2), (2, 4), (3, 5), (9, 5)]:
        selected_N = select_own(posterior_NC, ALLOWED_NC, quota)
        assert int(selected_N.sum()) == most and not selected_N[5]
    weight_NK = kernel_weight(*NEAR, Y_NC, kernel="exp")
    assert float(weight_NK.max()) == pytest.approx(math.exp(10), rel=1e-5)
    near(soft_vote(NEAR.index_NK, weight_NK, Y_NC)[0], [1.0, 0.0, 0.0])


def random_problem(seed: int, items: int = 30, classes: int = 5, k: int = 6) -> tuple[Any, Tensor, Tensor]:
    """Neighbours, candidates and predictions."""
    generator = torch.Generator().manual_seed(seed)
    allowed_NC = torch.rand(items, classes, generator=generator) < 0.4
    allowed_NC[torch.arange(items), torch.randint(classes, (items,), generator=generator)] = True
    predicted_NC = torch.randn(items, classes, generator=generator).mul(2).softmax(dim=1)
    found = nearest(torch.rand(items, 4, generator=generator), k - 1)
    return found, allowed_NC, predicted_NC


def slow_norm(row: list[float]) -> list[float]:
    return [value / sum(row) for value in row]


def slow_entropy(row: list[float]) -> float:
    return -sum(value * math.log(value + 1e-12) for value in row) / math.log(len(row))


def slow_kernel(index: list[list[int]], cosine: list[list[float]], labels: list[list[float]]) -> list[list[float]]:
    """The kernel as the sheet has it, one number at a time, with the published values."""
    trusted, temperatures = [], []
    for i, (found, s) in enumerate(zip(index, cosine, strict=True)):
        rows = [labels[j] for j in found]
        around = slow_norm(slow_sum([value / sum(s) for value in s], rows))
        common = slow_norm([a * b for a, b in zip(around, slow_norm(labels[i]), strict=True)])
        trusted.append(math.exp(-2 * slow_entropy(common) ** 2))
        share = slow_norm([math.exp(value / 0.5) for value in s])
        temperatures.append(0.1 + 0.5 * slow_entropy(slow_sum(share, rows)) ** 2)
    return [
        [math.exp(value**2 / tau - max(other**2 / tau for other in s)) * trusted[j] for j, value in zip(found, s, strict=True)]
        for found, s, tau in zip(index, cosine, temperatures, strict=True)
    ]


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_kernel_and_vote_against_a_slow_loop(seed: int, soft: bool) -> None:
    """With candidates, as in the first vote, and with probabilities, as in the second."""
    found, allowed_NC, predicted_NC = random_problem(seed)
    label_NC = predicted_NC if soft else allowed_NC.float()
    expected = slow_kernel(found.index_NK.tolist(), found.similarity_NK.tolist(), label_NC.tolist())
    weight_NK = kernel_weight(*found, label_NC)
    torch.testing.assert_close(weight_NK, torch.tensor(expected), atol=1e-5, rtol=1e-4)
    score = [slow_sum(w, label_NC[row].tolist()) for w, row in zip(weight_NK.tolist(), found.index_NK.tolist(), strict=True)]
    expected_vote = [slow_norm([math.exp(value) for value in row]) for row in score]
    torch.testing.assert_close(soft_vote(found.index_NK, weight_NK, label_NC), torch.tensor(expected_vote), atol=1e-5, rtol=0)


def test_ends_of_trust_and_entropy() -> None:
    """One label that the neighbours share is trusted in full, unless the item itself is undecided or gamma is 0."""
    index_NK = torch.tensor([[0, 1, 2], [1, 0, 2], [2, 0, 1]])
    cosine_NK = torch.tensor([[1.0, 0.9, 0.8]] * 3)
    label_NC = torch.tensor([[1.0, 0, 0], [1, 0, 0], [1, 1, 0]])
    trusted_N = trust(index_NK, cosine_NK, label_NC, 2.0)
    near(trusted_N[:2], [1.0, 1.0])
    assert float(trusted_N[2]) < 0.9
    near(trust(index_NK, cosine_NK, label_NC, 0.0), [1.0] * 3)
    index_NK, cosine_NK, label_NC = torch.tensor([[0, 1], [1, 0]]), torch.zeros(2, 2), torch.eye(2)
    near(soft_vote(index_NK, kernel_weight(index_NK, cosine_NK, label_NC), label_NC), [[0.5, 0.5]] * 2)
    near(entropy(torch.tensor([[0.25] * 4, [1.0, 0, 0, 0], [0.5, 0.5, 0, 0]])), [1.0, 0.0, 0.5])


def test_memory_grows_with_items_times_classes_plus_neighbours() -> None:
    items, classes, k = 400, 50, 16
    found, allowed_NC, predicted_NC = random_problem(1, items, classes, k)
    with Allocations() as seen:
        ballot_NC = allowed_NC.float()
        vote_NC = soft_vote(found.index_NK, kernel_weight(*found, ballot_NC), ballot_NC)
        blend_NC = blend_with_prediction(vote_NC, predicted_NC, ballot_NC, 0.3)
        posterior_NC = soft_vote(found.index_NK, kernel_weight(*found, blend_NC), blend_NC)
        select_own(posterior_NC, allowed_NC, floor_quantile(agreeing_counts(posterior_NC, allowed_NC), 0.25))
    assert seen.largest <= 8 * items * classes


def test_blend_by_hand() -> None:
    """Vote (.6 .3 .1), prediction (.2 .2 .6), half of each is (.4 .25 .35), cut to {0, 2} and scaled (.533333 0 .466667)."""
    vote_NC, predicted_NC = torch.tensor([[0.6, 0.3, 0.1]]), torch.tensor([[0.2, 0.2, 0.6]])
    ballot_NC = torch.tensor([[1.0, 0.0, 1.0]])
    near(blend_with_prediction(vote_NC, predicted_NC, ballot_NC, 0.5, reliability=0.0)[0], [0.533333, 0.0, 0.466667])
    near(blend_with_prediction(vote_NC, predicted_NC, ballot_NC, 0.5, reliability=1.0)[0], [0.6, 0.3, 0.1])
    near(blend_with_prediction(vote_NC, predicted_NC, ballot_NC, 0.5, reliability=0.5)[0], [0.566667, 0.15, 0.283333])
    near(blend_with_prediction(vote_NC, predicted_NC, ballot_NC, 0.5)[0], [0.566667, 0.15, 0.283333])  # equally sure
    near(blend_with_prediction(vote_NC, predicted_NC, ballot_NC, 0.5, reliability=0.5, mask=False)[0], [0.5, 0.275, 0.225])
    near(blend_with_prediction(vote_NC, predicted_NC, ballot_NC, 0.0, reliability=0.0)[0], [0.857143, 0.0, 0.142857])
    weighted_NC = torch.tensor([[0.75, 0.0, 0.25]])  # people's votes: (.3 0 .0875), scaled
    near(blend_with_prediction(vote_NC, predicted_NC, weighted_NC, 0.5, reliability=0.0)[0], [0.774194, 0.0, 0.225806])


@pytest.mark.parametrize("seed", range(10))
def test_selection_against_a_slow_loop(seed: int) -> None:
    """With beliefs in steps of a tenth, so that many are equal. A class that wins nothing is not filled up."""
    _, allowed_NC, predicted_NC = random_problem(seed, items=40)
    posterior_NC = (predicted_NC * 10).round() / 10
    belief, winner = posterior_NC.tolist(), posterior_NC.argmax(dim=1).tolist()
    for quota in (0, 1, 2, 5, 100):
        expected: set[int] = set()
        for c in range(5):
            pool = [i for i in range(40) if winner[i] == c and allowed_NC[i, c]]
            expected |= set(sorted(pool, key=lambda i, c=c: (-belief[i][c], i))[:quota])
        assert set(select_own(posterior_NC, allowed_NC, quota).nonzero().flatten().tolist()) == expected


def test_prototypes_and_consensus_by_hand() -> None:
    """Class 0 has two items, whose mean lies at 45 degrees; class 1 none; class 2 begins from nothing."""
    old_CD = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    unit_MD = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.0, -1.0]])
    member_MC = torch.tensor([[True, False, False], [True, False, False], [False, False, True], [False, False, False]])
    moved_CD = update_class_means(old_CD, unit_MD, member_MC, 0.9)
    tenth = 0.1 * math.sqrt(0.5)
    length = math.hypot(0.9 + tenth, tenth)
    near(moved_CD, [[(0.9 + tenth) / length, tenth / length], [0.0, 1.0], [0.6, 0.8]])
    near(update_class_means(old_CD, unit_MD, member_MC, 0.0), [[math.sqrt(0.5)] * 2, [0.0, 1.0], [0.6, 0.8]])
    eye_33 = torch.eye(3)
    one, two = eye_33[0:1], eye_33[1:2]
    assert [consensus(*[row] * 3, eye_33).tolist() for row in (one, two)] == [[0], [1]]
    for three in ((two, one, one), (one, two, one), (one, one, two)):
        assert consensus(*three, eye_33).tolist() == [-1]  # it needs all three


@dataclass
class StubContext(Offered):
    """For SRSE, which asks for features and probabilities at once, and for those of the strong view."""

    epoch: int = 3
    epochs: int = 100
    strong_NC: Tensor | None = None

    def outputs(self, network: nn.Module | None = None, view: str = "eval", rows_M: Tensor | None = None) -> Output:
        self.asked.append(view)
        return Output(self.predicted_NC.log(), self.features_ND)

    def probabilities(self, view: str = "eval", network: nn.Module | None = None) -> Tensor:
        self.asked.append(view)
        assert self.strong_NC is not None
        return self.strong_NC


def context(candidates: CandidateSets, **values: Any) -> StubContext:
    """Random features in the positive orthant, as a ReLU makes them, and confident random predictions."""
    generator = torch.Generator().manual_seed(11)
    features_ND = torch.rand(len(candidates), 16, generator=generator)
    predicted_NC = torch.randn(len(candidates), candidates.num_classes, generator=generator).mul(3).softmax(dim=1)
    return StubContext(features_ND, predicted_NC, **values)


def srse(candidates: CandidateSets, **options: Any) -> SRSE:
    config = method_options("srse", {"neighbors": 5, **options})
    return SRSE(config, Problem(candidates, small_network(candidates.num_classes, seed=1)))


def belief_of(candidates: CandidateSets, **options: Any) -> Tensor:
    method = srse(candidates, **options)
    method.plan_epoch(context(candidates))
    found = method.posterior()
    assert found is not None
    return found


def test_the_worked_example_through_the_method() -> None:
    """The numbers of check d, and who is selected at delta .25: one of class 0 and one of class 1."""
    sets = CandidateSets.from_matrix(ALLOWED_NC)
    ctx = StubContext(FEATURES_ND, P_NC, epoch=6)
    method = SRSE(method_options("srse", {"neighbors": 2}), Problem(sets, lambda: Linear(torch.eye(2, 3))))
    plan = method.plan_epoch(ctx)
    found, posterior_NC = method.extraction, second_vote()[1]
    assert found is not None
    torch.testing.assert_close(found.posterior_NC, posterior_NC, atol=1e-6, rtol=0)
    assert found.quota == 1
    best = [max(items, key=lambda i, c=c: float(posterior_NC[i, c])) for c, items in enumerate(([0, 1, 2], [3, 4]))]
    assert found.reliable_N.nonzero().flatten().tolist() == best and found.label_N[best].tolist() == [0, 1]
    assert set(plan.groups["main"].order_M.tolist()) == set(best)
    torch.testing.assert_close(method.prototype_CD, torch.stack([*FEATURES_ND[best], torch.zeros(2)]))
    assert torch.equal(method.allowed_NC, ALLOWED_NC)


@pytest.mark.parametrize(
    "options",
    [{"neighbors": 3}, {"kernel": "exp"}, {"second_kernel": "exp"}, {"kernel": "exp", "second_kernel": "topology"},
     {"temperature": 0.5}, {"gamma": 0.0}, {"spread_temperature": 5.0}, {"spread_weight": 0.0}, {"model_share": 1.0},
     {"model_ramp": 2}, {"mask": False}, {"reliability": 0.5}, {"second_vote": False}],
    ids=str,
)  # fmt: skip
def test_labelling_options_change_the_belief(options: Mapping[str, Any], noisy: CandidateSets) -> None:
    changed_NC = belief_of(noisy, **options)
    assert float((changed_NC - belief_of(noisy)).abs().max()) > 1e-3
    near(changed_NC.sum(dim=1), [1.0] * len(noisy))


def usual_belief(votes_NC: Tensor, candidates: CandidateSets, second: bool = True) -> Tensor:
    """Vote, blend and, if wanted, second vote of the third epoch of a hundred."""
    ctx = context(candidates)
    found = nearest(ctx.features_ND, 5)
    vote_NC = soft_vote(found.index_NK, kernel_weight(*found, votes_NC), votes_NC)
    blend_NC = blend_with_prediction(vote_NC, ctx.predicted_NC, votes_NC, 0.1)
    return soft_vote(found.index_NK, kernel_weight(*found, blend_NC), blend_NC) if second else blend_NC


def test_kernels_are_chosen_vote_by_vote(noisy: CandidateSets) -> None:
    """The second vote by the exponential kernel is nearly one-hot, by the other it is soft whatever the first was."""
    sharp = {
        (first, second): float(belief_of(noisy, kernel=first, second_kernel=second).amax(dim=1).mean())
        for first, second in [("topology", "exp"), ("exp", "same"), ("exp", "topology"), ("topology", "same")]
    }
    assert sharp["topology", "exp"] > 0.99 < sharp["exp", "same"]
    assert sharp["exp", "topology"] < 0.9 > sharp["topology", "same"]


def test_neighbours_in_the_opposite_direction_count_as_if_at_right_angles(noisy: CandidateSets) -> None:
    """With all others as neighbours many cosines are negative; their squares must not make them near."""
    few = replace(noisy, allowed_NC=noisy.allowed_NC[:12], ids=noisy.ids[:12])
    ctx = context(few)
    ctx = replace(ctx, features_ND=torch.cat([ctx.features_ND[:6], -ctx.features_ND[6:]]))
    method = srse(few, neighbors=11, second_vote=False, reliability=1.0)
    method.plan_epoch(ctx)
    found = nearest(ctx.features_ND, 11)
    assert float(found.similarity_NK.min()) < -0.5
    weight_NK = kernel_weight(found.index_NK, found.similarity_NK.clamp_min(0), few.allowed_NC.float())
    expected_NC = soft_vote(found.index_NK, weight_NK, few.allowed_NC.float())
    torch.testing.assert_close(method.posterior(), expected_NC, atol=1e-6, rtol=0)


def test_the_quantile_sets_how_many_are_selected(noisy: CandidateSets) -> None:
    counts = []
    for delta in (0.0, 0.5, 1.0):
        method = srse(noisy, delta=delta)
        plan = method.plan_epoch(context(noisy))
        pool_C = agreeing_counts(method.extraction.posterior_NC, noisy.allowed_NC)
        assert method.extraction.quota == floor_quantile(pool_C, delta) >= 1
        counts.append(int(plan.selection.selected_N.sum()))
        assert counts[-1] == int(pool_C.clamp_max(method.extraction.quota).sum())
    assert counts[0] < counts[1] < counts[2]


def test_what_votes_and_what_the_belief_is(noisy: CandidateSets) -> None:
    """Shares of the answers and 1e-8 more, on the candidates alone; without the second vote the blend is the belief."""
    share_NC = noisy.allowed_NC * torch.tensor([1.0, 5.0, 20.0])
    counted = replace(noisy, frequency_NC=share_NC / share_NC.sum(dim=1, keepdim=True))
    with_share_NC, without_NC = (belief_of(counted, use_frequencies=use) for use in (True, False))
    assert torch.equal(without_NC, belief_of(noisy)) and not torch.allclose(with_share_NC, without_NC, atol=1e-2)
    expected_NC = usual_belief((counted.frequency_NC + 1e-8) * noisy.allowed_NC, noisy)
    torch.testing.assert_close(with_share_NC, expected_NC, atol=1e-6, rtol=0)
    blend_NC = usual_belief(noisy.allowed_NC.float(), noisy, second=False)
    torch.testing.assert_close(belief_of(noisy, second_vote=False), blend_NC, atol=1e-6, rtol=0)
    for kernel in ("exp", "topology"):  # the lowest temperature there is
        assert torch.isfinite(belief_of(noisy, kernel=kernel, temperature=0.02)).all()


@pytest.mark.parametrize(("view", "asked"), [("weak", ["weak"]), ("eval", ["eval"]), ("both", ["weak", "strong"])])
def test_features_and_predictions_come_from_one_pass(view: str, asked: list[str], noisy: CandidateSets) -> None:
    ctx = context(noisy)
    ctx.strong_NC = ctx.predicted_NC.flip(0)
    method = srse(noisy, predict_view=view)
    method.plan_epoch(ctx)
    assert ctx.asked == asked
    mean_NC = (ctx.predicted_NC + ctx.strong_NC) / 2 if view == "both" else ctx.predicted_NC
    same = srse(noisy)
    same.plan_epoch(replace(ctx, predicted_NC=mean_NC))
    torch.testing.assert_close(method.posterior(), same.posterior(), atol=1e-6, rtol=0)


def test_an_epoch_draws_as_many_items_as_there_are(toy: Dataset, noisy: CandidateSets) -> None:
    """With replacement, from the active ones; a short last batch is left out: 90 items are two steps of 32."""
    method = srse(noisy)
    plan = method.plan_epoch(context(noisy))
    order_M = plan.groups["main"].order_M
    assert len(order_M) == len(noisy) > len(order_M.unique()) and plan.selection.selected_N[order_M].all()
    assert (plan.groups["main"].target[order_M] >= 0).all()
    assert [record["steps"] for record in run_all(toy_trainer("srse", toy, train={"epochs": 2}))] == [2, 2]


def test_who_is_selected_where_classes_win_nothing(noisy: CandidateSets, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve items of class 0 and four classes: the quantile of the pools (12, 0, 0, 0) is 0."""
    sets = CandidateSets.from_matrix(torch.tensor([[True, True, False, False]]).expand(12, 4).clone())
    ctx = StubContext(torch.rand(12, 16), torch.tensor([[0.7, 0.1, 0.1, 0.1]]).expand(12, 4), epoch=20)
    method = srse(sets)
    plan = method.plan_epoch(ctx)
    assert floor_quantile(agreeing_counts(method.posterior(), sets.allowed_NC), 0.25) == 0
    assert method.statistics() == {"quota": 1, "reliable": 1, "salvaged": 0} and len(plan.groups["main"].order_M) == 12
    allowed_NC = noisy.allowed_NC & torch.tensor([True, True, False])
    allowed_NC[~allowed_NC.any(dim=1), 1] = True
    sets = replace(noisy, allowed_NC=allowed_NC)
    posterior_NC = torch.tensor([[0.3, 0.2, 0.5]]).expand(len(sets), 3)
    method = srse(sets)
    monkeypatch.setattr(method, "vote_twice", lambda *_: posterior_NC)
    plan = method.plan_epoch(context(sets))
    assert plan.selection.selected_N.all()
    assert plan.selection.label_N.tolist() == [0 if first else 1 for first in allowed_NC[:, 0].tolist()]


@pytest.mark.parametrize("window", [5, 15])
def test_run_lengths_are_as_good_as_queues(window: int, noisy: CandidateSets) -> None:
    """Sixty epochs of made-up answers against two queues of the last `window` epochs per item."""
    windows = {(500, 0.03): 15, (100, 0.03): 5, (250, 0.03): 8, (10, 0.0): 5}
    assert {case: salvage_window(*case) for case in windows} == windows
    method = srse(noisy, salvage_share=window / 500)
    generator = torch.Generator().manual_seed(window)
    reliable, agreed = deque(maxlen=window), deque(maxlen=window)  # type: ignore[var-annotated]
    label_N, seen = torch.zeros(len(noisy), dtype=torch.int64), 0
    for _ in range(60):
        reliable_N = torch.rand(len(noisy), generator=generator) < 0.6 / window
        changed_N = torch.rand(len(noisy), generator=generator) < 0.6 / window
        label_N = torch.where(changed_N, torch.randint(-1, 3, label_N.shape, generator=generator), label_N)
        salvaged_N = method.salvage(reliable_N, label_N, 500)
        reliable.append(reliable_N)
        agreed.append(label_N)
        expected_N = torch.zeros(len(noisy), dtype=torch.bool)
        if len(reliable) == window:
            past = torch.stack(list(agreed))
            expected_N = ~torch.stack(list(reliable)).any(dim=0) & (past == past[0]).all(dim=0) & (past[0] >= 0)
        assert torch.equal(salvaged_N, expected_N) and not (salvaged_N & reliable_N).any()
        seen += int(expected_N.sum())
    assert 100 < seen < 60 * len(noisy) / 2


def two_clouds() -> tuple[CandidateSets, StubContext]:
    """Two tight clouds of ten; item 0 lies in the first, whose class its set does not hold, and the network knows."""
    label_N = torch.arange(20) // 10
    allowed_NC = label_N[:, None] == torch.arange(3)
    allowed_NC[0] = torch.tensor([False, False, True])
    generator = torch.Generator().manual_seed(0)
    features_ND = torch.eye(16)[label_N] + 0.1 * torch.rand(20, 16, generator=generator)
    predicted_NC = torch.full((20, 3), 0.05)
    predicted_NC[torch.arange(20), label_N] = 0.9
    return CandidateSets.from_matrix(allowed_NC), StubContext(features_ND, predicted_NC)


def planned(method: SRSE, ctx: StubContext, epoch: int, **changes: Any) -> tuple[bool, int]:
    """Whether item 0 is trained on in this epoch, and with which label."""
    plan = method.plan_epoch(replace(ctx, epoch=epoch, **changes))
    return bool(plan.selection.selected_N[0]), int(plan.selection.label_N[0])


def test_salvage_after_five_epochs_unless_set_otherwise() -> None:
    sets, ctx = two_clouds()
    method = srse(sets, delta=1.0)
    assert [planned(method, ctx, epoch) for epoch in range(1, 5)] == [(False, -1)] * 4
    assert planned(method, ctx, 5) == planned(method, ctx, 6) == (True, 0)
    assert method.statistics() == {"quota": 10, "reliable": 19, "salvaged": 1}
    assert not (method.extraction.reliable_N & method.extraction.salvaged_N).any() and not sets.allowed_NC[0, 0]
    doubt_NC = ctx.predicted_NC.clone()
    doubt_NC[0] = torch.tensor([0.1, 0.1, 0.8])  # one epoch of doubt, and it has to hold out as long again
    assert not planned(method, ctx, 7, predicted_NC=doubt_NC)[0]
    assert [planned(method, ctx, epoch)[0] for epoch in range(8, 13)] == [False] * 4 + [True]
    sets, ctx = two_clouds()
    for options, epochs, first in [({"salvage": False}, 100, None), ({}, 500, 15), ({"salvage_share": 0.1}, 100, 10)]:
        method = srse(sets, delta=1.0, **options)
        taken = [planned(method, ctx, epoch, epochs=epochs)[0] for epoch in range(1, 21)]
        assert taken == [first is not None and epoch >= first for epoch in range(1, 21)]


def test_a_run_on_very_noisy_sets() -> None:
    """31% lack the true label. Who is reliable has a candidate, who is salvaged is not; nearly all get the right label."""
    data = toy_data(items=180)
    noisy = toy_candidates(data, eta=0.4)
    assert float(noisy.allowed_NC.gather(1, data.truth.label_N[:, None]).float().mean()) < 0.7
    trainer = toy_trainer("srse", data, noisy, train={"epochs": 15}, options={"neighbors": 15})
    method: Any = trainer.method
    salvaged = outside = 0
    for record in trainer.epochs():
        found = method.extraction
        own_N = noisy.allowed_NC.gather(1, found.label_N.clamp_min(0)[:, None]).squeeze(1)
        assert own_N[found.reliable_N].all() and not (found.reliable_N & found.salvaged_N).any()
        assert torch.equal(found.label_N >= 0, found.reliable_N | found.salvaged_N)
        assert record["selected"] == record["reliable"] + record["salvaged"] == int((found.label_N >= 0).sum())
        assert record["correct"] == int((found.label_N == data.truth.label_N).sum())
        assert torch.equal(method.allowed_NC, noisy.allowed_NC)
        salvaged += record["salvaged"]
        outside += int((found.salvaged_N & ~own_N).sum())
    assert 0 < outside <= salvaged and record["test_accuracy"] >= 0.95 and int(found.salvaged_N.sum()) >= 20
    near(method.prototype_CD.norm(dim=1), [1.0] * 3)
    right_N = found.label_N == data.truth.label_N
    assert min(float(right_N[part_N].float().mean()) for part_N in (found.salvaged_N, found.reliable_N)) >= 0.9


def a_batch(rows: int = 9) -> Batch:
    generator = torch.Generator().manual_seed(2)
    views = (torch.randn(rows, WIDTH, generator=generator), 3 * torch.randn(rows, WIDTH, generator=generator) + 1)
    return Batch(torch.arange(rows), views, torch.arange(rows) % 2)


def test_clean_statistics_move_running_statistics_and_prototypes_but_no_loss_and_no_gradient(noisy: CandidateSets) -> None:
    batch = a_batch()
    methods = [srse(noisy, clean_statistics=clean, mixup=False).train() for clean in (True, False)]
    losses = [method.loss(batch) for method in methods]
    gradients = [torch.autograd.grad(v, list(m.network.parameters())) for v, m in zip(losses, methods, strict=True)]
    assert torch.equal(*losses) and not methods[0].clean_BD.requires_grad
    torch.testing.assert_close(*gradients)
    clean, plain = (dict(method.network.named_buffers()) for method in methods)
    norms = [name for name in clean if name.endswith("running_mean")]
    tracked = [name for name in clean if name.endswith("num_batches_tracked")]
    assert norms and not any(torch.allclose(clean[name], plain[name]) for name in norms)
    assert tracked and {(int(clean[name]), int(plain[name])) for name in tracked} == {(2, 1)}
    for method in methods:
        assert not method.prototype_CD.any()  # the loss changes no state of its own
        method.after_step(batch)
    fresh = srse(noisy).train()
    unit_BD = nn.functional.normalize(fresh.network(batch.views[0]).features, dim=1).detach()
    expected_CD = torch.stack([nn.functional.normalize(unit_BD[batch.target == c].mean(dim=0), dim=0) for c in (0, 1)])
    torch.testing.assert_close(methods[0].prototype_CD[:2], expected_CD, atol=1e-5, rtol=0)
    assert not methods[0].prototype_CD[2].any() and not methods[1].prototype_CD.any()
