"""How sure is sure? One temperature that makes a network's probabilities honest, and a measure of how honest they are."""

from __future__ import annotations

import math

import torch
from scipy.optimize import brentq
from torch import Tensor

from pals.util.errors import InputError

COLDEST, HOTTEST = 0.05, 20.0
"""Where a temperature is looked for. Logits that separate all targets would be best at 0, those that mislead at infinity."""


def fit_temperature(logits_NC: Tensor, target_NC: Tensor, weight_N: Tensor | None = None) -> float:
    """The T for which softmax(logits / T) has the least cross-entropy to the targets, which may be soft.

    The loss is convex in b = 1 / T; its slope, the sum over items of weight times (mean logit under softmax(b logits) minus
    mean logit under the target), grows with b, so that its only zero is found by bisection. Training with label smoothing
    makes networks too modest; a temperature below 1 is normal then.
    """
    logits_NC, target_NC = logits_NC.detach().double().cpu(), target_NC.detach().double().cpu()
    weight_N = torch.ones(len(logits_NC)) if weight_N is None else weight_N.detach().cpu()
    weight_N = weight_N.double()
    _check(logits_NC, target_NC, weight_N)
    # Only differences of logits within a row count; centred ones lose no digits in the sums.
    logits_NC = logits_NC - logits_NC.mean(dim=1, keepdim=True)
    mass_N = weight_N * target_NC.sum(dim=1)
    wanted = float((weight_N[:, None] * target_NC * logits_NC).sum())

    def slope(log_b: float) -> float:
        share_NC = (logits_NC * math.exp(log_b)).softmax(dim=1)
        return float((mass_N * (share_NC * logits_NC).sum(dim=1)).sum()) - wanted

    if not logits_NC.abs().max() > 0:
        return 1.0  # every temperature says the same
    low, high = -math.log(HOTTEST), -math.log(COLDEST)
    if slope(low) >= 0:
        return HOTTEST
    if slope(high) <= 0:
        return COLDEST
    return math.exp(-brentq(slope, low, high, xtol=1e-6))


def _check(logits_NC: Tensor, target_NC: Tensor, weight_N: Tensor) -> None:
    if logits_NC.ndim != 2 or target_NC.shape != logits_NC.shape or weight_N.shape != logits_NC.shape[:1]:
        raise InputError(
            f"A temperature needs logits and targets of one shape, items by classes, and a weight per item; found "
            f"{tuple(logits_NC.shape)}, {tuple(target_NC.shape)} and {tuple(weight_N.shape)}."
        )
    bad_N = ~(logits_NC.isfinite().all(dim=1) & target_NC.isfinite().all(dim=1) & weight_N.isfinite())
    bad_N |= (target_NC < 0).any(dim=1) | (weight_N < 0)
    if bad_N.any():
        row = int(bad_N.int().argmax())
        raise InputError(f"Row {row} of logits, targets or weights holds NaN, infinity or a target below zero; leave it out.")
    if not (weight_N * target_NC.sum(dim=1)).sum() > 0:
        raise InputError("There is no item with a target to fit a temperature to.")


def expected_calibration_error(probability_NC: Tensor, label_N: Tensor, bins: int = 15) -> float:
    """The mean, over items, of |share right - mean confidence| in the item's bin; bins of equal width on the largest
    probability, each with its upper end."""
    if probability_NC.ndim != 2 or label_N.shape != probability_NC.shape[:1] or not len(label_N):
        raise InputError(
            f"A calibration error needs probabilities, items by classes, and a label per item; found "
            f"{tuple(probability_NC.shape)} and {tuple(label_N.shape)}."
        )
    confidence_N, chosen_N = probability_NC.double().max(dim=1)
    gap_N = (chosen_N == label_N).double() - confidence_N
    bin_N = ((confidence_N * bins).ceil().long() - 1).clamp(0, bins - 1)
    gap_K = torch.zeros(bins, dtype=torch.float64, device=gap_N.device).index_add_(0, bin_N, gap_N)
    return float(gap_K.abs().sum() / len(label_N))
