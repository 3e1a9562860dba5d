"""The labels y in any form, read into one table of candidates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from scipy.sparse import issparse
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from pals.labels.candidates import CandidateSets
from pals.readers import Votes
from pals.util.errors import InputError, unknown

OnEmptyTarget = Literal["error", "all"]  # no "drop", as in `CandidateSets`: X would keep the item
Weights = Mapping[Hashable, float]
"""Votes, or shares of them, by label of one item."""
TARGET_HINT = "Give a 0/1 matrix (items by classes), a list with one set of labels per item, or one label per item."


@dataclass(frozen=True)
class Target:
    """The candidates of each item, by row."""

    allowed_NC: np.ndarray
    "bool"
    classes: np.ndarray
    frequency_NC: np.ndarray | None = None
    "Share of the item's votes; None where votes were not counted."
    plain: bool = False
    "One label per item: for a score, the truth."

    def __len__(self) -> int:
        return len(self.allowed_NC)

    def sets(self) -> CandidateSets:
        """Candidate sets for a method; the ids of the items are their row numbers."""
        names = tuple(map(str, self.classes.tolist()))
        frequency_NC = None if self.frequency_NC is None else _tensor(self.frequency_NC)
        return CandidateSets(_tensor(self.allowed_NC), tuple(map(str, range(len(self)))), names, frequency_NC)


def read_target(
    y: Any, classes: Sequence[Any] | np.ndarray | None = None, *, on_empty: OnEmptyTarget = "error", lenient: bool = False
) -> Target:
    """Read labels in any form.

    Args:
        y: of N items: a 0/1 matrix (array, sparse, tensor, frame), a matrix of vote counts or shares, one set or list of
            labels per item, one tuple of answers or {label: weight} per item, a table of text with a column per annotator,
            `Votes`, `CandidateSets`, or plain labels.
        classes: all classes, in order; default: the columns of a matrix (by number, or by name in a frame) or the labels found.
        on_empty: an item without any label is an error, or may have any class ("all").
        lenient: for a score: labels that are not in `classes` are ignored, and an item may have no label.

    Raises:
        InputError: y is not one of these, or a row is invalid.
    """
    if on_empty not in ("error", "all"):
        raise unknown("on_empty", on_empty, ("error", "all"))
    order = None if classes is None else np.asarray(classes)
    if order is not None and (order.ndim != 1 or len(set(order.tolist())) < len(order)):
        raise InputError("`classes` names every class once, in a list.")
    target = _read(y, order, on_empty, lenient)
    return target if lenient else _without_empty(target, on_empty)


def candidate_matrix(y: Any, classes: Sequence[Any] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Labels in any form as a matrix, which scikit-learn can split into folds.

    Args:
        y: as in `read_target`.
        classes: as in `read_target`.

    Returns:
        N x C of 0 and 1, or of shares where votes were counted; and the C classes.

    Example:
        >>> from pals.estimator import candidate_matrix
        >>> matrix, classes = candidate_matrix([{"cat"}, {"cat", "dog"}])
        >>> matrix.tolist(), classes.tolist()
        ([[1, 0], [1, 1]], ['cat', 'dog'])
    """
    target = read_target(y, classes)
    matrix = target.allowed_NC.astype(np.int8) if target.frequency_NC is None else target.frequency_NC
    return matrix, target.classes


def _read(y: Any, classes: np.ndarray | None, on_empty: OnEmptyTarget, lenient: bool) -> Target:
    if y is None:
        raise InputError(f"A classifier requires y to be passed, but the target y is None. {TARGET_HINT}")
    if isinstance(y, Votes):
        y = y.to_candidates(on_empty=on_empty)
    if isinstance(y, CandidateSets):
        frequency_NC = None if y.frequency_NC is None else y.frequency_NC.cpu().numpy()
        own = Target(y.allowed_NC.cpu().numpy(), np.array(y.class_names), frequency_NC)
        return _arranged(own, classes, lenient)
    if isinstance(y, Tensor):
        y = y.detach().cpu().numpy()
    if issparse(y):
        y = y.toarray()
    if hasattr(y, "columns"):  # a frame
        return _from_table(np.asarray(y), np.asarray(y.columns), classes, lenient)
    rows = _rows(y)
    if rows is not None:
        return _from_rows(rows, classes, lenient)
    values = np.asarray(y)
    if values.ndim == 2:
        return _from_table(values, None, classes, lenient)
    return _from_labels(y, classes, lenient)


