from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from _allocations import Allocations
from _slow_labeling import random_problem, slow_beliefs, slow_selection
from pals.pseudo_labels import Labeling, neighbor_weight, pseudo_label, vote
from pals.pseudo_labels.knn import nearest
from pals.pseudo_labels.knn_vote import vote_posterior
from pals.pseudo_labels.reliable_subset import add_confident, agreeing_counts, quota_of, select_reliable, threshold_at
from pals.util.errors import InputError

# The worked example: eight directions in the plane, three classes, two neighbours and the item itself.
ANGLE_N = torch.tensor([0.0, 10, 25, 40, 60, 78, 97, 113]).deg2rad()
FEATURES_ND = torch.stack([ANGLE_N.cos(), ANGLE_N.sin()], dim=1)
SETS = [{0, 1}, {0}, {1, 2}, {0, 2}, {1}, {1, 2}, {0, 1}, {2}]
ALLOWED_NC = torch.tensor([[c in candidates for c in range(3)] for candidates in SETS])
PSEUDO = [0, 0, 2, 2, 1, 1, 1, 2]
BELIEF_NC = torch.tensor(
    [[0.8259, 0, 0.1741], [0.7233, 0, 0.2767], [0.2936, 0, 0.7064], [0, 0.2423, 0.7577], [0, 0.7467, 0.2533], [0, 1, 0],
     [0, 0.6995, 0.3005], [0, 0.4573, 0.5427]]
)  # fmt: skip


def test_worked_example_neighbours_weights_and_vote() -> None:
    index_NK, similarity_NK = nearest(FEATURES_ND, 2)
    assert ["".join(map(str, row)) for row in index_NK.tolist()] == ["012", "102", "213", "324", "453", "546", "675", "765"]
    raw_NK = (similarity_NK / 0.1).exp()
    torch.testing.assert_close(raw_NK[:, 0], torch.full((8,), 22026.5), atol=0.2, rtol=0)
    torch.testing.assert_close(raw_NK[0], torch.tensor([22026.47, 18921.93, 8630.68]), atol=0.1, rtol=0)
    vote_C = vote(index_NK, raw_NK, ALLOWED_NC)[0]
    torch.testing.assert_close(vote_C, torch.tensor([40948.4, 30657.1, 8630.7]), atol=0.2, rtol=0)
    weight_NK = neighbor_weight(similarity_NK)
    torch.testing.assert_close(weight_NK, raw_NK / raw_NK.sum(dim=1, keepdim=True))
    assert vote(index_NK, weight_NK, ALLOWED_NC).argmax(dim=1).tolist() == PSEUDO
    torch.testing.assert_close(vote_posterior(index_NK, weight_NK, torch.tensor(PSEUDO), 3), BELIEF_NC, atol=6e-5, rtol=0)
    assert agreeing_counts(BELIEF_NC, ALLOWED_NC).tolist() == [2, 3, 3]


@pytest.mark.parametrize(
    ("quantile", "quota", "label"),
    [*((share, 2, [0, 0, 2, 2, 1, 1, -1, -1]) for share in (0.25, 0.0)), *((share, 3, PSEUDO) for share in (0.5, 0.75, 1.0))],
)
def test_worked_example_selection(quantile: float, quota: int, label: list[int]) -> None:
    found = pseudo_label(FEATURES_ND, ALLOWED_NC, neighbors=2, quantile=quantile)
    assert found.pseudo_N.tolist() == PSEUDO
    torch.testing.assert_close(found.posterior_NC, BELIEF_NC, atol=6e-5, rtol=0)
    assert found.quota == quota and found.label_N.tolist() == label
    assert found.selected_N.tolist() == [c >= 0 for c in label]
    assert (found.pseudo_N.dtype, found.posterior_NC.dtype) == (torch.int64, torch.float32)
    assert (found.selected_N.dtype, found.label_N.dtype) == (torch.bool, torch.int64)


def test_thresholds_fall_in_a_line() -> None:
    assert threshold_at(1, 500) is None
    for epoch, expected in ((2, 0.4497996), (250, 0.4001002), (500, 0.35)):
        assert threshold_at(epoch, 500) == pytest.approx(expected, abs=1e-7)
    assert threshold_at(1, 500, first=1) == 0.45 and threshold_at(1, 1, first=1) == 0.45
    assert threshold_at(1, 1) is None and threshold_at(5, 5, high=0.9, low=0.1, first=6) is None


