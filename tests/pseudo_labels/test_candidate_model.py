"""How much an item's own candidates count: the noise, estimated from neighbours' votes and candidate sets alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pals.labels.candidates import Truth
from pals.labels.noise import make_candidates
from pals.pseudo_labels import nearest, neighbor_weight, pseudo_label, vote
from pals.pseudo_labels.candidate_model import MAX_SELF_WEIGHT, CandidateModel, fit_candidate_model
from pals.pseudo_labels.reliable_subset import likeliest_neighbors
from pals.util.errors import InputError
from pals.util.even_sample import evenly_spaced

SMALL: dict[str, Any] = {"weighting": "local", "self_weight": "auto", "vote_on": "posterior", "quantile": "all"}


def problem(partial: float, noise: float, *, items: int = 600, spread: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Features of five classes whose neighbours are little alike (cosines about one half), candidates, truth."""
    generator = torch.Generator().manual_seed(3)
    truth_N = torch.arange(items) % 5
    center_CD = torch.randn(5, 40, generator=generator)
    features_ND = center_CD[truth_N] + spread * torch.randn(items, 40, generator=generator)
    sets = make_candidates(Truth.of(truth_N.numpy()), partial_rate=partial, noise_rate=noise, generator=generator)
    return features_ND, sets.candidates.allowed_NC, truth_N


def right(label_N: Tensor, truth_N: Tensor) -> float:
    return float((label_N == truth_N).double().mean())


def left_out_votes(features_ND: Tensor, allowed_NC: Tensor) -> Tensor:
    near = nearest(features_ND, 20, include_self=False)
    return vote(near.index_NK, neighbor_weight(near.similarity_NK, "local"), allowed_NC)


@pytest.mark.parametrize(("partial", "noise"), [(0.2, 0.3), (0.4, 0.2), (0.5, 0.3)])
def test_the_rates_are_found_without_the_truth(partial: float, noise: float) -> None:
    """Those that the sets were drawn with: of 0.3 and 0.2, a fifth of the sets lack the true label when none is empty."""
    features_ND, allowed_NC, _ = problem(partial, noise, items=2000)
    found = fit_candidate_model(left_out_votes(features_ND, allowed_NC), allowed_NC)
    assert found.noise_rate == pytest.approx(noise, abs=0.04)
    assert found.partial_rate_C.tolist() == pytest.approx([partial] * 5, abs=0.08)
    common = fit_candidate_model(left_out_votes(features_ND, allowed_NC), allowed_NC, by_class=False)
    assert common.noise_rate == pytest.approx(noise, abs=0.04)
    assert common.partial_rate_C.tolist() == pytest.approx([partial] * 5, abs=0.04)


def named_with_everything(items: int = 1500) -> tuple[Tensor, Tensor, Tensor]:
    """As `problem`, without noise; but class 0 is in half of the sets of others, class 4 in hardly any, as birds are in
    recordings."""
    features_ND, _, truth_N = problem(0.0, 0.0, items=items, spread=3.0)
    rate_C = torch.tensor([0.5, 0.3, 0.1, 0.1, 0.02])
    drawn_NC = torch.rand(items, 5, generator=torch.Generator().manual_seed(4)) < rate_C
    return features_ND, drawn_NC | (truth_N[:, None] == torch.arange(5)), truth_N


def test_classes_that_are_named_with_everything_or_hardly_ever() -> None:
    features_ND, allowed_NC, truth_N = named_with_everything()
    vote_NC = left_out_votes(features_ND, allowed_NC)
    own, common = (fit_candidate_model(vote_NC, allowed_NC, by_class=by_class) for by_class in (True, False))
    assert own.partial_rate_C.tolist() == pytest.approx([0.5, 0.3, 0.1, 0.1, 0.02], abs=0.09)
    assert own.log_likelihood > common.log_likelihood + 0.1
    labels = [model.posterior(vote_NC, allowed_NC).argmax(dim=1) for model in (own, common)]
    assert right(labels[0], truth_N) > right(labels[1], truth_N) + 0.05
    # a class named once, by an item whose neighbours name it: its rate would be 0, and to be named the proof
    features_ND, allowed_NC, _ = problem(0.3, 0.0, items=200)
    allowed_NC = torch.cat([allowed_NC, torch.zeros(200, 1, dtype=torch.bool)], dim=1)
    allowed_NC[7, 5] = True
    found = fit_candidate_model(left_out_votes(features_ND, allowed_NC), allowed_NC)
    assert 1e-3 < float(found.partial_rate_C[5]) < 0.05


