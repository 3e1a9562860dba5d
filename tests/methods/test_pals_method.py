"""PALS on the common interface: every switch, the presets, and the loss against a hand-written loop."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from _context import Offered
from _toy import run_all, small_network, toy_candidates, toy_data, toy_trainer
from pals.data.dataset import Dataset
from pals.labels.candidates import CandidateSets
from pals.methods import Batch, Problem, find_method, method_options
from pals.methods.pals import PALS
from pals.pseudo_labels import pseudo_label
from pals.pseudo_labels.reliable_subset import likeliest_neighbors
from pals.util.errors import InputError
from pals.vision.networks import Network


class StubContext(Offered):
    """For PALS, which asks for features and probabilities."""

    def features(self, network: nn.Module | None = None) -> Tensor:
        self.asked.append("features")
        return self.features_ND


def context(candidates: CandidateSets, **values: Any) -> StubContext:
    """Half-clustered random features and confident random predictions."""
    generator = torch.Generator().manual_seed(11)
    features_ND = torch.randn(len(candidates), 4, generator=generator)
    predicted_NC = torch.randn(len(candidates), candidates.num_classes, generator=generator).mul(3).softmax(dim=1)
    return StubContext(features_ND, predicted_NC, **values)


def pals(candidates: CandidateSets, **options: Any) -> PALS:
    return made("pals", candidates, **options)


def made(name: str, candidates: CandidateSets, **options: Any) -> Any:
    problem = Problem(candidates, small_network(candidates.num_classes, seed=1))
    return find_method(name)(method_options(name, {"neighbors": 5, **options}), problem)


PASSED: list[dict[str, Any]] = [
    {"neighbors": 3}, {"include_self": False}, {"weighting": "cosine"}, {"temperature": 1.0}, {"vote_on": "candidates"},
    {"weighting": "local"}, {"self_weight": 0.3}, {"self_weight": "auto"}, {"self_weight": "auto", "vote_on": "posterior"},
    {"neighbors": "auto"},
]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "call"),
    [
        *(({"delta": share}, {"quantile": share}) for share in (1.0, "all")),
        *((option, option) for option in PASSED),
    ],
    ids=str,
)
def test_labelling_options_reach_the_labelling(options: dict[str, Any], call: dict[str, Any], noisy: CandidateSets) -> None:
    """The plan with the option is the labelling with its argument, and not the plan without it."""
    ctx = context(noisy)
    method = pals(noisy, **options)
    method.plan_epoch(ctx)
    found = method.labeling
    assert found is not None
    expected = pseudo_label(ctx.features_ND, noisy.allowed_NC, **{"neighbors": 5, **call})
    usual = pseudo_label(ctx.features_ND, noisy.allowed_NC, neighbors=5)
    assert torch.equal(found.posterior_NC, expected.posterior_NC) and torch.equal(found.label_N, expected.label_N)
    assert not (torch.equal(found.posterior_NC, usual.posterior_NC) and torch.equal(found.label_N, usual.label_N))


def test_the_number_of_neighbours_is_found_once_and_kept(noisy: CandidateSets) -> None:
    """With the features of the first epoch; a run that goes on has it from its state, and nobody else has such a state."""
    ctx = context(noisy)
    method = pals(noisy, neighbors="auto")
    method.plan_epoch(ctx)
    found = likeliest_neighbors(ctx.features_ND, noisy.allowed_NC, noisy.allowed_NC.float())
    assert method.statistics()["neighbors"] == found
    resumed = pals(noisy, neighbors="auto")
    resumed.load_state_dict({**method.state_dict(), "found_neighbors": torch.tensor(7)})
    resumed.plan_epoch(ctx)
    expected = pseudo_label(ctx.features_ND, noisy.allowed_NC, neighbors=7)
    assert torch.equal(resumed.labeling.posterior_NC, expected.posterior_NC)
    assert "found_neighbors" not in pals(noisy).state_dict()
    with pytest.raises(InputError, match="leave it out"):
        pals(noisy, neighbors="auto", neighbors_start=9)


def test_people_who_disagree_weigh_in_the_posterior(noisy: CandidateSets) -> None:
    """Of two candidates the one that more people named is the likelier."""
    allowed_NC = torch.tensor([[True, True, False]]).repeat(40, 1)
    share_NC = torch.tensor([[0.75, 0.25, 0.0]]).repeat(40, 1)
    features_ND = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    options: dict[str, Any] = {"neighbors": 5, "self_weight": "auto", "vote_on": "posterior"}
    plain = pseudo_label(features_ND, allowed_NC, **options).posterior_NC
    counted = pseudo_label(features_ND, allowed_NC, prior_NC=share_NC, **options).posterior_NC
    torch.testing.assert_close(plain[:, 0], plain[:, 1])
    assert (counted[:, 0] > counted[:, 1] + 0.1).all()


def test_vote_frequencies_are_used_unless_switched_off(noisy: CandidateSets) -> None:
    share_NC = noisy.allowed_NC * torch.tensor([1.0, 5.0, 20.0])
    counted = replace(noisy, frequency_NC=share_NC / share_NC.sum(dim=1, keepdim=True))
    beliefs = []
    for use in (True, False):
        method = pals(counted, use_frequencies=use)
        method.plan_epoch(context(counted))
        beliefs.append(method.posterior())
        assert ("prior_NC" in method.state_dict()) == use
    ctx = context(counted)
    with_share = pseudo_label(ctx.features_ND, noisy.allowed_NC, neighbors=5, prior_NC=counted.frequency_NC)
    assert torch.equal(beliefs[0], with_share.posterior_NC)
    assert torch.equal(beliefs[1], pseudo_label(ctx.features_ND, noisy.allowed_NC, neighbors=5).posterior_NC)
    assert not torch.equal(*beliefs)


def test_predictions_join_from_the_epoch_named_on(noisy: CandidateSets) -> None:
    """Before that the probabilities are not even asked for, so nobody pays for them."""
    for first, epoch, asked in [(2, 1, []), (2, 2, ["eval"]), (4, 3, []), (4, 4, ["eval"]), (1, 1, ["eval"])]:
        ctx = context(noisy, epoch=epoch)
        pals(noisy, confident_from=first).plan_epoch(ctx)
        assert ctx.asked == ["features", *asked]
    ctx = context(noisy, epoch=2)
    pals(noisy, confident_view="weak").plan_epoch(ctx)
    assert ctx.asked == ["features", "weak"]
    method = pals(noisy)
    method.plan_epoch(context(noisy, epoch=3))
    assert torch.equal(method.allowed_NC, noisy.allowed_NC)


def test_the_threshold_falls_and_one_turns_it_off(noisy: CandidateSets) -> None:
    """At epoch 6 of 11 the threshold is half-way, at 0.40."""
    ctx = context(noisy, epoch=6)
    method = pals(noisy)
    method.plan_epoch(ctx)
    expected = pseudo_label(ctx.features_ND, noisy.allowed_NC, neighbors=5, predicted_NC=ctx.predicted_NC, threshold=0.40)
    assert torch.equal(method.labeling.posterior_NC, expected.posterior_NC)
    off = pals(noisy, threshold_high=1.0, threshold_low=1.0)
    off.plan_epoch(context(noisy, epoch=6))
    plain = pseudo_label(ctx.features_ND, noisy.allowed_NC, neighbors=5)
    assert torch.equal(off.labeling.posterior_NC, plain.posterior_NC)
    assert not torch.equal(plain.posterior_NC, expected.posterior_NC)


def test_draws_of_an_epoch(noisy: CandidateSets) -> None:
    method = pals(noisy)
    plan = method.plan_epoch(context(noisy))
    order_M = plan.groups["main"].order_M
    selected_N = method.labeling.selected_N
    assert 0 < int(selected_N.sum()) < len(noisy) and len(order_M) == len(noisy) and selected_N[order_M].all()
    assert len(order_M.unique()) < len(order_M)
    method = pals(noisy, draws="once")
    plan = method.plan_epoch(context(noisy))
    order_M = plan.groups["main"].order_M
    assert order_M.sort().values.tolist() == method.labeling.selected_N.nonzero().flatten().tolist()
    assert order_M.tolist() != sorted(order_M.tolist())
    assert torch.equal(plan.groups["main"].target, method.labeling.label_N)
    assert (plan.groups["main"].target[order_M] >= 0).all()


class Linear(Network):
    """A network whose logits are easy to follow."""

    def __init__(self, matrix_DC: Tensor) -> None:
        super().__init__()
        self.classifier = nn.Linear(*matrix_DC.shape, bias=False)
        self.classifier.weight = nn.Parameter(matrix_DC.T.contiguous())

    def encode(self, x: Tensor) -> Tensor:
        return x


def test_the_log_says_what_was_selected(toy: Dataset) -> None:
    trainer = toy_trainer("pals", toy)
    for record in trainer.epochs():
        labeling = trainer.method.labeling
        right_N = labeling.selected_N & (labeling.label_N == toy.truth.label_N)
        assert record["selected"] == int(labeling.selected_N.sum())
        assert record["correct"] == int(right_N.sum()) and record["quota"] == labeling.quota


def test_learns_better_than_the_average() -> None:
    """With a quarter of the true labels missing PALS gets nearly everything right and the plain average does not."""
    data = toy_data(items=180)
    noisy = toy_candidates(data, eta=0.3)
    last = {name: run_all(toy_trainer(name, data, noisy, train={"epochs": 12}))[-1] for name in ("pals", "average")}
    assert last["pals"]["test_accuracy"] >= 0.95 and last["pals"]["test_accuracy"] > last["average"]["test_accuracy"]


def slow_sum(weights: list[float], rows: list[list[float]]) -> list[float]:
    return [sum(w * row[c] for w, row in zip(weights, rows, strict=True)) for c in range(len(rows[0]))]


def slow_loss(x: Tensor, labels: list[int], w: float, uniform: list[float], matrix: Tensor, r: float) -> float:
    """Of one view: mix-up of inputs and of smoothed one-hot targets, one number at a time."""
    partner = sorted(range(len(labels)), key=lambda i: uniform[i])
    target = [[(1 - r) * (c == label) + r / matrix.shape[1] for c in range(matrix.shape[1])] for label in labels]
    losses = []
    for i, j in enumerate(partner):
        z = slow_sum([w, 1 - w], [slow_sum(x[k].tolist(), matrix.tolist()) for k in (i, j)])
        total = math.log(sum(math.exp(value) for value in z))
        mixed = slow_sum([w, 1 - w], [target[i], target[j]])
        losses.append(sum(t * (total - value) for t, value in zip(mixed, z, strict=True)))
    return sum(losses) / len(losses)


@pytest.mark.parametrize(("name", "view_loss"), [("pals", "mean"), ("pals", "sum"), ("srse", "mean")])
@pytest.mark.parametrize("smoothing", [0.0, 0.5])
@pytest.mark.parametrize("mixup", [True, False])
def test_loss_against_a_slow_loop(name: str, view_loss: str, smoothing: float, mixup: bool, noisy: CandidateSets) -> None:
    generator = torch.Generator().manual_seed(2)
    matrix = torch.randn(6, 3, generator=generator)
    views = [torch.randn(5, 6, generator=generator) for _ in range(2)]
    labels, chosen = [0, 2, 1, 1, 0], {"view_loss": view_loss} if name == "pals" else {}
    method = made(name, noisy, smoothing=smoothing, mixup=mixup, **chosen)
    method.network = Linear(matrix)
    ctx = context(noisy, batch_size=8)  # larger than the batch: the last one of an epoch may be short
    random = {name: values[0] for name, values in method.random_inputs(ctx, 1).items()}
    loss = method.loss(Batch(torch.arange(5), tuple(views), torch.tensor(labels), random))
    weights = random["weight"].tolist() if mixup else [1.0, 1.0]
    uniform = random["uniform"][:, :5].tolist() if mixup else [[0, 1, 2, 3, 4]] * 2
    parts = [slow_loss(x, labels, w, u, matrix, smoothing) for x, w, u in zip(views, weights, uniform, strict=True)]
    assert loss.item() == pytest.approx(sum(parts) / (2 if view_loss == "mean" else 1), rel=1e-5)
    assert parts[0] != pytest.approx(parts[1], rel=1e-2)


@pytest.mark.parametrize("name", ["pals", "srse"])
def test_ways_through_the_network(name: str, noisy: CandidateSets) -> None:
    """Together and separately are the same; joined is one batch of both views with common statistics, another loss."""
    generator = torch.Generator().manual_seed(2)
    views = (torch.randn(9, 6, generator=generator), 3 * torch.randn(9, 6, generator=generator) + 1)
    batch = Batch(torch.arange(9), views, torch.arange(9) % 2)
    ways = ("together", "separate", "joined") if name == "pals" else ("together", "joined")
    method = {way: made(name, noisy, view_pass=way, mixup=False, smoothing=0.0).train() for way in ways}
    loss = {way: m.loss(batch).item() for way, m in method.items()}
    assert abs(loss["joined"] - loss["together"]) > 1e-3
    logits = made(name, noisy).train().network(torch.cat(views)).logits
    assert loss["joined"] == pytest.approx(nn.functional.cross_entropy(logits, batch.target.repeat(2)).item(), rel=1e-5)
    if name == "pals":
        assert loss["together"] == pytest.approx(loss["separate"], rel=1e-6)
        torch.testing.assert_close(method["together"].state_dict(), method["separate"].state_dict())
