"""Folds for cross-validation on candidate sets: every class's candidates spread evenly over them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_consistent_length, check_random_state

from pals.estimator.targets import read_target
from pals.util.errors import InputError


class StratifiedCandidateKFold(BaseCrossValidator):  # type: ignore[misc]
    """Like `StratifiedKFold`, for y in any form that a classifier here takes. Folds are of equal size, as far as that goes, and
    hold about the same number of candidates of every class; with plain labels the same number of every class.

    n_splits : how many folds. shuffle : deal the items out in random order. random_state : of the shuffling.
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
        """Rows to learn from and rows to test on, fold by fold. `groups` are not looked at."""
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
    """The fold of each item, by iterative stratification (Sechidis et al., 2011): the class with the fewest items left goes
    first, since it leaves the least choice; each of its items goes where that class is wanted most, among such folds where the
    item's other candidates are, then where there is most room."""
    items = len(allowed_NC)
    fold_N = np.full(items, -1)
    room_F = np.full(folds, items // folds)
    room_F[: items % folds] += 1
    wanted_FC = np.tile(allowed_NC.sum(axis=0) / folds, (folds, 1))
    left_C = allowed_NC.sum(axis=0)
    while left_C.any():
        rarest = int(np.where(left_C > 0, left_C, items + 1).argmin())
        for item in (allowed_NC[:, rarest] & (fold_N < 0)).nonzero()[0]:
            fold = _best_fold(wanted_FC[:, rarest], wanted_FC[:, allowed_NC[item]].sum(axis=1), room_F)
            fold_N[item] = fold
            room_F[fold] -= 1
            wanted_FC[fold, allowed_NC[item]] -= 1
        left_C = (allowed_NC & (fold_N < 0)[:, None]).sum(axis=0)
    rest = (fold_N < 0).nonzero()[0]  # items that nobody said anything of
    fold_N[rest] = np.repeat(np.arange(folds), room_F)
    return fold_N


def _best_fold(wanted_F: np.ndarray, others_F: np.ndarray, room_F: np.ndarray) -> int:
    """Where there is room: by what is wanted of this class, then of the others of the item, then by room, then the first."""
    rank = np.lexsort((-room_F, -others_F.round(6), -wanted_F.round(6), room_F == 0))
    return int(rank[0])
