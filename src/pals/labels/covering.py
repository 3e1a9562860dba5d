"""How predictions agree with candidate sets. It needs no truth, so methods may import it, say to stop early."""

from __future__ import annotations

import torch
from torch import Tensor


def is_candidate(allowed_NC: Tensor, label_N: Tensor) -> Tensor:
    """For each item, whether this label is among its candidates."""
    return allowed_NC.gather(1, label_N[:, None]).squeeze(1)


def covering_rate(score_NC: Tensor, allowed_NC: Tensor) -> Tensor:
    """Share of items whose class with the highest score is among the candidates. It tells which of two classifiers is better as
    long as the true label is a candidate more often than any wrong one; it is not an accuracy, and large sets make it large."""
    return is_candidate(allowed_NC, score_NC.argmax(dim=1)).double().mean()


def approximate_accuracy(probability_NC: Tensor, allowed_NC: Tensor) -> Tensor:
    """Mean over items of the probability of the likeliest class among the candidates alone, zero where it is none of them: the
    accuracy if the classifier's own probabilities, cut to the candidates, said how likely each of them is."""
    inside_NC = probability_NC * allowed_NC
    chosen_N = inside_NC.gather(1, probability_NC.argmax(dim=1, keepdim=True)).squeeze(1)
    total_N = inside_NC.sum(dim=1)
    return torch.where(total_N > 0, chosen_N / total_N.clamp_min(torch.finfo(total_N.dtype).tiny), 0.0).double().mean()
