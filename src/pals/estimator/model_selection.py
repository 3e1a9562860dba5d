"""Model selection without the truth: folds with equal shares of every class's candidates, and scores by candidates.

References: Sechidis et al. 2011, doi:10.1007/978-3-642-23808-6_10 (iterative stratification).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_consistent_length, check_random_state
from torch import Tensor

from pals.estimator.targets import read_target
from pals.labels.covering import approximate_accuracy, covering_rate
from pals.util.errors import InputError


class StratifiedCandidateKFold(BaseCrossValidator):  # type: ignore[misc]
    """`StratifiedKFold` for y in any form that a classifier here takes.

    Sizes of folds differ by one at most, and folds have about the same number of candidates of every class; with plain labels
    numbers of a class differ by one at most.

    Parameters
    ----------
    n_splits : int, default 5
        Number of folds.
    shuffle : bool, default False
        Assign the items in random order.
    random_state : int, RandomState or None, default None
        Of the shuffling.

    Examples
    --------
    >>> from pals.estimator import StratifiedCandidateKFold
    >>> y = [{"a", "b"}, {"a"}, {"b"}, {"b"}]
    >>> [test.tolist() for _, test in StratifiedCandidateKFold(2).split(None, y)]
    [[0, 3], [1, 2]]
    """

    def __init__(self, n_splits: int = 5, *, shuffle: bool = False, random_state: Any = None) -> None:
        if not isinstance(n_splits, (int, np.integer)) or n_splits < 2:
            raise InputError(f"n_splits={n_splits!r}: cross-validation takes at least two folds.")
        self.n_splits = int(n_splits)
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows to train on and rows to test on, fold by fold.

        Args:
            X: inputs of N items, or None.
            y: their candidates, in any form that a classifier takes.
            groups: ignored.

        Raises:
            InputError: if there are fewer items than folds.
        """
        allowed_NC = read_target(y, lenient=True).allowed_NC
        if X is not None:
            check_consistent_length(X, allowed_NC)
        if len(allowed_NC) < self.n_splits:
            raise InputError(f"{self.n_splits} folds cannot be made of {len(allowed_NC)} items.")
        order_N = np.arange(len(allowed_NC))
        if self.shuffle:
            check_random_state(self.random_state).shuffle(order_N)
        fold_N = np.empty(len(allowed_NC), dtype=np.int64)
        fold_N[order_N] = deal(allowed_NC[order_N], self.n_splits)
        for fold in range(self.n_splits):
            yield (fold_N != fold).nonzero()[0], (fold_N == fold).nonzero()[0]


def deal(allowed_NC: np.ndarray, folds: int) -> np.ndarray:
    """The fold of each item by iterative stratification.

    The class with the fewest items left is next. Each of its items is assigned to the fold that lacks most of this class, among
    equal ones to the fold that lacks most of the item's other candidates, then to the one with most free places.

    Args:
        allowed_NC: candidates.
        folds: F.

    Returns:
        N numbers from 0 to F - 1.
    """
    items = len(allowed_NC)
    fold_N = np.full(items, -1)
    free_F = np.full(folds, items // folds)
    free_F[: items % folds] += 1
    missing_FC = np.tile(allowed_NC.sum(axis=0) / folds, (folds, 1))
    left_C = allowed_NC.sum(axis=0)
    while left_C.any():
        rarest = int(np.where(left_C > 0, left_C, items + 1).argmin())
        for item in (allowed_NC[:, rarest] & (fold_N < 0)).nonzero()[0]:
            missing_F, others_F = missing_FC[:, rarest], missing_FC[:, allowed_NC[item]].sum(axis=1)
            fold = int(np.lexsort((-free_F, -others_F.round(6), -missing_F.round(6), free_F == 0))[0])  # the last key first
            fold_N[item] = fold
            free_F[fold] -= 1
            missing_FC[fold, allowed_NC[item]] -= 1
        left_C = (allowed_NC & (fold_N < 0)[:, None]).sum(axis=0)
    rest = (fold_N < 0).nonzero()[0]  # items without candidates
    fold_N[rest] = np.repeat(np.arange(folds), free_F)
    return fold_N


def covering_scorer(estimator: Any, X: Any, y: Any) -> float:
    """The share of predictions that are among the candidates, for `GridSearchCV(scoring=...)` and `cross_val_score`.

    Args:
        estimator: a fitted classifier.
        X: inputs of N items.
        y: their candidates, in any form that a classifier takes.
    """
    return float(covering_rate(*_both(estimator, X, y)))


def approximate_scorer(estimator: Any, X: Any, y: Any) -> float:
    """The accuracy as estimated from the candidates and the classifier's probabilities.

    Args:
        estimator: a fitted classifier.
        X: inputs of N items.
        y: their candidates, in any form that a classifier takes.
    """
    return float(approximate_accuracy(*_both(estimator, X, y)))


def _both(estimator: Any, X: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Class probabilities and candidates, N x C each."""
    probability_NC = estimator.predict_proba(X)
    allowed_NC = read_target(y, estimator.classes_, lenient=True).allowed_NC
    check_consistent_length(probability_NC, allowed_NC)
    return torch.from_numpy(probability_NC), torch.from_numpy(allowed_NC)
