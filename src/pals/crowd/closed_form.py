"""Labels from annotators' answers and frozen features of the images, in closed form.

    initialise  posterior = shares of the first choices; errors of annotators from the answers alone (`fit_answers`)
    repeat      M step: hit rates of annotators from the posterior (`annotator_model`)
                image likelihood: ridge regression on the posterior, each item left out, in which every class weighs the same
                E step: posterior from image likelihood and answers
    until       less than `TOLERANCE` of the probability moves

The image likelihood (`image_likelihood`) is made from the scores of the regression of all other items, with the penalty and the
slope under which each answer is predicted best from the image and the other answers to its item. Images that do not help there
get no weight (Schwarz's criterion).

Two things keep classes from drifting, where regression and annotator model would confirm each other's mistakes: the class
shares are those of the answers, and the error matrix is estimated without the images.

The fit is repeated with random item weights (Bayesian bootstrap, Rubin 1981, doi:10.1214/aos/1176345338) and priors of the
error matrix between `ERROR_STRENGTHS`; the result is the mean of these fits, and their spread is its uncertainty.

Symbols: N items, C classes, D features, A answers, B replicates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import softmax
from torch import Tensor

from pals.crowd.branches import Branches
from pals.crowd.dawid_skene.annotator_model import (
    SKILL_STRENGTH,
    AnnotatorModel,
    Errors,
    e_step,
    m_step,
)
from pals.crowd.dawid_skene.answer_table import AnswerTable, arrange
from pals.crowd.dawid_skene.correlation import MAX_ITEMS, MIN_PAIRS, estimate_correlation
from pals.crowd.dawid_skene.em import MAX_ROUNDS, TOLERANCE, Consensus, check, dawid_skene, fit_answers, moved_share
from pals.crowd.fusion import Calibration, Fusion
from pals.crowd.image_likelihood import MAX_EVIDENCE, Evidence, ImageLikelihood, best_slope, image_log_likelihood, log_shares
from pals.crowd.linear_ridge import BalancedRidge, Spectrum, decompose
from pals.crowd.uncertainty import FACTOR, FLOOR, exponent, num_replicates, raised
from pals.readers import Votes
from pals.vision.networks.small_networks import signed_root

PENALTIES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
"""Of the regression, as shares of the sum of squares of the features."""
PENALTY_ROUNDS, WEIGHT_ROUNDS = 3, 4
"""Rounds in which the penalty is chosen, and in which the items are weighed again. Later the posterior holds what the images
taught before, and would ask for a smaller penalty."""
GOLD_WEIGHTS, GOLD_FOLDS, MIN_AUDITED = (1.0, 3.0, 10.0, 30.0), 4, 15
"""Weights of gold items that are tried, folds for trying them, and gold items drawn at random that are needed."""
ERROR_STRENGTHS = (30.0, 100.0, 30.0, 300.0)
"""Priors of the error matrix in the replicates, in turn."""


@dataclass(frozen=True)
class Solution:
    """Labels, and the linear classifier on signed roots of features (`signed_root`) that goes with them.

    Args:
        fusion: The labels.
        logit_NC: Logits of each item by the classifier of all others.
        weight_DC: Weights of the classifier of all items.
        bias_C: Its intercepts.
        spectrum: The decomposed features; None if no item has an answer.
    """

    fusion: Fusion
    logit_NC: np.ndarray
    weight_DC: np.ndarray
    bias_C: np.ndarray
    spectrum: Spectrum | None = None


def closed_form(votes: Votes, features_ND: Tensor, *, strength: float = SKILL_STRENGTH) -> Fusion:
    """Labels of all items from their answers and features.

    Features that do not help to predict answers get no weight: the result is that of the answers alone. Deterministic. Time
    grows with N x D^2, memory with N x D.

    Args:
        votes: The answers.
        features_ND: Features of the items, any scale, from one encoder.
        strength: Prior of an annotator's skill, in answers.

    Returns:
        The labels with their uncertainty.

    Raises:
        InputError: Fewer than two classes, or features that do not fit the items or are not finite.

    >>> import torch
    >>> from pathlib import Path
    >>> rows = [f"{n}.jpg,{who},{'newt' if n % 2 else 'frog'}" for n in range(30) for who in ("ann", "bob")]
    >>> votes = pals.read_votes([pals.Source(Path("votes.csv"), data="\\n".join(["item,annotator,label", *rows]).encode())])
    >>> features_ND = torch.arange(30)[:, None] % 2 + 0.1 * torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    >>> pals.closed_form(votes, features_ND).label_N[:4].tolist()
    [0, 1, 0, 1]
    """
    return solve(votes, features_ND, strength=strength).fusion


def solve(votes: Votes, features_ND: Tensor, *, strength: float = SKILL_STRENGTH, alone: Consensus | None = None) -> Solution:
    """`closed_form`, with a classifier for features to come; `alone` is the fit of the answers alone, if it is known."""
    check(votes, strength)
    table, width = arrange(votes), features_ND.shape[1]
    branches = Branches.of(votes, table)
    alone = alone or dawid_skene(votes, strength=strength)
    if not table.answered_N.any():
        fusion = Fusion.of([alone], alone, np.exp(log_shares(table)), None, 0.0)
        return Solution(fusion, log_shares(table), np.zeros((width, table.num_classes)), np.log(table.class_share_C))
    spectrum = spectrum_of(features_ND, table.known_N)
    fitted = JointFit(table, BalancedRidge(spectrum), branches, strength)
    fitted = replace(fitted, correlation=correlation_with_images(fitted, spectrum))
    fitted = replace(fitted, gold_weight=choose_gold_weight(fitted, votes.audit_I))
    consensus, images = fitted()
    if images.slope == 0:
        fusion = Fusion.of(replicates_alone(alone, strength), alone, np.exp(log_shares(table)), None, images.gain)
        return Solution(fusion, log_shares(table), np.zeros((width, table.num_classes)), np.log(table.class_share_C), spectrum)
    target_NC = branches.even(consensus.posterior_NC)
    weight_DC, bias_C = fitted.ridge.regression(target_NC, images.penalty)  # before replicates set other weights
    fits = [consensus, *(fitted(seed)[0] for seed in range(1, num_replicates(table)))]
    calibration = Calibration(np.array([images.slope]), np.log(table.class_share_C))
    assert images.score_NC is not None
    logit_NC = images.slope * images.score_NC + calibration.bias_C
    return Solution(
        fusion=Fusion.of(fits, alone, softmax(logit_NC, axis=1), calibration, images.gain),
        logit_NC=logit_NC,
        weight_DC=images.slope * weight_DC,
        bias_C=images.slope * bias_C + calibration.bias_C,
        spectrum=spectrum,
    )


@dataclass(frozen=True)
class JointFit:
    """The alternation of the module's header, for given answers and features.

    Args:
        table: The answers.
        ridge: Regression on the features.
        branches: Classes that no answer tells apart, with a taxonomy.
        strength: Prior of hit rates, in answers.
        correlation: Of mistakes about one item.
        gold_weight: How much an item with a gold label counts, relative to others.
        flat: Even errors instead of an error matrix.
        penalties: Tried penalties of the regression.
    """

    table: AnswerTable
    ridge: BalancedRidge
    branches: Branches
    strength: float = SKILL_STRENGTH
    correlation: float = 0.0
    gold_weight: float = 1.0
    flat: bool = False
    penalties: tuple[float, ...] = PENALTIES

    def __call__(self, seed: int = 0) -> tuple[Consensus, ImageLikelihood]:
        """Labels and image likelihood. With a seed above 0 a replicate: items have random weights."""
        table, items = self.table, self.table.num_items
        weight_N = np.ones(items) if seed == 0 else np.random.default_rng(seed).exponential(size=items)
        weight_N = np.where(table.gold_N >= 0, self.gold_weight, 1.0) * weight_N
        errors = Errors.even(table.num_classes) if self.flat else self._errors(weight_N, seed)
        posterior_NC, images = table.share_NC, ImageLikelihood(log_shares(table))
        done, moved = 0, np.inf
        while done < MAX_ROUNDS and moved > TOLERANCE:
            annotators = m_step(table, posterior_NC, weight_N, errors, self.strength)
            taught_NC = self.branches.even(posterior_NC)
            if done < WEIGHT_ROUNDS:
                self.ridge.weigh(weight_N * balanced(taught_NC, weight_N * table.known_N))
            penalties = self.penalties if done < PENALTY_ROUNDS else (images.penalty,)
            images = self.images(annotators, taught_NC, weight_N, penalties)
            before_NC, posterior_NC = posterior_NC, e_step(table, annotators, images.log_NC, self.correlation)
            done, moved = done + 1, moved_share(before_NC, posterior_NC)
        return Consensus(posterior_NC, table, annotators, self.correlation, done, moved <= TOLERANCE), images

    def _errors(self, weight_N: np.ndarray, seed: int) -> Errors:
        strength = ERROR_STRENGTHS[seed % len(ERROR_STRENGTHS)]
        return fit_answers(self.table, self.strength, self.correlation, weight_N, strength).annotators.errors

    def images(
        self, annotators: AnnotatorModel, target_NC: np.ndarray, weight_N: np.ndarray, penalties: tuple[float, ...]
    ) -> ImageLikelihood:
        """The image likelihood, with the penalty and the slope under which answers are predicted best."""
        evidence, found = Evidence.of(self.table, annotators, self.correlation, weight_N), []
        for penalty in penalties:
            score_NC = self.ridge.left_out(target_NC, penalty)
            found.append((penalty, score_NC, *best_slope(self.table, score_NC, evidence)))
        penalty, score_NC, slope, gain = max(found, key=lambda tried: tried[3])
        slope = slope if gain > 0.5 * np.log(max(self.table.num_items, 2)) else 0.0
        return ImageLikelihood(image_log_likelihood(self.table, score_NC, slope), score_NC, penalty, slope, gain)


def balanced(posterior_NC: np.ndarray, weight_N: np.ndarray) -> np.ndarray:
    """Weights with which every class counts the same: one over the size of each item's likeliest class."""
    size_C = (posterior_NC * weight_N[:, None]).sum(axis=0)
    weight: np.ndarray = (weight_N > 0) / np.maximum(size_C[posterior_NC.argmax(axis=1)], 1.0)
    return weight


