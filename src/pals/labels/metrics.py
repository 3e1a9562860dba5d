"""Grading, with the truth or with the candidates alone. Besides noise generation the only code that reads the truth; and
nothing here feeds back into training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pals.labels.candidates import Truth
from pals.labels.covering import approximate_accuracy, covering_rate

BINS = 20


def score_predictions(logits_NC: Tensor, truth: Truth) -> dict[str, float]:
    """Accuracy, top-5 accuracy (where there are more than five classes), mean accuracy per class and mean loss."""
    label_N = truth.label_N.to(logits_NC.device)
    right_N = logits_NC.argmax(dim=1) == label_N
    # Wrong and right ones in one count: with weights it would have no deterministic kernel on a GPU.
    both = torch.bincount(label_N + truth.num_classes * right_N, minlength=2 * truth.num_classes).double()
    right_C = both[truth.num_classes :]
    count_C = both[: truth.num_classes] + right_C
    seen_C = count_C > 0  # a class without test items has no accuracy
    scores = {
        "accuracy": right_N.double().mean(),
        "class_accuracy": (right_C[seen_C] / count_C[seen_C]).mean(),
        "loss": F.cross_entropy(logits_NC.float(), label_N).double(),
    }
    if truth.num_classes > 5:
        scores["top5"] = (logits_NC.topk(5, dim=1).indices == label_N[:, None]).any(dim=1).double().mean()
    return dict(zip(scores, torch.stack(list(scores.values())).tolist(), strict=True))


def grade_selection(chosen_N: Tensor, label_N: Tensor, truth: Truth) -> dict[str, int]:
    """How many items were selected and how many of those with their true label."""
    right_N = chosen_N & (label_N == truth.label_N.to(label_N.device))
    selected, correct = torch.stack([chosen_N.sum(), right_N.sum()]).tolist()
    return {"selected": int(selected), "correct": int(correct)}


def grade_pruning(allowed_NC: Tensor, kept_NC: Tensor, truth: Truth) -> dict[str, float]:
    """Of candidate sets and what was left of them. coverage: share of the wrong candidates that are gone. error: share of the
    items that have lost their true label. f: F of the two (with 1 - error as precision, counted twice as much)."""
    wrong_NC = allowed_NC & ~F.one_hot(truth.label_N, truth.num_classes).to(allowed_NC)
    gone_NC = allowed_NC & ~kept_NC
    coverage = float((gone_NC & wrong_NC).sum() / wrong_NC.sum().clamp_min(1))
    right = 1 - float((gone_NC & ~wrong_NC).any(dim=1).double().mean())
    total = 0.25 * right + coverage
    return {"coverage": coverage, "error": 1 - right, "f": 1.25 * right * coverage / total if total else 0.0}


def belief_histogram(belief_NC: Tensor, truth: Truth | None) -> dict[str, list[int]]:
    """The largest belief of each item in twenty bins from 0 to 1; split into right and wrong where the truth is known."""
    top_N, label_N = belief_NC.max(dim=1)
    bin_N = (top_N * BINS).long().clamp(0, BINS - 1)
    if truth is None:
        return {"all": torch.bincount(bin_N, minlength=BINS).tolist()}
    right_N = (label_N == truth.label_N.to(label_N.device)).long()
    counts = torch.bincount(bin_N + BINS * right_N, minlength=2 * BINS).tolist()
    return {"wrong": counts[:BINS], "right": counts[BINS:]}


def agreement(logits_NC: Tensor, allowed_NC: Tensor) -> Tensor:
    """Of predictions with candidates: covering rate and approximate accuracy in one tensor, left on the device.
    `read_agreement` waits for it."""
    probability_NC = logits_NC.softmax(dim=1)
    return torch.stack([covering_rate(probability_NC, allowed_NC), approximate_accuracy(probability_NC, allowed_NC)])


def read_agreement(both: Tensor) -> dict[str, float]:
    """For the log."""
    covering, approximate = both.tolist()
    return {"covering": covering, "approximate": approximate}


def accuracy_of(probability_NC: np.ndarray, truth: Truth) -> float:
    """Share of items whose likeliest class is the true one. Of several that are equally likely one is picked at random, so
    each counts its part."""
    top_NC = probability_NC >= probability_NC.max(axis=1, keepdims=True) - 1e-9
    right_N = top_NC[np.arange(len(truth)), truth.label_N.numpy()] / top_NC.sum(axis=1)
    return float(right_N.mean())


def share_covered(item_M: np.ndarray, named_MC: np.ndarray, truth: Truth) -> float:
    """Of answers about these items, each naming one or more classes: the share that names the true one. 1 if there are none."""
    if not len(item_M):
        return 1.0
    return float(named_MC[np.arange(len(item_M)), truth.label_N.numpy()[item_M]].mean())


def mean_and_std(values: Sequence[float]) -> dict[str, float]:
    """Mean and sample standard deviation (0 for a single run)."""
    return {"mean": float(np.mean(values)), "std": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0}
