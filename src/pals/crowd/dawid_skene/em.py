"""One label per item from several people's answers: the majority, and Dawid and Skene's model of who errs how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pals.crowd.answers import Answers, arrange, vote_shares
from pals.crowd.dawid_skene.annotators import Annotators, confusion_matrices, initial_annotators, m_step, settled
from pals.crowd.dawid_skene.e_step import e_step
from pals.crowd.dawid_skene.posterior import ItemPosterior, class_shares
from pals.crowd.dawid_skene.prior_strength import MIDDLE, ROUGHLY, STRENGTHS, climb
from pals.crowd.dawid_skene.sparse_em import estimate_large, is_large
from pals.readers import Votes
from pals.util.errors import InputError

DAWID_SKENE = "dawid-skene"
"""In place of a method's name in `pals fit --no-images`: there is no classifier, the answers alone are fitted."""

TOLERANCE, ITERATIONS = 1e-5, 200
"""Of expectation and maximisation: it has converged when no more than this share of the probability moves."""

QUICK = 1_000_000
"""Answers times classes up to which every strength is tried from the beginning."""

Prior = Callable[[ItemPosterior], np.ndarray]  # what is now held of the items -> log-prior of the next round


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

    @property
    def posterior_NC(self) -> np.ndarray:
        """To be read only. Not kept: with hard items it is one more of the largest tables."""
        return self.found.posterior_NC

    @cached_property
    def label_N(self) -> np.ndarray:
        """The likeliest class; the first of them where several are."""
        label_N: np.ndarray = self.posterior_NC.argmax(axis=1)
        return label_N

    @cached_property
    def confidence_N(self) -> np.ndarray:
        top_N: np.ndarray = self.posterior_NC.max(axis=1)
        return top_N

    @property
    def confusion_WCC(self) -> np.ndarray:
        """Rows are the true class, columns the answer; the last matrix is for answers without a name."""
        return confusion_matrices(self.answers, self.annotators)


def majority_vote(votes: Votes) -> np.ndarray:
    """N x C: each label's weighted share of the item's answers. A gold label gets all of it; an item without answers gets
    the mean of the others."""
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
    start_NC: np.ndarray | None = None,
) -> Consensus:
    """Dawid and Skene 1979: labels and one confusion matrix per annotator, each estimated from the other in turn.

    `strength` is how many answers per class the prior of a person's matrix is worth (`Annotators`): many if people err alike,
    few if each errs differently. By default it is the value that best predicts people's answers. With `hard_items`, some
    items are hard for everybody, so that conflicting answers say less; without, answers are independent given the class.
    `start_NC` is what is already known about the items, say from a fit of most of these answers: the estimate starts from it
    and converges sooner; rows are zero where nothing is known.
    """
    if len(votes.class_names) < 2:
        raise InputError(f"The votes name {len(votes.class_names)} class; there is nothing to tell apart. Name at least two.")
    if strength is not None and not 0 < strength < np.inf:
        raise InputError(f"strength = {strength}: the prior of a confusion matrix needs a weight above zero.")
    answers = arrange(votes)
    if is_large(answers):
        annotators, found, done, converged = estimate_large(answers, strength, hard_items, tolerance, iterations, start_NC)
        return summarize(answers, annotators, found, done, converged)
    if strength is None:
        strength = choose_strength(answers) if start_NC is None else _climb(answers, start_NC)
    return _estimate(answers, strength, hard_items, tolerance, iterations, start_NC)


def choose_strength(answers: Answers) -> float:
    """The strength under which answers are likeliest, each judged by what is known from the others. Where that is quick, every
    one is tried from the beginning."""
    if len(np.unique(answers.annotator_P)) < 2:
        return STRENGTHS[MIDDLE]  # everybody is like everybody
    if answers.given_NS.nnz * answers.num_classes > QUICK:
        return _climb(answers)
    found = [_estimate(answers, strength, False, *ROUGHLY).log_likelihood for strength in STRENGTHS]
    return STRENGTHS[int(np.argmax(found))]


def _climb(answers: Answers, start_NC: np.ndarray | None = None) -> float:
    """The same for many answers, or with something to begin with: each estimate goes on from what the one before found."""
    now: Consensus | None = None

    def likelihood(strength: float) -> float:
        nonlocal now
        if now is None:
            now = _estimate(answers, strength, False, *ROUGHLY, start_NC)
        else:
            now = _alternate(answers, replace(now.annotators, strength=strength), now.found, *ROUGHLY)
        return now.log_likelihood

    return climb(likelihood)


def _estimate(
    answers: Answers,
    strength: float,
    hard_items: bool,
    tolerance: float,
    iterations: int,
    start_NC: np.ndarray | None = None,
) -> Consensus:
    annotators, log_prior_C, held = initial_annotators(answers, strength, hard_items), np.zeros(answers.num_classes), None
    if start_NC is not None:
        held = ItemPosterior.held(start_NC, hard_items)
        log_prior_C = np.log(class_shares(held, held.easy_NC.max(axis=1) > 0))
        annotators = settled(answers, held, annotators)
    found = e_step(answers, annotators, log_prior_C, held)
    return _alternate(answers, annotators, found, tolerance, iterations)


def _alternate(answers: Answers, annotators: Annotators, found: ItemPosterior, tolerance: float, iterations: int) -> Consensus:
    def prior(found: ItemPosterior) -> np.ndarray:
        log_prior_C: np.ndarray = np.log(class_shares(found, answers.known_N))
        return log_prior_C

    return expectation_maximisation(answers, annotators, found, prior, tolerance=tolerance, iterations=iterations, reuse=True)


def expectation_maximisation(
    answers: Answers,
    annotators: Annotators,
    found: ItemPosterior,
    prior: Prior,
    *,
    tolerance: float,
    iterations: int,
    reuse: bool = False,
) -> Consensus:
    """Expectation and maximisation: learn who errs how, weigh the answers again, and so on until nothing moves. With `reuse`
    the tables that it begins with are written over."""
    done, moved = 0, np.inf
    while done < iterations and moved > tolerance:
        log_prior = prior(found)
        annotators = m_step(answers, found, annotators, reuse=reuse)
        found = e_step(answers, annotators, log_prior, found, reuse=reuse)
        done, moved, reuse = done + 1, found.moved, True
    return summarize(answers, annotators, found, done, moved <= tolerance)


def summarize(answers: Answers, annotators: Annotators, found: ItemPosterior, iterations: int, converged: bool) -> Consensus:
    """What an alternation came to."""
    return Consensus(
        found=found,
        prior_C=class_shares(found, answers.known_N),
        annotators=annotators,
        answers=answers,
        log_likelihood=float(found.evidence_N[answers.answered_N].sum()),
        iterations=iterations,
        converged=converged,
    )