def _rows(y: Any) -> list[Any] | None:
    """The items' sets, lists or tuples; None if y is a matrix or holds plain labels."""
    inner = (set, frozenset, list, tuple, Mapping)
    if isinstance(y, (str, bytes, Mapping)):
        raise InputError(f"y is {type(y).__name__}, not something with one entry per item. {TARGET_HINT}")
    objects = isinstance(y, (list, tuple)) or getattr(getattr(y, "dtype", None), "kind", "") == "O"
    rows = list(y) if objects else []
    if getattr(y, "ndim", 1) != 1 or not any(isinstance(row, inner) for row in rows) or _is_matrix(rows):
        return None
    for number, row in enumerate(rows):
        if not isinstance(row, inner):
            raise InputError(f"Row {number} of y is {row!r}, while others are sets of labels; write {{{row!r}}} for one label.")
    return rows


def _is_matrix(rows: Sequence[Any]) -> bool:
    """Whether lists hold a number per class and not labels: all of one length, and only 0 and 1, or some with a fraction."""
    if not all(isinstance(row, list) for row in rows) or {len(row) for row in rows} in ({0}, {1}):
        return False
    values = set(chain.from_iterable(rows)) if len({len(row) for row in rows}) == 1 else {""}
    numbers = all(isinstance(value, (int, float, np.number, np.bool_)) for value in values)
    return numbers and (values <= {0, 1} or any(isinstance(value, (float, np.floating)) for value in values))


def _from_rows(rows: Sequence[Any], classes: np.ndarray | None, lenient: bool) -> Target:
    given = [_weights(number, row) for number, row in enumerate(rows)]
    order = _sorted_labels(chain.from_iterable(given)) if classes is None else classes
    column = {label: c for c, label in enumerate(order.tolist())}
    count_NC = np.zeros((len(rows), len(order)))
    for number, weights in enumerate(given):
        for label, weight in weights.items():
            if label in column:
                count_NC[number, column[label]] = weight
            elif not lenient:
                raise InputError(f"In row {number} of y: {unknown('label', label, map(str, column))}")
    counted = any(isinstance(row, (tuple, Mapping)) for row in rows)
    return Target(count_NC > 0, order, _shares(count_NC) if counted else None)


def _weights(number: int, row: Any) -> Weights:
    """The weight of each label of a row; every entry of a tuple is the answer of one annotator."""
    try:
        counted: Weights = row if isinstance(row, Mapping) else Counter(row)
    except TypeError:
        raise InputError(f"Row {number} of y, {row!r}, holds something that is not a label. {TARGET_HINT}") from None
    if isinstance(row, list) and len(counted) < len(row):
        raise InputError(f"Row {number} of y names a label twice. Make it a tuple of one answer per person, or a set.")
    for label, weight in counted.items():
        if not (np.isfinite(weight) and weight >= 0):
            raise InputError(f"Row {number} of y gives {label!r} the weight {weight}; weights are finite and not negative.")
    return counted


def _from_table(values: np.ndarray, columns: np.ndarray | None, classes: np.ndarray | None, lenient: bool) -> Target:
    """A matrix with a column per class; or, if it holds text, with a column per annotator."""
    if values.shape[1] == 1:
        return _from_labels(column_or_1d(values, warn=True), classes, lenient)
    if values.dtype.kind in "UO" and any(isinstance(value, str) for value in values.flat):
        answered = ~(pd.isna(values) | (values == ""))
        answers = [tuple(row[mask].tolist()) for row, mask in zip(values, answered, strict=True)]
        return _from_rows(answers, classes, lenient)
    try:
        count_NC = values.astype(np.float64) if values.dtype.kind in "biufO" else None
    except (TypeError, ValueError):  # objects of other types
        count_NC = None
    if count_NC is None:
        raise InputError(f"y is a table of {values.dtype}, neither of numbers nor of text. {TARGET_HINT}")
    bad_N = ~(np.isfinite(count_NC) & (count_NC >= 0)).all(axis=1)
    if bad_N.any():
        raise InputError(f"Row {bad_N.argmax()} of y holds a negative number, NaN or infinity. {TARGET_HINT}")
    sets_only = bool(np.isin(count_NC, (0, 1)).all())
    frequency_NC = None if sets_only else _shares(count_NC)
    if columns is None:
        columns = np.arange(values.shape[1]) if classes is None else classes
    if len(columns) != values.shape[1]:
        raise InputError(f"y has {values.shape[1]} columns, but there are {len(columns)} classes.")
    return _arranged(Target(count_NC > 0, columns, frequency_NC), classes, lenient)


