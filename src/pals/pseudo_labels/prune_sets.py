"""CLSP: candidate labels that an item's neighbours do not list are deleted. Nothing is trained.

    D_ic = [c in S_i] #{a in N_K(i): c not in S_a}                   down-votes
    n_i  = ceil(tau (|S_i| - 1))                                     largest number of labels that may go
    S_i <- {c in S_i: D_ic <= the (n_i + 1)-th largest of D_i1..D_iC}

Labels at the threshold stay, so that ties protect them.
Symbols: S_i candidate set; N_K(i) the K nearest other items by the cosine; tau share of a set that may go.
Reference: He et al., ICLR 2024. Page: docs/methods/clsp.md.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pals.pseudo_labels.faiss_search import Backend
from pals.pseudo_labels.knn import nearest
from pals.pseudo_labels.knn_vote import vote
from pals.pseudo_labels.reliable_subset import check_candidates
from pals.util.errors import InputError

TAU, NEIGHBORS, CLASS_SHARE = 0.4, 150, 0.25


@torch.no_grad()
def prune(
    allowed_NC: Tensor,
    features_ND: Tensor,
    *,
    tau: float = TAU,
    neighbors: int = NEIGHBORS,
    class_share: float | None = CLASS_SHARE,
    spare: bool = True,
    backend: Backend = "torch",
) -> Tensor:
    """Delete candidates that the neighbours do not list.

    Args:
        allowed_NC: candidates, bool or 0 and 1.
        features_ND: features by which neighbours are found.
        tau: maximum share of its candidates, not counting one, that a set may lose. 0 deletes nothing.
        neighbors: number K of nearest other items that vote, by the cosine of the features.
        class_share: K is at most this share of the mean number of items per class, because larger neighbourhoods contain other
            classes. None: no such limit.
        spare: leave a set unchanged if its neighbours list another label more often than any of its own: the true one may be
            missing.
        backend: neighbour search, see `nearest`.

    Returns:
        The pruned sets, bool N x C, on the device of the features: each is a non-empty subset of the given set.

    Raises:
        InputError: for a `tau` outside 0 to 1, an empty set, or sets and features of different lengths.

    >>> import torch
    >>> allowed_NC = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 0]])
    >>> pals.prune(allowed_NC, torch.ones(3, 2), neighbors=2, class_share=None).int().tolist()
    [[1, 1, 0], [1, 1, 0], [1, 1, 0]]
    """
    if not 0 <= tau <= 1:
        raise InputError(f"tau is {tau}; it must lie between 0 and 1 (the authors use 0.2 to 0.6).")
    allowed_NC = check_candidates(allowed_NC, features_ND)
    k = max_neighbors(neighbors, allowed_NC.shape[0], allowed_NC.shape[1], class_share)
    index_NK = nearest(features_ND, k, include_self=False, backend=backend).index_NK
    return prune_by_neighbors(allowed_NC, index_NK, tau, spare=spare)


def max_neighbors(neighbors: int, items: int, classes: int, class_share: float | None) -> int:
    """Limit the number of neighbours to a share of the mean number of items per class.

    Args:
        neighbors: number wanted.
        items: number of items.
        classes: number of classes.
        class_share: largest share; None: no limit.

    Returns:
        At least 1.

    >>> max_neighbors(150, items=1000, classes=10, class_share=0.25)
    25
    """
    return neighbors if class_share is None else min(neighbors, max(1, int(class_share * items / classes + 1e-9)))


def prune_by_neighbors(allowed_NC: Tensor, index_NK: Tensor, tau: float, *, spare: bool = False) -> Tensor:
    """Delete the labels with the most down-votes.

    Args:
        allowed_NC: candidates, bool.
        index_NK: neighbours of each item.
        tau: share of a set that may go.
        spare: see `prune`.

    Returns:
        The pruned sets, bool N x C. The N x K x C sets of the neighbours are never stored.
    """
    listed_NC = vote(index_NK, torch.ones_like(index_NK, dtype=torch.float32), allowed_NC)
    against_NC = (index_NK.shape[1] - listed_NC) * allowed_NC
    kept_NC = allowed_NC & (against_NC <= down_vote_threshold(against_NC, allowed_NC.sum(dim=1), tau)[:, None])
    if not spare:
        return kept_NC
    own_N = listed_NC.where(allowed_NC, -1.0).amax(dim=1)
    return torch.where((own_N < listed_NC.amax(dim=1))[:, None], allowed_NC, kept_NC)


def down_vote_threshold(against_NC: Tensor, size_N: Tensor, tau: float) -> Tensor:
    """The (n + 1)-th largest number of down-votes with n = ceil(tau (size - 1)); labels with more are deleted.

    Args:
        against_NC: down-votes, 0 for labels outside the set.
        size_N: sizes of the sets.
        tau: share of a set that may go.

    Returns:
        One threshold per item.
    """
    rank_N = (tau * (size_N - 1).double() - 1e-9).ceil().long().clamp_min(0)  # 0.1 of 30 is 3 despite rounding of floats
    return against_NC.sort(dim=1, descending=True).values.gather(1, rank_N[:, None]).squeeze(1)
