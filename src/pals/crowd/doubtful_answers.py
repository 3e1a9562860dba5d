"""Which answers are probably wrong, and which similar items contradict them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pals.crowd.result import Result


class Doubts(NamedTuple):
    """Answers that are probably wrong, the most certain first (M of them)."""

    answer_M: np.ndarray  # which answer of the result
    wrong_M: np.ndarray  # probability that none of its labels is right
    suggestion_M: np.ndarray  # the result for its item


class Arguing(NamedTuple):
    """For each doubtful answer up to K similar items that argue against it; -1 where there are no more."""

    index_MK: np.ndarray
    similarity_MK: np.ndarray


def rank_doubts(result: Result, limit: int | None = None) -> Doubts:
    """Answers whose labels are all wrong with a probability above `result.doubtful`, ordered by it. Equals keep the order of
    the votes. What agrees with the result is never doubtful."""
    order_A = np.argsort(result.inside_A, kind="stable")  # the mass inside, which is exact where that outside rounds to one
    wrong_A = (result.wrong_A > result.doubtful) & ~result.agrees_A
    answer_M = order_A[wrong_A[order_A]][:limit]
    return Doubts(answer_M, result.wrong_A[answer_M], result.label_N[result.item_A[answer_M]])


def arguing_neighbors(
    result: Result, doubts: Doubts, neighbor_NK: np.ndarray, similarity_NK: np.ndarray, count: int = 3
) -> Arguing:
    """Among the nearest items (`pals.pseudo_labels.nearest`) those whose result is none of the answer's labels: first those
    whose result is the suggestion, then the others, the more similar first."""
    item_M = result.item_A[doubts.answer_M]
    if not neighbor_NK.shape[1]:
        return Arguing(np.zeros((len(item_M), 0), dtype=np.int64), np.zeros((len(item_M), 0)))
    near_MK, similarity_MK = neighbor_NK[item_M], similarity_NK[item_M]
    label_MK = result.label_N[near_MK]
    against_MK = ~named_labels(result, doubts.answer_M)[np.arange(len(item_M))[:, None], label_MK] & (
        near_MK != item_M[:, None]
    )
    supports_MK = against_MK & (label_MK == doubts.suggestion_M[:, None])
    order_MK = np.lexsort((-similarity_MK, ~supports_MK, ~against_MK))[:, :count]
    found_MK = np.take_along_axis(against_MK, order_MK, axis=1)
    return Arguing(
        np.where(found_MK, np.take_along_axis(near_MK, order_MK, axis=1), -1),
        np.where(found_MK, np.take_along_axis(similarity_MK, order_MK, axis=1), np.nan),
    )


def named_labels(result: Result, answer_M: np.ndarray) -> np.ndarray:
    """M x C: the labels that each of these answers names."""
    place_A = np.full(len(result.first_A), -1)
    place_A[answer_M] = np.arange(len(answer_M))
    row = place_A[result.answer_R]
    named_MC = np.zeros((len(answer_M), result.posterior_NC.shape[1]), dtype=bool)
    named_MC[row[row >= 0], result.votes.label_R[row >= 0]] = True
    return named_MC
