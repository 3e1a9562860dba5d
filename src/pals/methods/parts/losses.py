"""Losses shared by several methods: one value per item, computed in float32 whatever the precision of the logits.

With p = softmax(logits), a target t and candidates S:
    smoothed cross-entropy  -(1 - r) log p_y - r / C sum_c log p_c
    soft cross-entropy      -sum_c t_c log p_c
    set loss                -log sum_{c in S} p_c
Losses of each label c as if it were the true one (bounded but the last):
    absolute  2 (1 - p_c)      squared  1 - 2 p_c + sum_k p_k^2      generalised cross-entropy  (1 - p_c^r) / r
    huber  -log p_c, and its tangent below a probability             focal  -(1 - p_c)^g log p_c
References: Zhang and Sabuncu, NeurIPS 2018, arXiv 1805.07836 (generalised); Menon et al., ICLR 2020 (huber); Lin et al., ICCV
2017, arXiv 1708.02002 (focal).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def smoothed_cross_entropy(logits_BC: Tensor, label_B: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy with label smoothing.

    Args:
        logits_BC: logits.
        label_B: labels.
        smoothing: r, the share of the target spread evenly over all classes.

    Returns:
        One loss per item.
    """
    return F.cross_entropy(logits_BC.float(), label_B, label_smoothing=smoothing, reduction="none")


def soft_cross_entropy(logits_BC: Tensor, target_BC: Tensor) -> Tensor:
    """Cross-entropy against a distribution over classes.

    Args:
        logits_BC: logits.
        target_BC: t.

    Returns:
        One loss per item.

    >>> round(soft_cross_entropy(torch.zeros(1, 2), torch.tensor([[0.3, 0.7]])).item(), 4)
    0.6931
    """
    return -(F.log_softmax(logits_BC.float(), dim=1) * target_BC).sum(dim=1)


def set_loss(logits_BC: Tensor, allowed_BC: Tensor) -> Tensor:
    """Minus the logarithm of the probability of the candidates; the cross-entropy where there is one.

    Args:
        logits_BC: logits.
        allowed_BC: candidates, bool.

    Returns:
        One loss per item.
    """
    inside_BC = F.log_softmax(logits_BC.float(), dim=1).masked_fill(~allowed_BC, -torch.inf)
    return -inside_BC.logsumexp(dim=1)


def negative_entropy(logits_BC: Tensor) -> Tensor:
    """sum_c p_c log p_c.

    Args:
        logits_BC: logits.

    Returns:
        One number per item.
    """
    log_BC = F.log_softmax(logits_BC.float(), dim=1)
    return (log_BC.exp() * log_BC).sum(dim=1)


def absolute_error(logits_BC: Tensor) -> Tensor:
    """MAE, sum_k |p_k - [k = c]| = 2 (1 - p_c): its sum over all labels is the same for every p.

    Args:
        logits_BC: logits.

    Returns:
        One loss per item and label.
    """
    return 2 - 2 * logits_BC.float().softmax(dim=1)


def squared_error(logits_BC: Tensor) -> Tensor:
    """MSE, sum_k (p_k - [k = c])^2 = 1 - 2 p_c + sum_k p_k^2.

    Args:
        logits_BC: logits.

    Returns:
        One loss per item and label.
    """
    share_BC = logits_BC.float().softmax(dim=1)
    return 1 - 2 * share_BC + share_BC.square().sum(dim=1, keepdim=True)


def generalized_cross_entropy(logits_BC: Tensor, power: float) -> Tensor:
    """GCE, (1 - p_c^r) / r: half the absolute error for r = 1, the cross-entropy in the limit r = 0.

    Args:
        logits_BC: logits.
        power: r.

    Returns:
        One loss per item and label.
    """
    return -torch.expm1(power * F.log_softmax(logits_BC.float(), dim=1)) / power


def huber_cross_entropy(logits_BC: Tensor, cut: float) -> Tensor:
    """The cross-entropy -log p_c down to p_c = cut, and below it its tangent: at most 1 - log(cut).

    Args:
        logits_BC: logits.
        cut: probability at which the tangent begins.

    Returns:
        One loss per item and label.
    """
    log_BC = F.log_softmax(logits_BC.float(), dim=1)
    return torch.where(log_BC > math.log(cut), -log_BC, 1 - math.log(cut) - log_BC.exp() / cut)


def focal_loss(logits_BC: Tensor, focus: float) -> Tensor:
    """-(1 - p_c)^g log p_c.

    Args:
        logits_BC: logits.
        focus: g.

    Returns:
        One loss per item and label.
    """
    log_BC = F.log_softmax(logits_BC.float(), dim=1)
    tiny = torch.finfo(log_BC.dtype).tiny  # the power of 0 has no derivative
    return -log_BC * (-torch.expm1(log_BC)).clamp_min(tiny) ** focus
