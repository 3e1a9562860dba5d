"""Selection of clean items in batches of fixed shape, whatever the number of selected items: the parts of ProMix.

    quota_c = ceil(rho N / C), at most N_c        or ceil(rho N_c)                      items of class c in the base set
    agree   = [argmax p_q equal and max p_q > tau for all networks q]
    pi <- m pi + (1 - m) mean of p over the selected rows                               running class distribution

Symbols: Q networks; N_c items with label c; rho share; tau threshold; p predictions.
Reference: Xiao et al., IJCAI 2023, arXiv 2207.10276.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pals.methods.parts.losses import soft_cross_entropy

MIN_CLASS_SHARE = 1e-8  # whose logarithm is taken


def class_quotas(count_C: Tensor, share: float, *, even: bool) -> Tensor:
    """The number of items that each class may select.

    Args:
        count_C: items of each class.
        share: rho.
        even: the same number for all classes, a share of the mean class; otherwise a share of each class.

    Returns:
        int64, C; at least 1.

    >>> [class_quotas(torch.tensor([8, 2]), 0.5, even=even).tolist() for even in (True, False)]
    [[3, 2], [4, 1]]
    """
    if even:
        quota_C = torch.full_like(count_C, math.ceil(share * int(count_C.sum()) / len(count_C) - 1e-9))
    else:
        quota_C = (share * count_C.double() - 1e-9).ceil().to(count_C.dtype)
    return torch.minimum(quota_C, count_C).clamp_min(1)


def smallest_by_class(loss_N: Tensor, label_N: Tensor, quota_C: Tensor) -> Tensor:
    """The items of each label with the smallest losses.

    Args:
        loss_N: losses; of equal ones the first are selected.
        label_N: labels.
        quota_C: number of items of each label.

    Returns:
        bool, N.
    """
    by_loss_N = loss_N.argsort(stable=True)
    order_N = by_loss_N[label_N[by_loss_N].argsort(stable=True)]  # class by class, in each by loss
    count_C = torch.bincount(label_N, minlength=len(quota_C))
    first_C = count_C.cumsum(dim=0) - count_C
    rank_N = torch.empty_like(order_N)
    rank_N[order_N] = torch.arange(len(order_N), device=order_N.device)
    return rank_N - first_C[label_N] < quota_C[label_N]


def agreement(share_QBC: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Items on whose class all networks agree with confidence.

    Args:
        share_QBC: class probabilities by each network.
        threshold: tau.

    Returns:
        Whether they agree, bool B, and their mean confidence, B.
    """
    best_QB, label_QB = share_QBC.max(dim=2)
    same_B = (label_QB == label_QB[0]).all(dim=0)
    return same_B & (best_QB > threshold).all(dim=0), best_QB.mean(dim=0)


def most_confident(selected_B: Tensor, eligible_B: Tensor, confidence_B: Tensor, max_selected: int) -> Tensor:
    """The most confident of the eligible items, up to a number of selected items.

    Args:
        selected_B: items already selected, bool.
        eligible_B: items that may join, bool.
        confidence_B: confidence.
        max_selected: number of selected items after they have joined.

    Returns:
        The items that join, bool B.
    """
    eligible_B = eligible_B & ~selected_B
    rank_B = confidence_B.masked_fill(~eligible_B, -torch.inf).argsort(descending=True, stable=True).argsort()
    return eligible_B & (rank_B < max_selected - selected_B.sum())


def mean_over(value_B: Tensor, selected_B: Tensor) -> Tensor:
    """The mean of the selected rows; 0 if there are none.

    Args:
        value_B: rows of any shape.
        selected_B: bool.

    Returns:
        The shape of a row.

    >>> mean_over(torch.tensor([1.0, 2.0, 6.0]), torch.tensor([True, False, True])).item()
    3.5
    """
    weight_B = selected_B.view(-1, *[1] * (value_B.ndim - 1)).to(value_B.dtype)
    return (value_B * weight_B).sum(dim=0) / weight_B.sum().clamp_min(1)


