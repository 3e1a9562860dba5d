"""Dawid and Skene's model of very many answers: expectation and maximisation on the classes that an item may be of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pals.crowd.answers import Answers
from pals.crowd.dawid_skene.annotators import Annotators, initial_annotators, m_step, settled
from pals.crowd.dawid_skene.e_step import LEAST
from pals.crowd.dawid_skene.posterior import ItemPosterior, class_shares
from pals.crowd.dawid_skene.prior_strength import MIDDLE, ROUGHLY, STRENGTHS, climb
from pals.crowd.dawid_skene.sparse import SparsePosterior, full_e_step, sparse_e_step

MANY = 10_000_000
"""Answers times classes from which on tables of all classes are not kept."""

COARSE = 1e-3
"""Share of the likeliest class that a class must have to be looked at again after the first weighing, when nothing is known of
people; later it is `LEAST`."""


def is_large(answers: Answers) -> bool:
    """Whether there are so many answers that it pays; all name one label, and surely, without a taxonomy."""
    return answers.plain and answers.taxonomy is None and answers.given_NS.nnz * answers.num_classes > MANY


class LargeFit:
    """What is known by now, of items at the classes that they may be of, and of people."""

    def __init__(self, answers: Answers, strength: float, hard_items: bool, start_NC: np.ndarray | None = None) -> None:
        self.answers, self.done = answers, 0
        self.annotators = initial_annotators(answers, strength, hard_items, sparse=True)
        if start_NC is None:
            full = full_e_step(answers, self.annotators, np.zeros(answers.num_classes))
            self.found = SparsePosterior.of(answers, full, COARSE)
        else:
            self.found = SparsePosterior.of(answers, ItemPosterior.held(start_NC, hard_items), LEAST)
            hard_C = self.annotators.hard_C
            self.annotators = settled(answers, self.found, self.annotators)
        log_prior_C = self._learn()
        if start_NC is not None:
            self.annotators = replace(self.annotators, hard_C=hard_C)  # of hard items nothing is held yet
        full = full_e_step(answers, self.annotators, log_prior_C, self.found)
        self.found = SparsePosterior.of(answers, full, LEAST)

    def _learn(self) -> np.ndarray:
        """The M-step; gives the log-prior of the E-step that follows."""
        log_prior_C: np.ndarray = np.log(class_shares(self.found, self.answers.known_N))
        self.annotators = m_step(self.answers, self.found, self.annotators)
        self.done += 1
        return log_prior_C

    def look_at_all(self) -> ItemPosterior:
        """One iteration in which every class of every item is weighed."""
        log_prior_C = self._learn()
        return full_e_step(self.answers, self.annotators, log_prior_C, self.found)

    def alternate(self, tolerance: float, iterations: int) -> None:
        """Iterations on the classes that items may be of, until little moves."""
        moved = np.inf
        while moved > tolerance and self.done < iterations:
            log_prior_C = self._learn()
            self.found = sparse_e_step(self.answers, self.annotators, log_prior_C, self.found)
            moved = self.found.moved

    def likelihood(self, strength: float) -> float:
        """Of the answers under this strength, going on from what was found under another."""
        self.annotators = replace(self.annotators, strength=strength)
        tolerance, iterations = ROUGHLY
        self.alternate(tolerance, self.done + iterations)
        return float(self.found.evidence_N[self.answers.answered_N].sum())


def estimate_large(
    answers: Answers,
    strength: float | None,
    hard_items: bool,
    tolerance: float,
    iterations: int,
    start_NC: np.ndarray | None = None,
) -> tuple[Annotators, ItemPosterior, int, bool]:
    """The annotators, the items, how many iterations it took, and whether it has converged. All classes are looked at in the
    end; where that moves more than what is left out, it goes on with the classes that are possible now."""
    if strength is None and hard_items:
        strength = choose_large(answers, start_NC).annotators.strength
    fit = choose_large(answers, start_NC) if strength is None else LargeFit(answers, strength, hard_items, start_NC)
    spent = fit.done  # on the first looks, and on comparing strengths
    while True:
        fit.alternate(tolerance, spent + iterations)
        full = fit.look_at_all()
        converged = full.moved <= max(tolerance, 2 * LEAST)
        if converged or fit.done >= spent + iterations:
            return fit.annotators, full, fit.done - spent, converged
        fit.found = SparsePosterior.of(answers, full, LEAST)


def choose_large(answers: Answers, start_NC: np.ndarray | None = None) -> LargeFit:
    """With the strength under which the answers are likeliest; if all are one person's, with one in the middle."""
    fit = LargeFit(answers, STRENGTHS[MIDDLE], False, start_NC)
    if len(np.unique(answers.annotator_P)) > 1:
        fit.annotators = replace(fit.annotators, strength=climb(fit.likelihood))
    return fit
