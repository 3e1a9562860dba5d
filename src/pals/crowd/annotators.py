"""How annotators answer, given the true class: one confusion matrix each, shrunk towards what people in general do."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pals.crowd.answers import Answers
from pals.errors import InputError

LARGEST_CONFUSION = 200_000_000
"""Numbers in all confusion matrices together; more are not written out."""

CARE = (4.5, 0.5)
"""Before anything is known of a person: as if four and a half answers had been given with care and half a one blindly."""

HARD = (1.0, 9.0)
"""Before anything is known of a class: as if one of ten items had been found hard."""


@dataclass(frozen=True)
class Annotators:
    """What people say of an item of each class.

    Where the data say little of a person, the person answers as everybody does (`shared_CC`) with probability `care_W`, and
    otherwise blindly with the label frequencies of their own (`habit_WC`). The more answers, the less this counts: it has the
    weight of `strength` answers per class.

    Of a hard item nobody knows better than the others: `hard_CC` holds for everybody, and `hard_C` of the items of a class
    are hard (zero where difficulty is not modelled).
    """

    chance_PC: np.ndarray  # P(the pair's person gives the pair's label | class), of items that are not hard
    count_PC: np.ndarray  # expected number of such answers
    shared_CC: np.ndarray
    habit_WC: np.ndarray
    care_W: np.ndarray
    hard_CC: np.ndarray
    hard_C: np.ndarray
    strength: float

    def confusion_WCC(self, answers: Answers) -> np.ndarray:
        """Everybody's matrix: rows are the true class, columns the answer. The last one is that of all unnamed answers."""
        people, classes = self.habit_WC.shape
        if people * classes**2 > LARGEST_CONFUSION:
            raise InputError(f"{people:,} confusion matrices of {classes:,} classes are too large to be written out.")
        count_WCC = np.zeros((people, classes, classes))
        count_WCC[answers.worker_P, :, answers.label_P] = self.count_PC
        care_W11 = self.care_W[:, None, None]
        prior_WCC = care_W11 * self.shared_CC + (1 - care_W11) * self.habit_WC[:, None, :]
        confusion_WCC: np.ndarray = (count_WCC + self.strength * prior_WCC) / (
            count_WCC.sum(axis=2, keepdims=True) + self.strength
        )
        return confusion_WCC


@dataclass(frozen=True)
class Weighed:
    """What the answers say of the items: probabilities of (class, easy) and (class, hard) that sum to one per item."""

    easy_NC: np.ndarray
    hard_NC: np.ndarray
    evidence_N: np.ndarray  # log-likelihood of each item's answers

    @property
    def posterior_NC(self) -> np.ndarray:
        posterior_NC: np.ndarray = self.easy_NC + self.hard_NC
        return posterior_NC


def weigh(answers: Answers, annotators: Annotators, log_prior_NC: np.ndarray) -> Weighed:
    """Bayes' rule: prior times the probability of every answer. A gold label leaves no doubt."""
    log_prior_NC = with_gold(log_prior_NC, answers.gold_N)
    with np.errstate(divide="ignore"):
        hard_C, easy_C = np.log(annotators.hard_C), np.log1p(-annotators.hard_C)
    easy_NC = log_prior_NC + easy_C + answers.given_NS @ np.log(answers.members_SP @ annotators.chance_PC)
    if not annotators.hard_C.any():
        evidence_N = log_sum(easy_NC)
        return Weighed(np.exp(easy_NC - evidence_N[:, None]), np.zeros_like(easy_NC), evidence_N)
    hard_SC = answers.members_SP @ hard_chance(answers, annotators)
    hard_NC = log_prior_NC + hard_C + answers.given_NS @ np.log(hard_SC)
    evidence_N = np.logaddexp(log_sum(easy_NC), log_sum(hard_NC))
    return Weighed(np.exp(easy_NC - evidence_N[:, None]), np.exp(hard_NC - evidence_N[:, None]), evidence_N)


def hard_chance(answers: Answers, annotators: Annotators) -> np.ndarray:
    """P x C: probability of each pair's label for hard items of each class."""
    return annotators.hard_CC[:, answers.label_P].T


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
    top_N = value_NC.max(axis=1)
    total_N: np.ndarray = top_N + np.log(np.exp(value_NC - top_N[:, None]).sum(axis=1))
    return total_N


