"""Scores that need no truth, for `GridSearchCV(scoring=...)` and `cross_val_score`."""

from __future__ import annotations

from typing import Any

import torch
from sklearn.utils import check_consistent_length
from torch import Tensor

from pals.estimator.targets import read_target
from pals.labels.covering import approximate_accuracy, covering_rate


def covering_scorer(estimator: Any, X: Any, y: Any) -> float:
    """The share of predictions that are among the candidates."""
    return float(covering_rate(*_both(estimator, X, y)))


def approximate_scorer(estimator: Any, X: Any, y: Any) -> float:
    """The share of right predictions, as far as candidates and the classifier's own probabilities tell."""
    return float(approximate_accuracy(*_both(estimator, X, y)))


def _both(estimator: Any, X: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Class probabilities and candidates, items by classes."""
    probability_NC = estimator.predict_proba(X)
    allowed_NC = read_target(y, estimator.classes_, lenient=True).allowed_NC
    check_consistent_length(probability_NC, allowed_NC)
    return torch.from_numpy(probability_NC), torch.from_numpy(allowed_NC)
