"""How far annotators agree, beyond chance: Krippendorff's alpha, Fleiss' kappa, Gwet's AC1, and Cohen's kappa for two.

Alpha and kappa expect much agreement by chance where nearly all answers are one label, so they are low there although answers
seldom differ. Gwet's AC1 (2008, doi:10.1348/000711006X126600) takes as chance, with shares p_c of C labels,
    sum_c p_c (1 - p_c) / (C - 1),
which is small for such shares.

All of them compare answers with one another and know no truth. An answer that names several labels takes no side, and is left
out; of several answers by one annotator to one item the last one counts. Intervals are of the bootstrap over items: all that
they need is a table of items by classes, or of two annotators' answers, so no answer is read twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import pandas as pd
from scipy.sparse import csc_matrix, csr_matrix

from pals.crowd.answers import ratio
from pals.readers import Votes
from pals.util.errors import InputError

BOOTSTRAP_SAMPLES = 1000
"""Bootstrap samples."""
CONFIDENCE = 0.95
MIN_COMMON_ITEMS = 10
"""Items that two annotators must have in common to be compared."""
MAX_PAIRS = 1000
"""Pairs of annotators that are listed, those with most items in common first."""
MAX_MEETINGS = 20_000_000
"""Times that two annotators meet at an item that are used; where there are more, those of the annotators who answered most."""
MAX_GROUPS = 10_000
"""Items, or groups of them where there are more, that bootstrap samples are drawn from."""
BLOCK_VALUES = 4_000_000
"""Numbers in one table of bootstrap weights; of many items several are made."""


@dataclass(frozen=True)
class Measured:
    """A measure of agreement: 1 where all agree, 0 where they do as often as by chance. NaN where it is not defined, such as
    where all give the same label throughout."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Pair:
    """Two annotators who answered for the same items, by their numbers in the votes."""

    one: int
    other: int
    items: int
    agree: float  # share of these items
    kappa: Measured


@dataclass(frozen=True)
class Agreement:
    """Of a whole crowd. Items with fewer than two answers do not count."""

    items: int  # with two answers or more
    answers: int  # to these
    several: int  # answers that name several labels, left out
    alpha: Measured
    fleiss: Measured
    ac1: Measured
    alpha_of_class: tuple[Measured, ...]  # this label against all others
    fleiss_of_class: tuple[Measured, ...]
    pairs: tuple[Pair, ...]


def agreement(votes: Votes, *, rounds: int = BOOTSTRAP_SAMPLES, seed: int = 0) -> Agreement:
    """How far the annotators agree. Linear in the answers; the comparison of pairs in the pairs of answers to the same item."""
    if rounds < 2:
        raise InputError(f"rounds is {rounds}; an interval takes at least two bootstrap samples.")
    rng = np.random.default_rng(seed)
    item_A, annotator_A, label_A, several = single_answers(votes)
    classes = len(votes.class_names)
    count_NC = csr_matrix((np.ones(len(item_A), dtype=np.int64), (item_A, label_A)), shape=(len(votes.items), classes))
    count_NC = count_NC[np.bincount(item_A, minlength=len(votes.items)) > 1]
    crowd = _of_crowd(count_NC, rounds, rng)
    return Agreement(
        items=count_NC.shape[0],
        answers=int(count_NC.sum()),
        several=several,
        **crowd,
        pairs=tuple(_pairs(item_A, annotator_A, label_A, len(votes.items), rounds, rng)),
    )


def krippendorff_alpha(count_NC: np.ndarray) -> float:
    """Nominal alpha from how many annotators gave each label to each item. Any number of answers to an item."""
    return float(_alpha(_terms(count_NC.astype(np.float64)).sum(axis=0)))


def fleiss_kappa(count_NC: np.ndarray) -> float:
    """Fleiss' kappa from how many annotators gave each label to each item. Where their number differs between items, the
    agreement is the mean over items and chance follows the shares of all answers."""
    return float(_fleiss(_terms(count_NC.astype(np.float64)).sum(axis=0)))


def gwet_ac1(count_NC: np.ndarray) -> float:
    """Gwet's AC1 from how many people gave each label to each item; chance follows the shares of all answers."""
    return float(_ac1(_terms(count_NC.astype(np.float64)).sum(axis=0)))


def fleiss_kappa_of_classes(count_NC: np.ndarray) -> np.ndarray:
    """Fleiss' kappa of each label: of whether an answer is this label or any other."""
    return np.array([_fleiss(terms_NT.sum(axis=0)) for terms_NT in _against_others(count_NC.astype(np.float64))])


def cohen_kappa(count_RX: np.ndarray, one_X: np.ndarray, other_X: np.ndarray) -> np.ndarray:
    """Cohen's kappa, R of them, from how often one annotator gave the first label of a pair of labels (X) where the other gave
    the second. Pairs that never occurred may be left out: in a table of all labels they are nearly all."""
    total_R = count_RX.sum(axis=1)
    agree_R = ratio(count_RX[:, one_X == other_X].sum(axis=1), total_R)
    labels = int(max(one_X.max(), other_X.max())) + 1
    chance_R = ratio((_sums(count_RX, one_X, labels) * _sums(count_RX, other_X, labels)).sum(axis=1), total_R**2)
    return _beyond(agree_R, chance_R)