def _from_labels(y: Any, classes: np.ndarray | None, lenient: bool) -> Target:
    _refuse_mixed(y)
    label_N = column_or_1d(y, warn=True)
    assert_all_finite(label_N, input_name="y")
    check_classification_targets(label_N)
    own, code_N = np.unique(label_N, return_inverse=True)
    return _arranged(Target(np.eye(len(own), dtype=bool)[code_N], own, plain=True), classes, lenient)


def _refuse_mixed(y: Any) -> None:
    """Refuse missing labels and numbers among texts, which numpy would convert to text."""
    labels = np.asarray(y, dtype=object).ravel()
    text_N = np.array([isinstance(label, str) for label in labels.tolist()], dtype=bool)
    missing_N = pd.isna(labels)
    if missing_N.any() and (text_N.any() or labels[missing_N][0] is None):
        raise InputError(f"Row {missing_N.argmax()} of y has no label. Drop it, or give sets of labels and on_empty='all'.")
    if text_N.any() and not text_N.all():
        raise InputError(f"Row {(~text_N).argmax()} of y is a number while others are text. Use one kind of labels.")


def _arranged(target: Target, classes: np.ndarray | None, lenient: bool) -> Target:
    """The target with its columns in the order of `classes`."""
    if classes is None or (len(classes) == len(target.classes) and (classes == target.classes).all()):
        return target
    place = {label: c for c, label in enumerate(classes.tolist())}
    found = [place.get(label, -1) for label in target.classes.tolist()]
    if -1 in found and not lenient:
        raise unknown("label in y:", target.classes[found.index(-1)], map(str, place))
    kept = [c for c, at in enumerate(found) if at >= 0]
    into = [at for at in found if at >= 0]

    def moved(table_NC: np.ndarray) -> np.ndarray:
        result = np.zeros((len(table_NC), len(classes)), dtype=table_NC.dtype)
        result[:, into] = table_NC[:, kept]
        return result

    frequency_NC = None if target.frequency_NC is None else moved(target.frequency_NC)
    return Target(moved(target.allowed_NC), classes, frequency_NC, target.plain)


def _without_empty(target: Target, on_empty: OnEmptyTarget) -> Target:
    empty_N = target.allowed_NC.sum(axis=1) == 0
    if not empty_N.any():
        return target
    if on_empty == "error":
        raise InputError(
            f"{empty_N.sum()} of {len(target)} items have no candidate label; the first is row {empty_N.argmax()}. "
            f"Drop them, or pass on_empty='all' to the classifier: they may then be anything."
        )
    frequency_NC = target.frequency_NC
    if frequency_NC is not None:
        frequency_NC = np.where(empty_N[:, None], np.float32(1 / len(target.classes)), frequency_NC)
    return Target(target.allowed_NC | empty_N[:, None], target.classes, frequency_NC, target.plain)


def _shares(count_NC: np.ndarray) -> np.ndarray:
    total_N1 = count_NC.sum(axis=1, keepdims=True)
    return (count_NC / np.where(total_N1 > 0, total_N1, 1.0)).astype(np.float32)


def _sorted_labels(labels: Iterable[Hashable]) -> np.ndarray:
    found = set(labels)
    try:
        return np.array(sorted(found))  # type: ignore[type-var]
    except TypeError:
        kinds = sorted({type(label).__name__ for label in found})
        raise InputError(f"The labels in y are of kinds that cannot be compared: {', '.join(kinds)}. Use one kind.") from None


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))
