"""Temperature scaling and the expected calibration error (ECE) of a classifier.

    p_NC = softmax(logits_NC / T)
    T    = argmin_T  - sum_i w_i sum_c t_ic log p_ic(T)                    (targets t may be soft)
    ECE  = sum_b |sum_{i in b} (1[y_i = argmax p_i] - max_c p_ic)| / N     (bins b of equal width on max_c p_ic)

Symbols: N items, C classes, K bins.
References: Guo et al. 2017, arXiv:1706.04599.
"""

from __future__ import annotations

import math

import torch
from scipy.optimize import brentq
from torch import Tensor

from pals.util.errors import InputError

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0
"""The minimum is at 0 for logits that separate all targets, and at infinity for misleading ones."""


def fit_temperature(logits_NC: Tensor, target_NC: Tensor, weight_N: Tensor | None = None) -> float:
    """The temperature with the least cross-entropy to the targets.

    The loss is convex in b = 1 / T. Its slope, sum_i w_i sum_c (softmax(b z_i)_c - t_ic) z_ic, grows with b, so its only zero
    is found by bisection. Label smoothing makes networks underconfident; a temperature below 1 is normal then.

    Args:
        logits_NC: N x C.
        target_NC: N x C probabilities or one-hot rows.
        weight_N: of the items; default: 1.

    Returns:
        T, from 0.05 to 20; 1 where the logits of every item are equal.

    Raises:
        InputError: shapes differ, a number is not finite, a target or weight is negative, or all are zero.

    Example:
        >>> import torch
        >>> from pals.model import fit_temperature
        >>> round(fit_temperature(torch.tensor([[2.0, 0.0]] * 4), torch.eye(2)[[0, 0, 0, 1]]), 3)  # 2 / log 3
        1.82
    """
    logits_NC, target_NC = logits_NC.detach().double().cpu(), target_NC.detach().double().cpu()
    weight_N = torch.ones(len(logits_NC)) if weight_N is None else weight_N.detach().cpu()
    weight_N = weight_N.double()
    _check(logits_NC, target_NC, weight_N)
    logits_NC = logits_NC - logits_NC.mean(dim=1, keepdim=True)  # no effect on the softmax, more digits in the sums
    mass_N = weight_N * target_NC.sum(dim=1)
    target_sum = float((weight_N[:, None] * target_NC * logits_NC).sum())

    def slope(log_b: float) -> float:
        p_NC = (logits_NC * math.exp(log_b)).softmax(dim=1)
        return float((mass_N * (p_NC * logits_NC).sum(dim=1)).sum()) - target_sum

    if not logits_NC.abs().max() > 0:
        return 1.0  # every temperature gives the same probabilities
    low, high = -math.log(MAX_TEMPERATURE), -math.log(MIN_TEMPERATURE)
    if slope(low) >= 0:
        return MAX_TEMPERATURE
    if slope(high) <= 0:
        return MIN_TEMPERATURE
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
    """The expected calibration error.

    Args:
        probability_NC: N x C.
        label_N: the true class of each item.
        bins: of equal width; a bin includes its upper end; default: 15.

    Returns:
        From 0 (calibrated) to 1.

    Raises:
        InputError: the shapes differ, or there is no item.

    Example:
        >>> import torch
        >>> from pals.model import expected_calibration_error
        >>> expected_calibration_error(torch.tensor([[0.75, 0.25]] * 4), torch.tensor([0, 0, 0, 1]))
        0.0
    """
    if probability_NC.ndim != 2 or label_N.shape != probability_NC.shape[:1] or not len(label_N):
        raise InputError(f"Probabilities {tuple(probability_NC.shape)}, labels {tuple(label_N.shape)}: give N x C and N.")
    confidence_N, predicted_N = probability_NC.double().max(dim=1)
    gap_N = (predicted_N == label_N).double() - confidence_N
    bin_N = ((confidence_N * bins).ceil().long() - 1).clamp(0, bins - 1)
    gap_K = torch.zeros(bins, dtype=torch.float64, device=gap_N.device).index_add_(0, bin_N, gap_N)
    return float(gap_K.abs().sum() / len(label_N))
