"""One label per item from several people's answers: the majority, and Dawid and Skene's model of who errs how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pals.crowd.annotators import Annotators, ItemPosterior, confusion_matrices, e_step, initial_annotators, m_step
from pals.crowd.answers import Answers, arrange, vote_shares
from pals.readers import Votes
from pals.util.errors import InputError

DAWID_SKENE = "dawid-skene"
"""In place of a method's name in `pals fit --no-images`: there is no classifier, the answers alone are fitted."""

STRENGTHS = (3.0, 10.0, 30.0, 100.0, 300.0)
"""Weights, in answers per class, that the prior of a person's confusion matrix may have; the answers decide between them."""

TOLERANCE = 1e-5
ITERATIONS = 200
"""Of expectation and maximisation: it has converged when no more than this share of the probability moves."""

Prior = Callable[[np.ndarray], np.ndarray]  # what is now held of the items, N x C -> log-prior of the next round


@dataclass(frozen=True)
class Consensus:
    """What the answers come to. `posterior_NC` is the probability of each class for each item, in the order of the votes'
    items; an item without an answer has the share of each class among the others."""

    found: ItemPosterior
    prior_C: np.ndarray
    annotators: Annotators
    answers: Answers
    log_likelihood: float
    iterations: int
    converged: bool

    @cached_property
    def posterior_NC(self) -> np.ndarray:
        return self.found.posterior_NC

    @property
    def label_N(self) -> np.ndarray:
        """The likeliest class; the first of them where several are."""
        label_N: np.ndarray = self.posterior_NC.argmax(axis=1)
        return label_N

    @property
    def confidence_N(self) -> np.ndarray:
        top_N: np.ndarray = self.posterior_NC.max(axis=1)
        return top_N

    @property
    def confusion_WCC(self) -> np.ndarray:
        """Rows are the true class, columns the answer; the last matrix is that of all unnamed answers together."""
        return confusion_matrices(self.answers, self.annotators)


def majority_vote(votes: Votes) -> np.ndarray:
    """N x C: the weighted share of each item's answers that a label got. A gold label has all of it; an item without answers
    has the mean share of the others."""
    share_NC = vote_shares(votes)
    gold = np.flatnonzero(votes.gold_I >= 0)
    share_NC[gold] = np.eye(share_NC.shape[1])[votes.gold_I[gold]]
    known_N = share_NC.any(axis=1)
    share_NC[~known_N] = share_NC[known_N].mean(axis=0) if known_N.any() else 1 / share_NC.shape[1]
    return share_NC


def dawid_skene(
    votes: Votes,
    *,
    hard_items: bool = False,
    strength: float | None = None,
    tolerance: float = TOLERANCE,
    iterations: int = ITERATIONS,
) -> Consensus:
    """Dawid and Skene 1979: labels and one confusion matrix per annotator, each estimated from the other in turn.

    `strength` is how many answers per class the prior of a person's matrix weighs (`Annotators`): large where people err alike,
    small where each errs in their own way. If it is not given, that which predicts people's answers best is taken. With
    `hard_items` some items are hard for everybody, so that answers which disagree say less; without, answers count as
    independent given the class.
    """
    if len(votes.class_names) < 2:
        raise InputError(f"The votes name {len(votes.class_names)} class; there is nothing to tell apart. Name at least two.")
    if strength is not None and not 0 < strength < np.inf:
        raise InputError(f"strength = {strength}: the prior of a confusion matrix needs a weight above zero.")
    answers = arrange(votes)
    if strength is None:
        strength = choose_strength(answers)
    return _estimate(answers, strength, hard_items, tolerance, iterations)


def choose_strength(answers: Answers) -> float:
    """The strength under which answers are likeliest, each judged by what is known from the others."""
    if len(np.unique(answers.worker_P)) < 2:
        return STRENGTHS[len(STRENGTHS) // 2]  # everybody is like everybody
    found = [_estimate(answers, strength, False, tolerance=1e-3, iterations=40).log_likelihood for strength in STRENGTHS]
    return STRENGTHS[int(np.argmax(found))]


def _estimate(answers: Answers, strength: float, hard_items: bool, tolerance: float, iterations: int) -> Consensus:
    def prior(posterior_NC: np.ndarray) -> np.ndarray:
        log_prior_C: np.ndarray = np.log(class_shares(posterior_NC, answers.known_N))
        return log_prior_C

    annotators = initial_annotators(answers, strength, hard_items)
    found = e_step(answers, annotators, np.zeros((answers.num_items, answers.num_classes)))
    return expectation_maximisation(answers, annotators, found, prior, tolerance=tolerance, iterations=iterations)


def class_shares(posterior_NC: np.ndarray, known_N: np.ndarray) -> np.ndarray:
    """How frequent the classes are among the items of which something is known; a class that nobody chose keeps a little."""
    classes = posterior_NC.shape[1]
    share_C: np.ndarray = (posterior_NC[known_N].sum(axis=0) + 1 / classes) / (known_N.sum() + 1)
    return share_C


def expectation_maximisation(
    answers: Answers, annotators: Annotators, found: ItemPosterior, prior: Prior, *, tolerance: float, iterations: int
) -> Consensus:
    """Expectation and maximisation: learn who errs how, weigh the answers again, and so on until nothing moves."""
    done, change = 0, np.inf
    while done < iterations and change > tolerance:
        log_prior = prior(found.posterior_NC)
        annotators = m_step(answers, found, annotators)
        before, found = found, e_step(answers, annotators, log_prior, found)
        change = 0.5 * np.abs(found.posterior_NC - before.posterior_NC).sum() / max(answers.num_items, 1)
        done += 1
    return summarize(answers, annotators, found, done, change <= tolerance)


def summarize(answers: Answers, annotators: Annotators, found: ItemPosterior, iterations: int, converged: bool) -> Consensus:
    """What an alternation came to."""
    return Consensus(
        found=found,
        prior_C=class_shares(found.posterior_NC, answers.known_N),
        annotators=annotators,
        answers=answers,
        log_likelihood=float(found.evidence_N[answers.answered_N].sum()),
        iterations=iterations,
        converged=converged,
    )
