"""How annotators answer, given the true class: one confusion matrix each, shrunk towards what people in general do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from pals.crowd.answers import Answers
from pals.crowd.blocks import BLOCK, dense, in_parallel, precision, row_blocks
from pals.crowd.dawid_skene.posterior import ItemPosterior, Posterior
from pals.crowd.dawid_skene.taxonomy_levels import Levels, initial_levels
from pals.crowd.dawid_skene.unsure import Caution, Unsure, first_caution, first_unsure, learned_unsure
from pals.util.errors import InputError

LARGEST_CONFUSION = 200_000_000
"""Numbers in all confusion matrices together; more are not written out."""

CARE_PSEUDO_COUNTS = (4.5, 0.5)
"""Of a person: as if four and a half answers had been given with care and half a one blindly."""

CONFUSION_PSEUDO_COUNTS = 10.0
"""Per class, for what people in general do before there are any answers. Among few items who takes what for what
is half chance, and to believe in it comes out worse than a majority vote."""

SETTLED, SETTLING = 1e-4, 30
"""Of M-steps on what is held of the items: they end when nobody's care moves more than this, or after so many."""

HARD_PSEUDO_COUNTS = (1.0, 9.0)
"""Of a class: as if one of ten items had been found hard."""


@dataclass(frozen=True)
class Annotators:
    """What people say of an item of each class. Counts are expected numbers of answers.

    Where the data say little of a person, the person answers as people do (`shared_CC`) with probability `care_W`, and
    otherwise blindly with the label frequencies of their own (`habit_WC`). The more answers, the less this counts: it has the
    weight of `strength` answers per class. Of whoever gave an answer without a name the data say nothing: only this counts,
    with the care and the label frequencies of all such answers, and they have no counts of their own.

    Of a hard item nobody knows better than the others: every other answer is wrong (`hard_CC`), whoever gives it, and in the
    way that answers are wrong elsewhere. `hard_C` of the items of a class are hard; zero where difficulty is not modelled.
    """

    count_PC: Any  # of the pair's person with the pair's label, where an item of the class is not hard; CSR where it is large
    total_WC: np.ndarray  # of the person, where an item of the class is not hard
    common_CC: np.ndarray  # of everybody who answers with care: rows are the class, columns the label
    wrong_CC: np.ndarray  # of everybody, with another label than the class
    habit_WC: np.ndarray
    care_W: np.ndarray
    hard_C: np.ndarray
    strength: float
    first: float = CONFUSION_PSEUDO_COUNTS
    levels: Levels | None = None  # of a taxonomy: with it, "as people do" is by each person's skill on each level
    unsure: Unsure | None = None  # where there are unsure answers
    caution: Caution | None = None  # where somebody does not know

    @property
    def shared_CC(self) -> np.ndarray:
        """Rows are the true class, columns the answer."""
        return _rows(self.common_CC)

    @property
    def hard_CC(self) -> np.ndarray:
        """The same for hard items."""
        return 0.5 * np.eye(len(self.hard_C)) + 0.5 * self.mistaken_CC

    @property
    def mistaken_CC(self) -> np.ndarray:
        """The same for answers that are wrong."""
        return _rows(self.wrong_CC) if self.levels is None else self.levels.wrong(self.wrong_CC)

    @property
    def nearness_CC(self) -> np.ndarray:
        """How much likelier than on average a label is for a wrong answer, by where it stands in the taxonomy alone."""
        classes = len(self.hard_C)
        return np.ones((classes, classes)) if self.levels is None else (classes - 1) * self.levels.wrong(1 - np.eye(classes))

    def like_all(self, annotator_P: np.ndarray, label_P: np.ndarray) -> np.ndarray:
        """P x C: probability that a person who answers with care, as people do, gives the label to an item of each class."""
        if self.levels is None:
            like_all_PC: np.ndarray = self.shared_CC[:, label_P].T
            return like_all_PC
        return self.levels.of_pairs(self.common_CC, annotator_P, label_P)

    def like_all_together(self, weight_WC: np.ndarray) -> np.ndarray:
        """C x C: the sum over everybody of what they say of each class with care, as people do, with these weights."""
        if self.levels is None:
            said_CC: np.ndarray = weight_WC.sum(axis=0)[:, None] * self.shared_CC
            return said_CC
        return self.levels.of_people(self.common_CC, weight_WC)