@pytest.mark.parametrize("by_class", [True, False])
def test_likelihood_and_posterior_by_a_slow_loop(by_class: bool) -> None:
    features_ND, allowed_NC, _ = problem(0.3, 0.2, items=30, spread=2.0)
    vote_NC = left_out_votes(features_ND, allowed_NC)
    found = fit_candidate_model(vote_NC, allowed_NC, by_class=by_class)
    b, eta, q_C, total = found.sharpness, found.noise_rate, found.partial_rate_C.tolist(), 0.0
    assert (len(set(q_C)) > 1) == by_class
    posterior_NC = found.posterior(vote_NC, allowed_NC)
    for i in range(30):
        exps = [math.exp(b * float(v)) for v in vote_NC[i]]
        joint = []
        for c in range(5):
            chance = exps[c] / sum(exps) * ((1 - eta) if allowed_NC[i, c] else eta)
            empty = eta
            for other in range(5):
                if other != c:
                    chance *= q_C[other] if allowed_NC[i, other] else 1 - q_C[other]
                    empty *= 1 - q_C[other]
            joint.append(chance / (1 - empty))  # no set is empty
        total += math.log(sum(joint)) / 30
        assert posterior_NC[i].tolist() == pytest.approx([chance / sum(joint) for chance in joint], rel=1e-4)
    assert found.log_likelihood == pytest.approx(total, rel=1e-5)


