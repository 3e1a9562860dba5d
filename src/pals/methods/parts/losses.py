"""Losses shared by several methods: one value per item, computed in float32 whatever the precision of the logits."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def smoothed_cross_entropy(logits_BC: Tensor, label_B: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy against (1 - smoothing) on the label plus smoothing spread evenly over all classes."""
    return F.cross_entropy(logits_BC.float(), label_B, label_smoothing=smoothing, reduction="none")


def soft_cross_entropy(logits_BC: Tensor, target_BC: Tensor) -> Tensor:
    """Cross-entropy against a distribution over classes."""
    return -(F.log_softmax(logits_BC.float(), dim=1) * target_BC).sum(dim=1)


def set_loss(logits_BC: Tensor, allowed_BC: Tensor) -> Tensor:
    """-log of the probability that lies on the classes allowed; the cross-entropy where there is one."""
    inside_BC = F.log_softmax(logits_BC.float(), dim=1).masked_fill(~allowed_BC, -torch.inf)
    return -inside_BC.logsumexp(dim=1)


def negative_entropy(logits_BC: Tensor) -> Tensor:
    """sum_c p_c log p_c."""
    log_BC = F.log_softmax(logits_BC.float(), dim=1)
    return (log_BC.exp() * log_BC).sum(dim=1)


def uniform_on(allowed_BC: Tensor) -> Tensor:
    """Each candidate the same share: the target of the plain average, and where most methods start."""
    allowed_BC = allowed_BC.float()
    return allowed_BC / allowed_BC.sum(dim=1, keepdim=True)


def masked_softmax(logits_BC: Tensor, allowed_BC: Tensor) -> Tensor:
    """Class probabilities cut to the classes allowed and scaled to sum to one there; zero elsewhere, and everywhere in a row
    that allows nothing. Made from the logits, so it is exact where the allowed classes have next to no probability."""
    lowest = torch.finfo(torch.float32).min  # not -inf: a row of nothing else would be NaN
    share_BC = logits_BC.float().masked_fill(~allowed_BC, lowest).softmax(dim=1)
    return share_BC.masked_fill(~allowed_BC, 0.0)


# One value per item and label: what an ordinary loss would be if that label were the true one.


def absolute_error(logits_BC: Tensor) -> Tensor:
    """MAE, sum_k |p_k - [k = c]| = 2 (1 - p_c): bounded, and its sum over all labels is the same for every p."""
    return 2 - 2 * logits_BC.float().softmax(dim=1)


def squared_error(logits_BC: Tensor) -> Tensor:
    """MSE, sum_k (p_k - [k = c])^2 = 1 - 2 p_c + sum_k p_k^2."""
    share_BC = logits_BC.float().softmax(dim=1)
    return 1 - 2 * share_BC + share_BC.square().sum(dim=1, keepdim=True)


def generalized_cross_entropy(logits_BC: Tensor, power: float) -> Tensor:
    """GCE, (1 - p_c^r) / r: half the absolute error for r = 1, the cross-entropy in the limit r = 0."""
    return -torch.expm1(power * F.log_softmax(logits_BC.float(), dim=1)) / power


def huber_cross_entropy(logits_BC: Tensor, cut: float) -> Tensor:
    """The cross-entropy -log p_c down to p_c = cut, and from there on its tangent: 1 - log(cut) at most."""
    log_BC = F.log_softmax(logits_BC.float(), dim=1)
    return torch.where(log_BC > math.log(cut), -log_BC, 1 - math.log(cut) - log_BC.exp() / cut)


def focal_loss(logits_BC: Tensor, focus: float) -> Tensor:
    """-(1 - p_c)^g log p_c."""
    log_BC = F.log_softmax(logits_BC.float(), dim=1)
    tiny = torch.finfo(log_BC.dtype).tiny  # the power of 0 has no derivative
    return -log_BC * (-torch.expm1(log_BC)).clamp_min(tiny) ** focus