def confusion_matrices(answers: Answers, annotators: Annotators, only_K: np.ndarray | None = None) -> np.ndarray:
    """W x C x C, of items that are not hard: rows are the true class, columns the answer. The last matrix is what any
    answer without a name is held to be. With `only_K` those of these annotators."""
    num_annotators, classes = annotators.habit_WC.shape
    only_K = np.arange(num_annotators) if only_K is None else only_K
    if len(only_K) * classes**2 > LARGEST_CONFUSION:
        raise InputError(f"{len(only_K):,} confusion matrices of {classes:,} classes are too large to be written out.")
    place_W = np.full(num_annotators, -1)
    place_W[only_K] = np.arange(len(only_K))
    pair = np.flatnonzero(place_W[answers.annotator_P] >= 0)
    count_KCC = np.zeros((len(only_K), classes, classes))
    count_KCC[place_W[answers.annotator_P[pair]], :, answers.label_P[pair]] = dense(annotators.count_PC[pair])
    care_K11 = annotators.care_W[only_K, None, None]
    like_all_KCC = np.broadcast_to(annotators.shared_CC, count_KCC.shape)
    if annotators.levels is not None:
        place_P, label_P = (number.ravel() for number in np.indices((len(only_K), classes)))
        like_all_KCC = annotators.like_all(only_K[place_P], label_P).reshape(count_KCC.shape).transpose(0, 2, 1)
    prior_KCC = care_K11 * like_all_KCC + (1 - care_K11) * annotators.habit_WC[only_K, None, :]
    said_KCC = count_KCC + annotators.strength * prior_KCC
    confusion_KCC: np.ndarray = said_KCC / (annotators.total_WC[only_K, :, None] + annotators.strength)
    return confusion_KCC


def initial_annotators(
    answers: Answers, strength: float, hard: bool, first: float = CONFUSION_PSEUDO_COUNTS, *, sparse: bool = False
) -> Annotators:
    """Before anything has been learned: everybody is right more often than not. Starting from here, the first weighing of
    the answers is a majority vote. `sparse`: counts are kept only where there are any."""
    classes, people = answers.num_classes, answers.num_annotators
    shape = len(answers.label_P), classes
    weight_S = np.asarray(answers.given_NS.sum(axis=0)).ravel()
    size_S = np.asarray(answers.members_SP.sum(axis=1)).ravel()
    count_WC = np.zeros((people, classes))
    count_WC[answers.annotator_P, answers.label_P] = answers.members_SP.T @ (weight_S / size_S)
    everyone_C = (count_WC.sum(axis=0) + 1) / (count_WC.sum() + classes)
    return Annotators(
        count_PC=csr_matrix(shape) if sparse else np.zeros(shape, dtype=precision(shape)),
        total_WC=np.zeros((people, classes)),
        common_CC=_with_first(np.zeros((classes, classes)), half_right(classes, first)),
        wrong_CC=_with_first(np.zeros((classes, classes)), all_wrong(classes, first)),
        habit_WC=(count_WC + everyone_C) / (count_WC.sum(axis=1, keepdims=True) + 1),
        care_W=np.full(people, CARE_PSEUDO_COUNTS[0] / sum(CARE_PSEUDO_COUNTS)),
        hard_C=np.full(classes, HARD_PSEUDO_COUNTS[0] / sum(HARD_PSEUDO_COUNTS) if hard else 0.0),
        strength=strength,
        first=first,
        levels=initial_levels(answers.taxonomy, people),
        unsure=first_unsure(answers, everyone_C),
        caution=first_caution(answers),
    )


def m_step(answers: Answers, found: Posterior, before: Annotators, *, reuse: bool = False) -> Annotators:
    """The M-step: the annotators that make what was found likeliest, given their priors. `before` says how answers are divided
    that leave a choice: those with several labels, and those that may have been given blindly. With `reuse` its counts are
    written over."""
    classes, hard = answers.num_classes, bool(before.hard_C.any())
    if answers.plain:
        unsure, hard_CC = None, found.said_of_hard(answers) if hard else 0.0
        count_PC = found.counts(answers, before.count_PC if reuse else None)
    else:
        assert isinstance(found, ItemPosterior)
        unsure, count_PC, hard_CC = _divided(answers, found, before)
    sums = (_sums if isinstance(count_PC, np.ndarray) else _sparse_sums)(answers, count_PC, before)
    care_W = (sums.careful_W + CARE_PSEUDO_COUNTS[0]) / (sums.total_WC.sum(axis=1) + sum(CARE_PSEUDO_COUNTS))
    _clear_unnamed(answers, count_PC, sums.total_WC)
    wrong_CC = sums.careful_CC + hard_CC
    np.fill_diagonal(wrong_CC, 0.0)
    return replace(
        before,
        count_PC=count_PC,
        total_WC=sums.total_WC,
        common_CC=_with_first(sums.careful_CC, half_right(classes, before.first)),
        wrong_CC=_with_first(wrong_CC, all_wrong(classes, before.first)),
        care_W=care_W,
        hard_C=_share_of_hard(answers, found) if hard else before.hard_C,
        levels=None if before.levels is None else before.levels.learned(answers, sums.careful_PC),
        unsure=unsure,
        caution=None if before.caution is None else before.caution.learned(found.hard_N),
    )