def correlation_with_images(fitted: JointFit, spectrum: Spectrum, seed: int = 0) -> float:
    """The correlation of mistakes (`estimate_correlation`), with the images as another source, and even errors."""
    table, items = fitted.table, np.arange(fitted.table.num_items)
    most = min(MAX_ITEMS, max(MIN_PAIRS, MAX_EVIDENCE // (4 * table.num_classes)))
    if table.num_items > most:
        items = np.sort(np.random.default_rng(seed).permutation(items)[:most])
    ridge = BalancedRidge(spectrum, items)

    def fit(part: AnswerTable) -> Consensus:
        return JointFit(part, ridge, Branches.none(), fitted.strength, flat=True)()[0]

    return estimate_correlation(table, fit, items)


def choose_gold_weight(fitted: JointFit, audit_N: np.ndarray, seed: int = 0) -> float:
    """How much a gold item counts: the weight under which gold labels that were drawn at random, left out in folds, are most
    probable. Where annotators share mistakes, gold items teach what the crowd does with such items, and count a lot; where each
    errs alone they count no more than others. Gold items that were picked for being unsure would mislead the choice.

    Args:
        fitted: The fit.
        audit_N: Items that were drawn at random.
        seed: Of the folds.
    """
    table = fitted.table
    random = np.flatnonzero(audit_N & (table.gold_N >= 0) & table.answered_N)
    if len(random) < MIN_AUDITED:
        return 1.0
    fold = np.random.default_rng(seed).permutation(len(random)) % GOLD_FOLDS
    found = []
    for weight in GOLD_WEIGHTS:
        total = 0.0
        for number in range(GOLD_FOLDS):
            hidden, gold_N = random[fold == number], table.gold_N.copy()
            gold_N[hidden] = -1
            part = replace(fitted, table=replace(table, gold_N=gold_N), gold_weight=weight)
            posterior_NC = part()[0].posterior_NC
            power_N1 = exponent(table, fitted.correlation, True, FACTOR * fitted.correlation + FLOOR)
            chance = raised(posterior_NC[hidden], power_N1[hidden])[np.arange(len(hidden)), table.gold_N[hidden]]
            total += float(np.log(np.maximum(chance, 1e-6)).sum())
        found.append(total)
    best = int(np.argmax(found))
    return GOLD_WEIGHTS[best] if found[best] > found[0] + 1 else 1.0  # a nat: no more than chance


def replicates_alone(alone: Consensus, strength: float) -> list[Consensus]:
    """The fit of the answers alone, and its replicates."""
    table, fits = alone.answers, [alone]
    for seed in range(1, num_replicates(table)):
        weight_N = np.random.default_rng(seed).exponential(size=table.num_items)
        error_strength = ERROR_STRENGTHS[seed % len(ERROR_STRENGTHS)]
        fits.append(fit_answers(table, strength, alone.correlation, weight_N, error_strength))
    return fits


def spectrum_of(features_ND: Tensor, known_N: np.ndarray) -> Spectrum:
    """What the closed form regresses on, decomposed; items of which nothing is known teach nothing."""
    return decompose(signed_root(features_ND.detach().float()), known_N)


def picture_gain(votes: Votes, features_ND: Tensor) -> float:
    """Nats an answer by which features help to predict answers, each from the image and the other answers to its item.

    To compare encoders; 0 if it is no more than chance.

    Args:
        votes: The answers.
        features_ND: Features of the items.
    """
    table = arrange(votes)
    alone = fit_answers(table)
    ridge, weight_N = BalancedRidge(spectrum_of(features_ND, table.known_N)), np.ones(table.num_items)
    fitted = JointFit(table, ridge, Branches.of(votes, table))
    target_NC = fitted.branches.even(alone.posterior_NC)
    ridge.weigh(balanced(target_NC, weight_N * table.known_N))
    images = fitted.images(alone.annotators, target_NC, weight_N, PENALTIES)
    return images.gain / max(len(table.item_A), 1) if images.slope > 0 else 0.0


class Refit:
    """The closed form for the same items again and again, with more answers to them: the features are decomposed once."""

    def __init__(self, spectrum: Spectrum, *, strength: float = SKILL_STRENGTH) -> None:
        self.spectrum, self.strength = spectrum, strength
        self.penalties: tuple[float, ...] = PENALTIES

    def __call__(self, votes: Votes) -> Fusion:
        table = arrange(votes)
        ridge, branches = BalancedRidge(self.spectrum), Branches.of(votes, table)
        consensus, images = JointFit(table, ridge, branches, self.strength, penalties=self.penalties)()
        self.penalties = (images.penalty,)
        calibration = Calibration(np.array([images.slope]), np.log(table.class_share_C)) if images.slope > 0 else None
        return Fusion.of([consensus], fit_answers(table, self.strength), np.exp(images.log_NC), calibration, images.gain)
