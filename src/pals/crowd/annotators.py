"""How annotators answer, given the true class: one confusion matrix each, shrunk towards what people in general do."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pals.crowd.answers import Answers
from pals.crowd.levels import Levels, RingCounts, initial_levels
from pals.crowd.unsure import Caution, Unsure, first_caution, first_unsure, learned_unsure
from pals.util.errors import InputError

LARGEST_CONFUSION = 200_000_000
"""Numbers in all confusion matrices together; more are not written out."""

BLOCK = 4_000_000
"""Numbers in a table of answers by classes that is held at once."""

CARE_PSEUDO_COUNTS = (4.5, 0.5)
"""Of a person: as if four and a half answers had been given with care and half a one blindly."""

CONFUSION_PSEUDO_COUNTS = 10.0
"""Per class, for what people in general do before there are any answers. Among few items who takes what for what
is half chance, and to believe in it comes out worse than a majority vote."""

HARD_PSEUDO_COUNTS = (1.0, 9.0)
"""Of a class: as if one of ten items had been found hard."""


@dataclass(frozen=True)
class Annotators:
    """What people say of an item of each class. Counts are expected numbers of answers.

    Where the data say little of a person, the person answers as people do (`shared_CC`) with probability `care_W`, and
    otherwise blindly with the label frequencies of their own (`habit_WC`). The more answers, the less this counts: it has the
    weight of `strength` answers per class.

    Of a hard item nobody knows better than the others: every other answer is wrong (`hard_CC`), whoever gives it, and in the
    way that answers are wrong elsewhere. `hard_C` of the items of a class are hard; zero where difficulty is not modelled.
    """

    count_PC: np.ndarray  # of the pair's person with the pair's label, where an item of the class is not hard
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

    def like_all(self, worker_P: np.ndarray, label_P: np.ndarray) -> np.ndarray:
        """P x C: probability that a person who answers with care, as people do, gives the label to an item of each class."""
        if self.levels is None:
            like_all_PC: np.ndarray = self.shared_CC[:, label_P].T
            return like_all_PC
        return self.levels.of_pairs(self.common_CC, worker_P, label_P)

    def like_all_together(self, weight_WC: np.ndarray) -> np.ndarray:
        """C x C: the sum over everybody of what they say of each class with care, as people do, with these weights."""
        if self.levels is None:
            said_CC: np.ndarray = weight_WC.sum(axis=0)[:, None] * self.shared_CC
            return said_CC
        return self.levels.of_people(self.common_CC, weight_WC)


@dataclass(frozen=True)
class ItemPosterior:
    """What the answers say of the items: probabilities of (class, easy) and (class, hard) that sum to one per item."""

    easy_NC: np.ndarray
    hard_NC: np.ndarray
    evidence_N: np.ndarray  # log-likelihood of each item's answers

    @property
    def posterior_NC(self) -> np.ndarray:
        posterior_NC: np.ndarray = self.easy_NC + self.hard_NC
        return posterior_NC


def confusion_matrices(answers: Answers, annotators: Annotators, only_K: np.ndarray | None = None) -> np.ndarray:
    """W x C x C, of items that are not hard: rows are the true class, columns the answer. The last matrix is that of all
    unnamed answers. With `only_K` those of these annotators."""
    workers, classes = annotators.habit_WC.shape
    only_K = np.arange(workers) if only_K is None else only_K
    if len(only_K) * classes**2 > LARGEST_CONFUSION:
        raise InputError(f"{len(only_K):,} confusion matrices of {classes:,} classes are too large to be written out.")
    place_W = np.full(workers, -1)
    place_W[only_K] = np.arange(len(only_K))
    pair = np.flatnonzero(place_W[answers.worker_P] >= 0)
    count_KCC = np.zeros((len(only_K), classes, classes))
    count_KCC[place_W[answers.worker_P[pair]], :, answers.label_P[pair]] = annotators.count_PC[pair]
    care_K11 = annotators.care_W[only_K, None, None]
    like_all_KCC = np.broadcast_to(annotators.shared_CC, count_KCC.shape)
    if annotators.levels is not None:
        place_P, label_P = (number.ravel() for number in np.indices((len(only_K), classes)))
        like_all_KCC = annotators.like_all(only_K[place_P], label_P).reshape(count_KCC.shape).transpose(0, 2, 1)
    prior_KCC = care_K11 * like_all_KCC + (1 - care_K11) * annotators.habit_WC[only_K, None, :]
    said_KCC = count_KCC + annotators.strength * prior_KCC
    confusion_KCC: np.ndarray = said_KCC / (annotators.total_WC[only_K, :, None] + annotators.strength)
    return confusion_KCC


def e_step(
    answers: Answers, annotators: Annotators, log_prior_NC: np.ndarray, before: ItemPosterior | None = None
) -> ItemPosterior:
    """The E-step, by Bayes' rule: prior times the probability of every answer. A gold label leaves no doubt.

    `before` is what the annotators were learned from, if they were. Each answer is weighed by what is known from all others:
    else it would vouch for itself, and who gave few answers would be believed too much.
    """
    log_prior_NC = with_gold(log_prior_NC, answers.gold_N)
    with np.errstate(divide="ignore"):  # without hard items their share is zero
        easy_NC = log_prior_NC + np.log1p(-annotators.hard_C) + np.zeros((answers.num_items, 1))
        hard_NC = log_prior_NC + np.log(annotators.hard_C) + log_hard(answers, annotators)
    chances = Chances(answers, annotators, before)
    step = max(1, BLOCK // answers.num_classes)
    for start in range(0, answers.given_NS.nnz, step):
        entry = np.arange(start, min(start + step, answers.given_NS.nnz))
        item_E, weight_E1 = answers.item_E[entry], answers.given_NS.data[entry, None]
        first = np.flatnonzero(np.diff(item_E, prepend=-1))  # entries are in the order of the items
        for total_NC, chance_EC in zip((easy_NC, hard_NC), chances(entry), strict=True):
            total_NC[item_E[first]] += np.add.reduceat(weight_E1 * np.log(chance_EC), first, axis=0)
    evidence_N = np.logaddexp(log_sum(easy_NC), log_sum(hard_NC))
    return ItemPosterior(np.exp(easy_NC - evidence_N[:, None]), np.exp(hard_NC - evidence_N[:, None]), evidence_N)


def log_hard(answers: Answers, annotators: Annotators) -> np.ndarray:
    """N x 1: by how much those who do not know make it likelier that an item is hard."""
    return np.zeros((answers.num_items, 1)) if annotators.caution is None else annotators.caution.log_hard_N1()


class Chances:
    """Probability of answers (entries E of `given_NS`) for easy and for hard items of each class, by what is known from all
    other answers: with `before`, what an answer itself has contributed is taken out."""

    def __init__(self, answers: Answers, annotators: Annotators, before: ItemPosterior | None = None) -> None:
        self.answers, self.annotators, self.before = answers, annotators, before
        classes, label_P = answers.num_classes, answers.label_P

        def of_symbols(table_CC: np.ndarray) -> np.ndarray:
            value_SC: np.ndarray = answers.members_SP @ table_CC[:, label_P].T
            return value_SC

        self.count_SC = answers.members_SP @ annotators.count_PC
        self.common, self.wrong = _tables(answers, annotators)
        self.named_SC = of_symbols(np.eye(classes))
        care_S1 = annotators.care_W[answers.worker_S, None]
        self.blind_S1 = (1 - care_S1) * (answers.members_SP @ annotators.habit_WC[answers.worker_P, label_P])[:, None]
        like_all_SC = self.common.of_all(answers.worker_S, care_S1)
        self.careful_SC = like_all_SC / (like_all_SC + self.blind_S1)

    def __call__(self, entry: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        people, symbol_E = self.annotators, self.answers.given_NS.indices[entry]
        worker_E = self.answers.worker_S[symbol_E]
        easy_EC, hard_EC = self._own(entry)
        careful_EC = easy_EC * self.careful_SC[symbol_E]
        like_all_EC = self.common.without(symbol_E, worker_E, careful_EC)
        prior_EC = people.care_W[worker_E, None] * like_all_EC + self.blind_S1[symbol_E]
        said_EC = (self.count_SC[symbol_E] - easy_EC).clip(min=0) + people.strength * prior_EC
        chance_EC = said_EC / ((people.total_WC[worker_E] - easy_EC).clip(min=0) + people.strength)
        if not people.hard_C.any():
            chance_EC = self._mixed(symbol_E, chance_EC)
            return chance_EC, chance_EC  # there are no hard items, so that theirs does not matter
        named_EC = self.named_SC[symbol_E]
        mistaken_EC = (careful_EC + hard_EC) * (1 - named_EC)
        hard_chance_EC = 0.5 * named_EC + 0.5 * self.wrong.without(symbol_E, np.zeros_like(symbol_E), mistaken_EC)
        return self._mixed(symbol_E, chance_EC), self._mixed(symbol_E, hard_chance_EC)

    def _mixed(self, symbol_E: np.ndarray, chance_EC: np.ndarray) -> np.ndarray:
        """With what unsure answers are worth."""
        unsure = self.annotators.unsure
        return chance_EC if unsure is None else unsure.mixed(chance_EC, symbol_E)

    def _own(self, entry: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How much these answers contributed to what was learned, of easy and of hard items."""
        if self.before is None:
            nothing = np.zeros((len(entry), self.answers.num_classes))
            return nothing, nothing
        item_E, weight_E1 = self.answers.item_E[entry], self.answers.given_NS.data[entry, None]
        own = [weight_E1 * share_NC[item_E] for share_NC in (self.before.easy_NC, self.before.hard_NC)]
        unsure, symbol_E = self.annotators.unsure, self.answers.given_NS.indices[entry]
        if unsure is not None:
            own = [unsure.without_guesses(own_EC, symbol_E, hard) for hard, own_EC in zip((False, True), own, strict=True)]
        return own[0], own[1]


