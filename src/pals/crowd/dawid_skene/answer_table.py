"""What annotators wrote, arranged for the annotator model: one entry for each answer, one row for each label that it lists.

An answer gives every class one of four roles: FIRST (the label, or each label of an unranked set), SECOND, LISTED (further
ranks, and possible classes beside a first choice), or UNLISTED. Sets are ranked as they are written if that order shows which
is likelier. Its form is everything else that was written: how many labels have each role, the stated percentage of the first,
and whether the answer is marked as unsure. A sure single label is a form, a set of three is another, "deer, 70%, perhaps dog"
a third. What a form is worth is estimated from the data (`annotator_model`).

Symbols: A answers, R rows (listed labels), F forms, N items, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix

from pals.crowd.answers import relative
from pals.readers import Votes

UNLISTED, FIRST, SECOND, LISTED = range(4)
PERCENT_BOUNDS = (0.5, 0.65, 0.8, 0.95, 0.999)
"""Between the groups of stated percentages that are forms of their own."""
MIN_ORDER_EVIDENCE, MAX_IN_CLASS_ORDER = 4.0, 0.95
"""For the order of sets to count: standard errors by which first labels are given more often than second ones, and the largest
share of sets in the order of the classes."""
MAX_COUNTED_LABELS = 4
"""Sets of this size and larger have one form, unless they name a node of a taxonomy."""


@dataclass(frozen=True)
class AnswerTable:
    """All answers to N items.

    Args:
        item_A: Item of each answer.
        annotator_A: Annotator of each answer; -1 if unnamed: then it is another annotator's each time.
        weight_A: Weight, one in the mean; several answers of one annotator to one item share a vote.
        form_A: Form of each answer.
        count_A4: How many classes have each role.
        answer_R: Answer of each row, ascending.
        label_R: Label of each row.
        role_R: Role of the label: FIRST, SECOND or LISTED.
        gold_N: Known label of each item, -1 if there is none.
        num_annotators: Number of named annotators.
        num_classes: C.
    """

    item_A: np.ndarray
    annotator_A: np.ndarray
    weight_A: np.ndarray
    form_A: np.ndarray
    count_A4: np.ndarray
    answer_R: np.ndarray
    label_R: np.ndarray
    role_R: np.ndarray
    gold_N: np.ndarray
    num_annotators: int
    num_classes: int

    @property
    def num_items(self) -> int:
        return len(self.gold_N)

    @property
    def num_forms(self) -> int:
        return int(self.form_A.max(initial=-1)) + 1

    @cached_property
    def item_R(self) -> np.ndarray:
        """Item of each row."""
        return np.asarray(self.item_A[self.answer_R])

    @cached_property
    def first_R(self) -> np.ndarray:
        """Rows of first choices."""
        return np.flatnonzero(self.role_R == FIRST)

    @cached_property
    def top_A(self) -> np.ndarray:
        """The first choice of each answer; -1 where an unranked set leaves it open."""
        top_A = np.full(len(self.item_A), -1, dtype=np.int64)
        top_A[self.answer_R[self.first_R]] = self.label_R[self.first_R]
        top_A[self.count_A4[:, FIRST] != 1] = -1
        return np.asarray(top_A)

    @cached_property
    def part_R(self) -> np.ndarray:
        """Part of its answer that each row is: one over the number of labels with its role."""
        part_R: np.ndarray = 1 / self.count_A4[self.answer_R, self.role_R]
        return part_R

    @cached_property
    def count_N(self) -> np.ndarray:
        """Sum of the weights of each item's answers, as a number of answers."""
        return np.bincount(self.item_A, self.weight_A, minlength=self.num_items)

    @cached_property
    def answered_N(self) -> np.ndarray:
        """Items with an answer that weighs anything."""
        return self.count_N > 0

    @cached_property
    def known_N(self) -> np.ndarray:
        """Items with an answer or a gold label."""
        return self.answered_N | (self.gold_N >= 0)

    @cached_property
    def share_NC(self) -> np.ndarray:
        """Share of each item's first choices that name a class, unranked sets split evenly; gold labels have all of it."""
        share_NC = self._sum(self.first_R, (self.weight_A[self.answer_R] * self.part_R)[self.first_R])
        share_NC /= np.maximum(share_NC.sum(axis=1, keepdims=True), 1e-300)
        gold = np.flatnonzero(self.gold_N >= 0)
        share_NC[gold] = 0
        share_NC[gold, self.gold_N[gold]] = 1
        return share_NC

    @cached_property
    def named_NC(self) -> np.ndarray:
        """Classes that any answer to the item lists, and all classes of items without answers, bool."""
        named_NC = self._sum(np.arange(len(self.label_R)), self.weight_A[self.answer_R]) > 0
        named_NC[~self.answered_N] = True
        return named_NC

    @cached_property
    def class_share_C(self) -> np.ndarray:
        """Share of each class among the first choices, with one more item for each class. It anchors the model: class c is
        what annotators mostly call c, so the sizes of the classes are not estimated from the posterior."""
        total_C = self.share_NC.sum(axis=0) + 1
        share_C: np.ndarray = total_C / total_C.sum()
        return share_C

    def _sum(self, rows: np.ndarray, value: np.ndarray) -> np.ndarray:
        """N x C: sums of values of these rows by item and label."""
        shape = self.num_items, self.num_classes
        return np.asarray(csr_matrix((value, (self.item_R[rows], self.label_R[rows])), shape=shape).toarray())

    def take(self, items: np.ndarray) -> AnswerTable:
        """The answers to these items alone, renumbered; annotators and forms keep their numbers."""
        place_N = np.full(self.num_items, -1)
        place_N[items] = np.arange(len(items))
        return self.of_answers(np.flatnonzero(place_N[self.item_A] >= 0), place_N, self.gold_N[items])

    def of_answers(self, answers: np.ndarray, place_N: np.ndarray, gold_N: np.ndarray) -> AnswerTable:
        """These answers alone, to items that are renumbered (-1: left out) and have these gold labels."""
        place_A = np.full(len(self.item_A), -1)
        place_A[answers] = np.arange(len(answers))
        rows = np.flatnonzero(place_A[self.answer_R] >= 0)
        return AnswerTable(
            item_A=place_N[self.item_A[answers]],
            annotator_A=self.annotator_A[answers],
            weight_A=self.weight_A[answers],
            form_A=self.form_A[answers],
            count_A4=self.count_A4[answers],
            answer_R=place_A[self.answer_R[rows]],
            label_R=self.label_R[rows],
            role_R=self.role_R[rows],
            gold_N=gold_N,
            num_annotators=self.num_annotators,
            num_classes=self.num_classes,
        )

    def with_tops(self, label_A: np.ndarray) -> AnswerTable:
        """The same annotators and items with another single label as each answer."""
        answers, ones = len(self.item_A), np.ones(len(self.item_A), dtype=np.int64)
        count_A4 = np.outer(ones, [self.num_classes - 1, 1, 0, 0])
        rows = np.arange(answers)
        return AnswerTable(
            self.item_A, self.annotator_A, self.weight_A, 0 * ones, count_A4, rows, label_A, ones, self.gold_N,
            self.num_annotators, self.num_classes,
        )  # fmt: skip