def beginners(answers: Answers, strength: float, hard: bool) -> Annotators:
    """Before anything has been learned: everybody is right more often than not. Starting from here, the first weighing of
    the answers is a majority vote."""
    classes, people = answers.num_classes, answers.num_workers
    shared_CC = _half_right(classes)
    weight_S = np.asarray(answers.given_NS.sum(axis=0)).ravel()
    size_S = np.asarray(answers.members_SP.sum(axis=1)).ravel()
    weight_P = answers.members_SP.T @ (weight_S / size_S)
    count_WC = np.zeros((people, classes))
    count_WC[answers.worker_P, answers.label_P] = weight_P
    everyone_C = (count_WC.sum(axis=0) + 1) / (count_WC.sum() + classes)
    habit_WC = (count_WC + everyone_C) / (count_WC.sum(axis=1, keepdims=True) + 1)
    return Annotators(
        chance_PC=shared_CC[:, answers.label_P].T,
        count_PC=np.zeros((len(answers.label_P), classes)),
        shared_CC=shared_CC,
        habit_WC=habit_WC,
        care_W=np.full(people, CARE[0] / sum(CARE)),
        hard_CC=shared_CC,
        hard_C=np.full(classes, HARD[0] / sum(HARD) if hard else 0.0),
        strength=strength,
    )


def learn(answers: Answers, weighed: Weighed, before: Annotators) -> Annotators:
    """The annotators that make what was found likeliest, given their priors."""
    worker_P, label_P = answers.worker_P, answers.label_P
    count_PC = _expected(answers, weighed.easy_NC, before.chance_PC)
    as_all_PC = before.care_W[worker_P, None] * before.shared_CC[:, label_P].T
    blind_P1 = ((1 - before.care_W[worker_P]) * before.habit_WC[worker_P, label_P])[:, None]
    cared_PC = count_PC * as_all_PC / (as_all_PC + blind_P1)
    answers_W = np.bincount(worker_P, count_PC.sum(axis=1), minlength=answers.num_workers)
    cared_W = np.bincount(worker_P, cared_PC.sum(axis=1), minlength=answers.num_workers)
    care_W = (cared_W + CARE[0]) / (answers_W + sum(CARE))
    cared_CC = _by_label(answers, cared_PC)
    shared_CC = _rows(cared_CC + _half_right(answers.num_classes))
    prior_PC = care_W[worker_P, None] * shared_CC[:, label_P].T
    prior_PC += ((1 - care_W[worker_P]) * before.habit_WC[worker_P, label_P])[:, None]
    total_WC = np.zeros((answers.num_workers, answers.num_classes))
    np.add.at(total_WC, worker_P, count_PC)
    learned = replace(
        before,
        chance_PC=(count_PC + before.strength * prior_PC) / (total_WC[worker_P] + before.strength),
        count_PC=count_PC,
        shared_CC=shared_CC,
        care_W=care_W,
    )
    return learned if not before.hard_C.any() else _learn_hard(answers, weighed, learned, cared_CC)


def _learn_hard(answers: Answers, weighed: Weighed, learned: Annotators, cared_CC: np.ndarray) -> Annotators:
    """Of a hard item every other answer is wrong, and wrong in the way that answers are wrong elsewhere. To learn more than
    how many there are of each class would be too much: three answers an item hardly tell."""
    found_PC = _expected(answers, weighed.hard_NC, hard_chance(answers, learned))
    wrong_CC = cared_CC + _by_label(answers, found_PC)
    np.fill_diagonal(wrong_CC, 0.0)
    share_CC = _rows(wrong_CC + (1 - np.eye(answers.num_classes)) / answers.num_classes)
    answered_N = answers.answered_N
    found_C = weighed.hard_NC[answered_N].sum(axis=0)
    items_C = weighed.posterior_NC[answered_N].sum(axis=0)
    return replace(
        learned,
        hard_CC=0.5 * np.eye(answers.num_classes) + 0.5 * share_CC,
        hard_C=(found_C + HARD[0]) / (items_C + sum(HARD)),
    )


def _expected(answers: Answers, weight_NC: np.ndarray, chance_PC: np.ndarray) -> np.ndarray:
    """How often each pair occurred with each class. An answer with several labels is split by what the person would say."""
    found_SC = answers.given_NS.T @ weight_NC
    count_PC: np.ndarray = chance_PC * (answers.members_SP.T @ (found_SC / (answers.members_SP @ chance_PC)))
    return count_PC


def _by_label(answers: Answers, count_PC: np.ndarray) -> np.ndarray:
    """Counts of pairs to counts of (class, label)."""
    count_CC = np.zeros((answers.num_classes, answers.num_classes))
    np.add.at(count_CC, answers.label_P, count_PC)
    return count_CC.T


def _half_right(classes: int) -> np.ndarray:
    """Right with one half, and the other half spread over all labels."""
    return 0.5 * np.eye(classes) + 0.5 / classes


def _rows(count_CC: np.ndarray) -> np.ndarray:
    share_CC: np.ndarray = count_CC / count_CC.sum(axis=1, keepdims=True)
    return share_CC