class Counts:
    """Counts of (class, label) for every symbol of the answers, so that an answer's own part can be taken out."""

    def __init__(self, answers: Answers, count_CC: np.ndarray, least_CC: np.ndarray) -> None:
        self.count_SC, self.least_SC = (answers.members_SP @ table[:, answers.label_P].T for table in (count_CC, least_CC))
        self.total_C = count_CC.sum(axis=1)

    def of_all(self, who_S: np.ndarray, weight_S1: np.ndarray) -> np.ndarray:
        """S x C: probability of every symbol, whoever says it, times the weights."""
        chance_SC: np.ndarray = weight_S1 * self.count_SC / self.total_C
        return chance_SC

    def without(self, symbol_E: np.ndarray, who_E: np.ndarray, own_EC: np.ndarray) -> np.ndarray:
        """E x C: probability of these symbols, without their own part of the counts."""
        left_EC = np.maximum(self.count_SC[symbol_E] - own_EC, self.least_SC[symbol_E])
        chance_EC: np.ndarray = left_EC / (self.total_C - own_EC)
        return chance_EC


def _tables(answers: Answers, annotators: Annotators) -> tuple[Counts | RingCounts, Counts | RingCounts]:
    """What people with care say, and what they say wrongly; with a taxonomy level by level."""
    classes, first, levels = answers.num_classes, annotators.first, annotators.levels
    if levels is None:
        common = Counts(answers, annotators.common_CC, _half_right(classes, first))
        return common, Counts(answers, annotators.wrong_CC, _all_wrong(classes, first))
    least = 0.5 * first / classes
    return (
        RingCounts(levels, answers, annotators.common_CC, levels.share_MWC, least),
        RingCounts(levels, answers, annotators.wrong_CC, levels.wrong_M1C, least),
    )


