"""Class probabilities: one-hot labels, normalised rows, distributions over a candidate set, and the floor of a quantile."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def one_hot(label: Tensor, num_classes: int) -> Tensor:
    """Mark the label of each row.

    Args:
        label: labels, int64, of any shape; a negative one marks nothing.
        num_classes: number of classes C.

    Returns:
        bool, shape of `label` x C.

    >>> one_hot(torch.tensor([2, -1]), 3).int().tolist()
    [[0, 0, 1], [0, 0, 0]]
    """
    return label[..., None] == torch.arange(num_classes, device=label.device)


def normalize_rows(table_NC: Tensor, *, empty: float = 0.0, min_sum: float = 0.0) -> Tensor:
    """Divide each row by its sum.

    Args:
        table_NC: non-negative numbers.
        empty: value of all entries of a row that sums to zero.
        min_sum: smallest divisor; a row with a smaller sum keeps a sum below one.

    Returns:
        A new table, N x C.

    >>> normalize_rows(torch.tensor([[1.0, 3.0], [0.0, 0.0]]), empty=0.5).tolist()
    [[0.25, 0.75], [0.5, 0.5]]
    """
    total_N1 = table_NC.sum(dim=1, keepdim=True)
    is_empty_N1 = total_N1 == 0
    return (table_NC / total_N1.clamp_min(min_sum).masked_fill(is_empty_N1, 1.0)).masked_fill_(is_empty_N1, empty)


def uniform_on(allowed_NC: Tensor) -> Tensor:
    """The uniform distribution on each candidate set, the first soft label of most methods.

    Args:
        allowed_NC: candidates, bool; no row is empty.

    Returns:
        float32, N x C: 1 / |S| for candidates, 0 elsewhere.

    >>> uniform_on(torch.tensor([[True, False, True, False]])).tolist()
    [[0.5, 0.0, 0.5, 0.0]]
    """
    return normalize_rows(allowed_NC.float())


def masked_softmax(logits_NC: Tensor, allowed_NC: Tensor) -> Tensor:
    """Class probabilities restricted to the candidates and normalised, p_c / sum_{k in S} p_k.

    They are computed from the logits, and so exact where all candidates together have next to no probability.

    Args:
        logits_NC: logits of any precision.
        allowed_NC: candidates, bool; a row without any becomes zero.

    Returns:
        float32, N x C.

    >>> masked_softmax(torch.tensor([[5.0, 0.0, 0.0]]), torch.tensor([[False, True, True]])).tolist()
    [[0.0, 0.5, 0.5]]
    """
    lowest = torch.finfo(torch.float32).min  # not -inf: a row without candidates would be NaN
    share_NC = logits_NC.float().masked_fill(~allowed_NC, lowest).softmax(dim=1)
    return share_NC.masked_fill(~allowed_NC, 0.0)


def best_candidate(score_NC: Tensor, allowed_NC: Tensor) -> Tensor:
    """The candidate with the highest score, argmax_{c in S} score_c.

    Args:
        score_NC: scores.
        allowed_NC: candidates, bool.

    Returns:
        int64, N.

    >>> best_candidate(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[False, True, True]])).tolist()
    [2]
    """
    return score_NC.masked_fill(~allowed_NC, -torch.inf).argmax(dim=1)


def floor_quantile(count_C: Tensor, quantile: float, *, lower_median: bool = False) -> int:
    """A quantile of whole numbers, interpolated and rounded down.

    Args:
        count_C: whole numbers.
        quantile: between 0 and 1.
        lower_median: take the lower of two middle values for the quantile 0.5 instead of their mean.

    Returns:
        The quantile; 28.999999999999996, which is 29 but for the interpolation in floats, counts as 29.

    >>> floor_quantile(torch.tensor([1, 2, 7, 8]), 0.5), floor_quantile(torch.tensor([1, 2, 7, 8]), 0.5, lower_median=True)
    (4, 2)
    """
    value_C = count_C.cpu().to(torch.float64)
    value = value_C.median() if lower_median and quantile == 0.5 else torch.quantile(value_C, quantile)
    return math.floor(float(value) + 1e-6)
