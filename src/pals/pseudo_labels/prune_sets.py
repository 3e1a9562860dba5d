"""Candidate label set pruning (CLSP, He et al. 2024): labels that an item's neighbours do not list leave its set. No training.

A pure function of features and sets. Beside the search (`pseudo_labels.knn`) it holds the answer of N x K whole numbers and a
few tables of N x C; the sets of the neighbours, N x K x C, are summed up as they are looked up and never written down.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pals.pseudo_labels.knn import Backend, nearest
from pals.pseudo_labels.knn_vote import checked_allowed, vote
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
    """The pruned sets, bool N x C, on the device of the features: each is a non-empty subset of the given set.

    Args:
        tau: Maximum share of its candidates, not counting one, that a set may lose. 0 deletes nothing.
        neighbors: Number K of nearest other items that vote, by the cosine of the features.
        class_share: K is at most this share of the mean number of items per class, because larger neighbourhoods contain other
            classes. None: no such limit.
        spare: Leave a set unchanged if its neighbours list another label more often than any of its own: the true one may be
            missing.
    """
    if not 0 <= tau <= 1:
        raise InputError(f"tau is {tau}; it must lie between 0 and 1 (the authors use 0.2 to 0.6).")
    allowed_NC = checked_allowed(allowed_NC, features_ND)
    k = neighbors_for(neighbors, allowed_NC.shape[0], allowed_NC.shape[1], class_share)
    index_NK = nearest(features_ND, k, include_self=False, backend=backend).index_NK
    return pruned_by(allowed_NC, index_NK, tau, spare=spare)


def neighbors_for(wanted: int, items: int, classes: int, class_share: float | None) -> int:
    """How many neighbours vote: as many as wanted, but of `items` in `classes` at most this share of a mean class, or one."""
    return wanted if class_share is None else min(wanted, max(1, int(class_share * items / classes + 1e-9)))


def pruned_by(allowed_NC: Tensor, index_NK: Tensor, tau: float, *, spare: bool = False) -> Tensor:
    """The sets without their most down-voted labels, by neighbours in hand. Only what lies above the threshold goes, so labels
    that are level with it all stay."""
    named_NC = listed_by(allowed_NC, index_NK)
    against_NC = (index_NK.shape[1] - named_NC) * allowed_NC  # of others nobody asks
    kept_NC = allowed_NC & (against_NC <= threshold(against_NC, allowed_NC.sum(dim=1), tau)[:, None])
    if not spare:
        return kept_NC
    own_N = named_NC.where(allowed_NC, -1.0).amax(dim=1)
    return torch.where((own_N < named_NC.amax(dim=1))[:, None], allowed_NC, kept_NC)


def listed_by(allowed_NC: Tensor, index_NK: Tensor) -> Tensor:
    """N x C: how many of an item's neighbours have the label among their candidates."""
    return vote(index_NK, torch.ones_like(index_NK, dtype=torch.float32), allowed_NC)


def threshold(against_NC: Tensor, size_N: Tensor, tau: float) -> Tensor:
    """The down-votes that a label must exceed to go: with n = ceil(tau (size - 1)), the (n + 1)-th largest of all classes."""
    place_N = (tau * (size_N - 1).double() - 1e-9).ceil().long().clamp_min(0)  # 0.1 of 30 is 3, whatever the floats say
    return against_NC.sort(dim=1, descending=True).values.gather(1, place_N[:, None]).squeeze(1)
