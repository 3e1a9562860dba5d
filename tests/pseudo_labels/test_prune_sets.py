"""CLSP: the check values of its sheet, a slow loop beside the tables, and what must hold of any sets and features."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from _allocations import Allocations
from pals.pseudo_labels import vote
from pals.pseudo_labels.prune_sets import down_vote_threshold, max_neighbors, prune, prune_by_neighbors
from pals.util.errors import InputError

SETS = [{0, 1, 2, 3}, {0, 3}, {0, 1}, {1, 3}, {2}]
ALLOWED_NC = torch.tensor([[c in labels for c in range(5)] for labels in SETS])
INDEX_NK = torch.tensor([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2], [0, 1, 2]])
AGAINST = [[1, 1, 3, 1, 0], [1, 0, 0, 1, 0], [1, 1, 0, 0, 0], [0, 1, 0, 1, 0], [0, 0, 2, 0, 0]]


def sets_of(allowed_NC: Tensor) -> list[set[int]]:
    return [set(row.nonzero().flatten().tolist()) for row in allowed_NC]


def test_down_votes_of_the_sheet() -> None:
    against_NC = (3 - vote(INDEX_NK, torch.ones(5, 3), ALLOWED_NC)) * ALLOWED_NC
    assert against_NC.tolist() == AGAINST
    assert down_vote_threshold(against_NC, ALLOWED_NC.sum(dim=1), 0.2).tolist() == [1, 1, 1, 1, 2]
    assert down_vote_threshold(against_NC, ALLOWED_NC.sum(dim=1), 0.6).tolist() == [1, 1, 1, 1, 2]


@pytest.mark.parametrize("tau", [0.2, 0.6])
def test_only_the_label_that_no_neighbour_lists_goes(tau: float) -> None:
    """With 0.6 two might go, but the next three are level: ties protect."""
    assert sets_of(prune_by_neighbors(ALLOWED_NC, INDEX_NK, tau)) == [{0, 1, 3}, *SETS[1:]]


@pytest.mark.parametrize(
    ("size", "tau", "goes"), [(31, 0.1, 3), (6, 0.2, 1), (6, 0.6, 3), (6, 0.61, 4), (6, 0.0, 0), (6, 1.0, 5), (1, 1.0, 0)]
)
def test_how_many_may_go(size: int, tau: float, goes: int) -> None:
    """All down-votes differ, so as many go as may."""
    against_NC = torch.arange(40.0, 0.0, -1).where(torch.arange(40) < size, 0.0)[None]
    assert int((against_NC > down_vote_threshold(against_NC, torch.tensor([size]), tau)[:, None]).sum()) == goes


def slow_prune(allowed: list[set[int]], index: list[list[int]], classes: int, tau: float, spare: bool) -> list[set[int]]:
    kept = []
    for own, found in zip(allowed, index, strict=True):
        against = [sum(c not in allowed[j] for j in found) if c in own else 0 for c in range(classes)]
        listed = [sum(c in allowed[j] for j in found) for c in range(classes)]
        level = sorted(against, reverse=True)[math.ceil(round(tau * (len(own) - 1), 9))]
        outside = spare and max(listed) > max(listed[c] for c in own)
        kept.append(set(own) if outside else {c for c in own if against[c] <= level})
    return kept


def random_problem(seed: int, items: int = 40, classes: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    allowed_NC = torch.rand(items, classes, generator=generator) < 0.45
    allowed_NC[torch.arange(items), torch.randint(classes, (items,), generator=generator)] = True
    return allowed_NC, torch.randn(items, 4, generator=generator)


@pytest.mark.parametrize("spare", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_against_a_slow_loop(seed: int, spare: bool) -> None:
    allowed_NC, features_ND = random_problem(seed, *((40, 6), (9, 2))[seed % 2])
    unit_ND = torch.nn.functional.normalize(features_ND.double(), dim=1)
    distance_NN = torch.cdist(unit_ND, unit_ND).fill_diagonal_(torch.inf)
    index = distance_NN.argsort(dim=1)[:, :7].tolist()
    for tau in (0.1, 0.3, 0.6, 1.0):
        found_NC = prune(allowed_NC, features_ND, tau=tau, neighbors=7, class_share=None, spare=spare)
        assert sets_of(found_NC) == slow_prune(sets_of(allowed_NC), index, allowed_NC.shape[1], tau, spare)


def test_identical_sets_lose_nothing() -> None:
    allowed_NC = torch.tensor([[True, True, False, True]]).expand(30, 4)
    assert torch.equal(prune(allowed_NC, torch.randn(30, 3), tau=1.0), allowed_NC)


def test_an_item_is_never_its_own_neighbour_even_among_duplicates() -> None:
    """Four items in one place: each is judged by the three others, whichever the search finds first."""
    allowed_NC = torch.tensor([[True, True], [True, False], [True, False], [True, False]])
    found_NC = prune(allowed_NC, torch.ones(4, 2), tau=1.0, neighbors=3, class_share=None)
    assert found_NC.tolist() == [[True, False]] * 4


def test_a_set_that_the_neighbours_contradict_is_spared() -> None:
    """Three neighbours say 0; the item has 1 and 2, of which one neighbour lists 1 as well."""
    allowed_NC = torch.tensor([[False, True, True], [True, True, False], [True, False, False], [True, False, False]])
    index_NK = torch.tensor([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]])
    assert sets_of(prune_by_neighbors(allowed_NC, index_NK, 1.0, spare=False))[0] == {1}
    assert sets_of(prune_by_neighbors(allowed_NC, index_NK, 1.0, spare=True))[0] == {1, 2}
    level_NC = allowed_NC | torch.tensor([[False], [False], [False], [True]]) & torch.tensor([[False, True, False]])
    level_NC[2, 1] = True  # now all three list 1 as well: level with 0, so it lies inside
    assert sets_of(prune_by_neighbors(level_NC, index_NK, 1.0, spare=True))[0] == {1}


@pytest.mark.parametrize(
    ("wanted", "items", "classes", "share", "voting"),
    [(150, 50_000, 10, 0.25, 150), (150, 50_000, 100, 0.25, 125), (150, 1000, 10, 0.25, 25), (5, 12, 10, 0.25, 1),
     (150, 50_000, 100, None, 150), (150, 1000, 10, 0.3, 30)],
)  # fmt: skip
def test_neighbourhoods_are_no_larger_than_a_quarter_of_a_class(
    wanted: int, items: int, classes: int, share: float | None, voting: int
) -> None:
    assert max_neighbors(wanted, items, classes, share) == voting


def test_memory_does_not_hold_the_neighbours_sets() -> None:
    """N x K x C numbers would be 40 times N x C."""
    items, classes, k = 400, 50, 40
    allowed_NC, features_ND = random_problem(3, items, classes)
    with Allocations() as seen:
        prune(allowed_NC, features_ND, neighbors=k, class_share=None)
    assert seen.largest <= 8 * items * max(classes, items)  # the block of similarities is the largest
    index_NK = torch.randint(items, (items, k))
    with Allocations() as seen:
        prune_by_neighbors(allowed_NC, index_NK, 0.4, spare=True)
    assert seen.largest <= 8 * items * classes


@pytest.mark.parametrize("tau", [-0.1, 1.1, math.nan])
def test_a_share_is_a_share(tau: float) -> None:
    with pytest.raises(InputError, match="tau is"):
        prune(ALLOWED_NC, torch.randn(5, 2), tau=tau, neighbors=3)


def test_sets_must_fit_the_features() -> None:
    with pytest.raises(InputError, match="give a row per item"):
        prune(ALLOWED_NC, torch.randn(4, 2))
    with pytest.raises(InputError, match="Row 1 of the candidate matrix is empty"):
        prune(torch.tensor([[True, True], [False, False], [True, False]]), torch.randn(3, 2), neighbors=1)