def _clear_unnamed(answers: Answers, count_PC: Any, total_WC: np.ndarray) -> None:
    """Without names no answer tells of the person who gave another."""
    first = np.searchsorted(answers.annotator_P, answers.unnamed)  # their pairs are the last
    if isinstance(count_PC, np.ndarray):
        count_PC[first:] = 0
    else:
        count_PC.data[count_PC.indptr[first] :] = 0
    total_WC[answers.unnamed] = 0


def settled(answers: Answers, held: Posterior, initial: Annotators) -> Annotators:
    """The annotators of what is held of the items: the M-step again and again, as what was said with care depends on how people
    answer with care. Of hard items nothing is held yet, and their share stays."""
    annotators, moved, rounds = initial, np.inf, 0
    while moved > SETTLED and rounds < SETTLING:
        after = replace(m_step(answers, held, annotators), hard_C=initial.hard_C)
        moved, annotators, rounds = float(np.abs(after.care_W - annotators.care_W).max()), after, rounds + 1
    return annotators


class _Sums(NamedTuple):
    """Of the counts of pairs, and of what of them was given with care."""

    total_WC: np.ndarray
    careful_W: np.ndarray
    careful_CC: np.ndarray  # rows are the class, columns the label
    careful_PC: np.ndarray  # only where there are levels to be learned from it


def _sums(answers: Answers, count_PC: np.ndarray, before: Annotators) -> _Sums:
    annotator_P, label_P, classes = answers.annotator_P, answers.label_P, answers.num_classes
    first_W = np.searchsorted(annotator_P, np.arange(answers.num_annotators + 1))  # pairs are in the order of their people
    total_WC, careful_W = np.zeros((answers.num_annotators, classes)), np.zeros(answers.num_annotators)
    careful_PC = np.empty(count_PC.shape if before.levels is not None else (0, classes))

    def add(people: slice) -> np.ndarray:
        own_W = first_W[people.start : people.stop + 1]
        part = slice(own_W[0], own_W[-1])
        number, given_P = part.stop - part.start, label_P[part]
        by_person_WP = csr_matrix((np.ones(number), np.arange(number), own_W - own_W[0]), shape=(len(own_W) - 1, number))
        by_label_CP = csr_matrix((np.ones(number), (given_P, np.arange(number))), shape=(classes, number))
        like_all_PC = before.care_W[annotator_P[part], None] * before.like_all(annotator_P[part], given_P)
        blind_P = (1 - before.care_W[annotator_P[part]]) * before.habit_WC[annotator_P[part], given_P]
        counted_PC = count_PC[part].astype(np.float64, copy=False)
        like_all_PC *= counted_PC / (like_all_PC + blind_P[:, None])
        total_WC[people] = by_person_WP @ counted_PC
        careful_W[people] = by_person_WP @ like_all_PC.sum(axis=1)
        if len(careful_PC):
            careful_PC[part] = like_all_PC
        careful_CC: np.ndarray = by_label_CP @ like_all_PC
        return careful_CC

    parts = in_parallel(add, row_blocks(first_W, classes))
    careful_CC = sum(parts, np.zeros((classes, classes)))
    return _Sums(total_WC, careful_W, careful_CC.T.copy(), careful_PC)


def _sparse_sums(answers: Answers, count_PC: Any, before: Annotators) -> _Sums:
    """The same of counts that are kept only where there are any (Q), without levels."""
    classes, people, first_P = answers.num_classes, answers.num_annotators, count_PC.indptr
    pair_W = np.searchsorted(answers.annotator_P, np.arange(people + 1))
    total_WC, careful_W = np.zeros((people, classes)), np.zeros(people)
    common, common_C = before.common_CC.ravel(), before.common_CC.sum(axis=1)

    def add(part: slice) -> np.ndarray:
        pairs = slice(pair_W[part.start], pair_W[part.stop])
        cells = slice(first_P[pairs.start], first_P[pairs.stop])
        annotator_P, label_P = answers.annotator_P[pairs], answers.label_P[pairs]
        blind_P = (1 - before.care_W[annotator_P]) * before.habit_WC[annotator_P, label_P]
        size_P = np.diff(first_P[pairs.start : pairs.stop + 1])
        annotator_Q, label_Q, care_Q, blind_Q = (
            np.repeat(value_P, size_P) for value_P in (annotator_P - part.start, label_P, before.care_W[annotator_P], blind_P)
        )
        class_Q, count_Q, own = count_PC.indices[cells].astype(np.int64), count_PC.data[cells], part.stop - part.start
        place_Q = class_Q * classes + label_Q
        careful_Q = care_Q * (common[place_Q] / common_C[class_Q])
        careful_Q *= count_Q / (careful_Q + blind_Q)
        total_WC[part] = np.bincount(annotator_Q * classes + class_Q, count_Q, own * classes).reshape(own, classes)
        careful_W[part] = np.bincount(annotator_Q, careful_Q, own)
        return np.bincount(place_Q, careful_Q, classes**2)

    parts = in_parallel(add, row_blocks(first_P[pair_W], 1, max(BLOCK, classes**2)))
    careful = next(parts)
    for part in parts:
        careful += part
    return _Sums(total_WC, careful_W, careful.reshape(classes, classes), np.empty((0, classes)))