def with_gold(log_prior_NC: np.ndarray, gold_N: np.ndarray) -> np.ndarray:
    """The prior with certainty where the label is known."""
    known = np.flatnonzero(gold_N >= 0)
    if not len(known):
        return log_prior_NC
    log_prior_NC = np.broadcast_to(log_prior_NC, (len(gold_N), log_prior_NC.shape[-1])).copy()
    log_prior_NC[known] = -np.inf
    log_prior_NC[known, gold_N[known]] = 0.0
    return log_prior_NC


def log_sum(value_NC: np.ndarray) -> np.ndarray:
    """Logarithm of the sum of exponentials in each row; minus infinity where all are."""
    top_N = np.maximum(value_NC.max(axis=1), np.finfo(np.float64).min)
    with np.errstate(divide="ignore"):
        total_N: np.ndarray = top_N + np.log(np.exp(value_NC - top_N[:, None]).sum(axis=1))
    return total_N


def initial_annotators(answers: Answers, strength: float, hard: bool, first: float = CONFUSION_PSEUDO_COUNTS) -> Annotators:
    """Before anything has been learned: everybody is right more often than not. Starting from here, the first weighing of
    the answers is a majority vote."""
    classes, people = answers.num_classes, answers.num_workers
    weight_S = np.asarray(answers.given_NS.sum(axis=0)).ravel()
    size_S = np.asarray(answers.members_SP.sum(axis=1)).ravel()
    count_WC = np.zeros((people, classes))
    count_WC[answers.worker_P, answers.label_P] = answers.members_SP.T @ (weight_S / size_S)
    everyone_C = (count_WC.sum(axis=0) + 1) / (count_WC.sum() + classes)
    return Annotators(
        count_PC=np.zeros((len(answers.label_P), classes)),
        total_WC=np.zeros((people, classes)),
        common_CC=_half_right(classes, first),
        wrong_CC=_all_wrong(classes, first),
        habit_WC=(count_WC + everyone_C) / (count_WC.sum(axis=1, keepdims=True) + 1),
        care_W=np.full(people, CARE_PSEUDO_COUNTS[0] / sum(CARE_PSEUDO_COUNTS)),
        hard_C=np.full(classes, HARD_PSEUDO_COUNTS[0] / sum(HARD_PSEUDO_COUNTS) if hard else 0.0),
        strength=strength,
        first=first,
        levels=initial_levels(answers.taxonomy, people),
        unsure=first_unsure(answers, everyone_C),
        caution=first_caution(answers),
    )


