"""Losses shared by several methods: one value per item, computed in float32 whatever the precision of the logits."""

from __future__ import annotations

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
