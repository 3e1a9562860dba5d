"""Candidate sets (`CandidateSets`) and true labels (`Truth`): two types, so that neither is taken for the other."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from pals.labels.covering import is_candidate
from pals.util.errors import InputError, unknown
from pals.util.words import in_brief

OnEmpty = Literal["error", "all", "drop"]
"""Items without candidates are an error, get all classes, or are left out."""


@dataclass(frozen=True)
class Truth:
    """The true class of each item, for grading and for making noise; methods never get it.

    Args:
        label_N: Class numbers, int64.
        class_names: Names of the classes.

    Raises:
        InputError: A label that is not a class number; it gives the item.

    >>> from pals import Truth
    >>> Truth.of([2, 0], ["cat", "dog", "eel"]).label_N
    tensor([2, 0])
    """

    label_N: Tensor
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        label_N = _whole_numbers(self.label_N)
        object.__setattr__(self, "label_N", label_N)
        bad = ((label_N < 0) | (label_N >= len(self.class_names))).nonzero().flatten()
        if len(bad):
            row = int(bad[0])
            found = f"True label {int(label_N[row])} of item {row} is none of the {len(self.class_names)} classes"
            raise InputError(f"{found}. Number the classes from 0, or name all of them.")

    @classmethod
    def of(cls, labels: Iterable[int] | Tensor | np.ndarray, class_names: Sequence[str] | None = None) -> Truth:
        """From class numbers.

        Args:
            labels: a class number per item, from 0.
            class_names: of all classes; by default "0", "1", ... up to the largest label.

        Raises:
            InputError: if a label is no class number.
        """
        label_N = _whole_numbers(labels if isinstance(labels, (Tensor, np.ndarray)) else list(labels))
        if class_names is None:
            class_names = default_names(int(label_N.max()) + 1 if len(label_N) else 0)
        return cls(label_N, tuple(class_names))

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def __len__(self) -> int:
        return len(self.label_N)


@dataclass(frozen=True)
class Statistics:
    """Statistics of candidate sets."""

    items: int
    classes: int
    mean_size: float
    singletons: float
    "Share of items with exactly one candidate."
    full: float
    "Share of items whose set holds every class."
    coverage: float | None
    "Share of items whose true label is among the candidates; None without the truth."


@dataclass(frozen=True)
class CandidateSets:
    """The labels that each item may have, according to its annotators.

    Args:
        allowed_NC: Candidates, bool.
        ids: Names of the items.
        class_names: Names of the classes, two or more.
        frequency_NC: Shares of each item's votes, float32; default None: votes were not counted.

    Raises:
        InputError: Shapes that do not fit, an item without candidates, or frequencies that are no shares; it gives the item.

    >>> from pals import CandidateSets
    >>> sets = CandidateSets.from_lists([["cat", "dog"], ["eel"]])
    >>> sets.class_names, sets.size_N
    (('cat', 'dog', 'eel'), tensor([2, 1]))
    """

    allowed_NC: Tensor
    ids: tuple[str, ...]
    class_names: tuple[str, ...]
    frequency_NC: Tensor | None = None

    __repr__ = in_brief

    def __post_init__(self) -> None:
        allowed_NC = torch.as_tensor(self.allowed_NC)
        if allowed_NC.ndim != 2 or allowed_NC.shape != (len(self.ids), len(self.class_names)):
            raise InputError(
                f"Matrix {tuple(allowed_NC.shape)} is not {len(self.ids)} items x {len(self.class_names)} classes."
            )
        if len(self.class_names) < 2:
            found = f"Only one class ({self.class_names[0]})" if self.class_names else "No class"
            raise InputError(f"{found}: there is nothing to tell apart. Name at least two.")
        if len(set(self.class_names)) < len(self.class_names):
            raise InputError("Two classes have the same name; class names must differ.")
        allowed_NC = allowed_NC.to(torch.bool)
        object.__setattr__(self, "allowed_NC", allowed_NC)
        empty = (~allowed_NC.any(dim=1)).nonzero().flatten().tolist()
        if empty:
            raise InputError(
                f"{len(empty)} of {len(self.ids)} items have no candidate label; the first is "
                f"{self.ids[empty[0]]!r}. Drop them, or pass on_empty='all' or on_empty='drop'."
            )
        if self.frequency_NC is not None:
            self._check_frequencies()

    def _check_frequencies(self) -> None:
        assert self.frequency_NC is not None
        frequency_NC = self.frequency_NC.to(torch.float32)
        if frequency_NC.shape != self.allowed_NC.shape:
            raise InputError(f"Shapes of votes {tuple(frequency_NC.shape)} and sets {tuple(self.allowed_NC.shape)} differ.")
        bad = ~torch.isfinite(frequency_NC).all(dim=1) | (frequency_NC < 0).any(dim=1)
        bad |= (frequency_NC.sum(dim=1) - 1).abs() > 1e-3
        if bad.any():
            row = int(bad.nonzero()[0])
            raise InputError(f"The vote frequencies of item {self.ids[row]!r} are not shares that sum to one.")
        object.__setattr__(self, "frequency_NC", frequency_NC)

    @classmethod
    def from_matrix(
        cls,
        matrix: Tensor | np.ndarray | Sequence[Sequence[int]],
        *,
        class_names: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        on_empty: OnEmpty = "error",
    ) -> CandidateSets:
        """From a 0/1 matrix.

        Args:
            matrix: N x C, 0 and 1 or bool.
            class_names: Default "0", "1", ...
            ids: Names of the items; default "0", "1", ...
            on_empty: "error", "all" (every class becomes a candidate) or "drop"; default "error".

        Raises:
            InputError: Other values than 0 and 1, or a row without candidates; it gives the row.
        """
        values = matrix if isinstance(matrix, Tensor) else _numbers(matrix)
        if values.ndim != 2:
            raise InputError(f"A candidate matrix has two dimensions, items by classes; found shape {tuple(values.shape)}.")
        if values.dtype != torch.bool:
            bad = ((values != 0) & (values != 1)).any(dim=1).nonzero().flatten()
            if len(bad):
                raise InputError(f"Row {int(bad[0])} of the candidate matrix holds something other than 0 and 1.")
        names = tuple(class_names) if class_names is not None else default_names(values.shape[1])
        return _fill_empty(values.to(torch.bool), None, _names_or_numbers(ids, len(values)), names, on_empty)

    @classmethod
    def from_lists(
        cls,
        labels: Sequence[Iterable[str | int]],
        *,
        class_names: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        on_empty: OnEmpty = "error",
    ) -> CandidateSets:
        """From one list of labels per item: class names, or class numbers.

        Args:
            labels: Labels of each item.
            class_names: Default: all labels, sorted; of numbers "0", "1", ...
            ids: Names of the items; default "0", "1", ...
            on_empty: "error", "all" or "drop"; default "error".

        Raises:
            InputError: A label that is no class, or an item without candidates; it gives the item.
        """
        names_of = _names_or_numbers(ids, len(labels))
        for item, set_ in zip(names_of, labels, strict=True):
            if isinstance(set_, str):
                raise InputError(f"The candidates of item {item!r} are the text {set_!r}; put them into a list of labels.")
        rows, columns, names = _label_columns(
            [(i, label) for i, set_ in enumerate(labels) for label in set_], names_of, class_names
        )
        allowed_NC = torch.zeros(len(labels), len(names), dtype=torch.bool)
        allowed_NC[rows, columns] = True
        return _fill_empty(allowed_NC, None, names_of, names, on_empty)

    @classmethod
    def from_votes(
        cls,
        votes: Iterable[tuple[str, str | int] | tuple[str, str | int, float]],
        *,
        class_names: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        on_empty: OnEmpty = "error",
    ) -> CandidateSets:
        """From single answers: each label of an item is a candidate, and its share of the item's votes its frequency.

        Args:
            votes: (item, label) or (item, label, weight); labels are class names, or class numbers.
            class_names: Default: all labels, sorted; of numbers "0", "1", ...
            ids: Names of the items in the order wanted; default the order of the votes.
            on_empty: "error", "all" or "drop"; default "error".

        Raises:
            InputError: A weight below 0, an unknown item or label, or an item without votes; it gives the item.
        """
        answers = [(v[0], v[1], float(v[2]) if len(v) == 3 else 1.0) for v in votes]
        for item, label, weight in answers:
            if not (weight >= 0 and np.isfinite(weight)):
                raise InputError(f"The vote {label!r} for item {item!r} has weight {weight}; give a finite one, not below 0.")
        names_of = tuple(ids) if ids is not None else tuple(dict.fromkeys(item for item, _, _ in answers))
        position = {item: i for i, item in enumerate(names_of)}
        if len(position) < len(names_of):
            twice = next(item for i, item in enumerate(names_of) if position[item] != i)
            raise InputError(f"Item {twice!r} is named twice among the {len(names_of)} items. Give each a unique name.")
        for item, label, _ in answers:
            if item not in position:
                raise InputError(f"A vote {label!r} names item {item!r}, which is not among the {len(names_of)} items.")
        rows, columns, names = _label_columns([(position[item], label) for item, label, _ in answers], names_of, class_names)
        count_NC = torch.zeros(len(names_of), len(names), dtype=torch.float64)
        count_NC.index_put_((rows, columns), torch.tensor([w for _, _, w in answers], dtype=torch.float64), accumulate=True)
        total_N1 = count_NC.sum(dim=1, keepdim=True)
        frequency_NC = torch.where(total_N1 > 0, count_NC / total_N1.clamp_min(1e-300), 0.0)
        return _fill_empty(count_NC > 0, frequency_NC.to(torch.float32), names_of, names, on_empty)

    @classmethod
    def from_truth(cls, truth: Truth, ids: Sequence[str] | None = None) -> CandidateSets:
        """One candidate per item, the true one: training on them gives an upper bound."""
        allowed_NC = torch.nn.functional.one_hot(truth.label_N, truth.num_classes).to(torch.bool)
        return cls(allowed_NC, _names_or_numbers(ids, len(truth)), truth.class_names)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def size_N(self) -> Tensor:
        """Number of candidates of each item."""
        return self.allowed_NC.sum(dim=1)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, index: Tensor) -> CandidateSets:
        """Some of the items: rows in the order wanted, or a mask."""
        if index.dtype == torch.bool:
            index = index.nonzero().flatten()
        frequency_NC = None if self.frequency_NC is None else self.frequency_NC[index]
        ids = tuple(self.ids[i] for i in index.tolist())
        return replace(self, allowed_NC=self.allowed_NC[index], ids=ids, frequency_NC=frequency_NC)

    def statistics(self, truth: Truth | None = None) -> Statistics:
        """Sizes of the sets and, if the truth is given, how many of them hold the true label."""
        size_N = self.size_N
        return Statistics(
            items=len(self),
            classes=self.num_classes,
            mean_size=float(size_N.double().mean()),
            singletons=float((size_N == 1).double().mean()),
            full=float((size_N == self.num_classes).double().mean()),
            coverage=None if truth is None else float(covered(self, truth).double().mean()),
        )


def covered(candidates: CandidateSets, truth: Truth) -> Tensor:
    """For each item, whether its true label is among the candidates.

    Args:
        candidates: of N items.
        truth: of the same items.

    Raises:
        InputError: if they differ in their items or classes.
    """
    if len(truth) != len(candidates) or truth.class_names != candidates.class_names:
        raise InputError("Truth and candidates differ in their items or classes: they do not describe the same data.")
    return is_candidate(candidates.allowed_NC, truth.label_N.to(candidates.allowed_NC.device))


def default_names(count: int) -> tuple[str, ...]:
    """Names "0", "1", ... of classes or items."""
    return tuple(str(c) for c in range(count))


def _whole_numbers(labels: Tensor | np.ndarray | list[int]) -> Tensor:
    """Class numbers as int64; a name, a fraction or a missing value is an error, not a rounded label."""

    def not_a_class(row: int, label: object) -> InputError:
        return InputError(f"The true label of item {row} is {label!r}, not a class number. Number the classes from 0.")

    if not isinstance(labels, Tensor):
        labels = np.asarray(labels)
        if labels.dtype.kind not in "biuf":
            for row, label in enumerate(labels.flat):
                if not isinstance(label, (int, float, np.number)):
                    raise not_a_class(row, label)
            labels = labels.astype(np.float64)
    values = torch.as_tensor(labels)
    if values.ndim != 1:
        raise InputError(f"True labels must be one number per item; found an array of shape {tuple(values.shape)}.")
    label_N = values.to(torch.int64)
    bad = (label_N != values).nonzero().flatten()
    if len(bad):
        raise not_a_class(int(bad[0]), values[bad[0]].item())
    return label_N


def _numbers(matrix: np.ndarray | Sequence[Sequence[int]]) -> Tensor:
    try:
        return torch.as_tensor(np.asarray(matrix))
    except (TypeError, ValueError):
        for row, values in enumerate(matrix):
            if len(values) != len(matrix[0]) or np.asarray(values).dtype.kind not in "biuf":
                found = f"Row {row} of the candidate matrix is {reprlib.repr(values)}"
                raise InputError(f"{found}; a row holds a 0 or a 1 for each class.") from None
        raise


def _names_or_numbers(ids: Sequence[str] | None, count: int) -> tuple[str, ...]:
    if ids is None:
        return default_names(count)
    if len(ids) != count:
        raise InputError(f"{len(ids)} item names for {count} items.")
    return tuple(ids)


def _label_columns(
    pairs: list[tuple[int, str | int]], ids: tuple[str, ...], class_names: Sequence[str] | None
) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """(row, label) pairs to rows, columns and the class names; labels may be names or, all of them, numbers."""
    for row, label in pairs:
        if not isinstance(label, (str, int, np.integer)):
            raise InputError(f"Label {label!r} of item {ids[row]!r} is neither a class name nor a class number.")
    numeric = all(isinstance(label, (int, np.integer)) for _, label in pairs)
    if class_names is None:
        found = {label for _, label in pairs}
        class_names = default_names(max((int(v) for v in found), default=-1) + 1) if numeric else sorted(set(map(str, found)))
    column = {name: c for c, name in enumerate(class_names)}
    columns = []
    for row, label in pairs:
        c = int(label) if numeric else column.get(str(label), -1)
        if not 0 <= c < len(class_names) and numeric:
            classes = f"the {len(class_names)} classes (0 to {len(class_names) - 1})"
            raise InputError(f"Label {label} of item {ids[row]!r} lies outside {classes}.")
        if c < 0:
            raise InputError(f"In item {ids[row]!r}: {unknown('label', label, class_names)}")
        columns.append(c)
    rows = torch.tensor([row for row, _ in pairs], dtype=torch.int64)
    return rows, torch.tensor(columns, dtype=torch.int64), tuple(class_names)


def _fill_empty(
    allowed_NC: Tensor, frequency_NC: Tensor | None, ids: tuple[str, ...], class_names: tuple[str, ...], on_empty: OnEmpty
) -> CandidateSets:
    empty_N = ~allowed_NC.any(dim=1)
    if on_empty == "all":
        allowed_NC = allowed_NC | empty_N[:, None]
        if frequency_NC is not None:
            frequency_NC = torch.where(empty_N[:, None], 1.0 / len(class_names), frequency_NC)
    elif on_empty == "drop":
        keep = (~empty_N).nonzero().flatten()
        allowed_NC, ids = allowed_NC[keep], tuple(ids[i] for i in keep.tolist())
        frequency_NC = None if frequency_NC is None else frequency_NC[keep]
    elif on_empty != "error":
        raise unknown("on_empty", on_empty, ("error", "all", "drop"))
    return CandidateSets(allowed_NC, ids, class_names, frequency_NC)
