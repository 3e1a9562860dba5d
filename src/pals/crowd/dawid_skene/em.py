"""EM of the annotator model on the answers alone, and the majority vote.

    initialise  posterior = shares of the first choices
    repeat      M step: hit rates, roles and errors from the posterior
                E step: posterior from the class shares and the answers
    until       less than `TOLERANCE` of the probability moves

Symbols and model: `annotator_model`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pals.crowd.answers import vote_shares
from pals.crowd.dawid_skene.annotator_model import (
    ERROR_STRENGTH,
    SKILL_STRENGTH,
    AnnotatorModel,
    e_step,
    estimate_errors,
    m_step,
)
from pals.crowd.dawid_skene.answer_table import AnswerTable, arrange
from pals.crowd.dawid_skene.correlation import estimate_correlation
from pals.readers import Votes
from pals.util.errors import InputError

DAWID_SKENE = "dawid-skene"
"""In place of a method's name in `pals fit --no-images`: there is no classifier, the answers alone are fitted."""
TOLERANCE, MAX_ROUNDS = 5e-4, 15
"""It has converged when no more than this share of the probability moves."""


@dataclass(frozen=True)
class Consensus:
    """Labels from answers.

    Args:
        posterior_NC: Probability of each class; items without an answer have the shares of the classes.
        answers: The answers that were fitted.
        annotators: The fitted annotator model.
        correlation: Correlation of mistakes about one item.
        iterations: Rounds of EM.
        converged: Whether the posterior came to rest.
    """

    posterior_NC: np.ndarray
    answers: AnswerTable
    annotators: AnnotatorModel
    correlation: float
    iterations: int
    converged: bool

    @cached_property
    def label_N(self) -> np.ndarray:
        """The likeliest class; the first of them where several are."""
        label_N: np.ndarray = self.posterior_NC.argmax(axis=1)
        return label_N

    @cached_property
    def confidence_N(self) -> np.ndarray:
        """Probability of the label."""
        top_N: np.ndarray = self.posterior_NC.max(axis=1)
        return top_N

    @cached_property
    def confusion_CC(self) -> np.ndarray:
        """How a typical annotator answers: rows are the true class, columns the answer."""
        skill = self.annotators.skill
        confusion_CC: np.ndarray = skill * np.eye(self.answers.num_classes) + (1 - skill) * self.annotators.errors.error_CC
        return confusion_CC


def majority_vote(votes: Votes) -> np.ndarray:
    """Each label's weighted share of the item's answers.

    Args:
        votes: The answers.

    Returns:
        N x C. A gold label gets all of it; an item without answers gets the mean of the others.

    >>> from pathlib import Path
    >>> text = b"item,annotator,label\\na.jpg,ann,newt\\na.jpg,bob,newt\\na.jpg,cho,frog\\n"
    >>> pals.majority_vote(pals.read_votes([pals.Source(Path("votes.csv"), data=text)])).round(2).tolist()
    [[0.33, 0.67]]
    """
    share_NC = vote_shares(votes)
    gold = np.flatnonzero(votes.gold_I >= 0)
    share_NC[gold] = np.eye(share_NC.shape[1])[votes.gold_I[gold]]
    known_N = share_NC.any(axis=1)
    share_NC[~known_N] = share_NC[known_N].mean(axis=0) if known_N.any() else 1 / share_NC.shape[1]
    return share_NC


def dawid_skene(votes: Votes, *, strength: float = SKILL_STRENGTH, correlation: float | None = None) -> Consensus:
    """Labels from the answers alone, by the annotator model (`pals.crowd.dawid_skene.annotator_model`).

    After Dawid and Skene 1979: labels and annotators are each estimated from the other in turn. Annotators differ in skill,
    classes in what they are mistaken for; the answers to one item may share their mistakes.

    Args:
        votes: The answers.
        strength: Prior of an annotator's skill, in answers.
        correlation: Correlation of mistakes about one item, 0 to 1; None: estimated.

    Returns:
        Posterior and annotators.

    Raises:
        InputError: Fewer than two classes, or `strength` is not above zero.

    >>> from pathlib import Path
    >>> names = ("ann", "bob", "eve")
    >>> rows = [f"{n}.jpg,{who},{'newt' if n % 2 or who == 'eve' else 'frog'}" for n in range(20) for who in names]
    >>> text = "\\n".join(["item,annotator,label", *rows]).encode()
    >>> found = pals.dawid_skene(pals.read_votes([pals.Source(Path("votes.csv"), data=text)]))
    >>> found.label_N[:4].tolist(), bool(found.annotators.skill_W[2] < found.annotators.skill_W[0])
    ([0, 1, 0, 1], True)
    """
    check(votes, strength)
    table = arrange(votes)
    if correlation is None:
        correlation = estimate_correlation(table, lambda part: fit_answers(part, strength))
    return fit_answers(table, strength, correlation)


def check(votes: Votes, strength: float) -> None:
    """Refuse votes of fewer than two classes, and a prior without weight."""
    if len(votes.class_names) < 2:
        raise InputError(f"The votes name {len(votes.class_names)} class; there is nothing to tell apart. Name at least two.")
    if not 0 < strength < np.inf:
        raise InputError(f"strength = {strength}: the prior of an annotator's skill needs a weight above zero.")


def fit_answers(
    table: AnswerTable,
    strength: float = SKILL_STRENGTH,
    correlation: float = 0.0,
    item_weight_N: np.ndarray | None = None,
    error_strength: float = ERROR_STRENGTH,
) -> Consensus:
    """EM, begun with the shares of the first choices.

    Args:
        table: The answers.
        strength: Prior of hit rates, in answers.
        correlation: Of mistakes about one item.
        item_weight_N: How much each item counts for the parameters; all alike by default.
        error_strength: Prior of each row of the error matrix, in errors.
    """
    weight_N = np.ones(table.num_items) if item_weight_N is None else item_weight_N
    log_share_C, posterior_NC = np.log(table.class_share_C), table.share_NC
    done, moved = 0, np.inf
    while done < MAX_ROUNDS and moved > TOLERANCE:
        errors = estimate_errors(table, posterior_NC, weight_N, error_strength)
        annotators = m_step(table, posterior_NC, weight_N, errors, strength)
        before_NC, posterior_NC = posterior_NC, e_step(table, annotators, log_share_C, correlation)
        done, moved = done + 1, moved_share(before_NC, posterior_NC)
    return Consensus(posterior_NC, table, annotators, correlation, done, moved <= TOLERANCE)


def moved_share(before_NC: np.ndarray, after_NC: np.ndarray) -> float:
    """Share of the probability that moved."""
    return float(np.abs(after_NC - before_NC).sum()) / (2 * max(len(after_NC), 1))