def arrange(votes: Votes) -> AnswerTable:
    """The answers of votes, in their order.

    Args:
        votes: Any votes; answers of weight zero count nothing.

    Returns:
        The table.

    >>> from pathlib import Path
    >>> text = b"item,annotator,label\\na.jpg,ann,newt\\na.jpg,bob,newt|frog\\n"
    >>> table = arrange(pals.read_votes([pals.Source(Path("votes.csv"), data=text)]))
    >>> table.form_A.tolist(), table.count_A4.tolist(), table.share_NC.round(2).tolist()
    ([0, 1], [[1, 1, 0, 0], [0, 2, 0, 0]], [[0.25, 0.75]])
    """
    classes = len(votes.class_names)
    first_A, answer_R = np.unique(votes.answer_R, return_index=True, return_inverse=True)[1:]
    key_R = answer_R * classes + votes.label_R
    rank_R = np.where(votes.rank_R > 0, votes.rank_R, np.iinfo(np.int64).max)
    order = np.lexsort((rank_R, key_R))
    kept = order[np.unique(key_R[order], return_index=True)[1]]  # a label that an answer lists twice counts once
    kept = kept[np.lexsort((kept, answer_R[kept]))]  # rows by answer, labels as they were written
    answer_R, rank_R, answers = answer_R[kept], rank_R[kept], len(first_A)
    percent_R = votes.percent_R[kept]
    # An answer that only states percentages ranks its labels by them.
    ranked_A = np.bincount(answer_R, rank_R < np.iinfo(np.int64).max, minlength=answers) > 0
    stated = ~ranked_A[answer_R] & ~np.isnan(percent_R)
    if stated.any():
        rank_R = np.where(stated, _ranks(answer_R, np.where(stated, -percent_R, np.inf)), rank_R)
    if len(answer_R) > answers:
        rank_R = _order_of_sets(votes, kept, answer_R, rank_R)
    best_A = np.full(answers, np.iinfo(np.int64).max)
    np.minimum.at(best_A, answer_R, rank_R)
    role_R = np.where(rank_R == best_A[answer_R], FIRST, np.where(rank_R == 2, SECOND, LISTED))
    count_A4 = np.stack([np.bincount(answer_R[role_R == role], minlength=answers) for role in range(4)], axis=1)
    count_A4[:, UNLISTED] = classes - count_A4.sum(axis=1)
    percent_A = np.full(answers, np.nan)
    top = np.flatnonzero((role_R == FIRST) & ~np.isnan(percent_R))
    percent_A[answer_R[top]] = percent_R[top]
    sure_A = np.bincount(answer_R, votes.sure_R[kept], minlength=answers) > 0
    group_A = np.where(np.isnan(percent_A), -1, np.searchsorted(PERCENT_BOUNDS, percent_A))
    key_AK = np.column_stack([np.minimum(count_A4[:, 1:], MAX_COUNTED_LABELS), group_A, sure_A])
    form_A = np.unique(key_AK, axis=0, return_inverse=True)[1].ravel() if answers else np.zeros(0, dtype=np.int64)
    item_A, annotator_A = votes.item_R[first_A], votes.annotator_R[first_A]
    return AnswerTable(
        item_A=item_A,
        annotator_A=annotator_A,
        weight_A=_shared_weights(relative(votes.weight_R[first_A]), item_A, annotator_A, len(votes.annotators)),
        form_A=form_A,
        count_A4=count_A4,
        answer_R=answer_R,
        label_R=votes.label_R[kept],
        role_R=role_R,
        gold_N=votes.gold_I,
        num_annotators=len(votes.annotators),
        num_classes=classes,
    )