@pytest.mark.parametrize(
    ("counts", "quantile", "quota"),
    [
        ([1, 2, 3, 4], 0.25, 1),  # 1.75 rounded down
        ([1, 2, 3, 4], 0.5, 2),
        ([1, 2, 7, 8], 0.5, 2),  # the lower median, not 4.5 rounded down
        ([4, 1, 3, 2], 0.75, 3),
        ([7, 9, 5], 0.0, 5),
        ([7, 9, 5], 1.0, 9),
        (list(range(101)), 0.29, 29),  # 0.29 * 100 is a little less than 29 in floats
        ([0, 0, 0, 6], 0.25, 1),  # never nothing
        ([8], 0.25, 8),
    ],
)
def test_quota(counts: list[int], quantile: float, quota: int) -> None:
    assert quota_of(torch.tensor(counts), quantile) == quota


@pytest.mark.parametrize("weighting", ["exp", "cosine"])
@pytest.mark.parametrize("vote_on", ["pseudo", "candidates"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("crowd", [False, True])
@pytest.mark.parametrize("confident", [False, True])
def test_the_whole_step_equals_the_slow_one(
    weighting: str, vote_on: str, include_self: bool, crowd: bool, confident: bool
) -> None:
    for seed, (quantile, items, classes) in enumerate([(0.25, 40, 5), (0.5, 30, 3), (0.8, 40, 5), (0.0, 9, 1), (1.0, 8, 6)]):
        features_ND, allowed_NC, prior_NC, predicted_NC = random_problem(seed, items, classes)
        options: dict[str, Any] = {"weighting": weighting, "vote_on": vote_on, "include_self": include_self}
        options |= {"neighbors": 6, "temperature": 0.2}
        if crowd:
            options["prior_NC"] = prior_NC
        wider_NC = allowed_NC
        if confident:
            for i, row in enumerate(predicted_NC.tolist()):
                if max(row) > 0.45:
                    wider_NC = wider_NC.clone()
                    wider_NC[i, row.index(max(row))] = True
            assert (wider_NC != allowed_NC).any() or items < 30
        pseudo, beliefs = slow_beliefs(features_ND, wider_NC, options)
        if confident:
            options |= {"predicted_NC": predicted_NC, "threshold": 0.45}
        found = pseudo_label(features_ND, allowed_NC, quantile=quantile, **options)
        assert found.pseudo_N.tolist() == pseudo
        torch.testing.assert_close(found.posterior_NC, torch.tensor(beliefs), atol=1e-5, rtol=0)
        # Beliefs of the fast step, since the order of two that differ by rounding alone is anyone's.
        quota, label = slow_selection(found.posterior_NC.tolist(), wider_NC, quantile)
        assert (found.quota, found.label_N.tolist()) == (quota, label)


def assert_same(found: Labeling, expected: Labeling) -> None:
    torch.testing.assert_close(found.posterior_NC, expected.posterior_NC, atol=1e-6, rtol=1e-5)
    for name in ("pseudo_N", "selected_N", "label_N"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name
    assert found.quota == expected.quota


def test_ties_duplicates_and_pools_left_unfilled() -> None:
    """Ties are filled in order, an item goes where it is believed most, and no outsider fills a pool."""
    posterior_NC = torch.tensor([[0.5], [0.9], [0.5], [0.5], [0.1], [0.5]])
    for quota, chosen in ((1, [1]), (2, [0, 1]), (3, [0, 1, 2]), (5, [0, 1, 2, 3, 5]), (6, [*range(6)]), (99, [*range(6)])):
        selected_N, _ = select_reliable(posterior_NC, torch.ones(6, 1, dtype=torch.bool), quota)
        assert selected_N.nonzero().flatten().tolist() == chosen
    allowed_NC = torch.tensor([[False], [True], [False], [True], [True], [True]])
    assert select_reliable(posterior_NC, allowed_NC, 2)[0].nonzero().flatten().tolist() == [1, 3]
    features_ND = torch.tensor([[1.0, 0.0]] * 6 + [[0.0, 1.0]] * 3)
    allowed_NC = torch.tensor([[True, False]] * 6 + [[False, True]] * 3)
    found = pseudo_label(features_ND, allowed_NC, neighbors=2, quantile=0.0)
    assert found.posterior_NC.tolist() == allowed_NC.float().tolist() and found.quota == 3
    assert found.label_N.tolist() == [0] * 3 + [-1] * 3 + [1] * 3
    allowed_NC = torch.ones(2, 3, dtype=torch.bool)
    selected_N, label_N = select_reliable(torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.45, 0.45]]), allowed_NC, 2)
    assert selected_N.all() and label_N.tolist() == [1, 1]
    allowed_NC = torch.tensor([[True, False], [True, False], [False, True]])
    posterior_NC = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    selected_N, label_N = select_reliable(posterior_NC, allowed_NC, 3)
    assert selected_N.all() and label_N.tolist() == [0, 0, 1]


