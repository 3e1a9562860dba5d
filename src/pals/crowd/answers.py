"""Votes arranged so that everything said about them is a product of sparse matrices: no loop over rows, no table of rows
by classes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, identity, vstack

from pals.readers import Votes


@dataclass(frozen=True)
class Answers:
    """Who said what of which item. A pair (P) is an annotator and a label that they gave at least once. A symbol (S) is what
    one answer says: a pair, or several pairs of one annotator where the answer names several labels. Nobody's name is
    annotator W - 1: all unnamed answers are taken for those of one person.

    Weights count relative to their mean, so that only their proportions matter.
    """

    given_NS: Any  # scipy.sparse, float64: weight of the answers with this symbol for this item, above zero
    members_SP: Any  # scipy.sparse, 0 or 1: the pairs that a symbol consists of
    worker_S: np.ndarray
    worker_P: np.ndarray
    label_P: np.ndarray
    gold_N: np.ndarray  # -1 where not known
    num_workers: int
    num_classes: int

    @cached_property
    def item_E(self) -> np.ndarray:
        """The item of each entry of `given_NS`."""
        return np.repeat(np.arange(self.num_items), self.count_N)

    @property
    def num_items(self) -> int:
        return len(self.gold_N)

    @property
    def count_N(self) -> np.ndarray:
        """How many answers that weigh anything an item has; two of one person that say the same are one."""
        return np.diff(self.given_NS.indptr)

    @property
    def answered_N(self) -> np.ndarray:
        return self.count_N > 0

    @property
    def known_N(self) -> np.ndarray:
        """Whether anything at all is known of an item."""
        return self.answered_N | (self.gold_N >= 0)


def arrange(votes: Votes) -> Answers:
    """The votes as sparse matrices."""
    classes, people = len(votes.class_names), len(votes.workers) + 1
    worker_R = np.where(votes.worker_R < 0, people - 1, votes.worker_R)
    code_P, pair_R = np.unique(worker_R * classes + votes.label_R, return_inverse=True)
    number_A, first_A, answer_R = np.unique(votes.answer_R, return_index=True, return_inverse=True)
    several_A = np.bincount(answer_R, minlength=len(number_A)) > 1
    # An answer with one label is its pair; each answer with several has a symbol of its own.
    symbol_A = np.where(several_A, len(code_P) + np.cumsum(several_A) - 1, pair_R[first_A])
    row_R = np.flatnonzero(several_A[answer_R])
    own_SP = csr_matrix(
        (np.ones(len(row_R)), (symbol_A[answer_R[row_R]] - len(code_P), pair_R[row_R])),
        shape=(int(several_A.sum()), len(code_P)),
    )
    own_SP.data[:] = 1  # a label that an answer names twice is named
    given_NS = csr_matrix(
        (relative(votes.weight_R[first_A]), (votes.item_R[first_A], symbol_A)),
        shape=(len(votes.items), len(code_P) + own_SP.shape[0]),
    )
    given_NS.eliminate_zeros()
    return Answers(
        given_NS=given_NS,
        members_SP=vstack([identity(len(code_P), format="csr"), own_SP], format="csr"),
        worker_S=np.concatenate([code_P // classes, worker_R[first_A[several_A]]]),
        worker_P=code_P // classes,
        label_P=code_P % classes,
        gold_N=votes.gold_I,
        num_workers=people,
        num_classes=classes,
    )


def subset(votes: Votes, chosen: np.ndarray) -> Votes:
    """The votes about these items, in this order, and the people who gave them."""
    place_I = np.full(len(votes.items), -1)
    place_I[chosen] = np.arange(len(chosen))
    rows = np.flatnonzero(place_I[votes.item_R] >= 0)
    people, worker_R = np.unique(np.append(votes.worker_R[rows], -1), return_inverse=True)
    return replace(
        votes,
        items=tuple(votes.items[item] for item in chosen),
        workers=tuple(votes.workers[person] for person in people[1:]),
        item_R=place_I[votes.item_R[rows]],
        worker_R=worker_R[:-1] - 1,
        label_R=votes.label_R[rows],
        answer_R=np.unique(votes.answer_R[rows], return_inverse=True)[1],
        weight_R=votes.weight_R[rows],
        gold_I=votes.gold_I[chosen],
    )


def with_rows(votes: Votes, rows: np.ndarray) -> Votes:
    """The votes with these rows alone; items and people stay."""
    columns = {column.name: getattr(votes, column.name)[rows] for column in fields(votes) if column.name.endswith("_R")}
    return replace(votes, **columns | {"answer_R": np.unique(columns["answer_R"], return_inverse=True)[1]})


def relative(weight_A: np.ndarray) -> np.ndarray:
    """Weights with mean one over those that count; all zero stay zero."""
    top = weight_A.max(initial=0)
    if top <= 0:
        return np.zeros(len(weight_A))
    weight_A = weight_A / top  # first, so that enormous weights have a finite sum
    scaled_A: np.ndarray = weight_A / weight_A[weight_A > 0].mean()
    return scaled_A


def vote_shares(votes: Votes) -> np.ndarray:
    """N x C: weighted share of each item's answers that a label got; an answer with several labels is split evenly. Zeros
    where no answer weighs anything."""
    items, classes = len(votes.items), len(votes.class_names)
    part_R = relative(votes.weight_R) / np.bincount(votes.answer_R, minlength=1)[votes.answer_R]
    count = np.bincount(votes.item_R * classes + votes.label_R, part_R, minlength=items * classes)
    count_NC = count.reshape(items, classes)
    return ratio(count_NC, count_NC.sum(axis=1, keepdims=True), otherwise=0.0)


def ratio(top: np.ndarray, bottom: np.ndarray, otherwise: float = np.nan) -> np.ndarray:
    """top / bottom, and something else where bottom is zero."""
    shape = np.broadcast_shapes(top.shape, bottom.shape)
    found: np.ndarray = np.divide(top, bottom, out=np.full(shape, otherwise), where=bottom > 0)
    return found
