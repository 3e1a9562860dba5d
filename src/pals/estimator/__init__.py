"""scikit-learn estimators: `fit(X, y)` with candidate labels, `predict`, pipelines, grid search, cross-validation.

Besides the names below there is one class for every method: `PALSClassifier`, `PRODENClassifier`, `PLKNNClassifier`, ... Each
is created on first use, also for methods that are registered later.

Shapes: N items, C classes, D features, K neighbours, F folds.
"""

from __future__ import annotations

from typing import Any

from pals.data.mat_sets import MatData, load_mat
from pals.estimator.classifier import CandidateClassifier
from pals.estimator.factory import class_names, classifier_for, find_class
from pals.estimator.model_selection import StratifiedCandidateKFold, approximate_scorer, covering_scorer
from pals.estimator.targets import candidate_matrix

__all__ = [
    "CandidateClassifier",
    "MatData",
    "StratifiedCandidateKFold",
    "approximate_scorer",
    "candidate_matrix",
    "classifier_for",
    "covering_scorer",
    "load_mat",
]


def __getattr__(name: str) -> Any:
    found = find_class(name)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *class_names()])
