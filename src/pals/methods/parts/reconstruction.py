"""Candidate sets told apart and built anew: the plug-in of PLRC. Functions of tensors alone, in float32; memory is a few tables
of N x C. Nothing here needs a loop over items or knows the truth."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from pals.methods.parts.losses import masked_softmax
from pals.pseudo_labels import vote
from pals.pseudo_labels.knn import Neighbors, nearest

EPS = 1e-6
SizeRule = Literal["rate", "relative", "absolute"]


class Split(NamedTuple):
    """Who is normal (the set is believed to hold the true label), who is noisy (it is not); both bool. The others are hard."""

    normal_N: Tensor
    noisy_N: Tensor


def share_at(epoch: int, warm_up: int, ramp: int, first: float, last: float) -> float:
    """rho, in this epoch from 1: what share of the items is told apart. A line from `first` after the warm-up to `last`."""
    return first + (last - first) * min(max((epoch - warm_up) / ramp, 0.0), 1.0)


def counts(items: int, share: float, noise_rate: float) -> tuple[int, int]:
    """How many items are normal and how many noisy; cut off, not rounded, as published."""
    chosen = int(items * share)
    normal = int(chosen * (1 - noise_rate))
    return normal, chosen - normal


def smoothed(near: Neighbors, table_NC: Tensor) -> Tensor:
    """The softmax of the neighbours' rows, each times its similarity, summed up. Nothing is divided by before."""
    return vote(near.index_NK, near.similarity_NK, table_NC).softmax(dim=1)


def with_self(features_ND: Tensor, k: int) -> Neighbors:
    """K neighbours of which the item itself is one, or all there are."""
    if len(features_ND) < 2 or k < 2:
        own_N1 = torch.arange(len(features_ND), device=features_ND.device)[:, None]
        return Neighbors(own_N1, torch.ones_like(own_N1, dtype=torch.float32))
    return nearest(features_ND, min(k, len(features_ND)) - 1)


def disagreement(logits_NC: Tensor, allowed_NC: Tensor, smoothed_NC: Tensor) -> Tensor:
    """Cross-entropy between the prediction cut to the candidates and what the neighbours predict: high where the set hinders
    the network from saying what they say."""
    return -(masked_softmax(logits_NC, allowed_NC) * (smoothed_NC + EPS).log()).sum(dim=1)


def split(disagreement_N: Tensor, normal: int, noisy: int) -> Split:
    """So many with the least disagreement, and so many with the most; of equals the first in order come first."""
    order_N = disagreement_N.argsort(stable=True)
    rank_N = torch.empty_like(order_N)
    rank_N[order_N] = torch.arange(len(order_N), device=order_N.device)
    return Split(rank_N < normal, rank_N >= len(order_N) - noisy)


def opened(allowed_NC: Tensor, noisy_N: Tensor) -> Tensor:
    """What a new set may be made of: the old one, but of noisy items all other labels. A full set stays."""
    return allowed_NC ^ (noisy_N & ~allowed_NC.all(dim=1))[:, None]


def sizes(vote_NC: Tensor, allowed_NC: Tensor, size_N: Tensor, *, rule: SizeRule, lamb: float, partial_rate: float) -> Tensor:
    """How many labels the new sets get: at least one, at most as many as the given sets had.

    "rate" (the authors' case2): (1 - max q) * partial rate * C + lamb, cut off. "relative" (case1): as many of the labels
    allowed as have more than the largest share among them, divided by lamb. "absolute" (case3): more than 1 / lamb.
    """
    if rule == "rate":
        wanted_N = (1 - vote_NC.amax(dim=1)) * partial_rate * vote_NC.shape[1] + lamb
    else:
        share_NC = vote_NC * allowed_NC
        bar_N1 = share_NC.amax(dim=1, keepdim=True) / lamb if rule == "relative" else 1 / lamb
        wanted_N = (share_NC > bar_N1).sum(dim=1)
    return wanted_N.clamp_min(1).minimum(size_N).long()


def largest(score_NC: Tensor, allowed_NC: Tensor, count_N: Tensor) -> Tensor:
    """Bool: of the labels allowed the so many with the highest scores, or all of them; of equals the first."""
    order_NC = score_NC.masked_fill(~allowed_NC, -torch.inf).argsort(dim=1, descending=True, stable=True)
    place_NC = torch.arange(order_NC.shape[1], device=order_NC.device).expand_as(order_NC)
    rank_NC = torch.empty_like(order_NC).scatter_(1, order_NC, place_NC)
    return allowed_NC & (rank_NC < count_N[:, None])


def swapped(allowed_NC: Tensor, logits_NC: Tensor) -> Tensor:
    """The sets with the likeliest of the other labels in place of the least likely candidate. A full set stays."""
    class_C = torch.arange(allowed_NC.shape[1], device=allowed_NC.device)
    best_N1 = logits_NC.masked_fill(allowed_NC, -torch.inf).argmax(dim=1, keepdim=True)
    worst_N1 = logits_NC.masked_fill(~allowed_NC, torch.inf).argmin(dim=1, keepdim=True)
    changed_NC = (allowed_NC | (class_C == best_N1)) & (class_C != worst_N1)
    return torch.where(allowed_NC.all(dim=1, keepdim=True), allowed_NC, changed_NC)


def rebuilt(
    allowed_NC: Tensor,
    logits_NC: Tensor,
    features_ND: Tensor,
    groups: Split,
    *,
    neighbors: int,
    rule: SizeRule,
    lamb: float,
    partial_rate: float,
) -> Tensor:
    """The new sets: of normal and noisy items the labels that the neighbours among these items like best, of hard ones the old
    set with one label swapped."""
    row_M = (groups.normal_N | groups.noisy_N).nonzero().flatten()
    new_NC = swapped(allowed_NC, logits_NC)
    if not len(row_M):
        return new_NC
    open_MC = opened(allowed_NC, groups.noisy_N)[row_M]
    vote_MC = smoothed(with_self(features_ND[row_M], neighbors), masked_softmax(logits_NC[row_M], open_MC))
    count_M = sizes(vote_MC, open_MC, allowed_NC[row_M].sum(dim=1), rule=rule, lamb=lamb, partial_rate=partial_rate)
    new_NC[row_M] = largest(vote_MC, open_MC, count_M)
    return new_NC