def _ranks(group_R: np.ndarray, value_R: np.ndarray) -> np.ndarray:
    """The rank of each value in its group, from 1; equal values share the first."""
    rank_R: np.ndarray = pd.Series(value_R).groupby(group_R).rank(method="min").to_numpy().astype(np.int64)
    return rank_R


def _order_of_sets(votes: Votes, kept: np.ndarray, answer_R: np.ndarray, rank_R: np.ndarray) -> np.ndarray:
    """Ranks in which unranked sets are ranked as they were written, if the order tells something: if it is not simply that of
    the classes, and other answers to the item give the first label clearly more often than the second."""
    place_R = np.arange(len(answer_R)) - np.searchsorted(answer_R, answer_R)
    unranked_A = np.bincount(answer_R, rank_R < np.iinfo(np.int64).max) == 0
    open_R = (unranked_A & (np.bincount(answer_R) > 1))[answer_R]
    first, second = np.flatnonzero(open_R & (place_R == 0)), np.flatnonzero(open_R & (place_R == 1))
    label_R = votes.label_R[kept]
    in_order = np.count_nonzero(label_R[first] < label_R[second])
    if votes.taxonomy is not None or in_order > MAX_IN_CLASS_ORDER * len(first):
        return rank_R
    cell_R, count = np.unique(votes.item_R[kept] * len(votes.class_names) + label_R, return_inverse=True, return_counts=True)[
        1:
    ]
    more = (count[cell_R[first]] - count[cell_R[second]]).astype(np.float64)
    if more.sum() <= MIN_ORDER_EVIDENCE * np.sqrt((more**2).sum()):
        return rank_R
    return np.where(open_R, place_R + 1, rank_R)


def _shared_weights(weight_A: np.ndarray, item_A: np.ndarray, annotator_A: np.ndarray, annotators: int) -> np.ndarray:
    """Weights in which the answers of one annotator to one item share a vote."""
    named = np.flatnonzero((annotator_A >= 0) & (weight_A > 0))
    _, pair, count = np.unique(item_A[named] * annotators + annotator_A[named], return_inverse=True, return_counts=True)
    shared_A = weight_A.copy()
    shared_A[named] /= count[pair]
    return shared_A
