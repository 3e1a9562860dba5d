"""Items where the best annotators agree with one another against the crowd: the guideline may say two things.

The best are the third of the annotators whose share of answers that agree with the result has the highest lower end of its 95%
interval, so that few answers do not make a best annotator. An item is listed where two or more of them answered, all with the
same label, and that is neither what most of the others say nor, where these are of no one mind, the result. More answers of the
same crowd repeat the dispute; the instructions have to say which label is right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pals.crowd.agreement import single_answers
from pals.crowd.annotator_flags import confidence_limits
from pals.crowd.result import Result

MIN_AGREEING = 2
"""Best annotators who must name the same label, and others who must name another."""
TAIL = 0.025
"""Probability beyond each end of the interval."""
BEST_SHARE = 1 / 3
"""Of the annotators."""


@dataclass(frozen=True)
class GuidelineItems:
    """The disputed items (M), those of the most frequent pair of labels first.

    Args:
        item_M: Item.
        best_label_M: What the best annotators call it.
        crowd_label_M: What most others call it, or the result.
        best_M: The best annotators who answered, by their numbers in the votes.
    """

    item_M: np.ndarray
    best_label_M: np.ndarray
    crowd_label_M: np.ndarray
    best_M: tuple[tuple[int, ...], ...]


def guideline_items(result: Result) -> GuidelineItems:
    """Items that the best annotators call otherwise than the crowd. Gold labels are not disputed.

    Args:
        result: The result of a fit.
    """
    votes, people, classes = result.votes, len(result.votes.annotators), len(result.votes.class_names)
    named_A = result.annotator_A >= 0
    answers_W = np.bincount(result.annotator_A[named_A], minlength=people)
    right_W = np.bincount(result.annotator_A[named_A], result.agrees_A[named_A], minlength=people)
    low_W, _ = confidence_limits(right_W, answers_W, TAIL)
    best_W = np.zeros(people + 1, dtype=bool)  # the last: without a name
    best_W[np.argsort(-low_W, kind="stable")[: int(BEST_SHARE * np.count_nonzero(answers_W))]] = True
    item_A, annotator_A, label_A, _ = single_answers(votes)
    best_A = best_W[annotator_A]
    best_label_N, best_count_N, alone_N = _most_named(item_A[best_A], label_A[best_A], len(votes.items), classes)
    other_label_N, other_count_N, _ = _most_named(item_A[~best_A], label_A[~best_A], len(votes.items), classes)
    crowd_label_N = np.where(other_count_N >= MIN_AGREEING, other_label_N, result.label_N)
    listed_N = alone_N & (best_count_N >= MIN_AGREEING) & (best_label_N != crowd_label_N) & (votes.gold_I < 0)
    found = np.flatnonzero(listed_N)
    pair_M = crowd_label_N[found] * classes + best_label_N[found]
    _, place_M, count_P = np.unique(pair_M, return_inverse=True, return_counts=True)
    found = found[np.lexsort((found, -best_count_N[found], pair_M, -count_P[place_M]))]
    given = np.flatnonzero(best_A)[np.argsort(item_A[best_A], kind="stable")]
    bounds = (np.searchsorted(item_A[given], found, side=side) for side in ("left", "right"))
    best_M = tuple(tuple(sorted(annotator_A[given[start:end]].tolist())) for start, end in zip(*bounds, strict=True))
    return GuidelineItems(found, best_label_N[found], crowd_label_N[found], best_M)


def _most_named(item_A: np.ndarray, label_A: np.ndarray, items: int, classes: int) -> tuple[np.ndarray, ...]:
    """The label that most answers to each item name, how many do (0 where two labels are even), and whether all do."""
    pair_X, count_X = np.unique(item_A * classes + label_A, return_counts=True)
    item_X, label_X = np.divmod(pair_X, classes)
    order = np.lexsort((-count_X, item_X))
    item_X, label_X, count_X = item_X[order], label_X[order], count_X[order]
    first = np.flatnonzero(np.append(True, item_X[1:] != item_X[:-1])[: len(item_X)])
    top_X = np.append(count_X, 0)
    even = (np.append(item_X, -1)[first + 1] == item_X[first]) & (top_X[first + 1] == count_X[first])
    label_N, count_N = np.full(items, -1), np.zeros(items, dtype=np.int64)
    label_N[item_X[first]], count_N[item_X[first]] = label_X[first], np.where(even, 0, count_X[first])
    return label_N, count_N, count_N == np.bincount(item_A, minlength=items)
