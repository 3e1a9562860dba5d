"""Scores that need no truth, for `GridSearchCV(scoring=...)` and `cross_val_score`."""

from __future__ import annotations

from typing import Any

import numpy as np

from pals.crowd.estimate import approximate_accuracy, covering_rate
from pals.estimator.targets import read_target


def covering_scorer(estimator: Any, X: Any, y: Any) -> float:
    """The share of predictions that are among the candidates."""
    return covering_rate(*_both(estimator, X, y))


def approximate_scorer(estimator: Any, X: Any, y: Any) -> float:
    """The share of right predictions, as far as candidates and the classifier's own probabilities tell."""
    return approximate_accuracy(*_both(estimator, X, y))


def _both(estimator: Any, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Class probabilities and candidates, items by classes."""
    return estimator.predict_proba(X), read_target(y, estimator.classes_, lenient=True).allowed_NC
