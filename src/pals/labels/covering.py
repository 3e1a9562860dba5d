"""Agreement of predictions with candidate sets: two criteria of model selection that need no truth, so methods may import them.

With p_ic the probability of class c for item i, S_i its candidates and c_i = argmax_c p_ic:
    covering rate          CR = mean_i [c_i in S_i]
    approximate accuracy   AA = mean_i [c_i in S_i] p_i,c_i / sum over c in S_i of p_ic

Reference: Wang et al. 2025 (PLENCH), arXiv:2502.10184.
"""

from __future__ import annotations

import torch
from torch import Tensor


def is_candidate(allowed_NC: Tensor, label_N: Tensor) -> Tensor:
    """For each item, whether this label is among its candidates."""
    return allowed_NC.gather(1, label_N[:, None]).squeeze(1)


def covering_rate(score_NC: Tensor, allowed_NC: Tensor) -> Tensor:
    """CR: share of items whose class with the highest score is a candidate.

    It ranks classifiers correctly as long as the true label is a candidate more often than any wrong one. It is no accuracy:
    the larger the sets, the larger it is.

    Args:
        score_NC: Scores of the classes; only their order matters.
        allowed_NC: Candidates, bool.

    Returns:
        A scalar, float64.
    """
    return is_candidate(allowed_NC, score_NC.argmax(dim=1)).double().mean()


def approximate_accuracy(probability_NC: Tensor, allowed_NC: Tensor) -> Tensor:
    """AA: the accuracy that is expected if the probabilities, restricted to the candidates, are right.

    Args:
        probability_NC: Probabilities of the classes.
        allowed_NC: Candidates, bool.

    Returns:
        A scalar, float64.
    """
    inside_NC = probability_NC * allowed_NC
    top_N = inside_NC.gather(1, probability_NC.argmax(dim=1, keepdim=True)).squeeze(1)
    total_N = inside_NC.sum(dim=1)
    return torch.where(total_N > 0, top_N / total_N.clamp_min(torch.finfo(total_N.dtype).tiny), 0.0).double().mean()


def agreement(logits_NC: Tensor, allowed_NC: Tensor) -> Tensor:
    """CR and AA in one tensor, which stays on the device; `read_agreement` waits for it."""
    probability_NC = logits_NC.softmax(dim=1)
    return torch.stack([covering_rate(probability_NC, allowed_NC), approximate_accuracy(probability_NC, allowed_NC)])


def read_agreement(both: Tensor) -> dict[str, float]:
    """CR as `covering` and AA as `approximate`, for the log."""
    return dict(zip(("covering", "approximate"), both.tolist(), strict=True))