def _sums(count_RX: np.ndarray, label_X: np.ndarray, labels: int) -> np.ndarray:
    """Over the columns of each label, R x C."""
    order_X = np.argsort(label_X, kind="stable")
    seen_S, first_S = np.unique(label_X[order_X], return_index=True)
    sum_RC = np.zeros((len(count_RX), labels))
    sum_RC[:, seen_S] = np.add.reduceat(count_RX[:, order_X], first_S, axis=1)
    return sum_RC


def single_answers(votes: Votes) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Item, annotator and label of each answer that counts, and how many name several labels."""
    first_A, size_A = np.unique(votes.answer_R, return_index=True, return_counts=True)[1:]
    row_A = np.sort(first_A[size_A == 1])  # in the order of the votes
    item_A, annotator_A, label_A = votes.item_R[row_A], votes.annotator_R[row_A], votes.label_R[row_A]
    known = annotator_A >= 0
    who_A = np.where(
        known, item_A * len(votes.annotators) + annotator_A, -1 - np.arange(len(row_A))
    )  # unnamed answers are all different
    last = len(who_A) - 1 - np.unique(who_A[::-1], return_index=True)[1]
    return item_A[last], annotator_A[last], label_A[last], int((size_A > 1).sum())


def _terms(count_NC: np.ndarray) -> np.ndarray:
    """What each item adds to the sums from which the measures come, N x (3 + C): one item, pairs of answers that differ for
    each other answer, their share, and the counts."""
    count_NC = count_NC[count_NC.sum(axis=1) > 1]
    total_N = count_NC.sum(axis=1)
    differ_N = total_N**2 - (count_NC**2).sum(axis=1)
    return np.column_stack([np.ones(len(count_NC)), differ_N / (total_N - 1), differ_N / (total_N * (total_N - 1)), count_NC])


def _alpha(sum_T: np.ndarray) -> np.ndarray:
    """From sums of `_terms`, over the last axis."""
    count_C = sum_T[..., 3:]
    total = count_C.sum(axis=-1)
    return 1 - ratio(sum_T[..., 1] * (total - 1), total**2 - (count_C**2).sum(axis=-1))


def _fleiss(sum_T: np.ndarray) -> np.ndarray:
    share_C = ratio(sum_T[..., 3:], sum_T[..., 3:].sum(axis=-1, keepdims=True))
    return _beyond(1 - ratio(sum_T[..., 2], sum_T[..., 0]), (share_C**2).sum(axis=-1))


def _ac1(sum_T: np.ndarray) -> np.ndarray:
    share_C = ratio(sum_T[..., 3:], sum_T[..., 3:].sum(axis=-1, keepdims=True))
    chance = ratio((share_C * (1 - share_C)).sum(axis=-1), np.array(share_C.shape[-1] - 1.0))
    return _beyond(1 - ratio(sum_T[..., 2], sum_T[..., 0]), chance)


def _beyond(agree: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """Agreement beyond chance, as a share of what there could be."""
    return ratio(agree - chance, 1 - chance)


def _against_others(count_NC: np.ndarray) -> list[np.ndarray]:
    """The `_terms` of each label against all others."""
    total_N = count_NC.sum(axis=1)
    return [_terms(np.column_stack([own_N, total_N - own_N])) for own_N in count_NC.T]


class _Crowd(TypedDict):
    alpha: Measured
    fleiss: Measured
    ac1: Measured
    alpha_of_class: tuple[Measured, ...]
    fleiss_of_class: tuple[Measured, ...]


def _of_crowd(count_NC: csr_matrix, rounds: int, rng: np.random.Generator) -> _Crowd:
    """All measures from the same bootstrap samples."""
    term_GT = _grouped(count_NC, rng)
    found_T, drawn_RT = term_GT.sum(axis=0), _resampled(term_GT, rounds, rng)
    width = 3 + count_NC.shape[1]
    everybody = slice(width)
    own = [slice(width + 5 * number, width + 5 * (number + 1)) for number in range(count_NC.shape[1])]

    def measured(measure: Callable[[np.ndarray], np.ndarray], part: slice) -> Measured:
        return _measured(measure(found_T[part]), measure(drawn_RT[:, part]))

    return {
        "alpha": measured(_alpha, everybody),
        "fleiss": measured(_fleiss, everybody),
        "ac1": measured(_ac1, everybody),
        "alpha_of_class": tuple(measured(_alpha, part) for part in own),
        "fleiss_of_class": tuple(measured(_fleiss, part) for part in own),
    }


def _grouped(count_NC: csr_matrix, rng: np.random.Generator) -> np.ndarray:
    """The terms of all measures, G x T: of each item, or of groups of items at random where they are many. Sums of groups vary
    among each other as those of items do, so that drawing groups gives the same intervals."""
    items, classes = count_NC.shape
    groups = min(items, MAX_GROUPS)
    order = np.arange(items) if items == groups else rng.permutation(items)
    bound_G = np.linspace(0, items, groups + 1).astype(np.int64)
    at_once = max(1, BLOCK_VALUES * groups // max(items * 6 * classes, 1))
    parts = [np.zeros((0, 3 + 6 * classes))]
    for start in range(0, groups, at_once):
        bound_B = bound_G[start : start + at_once + 1]
        block_NC = count_NC[order[bound_B[0] : bound_B[-1]]].toarray().astype(np.float64)
        term_NT = np.column_stack([_terms(block_NC), *_against_others(block_NC)])
        parts.append(np.add.reduceat(term_NT, bound_B[:-1] - bound_B[0], axis=0))
    return np.concatenate(parts)


def _resampled(term_GT: np.ndarray, rounds: int, rng: np.random.Generator) -> np.ndarray:
    """Sums over items, or groups of them, drawn with replacement, R x T."""
    items = len(term_GT)
    if not items:
        return np.zeros((rounds, term_GT.shape[1]))
    at_once = max(1, BLOCK_VALUES // items)
    parts = []
    for start in range(0, rounds, at_once):
        weight_BG = rng.multinomial(items, np.full(items, 1 / items), size=min(at_once, rounds - start))
        parts.append(weight_BG.astype(np.float64) @ term_GT)
    return np.concatenate(parts)


def _measured(value: np.ndarray, drawn_R: np.ndarray) -> Measured:
    drawn_R = drawn_R[np.isfinite(drawn_R)]
    if not np.isfinite(value) or not len(drawn_R):
        return Measured(float("nan"), float("nan"), float("nan"))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn_R, (tail, 1 - tail))
    return Measured(float(value), min(float(low), float(value)), max(float(high), float(value)))


def _pairs(
    item_A: np.ndarray,
    annotator_A: np.ndarray,
    label_A: np.ndarray,
    items: int,
    rounds: int,
    rng: np.random.Generator,
) -> Iterator[Pair]:
    named = annotator_A >= 0
    item_A, annotator_A, label_A = item_A[named], annotator_A[named], label_A[named]
    people = int(annotator_A.max(initial=-1)) + 1
    label_NW = csc_matrix((label_A + 1, (item_A, annotator_A)), shape=(items, people))
    for one, other in _met(label_NW):
        count_X, one_X, other_X = _table(label_NW, one, other)
        common = int(count_X.sum())
        drawn_RX = rng.multinomial(common, count_X / common, size=rounds)
        found, drawn_R = cohen_kappa(count_X[None], one_X, other_X)[0], cohen_kappa(drawn_RX, one_X, other_X)
        yield Pair(one, other, common, float(count_X[one_X == other_X].sum()) / common, _measured(found, drawn_R))


def _table(label_NW: csc_matrix, one: int, other: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How often two annotators gave which pair of labels to the same item, and the pairs; those alone that occurred."""
    first, second = label_NW[:, [one]], label_NW[:, [other]]
    _, row_M, column_M = np.intersect1d(first.indices, second.indices, assume_unique=True, return_indices=True)
    seen_C, code_X = np.unique(np.concatenate([first.data[row_M], second.data[column_M]]), return_inverse=True)
    row_M, column_M = np.split(code_X, 2)
    pair_X, count_X = np.unique(row_M * len(seen_C) + column_M, return_counts=True)
    return count_X, *np.divmod(pair_X, len(seen_C))