def _divided(answers: Answers, found: ItemPosterior, before: Annotators) -> tuple[Unsure | None, np.ndarray, np.ndarray]:
    """What unsure answers are worth, and how often each pair occurred with easy items of each class, and each label with hard
    ones: where answers name several labels or are unsure, so that they must be divided."""
    annotator_P, label_P = answers.annotator_P, answers.label_P
    like_all_PC = before.care_W[annotator_P, None] * before.like_all(annotator_P, label_P)
    blind_P1 = ((1 - before.care_W[annotator_P]) * before.habit_WC[annotator_P, label_P])[:, None]
    said_PC = before.count_PC + before.strength * (like_all_PC + blind_P1)
    chance_PC = said_PC / (before.total_WC[annotator_P] + before.strength)
    unsure = _learned_unsure(answers, found, before, chance_PC)
    count_PC = _expected(answers, found.easy_NC, chance_PC, unsure, hard=False)
    hard_PC = _expected(answers, found.hard_NC, before.hard_CC[:, label_P].T, unsure, hard=True)
    return unsure, count_PC, _by_label(answers, hard_PC)


def _learned_unsure(answers: Answers, found: ItemPosterior, before: Annotators, easy_PC: np.ndarray) -> Unsure | None:
    if before.unsure is None:
        return None
    chances = easy_PC, before.hard_CC[:, answers.label_P].T
    easy_SC, hard_SC = (answers.members_SP @ chance_PC for chance_PC in chances)
    found_SC = answers.given_NS.T @ found.easy_NC, answers.given_NS.T @ found.hard_NC
    return learned_unsure(before.unsure, found_SC, (easy_SC, hard_SC))


def _share_of_hard(answers: Answers, found: Posterior) -> np.ndarray:
    """How many items of each class are hard. All else about hard items is fixed or shared: three answers an item hardly tell
    more."""
    answered_N = answers.answered_N
    hard_C, items_C = found.hard_sums(answered_N), found.sums(answered_N)
    share_C: np.ndarray = (hard_C + HARD_PSEUDO_COUNTS[0]) / (items_C + sum(HARD_PSEUDO_COUNTS))
    return share_C


def _expected(answers: Answers, weight_NC: np.ndarray, chance_PC: np.ndarray, unsure: Unsure | None, hard: bool) -> np.ndarray:
    """How often each pair occurred with each class. An answer with several labels is split by what the person would say; of
    unsure ones only that share counts which was given as sure ones are."""
    found_SC = answers.given_NS.T @ weight_NC
    if unsure is not None:
        found_SC = unsure.without_guesses(found_SC, np.arange(len(found_SC)), hard)
    count_PC: np.ndarray = chance_PC * (answers.members_SP.T @ (found_SC / (answers.members_SP @ chance_PC)))
    return count_PC


def _by_label(answers: Answers, count_PC: np.ndarray) -> np.ndarray:
    """Counts of pairs to counts of (class, label)."""
    count_CC = np.zeros((answers.num_classes, answers.num_classes))
    np.add.at(count_CC, answers.label_P, count_PC)
    return count_CC.T.copy()


def half_right(classes: int, first: float) -> tuple[float, float]:
    """Answers per class to begin with, half of them right and half spread over all labels: the class itself, and another."""
    return first * (0.5 + 0.5 / classes), first * (0.5 / classes)


def all_wrong(classes: int, first: float) -> tuple[float, float]:
    """Wrong answers per class to begin with, spread over all others: the class itself, and another."""
    return 0.0, first / (classes - 1)


def _with_first(count_CC: np.ndarray, first: tuple[float, float]) -> np.ndarray:
    """The counts and what they begin with."""
    total_CC = count_CC + first[1]
    np.fill_diagonal(total_CC, np.diag(count_CC) + first[0])
    return total_CC


def _rows(count_CC: np.ndarray) -> np.ndarray:
    share_CC: np.ndarray = count_CC / count_CC.sum(axis=1, keepdims=True)
    return share_CC