def m_step(answers: Answers, found: ItemPosterior, before: Annotators) -> Annotators:
    """The M-step: the annotators that make what was found likeliest, given their priors. `before` says how answers are divided
    that leave a choice: those with several labels, and those that may have been given blindly."""
    worker_P, classes = answers.worker_P, answers.num_classes
    like_all_PC = before.care_W[worker_P, None] * before.like_all(worker_P, answers.label_P)
    blind_P1 = ((1 - before.care_W[worker_P]) * before.habit_WC[worker_P, answers.label_P])[:, None]
    prior_PC = like_all_PC + blind_P1
    chance_PC = (before.count_PC + before.strength * prior_PC) / (before.total_WC[worker_P] + before.strength)
    unsure = _learned_unsure(answers, found, before, chance_PC)
    count_PC = _expected(answers, found.easy_NC, chance_PC, unsure, hard=False)
    careful_PC = count_PC * like_all_PC / prior_PC
    answers_W = np.bincount(worker_P, count_PC.sum(axis=1), minlength=answers.num_workers)
    careful_W = np.bincount(worker_P, careful_PC.sum(axis=1), minlength=answers.num_workers)
    careful_CC = _by_label(answers, careful_PC)
    total_WC = np.zeros((answers.num_workers, classes))
    np.add.at(total_WC, worker_P, count_PC)
    hard_PC = _expected(answers, found.hard_NC, before.hard_CC[:, answers.label_P].T, unsure, hard=True)
    wrong_CC = careful_CC + _by_label(answers, hard_PC)
    np.fill_diagonal(wrong_CC, 0.0)
    return replace(
        before,
        count_PC=count_PC,
        total_WC=total_WC,
        common_CC=careful_CC + _half_right(classes, before.first),
        wrong_CC=wrong_CC + _all_wrong(classes, before.first),
        care_W=(careful_W + CARE_PSEUDO_COUNTS[0]) / (answers_W + sum(CARE_PSEUDO_COUNTS)),
        hard_C=_share_of_hard(answers, found) if before.hard_C.any() else before.hard_C,
        levels=None if before.levels is None else before.levels.learned(answers, careful_PC),
        unsure=unsure,
        caution=None if before.caution is None else before.caution.learned(found.hard_NC.sum(axis=1)),
    )


def _learned_unsure(answers: Answers, found: ItemPosterior, before: Annotators, easy_PC: np.ndarray) -> Unsure | None:
    if before.unsure is None:
        return None
    chances = easy_PC, before.hard_CC[:, answers.label_P].T
    easy_SC, hard_SC = (answers.members_SP @ chance_PC for chance_PC in chances)
    found_SC = answers.given_NS.T @ found.easy_NC, answers.given_NS.T @ found.hard_NC
    return learned_unsure(before.unsure, found_SC, (easy_SC, hard_SC))


def _share_of_hard(answers: Answers, found: ItemPosterior) -> np.ndarray:
    """How many items of each class are hard. All else about hard items is fixed or shared: three answers an item hardly tell
    more."""
    answered_N = answers.answered_N
    hard_C, items_C = found.hard_NC[answered_N].sum(axis=0), found.posterior_NC[answered_N].sum(axis=0)
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


def _half_right(classes: int, first: float) -> np.ndarray:
    """Answers per class to begin with, half of them right and half spread over all labels."""
    return first * (0.5 * np.eye(classes) + 0.5 / classes)


def _all_wrong(classes: int, first: float) -> np.ndarray:
    """Wrong answers per class to begin with, spread over all others."""
    return first * (1 - np.eye(classes)) / (classes - 1)


def _rows(count_CC: np.ndarray) -> np.ndarray:
    share_CC: np.ndarray = count_CC / count_CC.sum(axis=1, keepdims=True)
    return share_CC
