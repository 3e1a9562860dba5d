"""Grading by the truth. Besides noise generation this is the only code that reads it, and no result returns to training.

Criteria without the truth are in `covering`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pals.labels.candidates import Truth

BINS = 20
"""Of a histogram of probabilities from 0 to 1."""


def score_predictions(logits_NC: Tensor, truth: Truth) -> dict[str, float]:
    """Accuracy, top-5 accuracy (if there are more than five classes), mean accuracy per class and mean cross-entropy.

    Args:
        logits_NC: Scores of the classes before the softmax.
        truth: True labels of the same items.

    Returns:
        `accuracy`, `class_accuracy`, `loss` and perhaps `top5`.
    """
    label_N = truth.label_N.to(logits_NC.device)
    right_N = logits_NC.argmax(dim=1) == label_N
    # One count of both: with weights, bincount has no deterministic kernel on a GPU.
    both = torch.bincount(label_N + truth.num_classes * right_N, minlength=2 * truth.num_classes).double()
    right_C = both[truth.num_classes :]
    count_C = both[: truth.num_classes] + right_C
    tested_C = count_C > 0  # a class without test items has no accuracy
    scores = {
        "accuracy": right_N.double().mean(),
        "class_accuracy": (right_C[tested_C] / count_C[tested_C]).mean(),
        "loss": F.cross_entropy(logits_NC.float(), label_N).double(),
    }
    if truth.num_classes > 5:
        scores["top5"] = (logits_NC.topk(5, dim=1).indices == label_N[:, None]).any(dim=1).double().mean()
    return dict(zip(scores, torch.stack(list(scores.values())).tolist(), strict=True))


def grade_selection(selected_N: Tensor, label_N: Tensor, truth: Truth) -> dict[str, int]:
    """How many items are selected, and how many of them with their true label.

    Args:
        selected_N: items trained on, bool.
        label_N: label each is trained on.
        truth: of the same items.
    """
    right_N = selected_N & (label_N == truth.label_N.to(label_N.device))
    selected, correct = torch.stack([selected_N.sum(), right_N.sum()]).tolist()
    return {"selected": int(selected), "correct": int(correct)}


def posterior_histogram(posterior_NC: Tensor, truth: Truth | None) -> dict[str, list[int]]:
    """Histogram of each item's largest posterior in `BINS` bins: `right` and `wrong` items, or `all` if there is no truth.

    Args:
        posterior_NC: probabilities of the classes.
        truth: of the same items; None if it is not known.
    """
    top_N, label_N = posterior_NC.max(dim=1)
    bin_N = (top_N * BINS).long().clamp(0, BINS - 1)
    if truth is None:
        return {"all": torch.bincount(bin_N, minlength=BINS).tolist()}
    right_N = (label_N == truth.label_N.to(label_N.device)).long()
    counts = torch.bincount(bin_N + BINS * right_N, minlength=2 * BINS).tolist()
    return {"wrong": counts[:BINS], "right": counts[BINS:]}


def accuracy_of(probability_NC: np.ndarray, truth: Truth) -> float:
    """Share of items whose likeliest class is the true one; of n equally likely classes each counts 1/n.

    Args:
        probability_NC: probabilities of the classes.
        truth: of the same items.
    """
    top_NC = probability_NC >= probability_NC.max(axis=1, keepdims=True) - 1e-9
    right_N = top_NC[np.arange(len(truth)), truth.label_N.numpy()] / top_NC.sum(axis=1)
    return float(right_N.mean())


def share_covered(item_M: np.ndarray, named_MC: np.ndarray, truth: Truth) -> float:
    """Share of answers that name the true class; 1 if there are no answers.

    Args:
        item_M: Row of each answer's item.
        named_MC: Classes that each answer names, bool.
        truth: True labels of the items.
    """
    if not len(item_M):
        return 1.0
    return float(named_MC[np.arange(len(item_M)), truth.label_N.numpy()[item_M]].mean())


def mean_and_std(values: Sequence[float]) -> dict[str, float]:
    """Mean and sample standard deviation (0 for a single run)."""
    return {"mean": float(np.mean(values)), "std": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0}
