"""Answers and predictions about the same items, fused: the result of a fit, and the fusion with given predictions.

    log P(z_i = c | answers, scores) = sum_v slope_v score_vic + bias_c + (1 / t_i) sum_a log P(a | c)

Slopes, biases, annotators and labels are estimated in turn. The scores must come from classifiers that have not seen the item's
own answers; a classifier that was trained on them repeats them.

Symbols: N items, C classes, V tables of scores, B replicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from pals.crowd.blocks import precision
from pals.crowd.dawid_skene.annotator_model import SKILL_STRENGTH, e_step, m_step
from pals.crowd.dawid_skene.em import MAX_ROUNDS, TOLERANCE, Consensus, dawid_skene, moved_share
from pals.crowd.image_likelihood import Evidence
from pals.crowd.uncertainty import reported
from pals.readers import Votes
from pals.util.errors import InputError

BIAS_PENALTY = 0.01
"""L2 penalty on every bias, which keeps that of a class without items finite."""
MAX_CALIBRATION_ITEMS = 20_000
"""Items that slopes and biases are estimated from, where there are more."""


@dataclass(frozen=True)
class Calibration:
    """log P(class | scores) = sum over v of slope_v * score_v + bias of the class, normalised.

    Args:
        slope_V: One for each table of scores, none negative.
        bias_C: One for each class.
    """

    slope_V: np.ndarray
    bias_C: np.ndarray

    def log_probability(self, score_VNC: np.ndarray) -> np.ndarray:
        """N x C."""
        total_NC = np.tensordot(self.slope_V, score_VNC, axes=1) + self.bias_C
        log_NC: np.ndarray = total_NC - logsumexp(total_NC, axis=1, keepdims=True)
        return log_NC


@dataclass(frozen=True)
class Fusion:
    """Labels from answers and images, or from answers alone.

    Args:
        alone: The annotator model fitted to the answers alone.
        consensus: It fitted together with the images or predictions.
        fit_BNC: Posterior of each replicate of that fit.
        mean_NC: Their mean; its likeliest classes are the labels.
        posterior_NC: The probabilities to report (`uncertainty`).
        prediction_NC: What the images or predictions show by themselves, calibrated.
        calibration: Slopes and biases of the scores; None if they do not help and the answers alone decide.
        gain: Nats by which the answers are predicted better than without them.
    """

    alone: Consensus
    consensus: Consensus
    fit_BNC: tuple[np.ndarray, ...]
    mean_NC: np.ndarray
    posterior_NC: np.ndarray
    prediction_NC: np.ndarray
    calibration: Calibration | None
    gain: float

    @classmethod
    def of(
        cls,
        fits: Sequence[Consensus],
        alone: Consensus,
        prediction_NC: np.ndarray,
        calibration: Calibration | None,
        gain: float,
    ) -> Fusion:
        """From the fit and its replicates.

        Args:
            fits: The fit first, then its replicates.
            alone, prediction_NC, calibration, gain: As in the class.
        """
        first, mean_NC = fits[0], np.mean([fit.posterior_NC for fit in fits], axis=0)
        posterior_NC = reported(first.answers, mean_NC, first.correlation, calibration is not None)
        posterior_NC = posterior_NC.astype(precision(posterior_NC.shape), copy=False)
        kept = tuple(fit.posterior_NC.astype(np.float32, copy=False) for fit in fits)
        return cls(alone, first, kept, mean_NC, posterior_NC, prediction_NC, calibration, gain)

    @property
    def label_N(self) -> np.ndarray:
        """The likeliest class; the first of them where several are."""
        label_N: np.ndarray = self.mean_NC.argmax(axis=1)
        return label_N

    @property
    def confidence_N(self) -> np.ndarray:
        """Probability of the label."""
        top_N: np.ndarray = self.posterior_NC.max(axis=1)
        return top_N


def fuse(
    votes: Votes, scores: Sequence[np.ndarray], *, strength: float = SKILL_STRENGTH, alone: Consensus | None = None
) -> Fusion:
    """Labels from answers and from scores of classifiers that have not seen the item's answers.

    Args:
        votes: The answers.
        scores: Tables N x C of logits, or of anything that is larger for likelier classes.
        strength: Prior of an annotator's skill, in answers.
        alone: The fit of the answers alone (`dawid_skene`), if it is known.

    Returns:
        The labels; those of the answers alone if the scores help no more than chance would (Schwarz's criterion).

    Raises:
        InputError: A table has another shape, or holds NaN or infinity.
    """
    alone = alone or dawid_skene(votes, strength=strength)
    table, score_VNC = alone.answers, _checked(scores, alone)
    share_C, ones_N = table.class_share_C, np.ones(table.num_items)
    without = Fusion.of([alone], alone, np.tile(share_C, (table.num_items, 1)), None, 0.0)
    if not len(score_VNC) or not table.answered_N.any():
        return without
    known = np.flatnonzero(table.known_N)
    used = known[:: 1 + len(known) // MAX_CALIBRATION_ITEMS]
    calibration, posterior_NC = Calibration(np.zeros(len(score_VNC)), np.log(share_C)), alone.posterior_NC
    errors = alone.annotators.errors
    done, moved = 0, np.inf
    while done < MAX_ROUNDS and moved > TOLERANCE:
        calibration = calibrate(score_VNC[:, used], posterior_NC[used], calibration)
        annotators = m_step(table, posterior_NC, ones_N, errors, strength)
        log_prior_NC = calibration.log_probability(score_VNC)
        before_NC, posterior_NC = posterior_NC, e_step(table, annotators, log_prior_NC, alone.correlation)
        done, moved = done + 1, moved_share(before_NC, posterior_NC)
    consensus = Consensus(posterior_NC, table, annotators, alone.correlation, done, moved <= TOLERANCE)
    gain = _gain(consensus, log_prior_NC)
    if gain <= 0.5 * len(score_VNC) * np.log(max(len(known), 2)):
        return without
    return Fusion.of([consensus], alone, np.exp(log_prior_NC), calibration, gain)


def _gain(consensus: Consensus, log_prior_NC: np.ndarray) -> float:
    """Nats by which each answer is predicted better, from the other answers to its item, than without the scores."""
    table = consensus.answers
    evidence = Evidence.of(table, consensus.annotators, consensus.correlation, np.ones(table.num_items))
    log_prior_JC = log_prior_NC[evidence.item_J]
    even_JC = np.broadcast_to(np.log(table.class_share_C), log_prior_JC.shape)
    return evidence.log_predicted(log_prior_JC) - evidence.log_predicted(even_JC)


def calibrate(score_VNC: np.ndarray, target_NC: np.ndarray, start: Calibration, steps: int = 20) -> Calibration:
    """Slopes and biases under which soft labels are likeliest: multinomial regression, begun at `start`."""
    views, scale = len(score_VNC), 1 / max(len(target_NC), 1)

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        log_NC = Calibration(x[:views], x[views:]).log_probability(score_VNC)
        rest_NC = np.exp(log_NC) - target_NC
        value = -(target_NC * log_NC).sum() + 0.5 * BIAS_PENALTY * (x[views:] ** 2).sum()
        slope_V = np.tensordot(score_VNC, rest_NC, axes=2)
        return value * scale, np.concatenate([slope_V, rest_NC.sum(axis=0) + BIAS_PENALTY * x[views:]]) * scale

    bounds = [(0.0, None)] * views + [(None, None)] * len(start.bias_C)
    begin = np.concatenate([start.slope_V, start.bias_C])
    found = minimize(loss, begin, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps})
    return Calibration(found.x[:views], found.x[views:])


def _checked(scores: Sequence[np.ndarray], alone: Consensus) -> np.ndarray:
    """The scores in one array, each row without its mean (which no probability depends on) and at a common scale."""
    shape, checked = alone.posterior_NC.shape, []
    for number, given in enumerate(scores):
        score_NC = np.asarray(given, dtype=np.float64)
        if score_NC.shape != shape:
            raise InputError(
                f"Scores {number} have shape {score_NC.shape}; the votes are about {shape[0]} items and {shape[1]} classes."
            )
        bad_N = ~np.isfinite(score_NC).all(axis=1)
        if bad_N.any():
            raise InputError(f"Scores {number} hold NaN or infinity, first for item {int(bad_N.argmax())}.")
        score_NC = score_NC - score_NC.mean(axis=1, keepdims=True)
        scale = float(np.sqrt((score_NC**2).sum() / max(score_NC.size, 1)))
        checked.append(score_NC / max(scale, np.finfo(float).tiny))
    return np.stack(checked) if checked else np.zeros((0, *shape))