def test_classes_with_one_candidate_or_none() -> None:
    features_ND, allowed_NC, _, _ = random_problem(0, 12, 4)
    allowed_NC[:, 2:] = False
    allowed_NC[5] = torch.tensor([False, False, True, False])
    allowed_NC[:, 0] |= ~allowed_NC.any(dim=1)
    for quantile in (0.0, 0.5, 1.0):
        found = pseudo_label(features_ND, allowed_NC, neighbors=3, quantile=quantile)
        assert found.label_N[5] == 2 and (found.label_N == 2).sum() == 1 and (found.label_N != 3).all()


def test_a_confident_label_without_votes_may_be_chosen_but_does_not_vote() -> None:
    features_ND = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    allowed_NC = torch.tensor([[True, False, False]] * 2 + [[False, True, False]] * 2)
    predicted_NC = torch.tensor([[0.0, 0.0, 1.0]] + [[0.4, 0.3, 0.3]] * 3)
    options: dict[str, Any] = {"neighbors": 1, "quantile": 1.0, "predicted_NC": predicted_NC, "threshold": 0.5}
    crowd = pseudo_label(features_ND, allowed_NC, prior_NC=allowed_NC.float(), vote_on="candidates", **options)
    assert crowd.posterior_NC[:, 2].tolist() == [0.0] * 4
    plain = pseudo_label(features_ND, allowed_NC, vote_on="candidates", **options)
    assert (plain.posterior_NC[:2, 2] > 0).all()
    # Class 2 has no other candidate, so it takes item 0; class 0 is believed more and keeps it.
    only_NC = torch.tensor([[False, True, False]] * 2 + [[True, False, False]] * 2)
    moved = pseudo_label(features_ND, only_NC, prior_NC=only_NC.float(), **(options | {"quantile": 0.0}))
    assert moved.quota == 1 and moved.label_N.tolist() == [1, -1, 0, -1]


def test_opposite_neighbours_and_very_low_temperatures() -> None:
    features_ND = torch.tensor([[1.0, 0.0], [-1.0, 0.1], [-1.0, -0.1]])
    allowed_NC = torch.eye(3, dtype=torch.bool)
    found = pseudo_label(features_ND, allowed_NC, neighbors=1, include_self=False, weighting="cosine")
    torch.testing.assert_close(found.posterior_NC[0], torch.full((3,), 1 / 3))
    assert found.pseudo_N[1:].tolist() == [2, 1] and found.selected_N.any()
    features_ND, allowed_NC, _, _ = random_problem(3, 30, 4)
    found = pseudo_label(features_ND, allowed_NC, neighbors=4, temperature=1e-3)
    torch.testing.assert_close(found.posterior_NC.sum(dim=1), torch.ones(30))
    assert found.posterior_NC.amax(dim=1).min() > 0.99


def test_candidates_may_be_zeros_and_ones_and_nothing_is_changed() -> None:
    features_ND, allowed_NC, prior_NC, predicted_NC = random_problem(4, 30, 4)
    options: dict[str, Any] = {"prior_NC": prior_NC, "predicted_NC": predicted_NC, "threshold": 0.4, "neighbors": 4}
    given_before = [features_ND.clone(), allowed_NC.clone(), prior_NC.clone(), predicted_NC.clone()]
    expected = pseudo_label(features_ND, allowed_NC, **options)
    for dtype in (torch.int64, torch.uint8, torch.float32):
        assert_same(pseudo_label(features_ND.requires_grad_(), allowed_NC.to(dtype), **options), expected)
    assert all(map(torch.equal, given_before, [features_ND, allowed_NC, prior_NC, predicted_NC]))


