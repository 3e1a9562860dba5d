"""Losses shared by several methods: one value per item, computed in float32 whatever the precision of the logits."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def smoothed_cross_entropy(logits_BC: Tensor, label_B: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy against (1 - smoothing) on the label plus smoothing spread evenly over all classes."""
    return F.cross_entropy(logits_BC.float(), label_B, label_smoothing=smoothing, reduction="none")


def soft_cross_entropy(logits_BC: Tensor, target_BC: Tensor) -> Tensor:
    """Cross-entropy against a distribution over classes."""
    return -(F.log_softmax(logits_BC.float(), dim=1) * target_BC).sum(dim=1)


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
