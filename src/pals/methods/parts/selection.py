"""Trusted items and the rest, in tables of one size whatever their number: who is trusted, means over some rows, and pairs
among the trusted. Q in a shape counts networks."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from pals.methods.bases.prototypes import members

SMALLEST_SHARE = 1e-8  # of a class, where its logarithm is taken


def quotas(count_C: Tensor, share: float, *, even: bool) -> Tensor:
    """How many of its items each class may trust: the same share of an average class for all (`even`), at most all that it has;
    or that share of its own. At least one."""
    if even:
        wanted_C = torch.full_like(count_C, math.ceil(share * int(count_C.sum()) / len(count_C) - 1e-9))
    else:
        wanted_C = (share * count_C.double() - 1e-9).ceil().to(count_C.dtype)
    return torch.minimum(wanted_C, count_C).clamp_min(1)


def smallest_by_class(loss_N: Tensor, label_N: Tensor, quota_C: Tensor) -> Tensor:
    """Bool: the items of each label with the smallest losses, as many as its quota; of equal ones the first."""
    by_loss_N = loss_N.argsort(stable=True)
    order_N = by_loss_N[label_N[by_loss_N].argsort(stable=True)]  # class by class, in each by loss
    count_C = members(label_N, len(quota_C)).sum(dim=0)
    first_C = count_C.cumsum(dim=0) - count_C
    place_N = torch.empty_like(order_N)
    place_N[order_N] = torch.arange(len(order_N), device=order_N.device)
    return place_N - first_C[label_N] < quota_C[label_N]


def agreed(share_QBC: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Where all networks are surer than the threshold, and of the same class; and how sure they are on average."""
    best_QB, label_QB = share_QBC.max(dim=2)
    same_B = (label_QB == label_QB[0]).all(dim=0)
    return same_B & (best_QB > threshold).all(dim=0), best_QB.mean(dim=0)


def joining(trusted_B: Tensor, eligible_B: Tensor, sure_B: Tensor, most: int) -> Tensor:
    """Bool: the surest of the eligible items that are not trusted yet, so many that trusted ones are `most` at the end."""
    eligible_B = eligible_B & ~trusted_B
    rank_B = sure_B.masked_fill(~eligible_B, -torch.inf).argsort(descending=True, stable=True).argsort()
    return eligible_B & (rank_B < most - trusted_B.sum())


def mean_over(value_B: Tensor, chosen_B: Tensor) -> Tensor:
    """The mean of the chosen rows, of any width; 0 if there are none."""
    weight_B = chosen_B.view(-1, *[1] * (value_B.ndim - 1)).to(value_B.dtype)
    return (value_B * weight_B).sum(dim=0) / weight_B.sum().clamp_min(1)


class Among(NamedTuple):
    """Pairs among the trusted rows of a batch. There are as many as rows: those beyond the trusted ones repeat the first, which
    keeps batch statistics to trusted items, and do not count."""

    own_B: Tensor
    partner_B: Tensor
    counts_B: Tensor  # bool


def pairs_among(trusted_B: Tensor, uniform_B: Tensor) -> Among:
    """Each trusted row with that of a random permutation of them. If none is trusted, all rows are paired and none counts."""
    pool_B = trusted_B | ~trusted_B.any()
    place_B = torch.arange(len(pool_B), device=pool_B.device)
    own_B = (~pool_B).to(torch.uint8).argsort(stable=True)  # the pool first, in the order of the batch
    partner_B = (uniform_B + (~pool_B).to(uniform_B.dtype)).argsort()  # likewise, in random order
    round_B = place_B % pool_B.sum()
    return Among(own_B[round_B], partner_B[round_B], place_B < trusted_B.sum())


def log_shares_of(share_C: Tensor) -> Tensor:
    """Logarithm of a running distribution over the classes, finite."""
    return share_C.clamp_min(SMALLEST_SHARE).log()


def moved_share(share_C: Tensor, seen_BC: Tensor, chosen_B: Tensor, momentum: float) -> Tensor:
    """A running distribution after the mean prediction for the chosen rows; as it was if there are none."""
    moved_C = torch.lerp(mean_over(seen_BC, chosen_B), share_C, momentum)
    return torch.where(chosen_B.any(), moved_C, share_C)