def test_memory_grows_with_items_times_classes_plus_neighbours() -> None:
    items, classes, k = 400, 50, 15
    features_ND, allowed_NC, _, predicted_NC = random_problem(5, items, classes)
    index_NK, similarity_NK = nearest(features_ND, k)
    with Allocations() as seen:
        weight_NK = neighbor_weight(similarity_NK)
        wider_NC = add_confident(allowed_NC, predicted_NC, 0.4)
        pseudo_N = vote(index_NK, weight_NK, wider_NC).argmax(dim=1)
        posterior_NC = vote_posterior(index_NK, weight_NK, pseudo_N, classes)
        select_reliable(posterior_NC, wider_NC, quota_of(agreeing_counts(posterior_NC, wider_NC), 0.25))
    assert seen.largest <= 8 * items * max(classes, k + 1)
    assert seen.total < 4 * items * classes * (k + 1)  # all tables ever made: less than one gather of N x K x C


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"allowed_NC": torch.ones(4, 3)}, r"\(4, 3\), features \(5, 2\)"),
        ({"allowed_NC": torch.ones(5)}, r"Candidates \(5,\)"),
        ({"features_ND": torch.ones(())}, r"features \(\)"),
        ({"features_ND": torch.ones(5)}, r"features have shape \(5,\)"),
        ({"features_ND": torch.full((5, 2), float("nan"))}, "Row 0 of the features holds NaN"),
        (
            {"allowed_NC": torch.tensor([[1, 0, 0]] * 2 + [[2, 0, 0]] * 3)},
            "Row 2 of the candidate matrix holds something other",
        ),
        ({"allowed_NC": torch.tensor([[1.0, 0, 0]] * 4 + [[math.nan, 1, 0]])}, "Row 4 of the candidate matrix holds something"),
        ({"allowed_NC": torch.tensor([[1, 0, 0]] + [[0, 0, 0]] * 4)}, "Row 1 of the candidate matrix is empty"),
        ({"prior_NC": torch.ones(5, 2)}, r"vote frequencies \(5, 2\)"),
        ({"prior_NC": -torch.ones(5, 3)}, "Row 0 of the vote frequencies"),
        ({"predicted_NC": torch.full((5, 3), math.nan), "threshold": 0.4}, "Row 0 of the predictions holds NaN"),
        ({"predicted_NC": torch.ones(5, 3)}, "predicted_NC and threshold together"),
        ({"threshold": 0.4}, "predicted_NC and threshold together"),
        ({"neighbors": 5}, "5 items have 4 others"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"quantile": 1.5}, "quantile is 1.5"),
        ({"weighting": "cosin"}, "did you mean 'cosine'"),
        ({"vote_on": "candidate"}, "did you mean 'candidates'"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"features_ND": torch.ones(5, 2), "allowed_NC": torch.ones(5, 3), "neighbors": 2}
    pseudo_label(**good)
    with pytest.raises(InputError, match=message):
        pseudo_label(**(good | changes))


@pytest.mark.gpu
def test_the_gpu_labels_alike_and_the_same_each_time() -> None:
    features_ND, allowed_NC, prior_NC, predicted_NC = random_problem(6, 3000, 20)
    options: dict[str, Any] = {"prior_NC": prior_NC, "predicted_NC": predicted_NC, "threshold": 0.4}
    on_cpu = pseudo_label(features_ND, allowed_NC, **options)
    torch.use_deterministic_algorithms(True)
    try:
        first, second = (pseudo_label(features_ND.to("cuda"), allowed_NC, **options) for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    assert first.label_N.is_cuda and torch.equal(first.posterior_NC, second.posterior_NC)
    assert torch.equal(first.label_N, second.label_N)
    parts = (first.pseudo_N, first.posterior_NC, first.selected_N, first.label_N)
    assert_same(Labeling(*(part.cpu() for part in parts), first.quota), on_cpu)