def test_own_weight_is_the_odds_in_units_of_the_sharpness() -> None:
    def model(sharpness: float, noise_rate: float, *partial: float) -> CandidateModel:
        return CandidateModel(sharpness, noise_rate, torch.tensor(partial, dtype=torch.float64), 0.0)

    odds = [math.log(0.8 * (1 - q) / (0.2 * q)) for q in (0.25, 0.1)]
    assert model(8.0, 0.2, 0.25, 0.25).self_weight == pytest.approx(odds[0] / 8)
    assert model(8.0, 0.2, 0.25, 0.1).self_weight == pytest.approx(sum(odds) / 16)
    assert model(8.0, 0.7, 0.5, 0.5).self_weight == 0.0  # a class is a candidate less often if it is the true one
    assert model(1e-3, 1e-3, 0.1, 0.1).self_weight == MAX_SELF_WEIGHT
    often = model(8.0, 0.2, 0.9, 0.1)  # to be named says nothing for the first
    level_NC = torch.full((2, 2), 0.5)
    said_NC = often.posterior(level_NC, torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    assert said_NC[0].tolist() == pytest.approx(said_NC[1].tolist())


def test_a_sample_says_the_same_as_all(monkeypatch: pytest.MonkeyPatch) -> None:
    features_ND, allowed_NC, _ = problem(0.3, 0.2, items=900)
    vote_NC = left_out_votes(features_ND, allowed_NC)
    monkeypatch.setattr("pals.pseudo_labels.candidate_model.MAX_MODEL_ITEMS", 300)
    row_M = evenly_spaced(900, 300)
    sample, alone = fit_candidate_model(vote_NC, allowed_NC), fit_candidate_model(vote_NC[row_M], allowed_NC[row_M])
    assert (sample.sharpness, sample.noise_rate, sample.log_likelihood) == (
        alone.sharpness, alone.noise_rate, alone.log_likelihood
    )  # fmt: skip
    assert torch.equal(sample.partial_rate_C, alone.partial_rate_C)


@pytest.mark.parametrize(("partial", "noise", "gain"), [(0.1, 0.05, -0.005), (0.3, 0.3, 0.2), (0.5, 0.3, 0.2)])
def test_on_features_little_alike_the_own_set_counts_as_it_should(partial: float, noise: float, gain: float) -> None:
    """The official kernel lets the item outvote its neighbours, which is right only where there is hardly any noise."""
    features_ND, allowed_NC, truth_N = problem(partial, noise)
    official = pseudo_label(features_ND, allowed_NC)
    auto = pseudo_label(features_ND, allowed_NC, weighting="local", self_weight="auto")
    soft = pseudo_label(features_ND, allowed_NC, neighbors="auto", **SMALL)
    before = right(official.posterior_NC.argmax(dim=1), truth_N)
    assert right(auto.posterior_NC.argmax(dim=1), truth_N) > before + gain
    assert right(soft.posterior_NC.argmax(dim=1), truth_N) > before + gain
    torch.testing.assert_close(soft.posterior_NC.sum(dim=1), torch.ones(len(truth_N)))


def test_local_weights() -> None:
    similarity_NK = torch.tensor([[0.9, 0.8, 0.7], [0.5, 0.45, 0.4], [0.3, 0.3, 0.3]])
    weight_NK = neighbor_weight(similarity_NK, "local")
    torch.testing.assert_close(weight_NK[0], weight_NK[1])
    assert float(weight_NK[0, 0] / weight_NK[0, -1]) == pytest.approx(math.e, rel=1e-5)
    assert weight_NK[2].tolist() == pytest.approx([1 / 3] * 3)
    features_ND, allowed_NC, _ = problem(0.4, 0.2, items=60)
    near = nearest(features_ND, 5, include_self=False)
    weight_NK = neighbor_weight(near.similarity_NK, "local")
    score_NC = vote(near.index_NK, weight_NK, allowed_NC) + weight_NK[:, :1] * allowed_NC
    found = pseudo_label(features_ND, allowed_NC, neighbors=5, weighting="local", vote_on="candidates")
    torch.testing.assert_close(found.posterior_NC, score_NC / score_NC.sum(dim=1, keepdim=True))


@pytest.mark.parametrize("own", [0.0, 0.4, 5.0])
def test_a_self_weight_counts_beside_neighbours_that_count_one(own: float) -> None:
    features_ND, allowed_NC, _ = problem(0.4, 0.2, items=60)
    near = nearest(features_ND, 5, include_self=False)
    weight_NK = neighbor_weight(near.similarity_NK)
    score_NC = vote(near.index_NK, weight_NK, allowed_NC) + own * allowed_NC
    found = pseudo_label(features_ND, allowed_NC, neighbors=5, self_weight=own, vote_on="candidates")
    torch.testing.assert_close(found.posterior_NC, score_NC / score_NC.sum(dim=1, keepdim=True))
    scaled = pseudo_label(features_ND, allowed_NC, neighbors=5, self_weight=own, weighting="cosine", vote_on="candidates")
    cosine_NK = near.similarity_NK.relu()
    score_NC = vote(near.index_NK, cosine_NK / cosine_NK.sum(dim=1, keepdim=True), allowed_NC) + own * allowed_NC
    torch.testing.assert_close(scaled.posterior_NC, score_NC / score_NC.sum(dim=1, keepdim=True))


def test_more_noise_asks_for_more_neighbours() -> None:
    found = []
    for partial, noise in [(0.1, 0.0), (0.6, 0.3)]:
        features_ND, allowed_NC, _ = problem(partial, noise, spread=1.5)
        found.append(likeliest_neighbors(features_ND, allowed_NC, allowed_NC.float()))
    assert found[0] < found[1]
    few_ND, few_NC, _ = problem(0.3, 0.1, items=4)
    assert likeliest_neighbors(few_ND, few_NC, few_NC.float()) == 3


def test_without_a_quota_those_are_chosen_who_agree() -> None:
    features_ND, allowed_NC, _ = problem(0.4, 0.3)
    found = pseudo_label(features_ND, allowed_NC, **SMALL)
    best_N = found.posterior_NC.argmax(dim=1)
    agrees_N = allowed_NC[torch.arange(len(best_N)), best_N]
    assert 0 < agrees_N.sum() < len(best_N) and torch.equal(found.selected_N, agrees_N)
    assert torch.equal(found.label_N, torch.where(agrees_N, best_N, -1))
    features_ND, allowed_NC, truth_N = problem(0.3, 0.0)
    predicted_NC = torch.nn.functional.one_hot((truth_N + 1) % 5, 5).float()
    found = pseudo_label(features_ND, allowed_NC, predicted_NC=predicted_NC, threshold=0.5, **SMALL)
    assert right(found.label_N, truth_N) > 0.95


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"self_weight": -1.0}, "The self_weight is -1.0"),
        ({"self_weight": math.inf}, "The self_weight is inf"),
        ({"self_weight": "much"}, "must be 'kernel', 'auto' or a number"),
        ({"quantile": "most"}, "or be 'all'"),
        ({"vote_on": "posterior"}, "set self_weight='auto'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    features_ND, allowed_NC, _ = problem(0.3, 0.1, items=20)
    with pytest.raises(InputError, match=message):
        pseudo_label(features_ND, allowed_NC, neighbors=3, **options)