def _met(label_NW: csc_matrix) -> list[tuple[int, int]]:
    """The pairs of annotators with enough items in common, those with most first."""
    people = _busiest(label_NW)
    gave_NW = label_NW[:, people].astype(bool).astype(np.float64)
    common = (gave_NW.T @ gave_NW).tocoo()
    keep = (common.row < common.col) & (common.data >= MIN_COMMON_ITEMS)
    row, column, data = people[common.row[keep]], people[common.col[keep]], common.data[keep]
    order = np.lexsort((column, row, -data))[:MAX_PAIRS]
    return [(int(row[k]), int(column[k])) for k in order]


def _busiest(label_NW: csc_matrix) -> np.ndarray:
    """The annotators with enough answers to have enough items in common with others, in their order; of these as many as can be
    compared, those with most answers first."""
    answers_W = label_NW.getnnz(axis=0)
    people = np.flatnonzero(answers_W >= MIN_COMMON_ITEMS)
    people = people[np.argsort(-answers_W[people], kind="stable")]
    if not len(people):
        return people
    given_NP = label_NW[:, people]
    met_A = pd.Series(given_NP.indices).groupby(given_NP.indices).cumcount().to_numpy()  # those before them at the same item
    met_P = np.cumsum(met_A)[given_NP.indptr[1:] - 1]
    return np.sort(people[: max(2, int(np.searchsorted(met_P, MAX_MEETINGS, side="right")))])