@dataclass(frozen=True)
class Targets:
    """Targets of a network for a batch, without gradient.

    Args:
        own_B: items selected with their own label, bool.
        joined_B: items selected with a predicted label, bool.
        target_BC: t.
        guess_BC: s.
    """

    own_B: Tensor
    joined_B: Tensor
    target_BC: Tensor
    guess_BC: Tensor

    @property
    def selected_B(self) -> Tensor:
        """A, bool."""
        return self.own_B | self.joined_B


@dataclass(frozen=True)
class Blends:
    """Blends of selected items.

    Args:
        x_B: inputs.
        target_BC: targets.
        counts_B: rows that count, bool; see `selection.SelectedPairs`.
    """

    x_B: Tensor
    target_BC: Tensor
    counts_B: Tensor


class SelectedPairs(NamedTuple):
    """Pairs of selected rows of a batch, as many as it has rows; those beyond the selected ones repeat the first pairs.

    Args:
        own_B: rows.
        partner_B: their partners.
        counts_B: whether a pair counts, bool: the repeated ones, which keep unselected items out of batch statistics, do not.
    """

    own_B: Tensor
    partner_B: Tensor
    counts_B: Tensor


def pairs_among(selected_B: Tensor, uniform_B: Tensor) -> SelectedPairs:
    """Pair each selected row with that of a random permutation of them.

    Args:
        selected_B: bool; if none is selected all rows are paired and none counts.
        uniform_B: random numbers between 0 and 1.
    """
    pool_B = selected_B | ~selected_B.any()
    place_B = torch.arange(len(pool_B), device=pool_B.device)
    own_B = (~pool_B).to(torch.uint8).argsort(stable=True)  # the pool first, in the order of the batch
    partner_B = (uniform_B + (~pool_B).to(uniform_B.dtype)).argsort()  # the pool first, in random order
    round_B = place_B % pool_B.sum()
    return SelectedPairs(own_B[round_B], partner_B[round_B], place_B < selected_B.sum())


def log_class_shares(share_C: Tensor) -> Tensor:
    """The finite logarithm of a class distribution.

    Args:
        share_C: class shares, of any shape.
    """
    return share_C.clamp_min(MIN_CLASS_SHARE).log()


def update_class_shares(share_C: Tensor, predicted_BC: Tensor, selected_B: Tensor, momentum: float) -> Tensor:
    """The running class distribution pi after a batch; unchanged if no row is selected.

    Args:
        share_C: pi.
        predicted_BC: class probabilities.
        selected_B: bool.
        momentum: m.

    Returns:
        C.
    """
    moved_C = torch.lerp(mean_over(predicted_BC, selected_B), share_C, momentum)
    return torch.where(selected_B.any(), moved_C, share_C)


def selected_loss(
    logits: Sequence[Tensor], t: Targets, blends: Sequence[tuple[Tensor, Blends]], shift_C: Tensor, weight: Tensor
) -> Tensor:
    """L_z, or the same for the auxiliary head: means over A.

    Args:
        logits: of the weak and the strong view.
        t: targets.
        blends: logits and blends.
        shift_C: a log pi.
        weight: w.

    Returns:
        A scalar.
    """
    weak, *others = [
        *(mean_over(soft_cross_entropy(z_BC + shift_C, t.target_BC), t.selected_B) for z_BC in logits),
        *(mean_over(soft_cross_entropy(z_BC + shift_C, one.target_BC), one.counts_B) for z_BC, one in blends),
    ]
    return weak + weight * torch.stack(others).sum()


def unselected_loss(logits: Sequence[Tensor], t: Targets, shift_C: Tensor, weight: Tensor) -> Tensor:
    """The part of L_u over U, against the guesses s.

    Args:
        logits: of the auxiliary head, for the weak and the strong view.
        t: targets.
        shift_C: a log pi'.
        weight: w.

    Returns:
        A scalar.
    """
    weak, strong = (mean_over(soft_cross_entropy(u_BC + shift_C, t.guess_BC), ~t.selected_B) for u_BC in logits)
    return weak + weight * strong
