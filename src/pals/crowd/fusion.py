"""What the inputs look like and what people answered, together: a classifier's opinion is the prior, the answers are the
evidence, and how far to believe either is learned from the answers themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from pals.crowd.answer_prediction import find_correlation, left_out_answers, temperature_of, tempered
from pals.crowd.dawid_skene.e_step import log_sum
from pals.crowd.dawid_skene.em import ITERATIONS, TOLERANCE, Consensus, dawid_skene, expectation_maximisation
from pals.crowd.dawid_skene.posterior import ItemPosterior
from pals.readers import Votes
from pals.util.errors import InputError

SHRINKAGE = 0.01
"""L2 penalty on every bias, which keeps that of a class without items finite."""

CALIBRATION_ITEMS = 20_000
"""Items that the weight of an opinion is learned from, where there are more."""


@dataclass(frozen=True)
class Calibration:
    """How far opinions are believed: log P(class | item) = sum over opinions of slope * score, plus the bias of the class, up
    to what makes it sum to one."""

    slope_V: np.ndarray  # one per opinion, none negative
    bias_C: np.ndarray

    def log_probability(self, score_VNC: np.ndarray) -> np.ndarray:
        total_NC = np.tensordot(self.slope_V, score_VNC, axes=1) + self.bias_C
        log_NC: np.ndarray = total_NC - log_sum(total_NC)[:, None]
        return log_NC


@dataclass(frozen=True)
class Fusion:
    """What answers and opinions come to together.

    In `consensus` every answer and the opinion are independent sources, given the class and the difficulty of the item.
    They are not: what misleads one misleads the next. How much so (`correlation`) shows in how well answers are predicted
    that were held out, and `posterior_NC`, which is the one to report, allows for it: the same labels, less sure.

    `opinion_NC` is what the opinions alone say, calibrated. `gain` is by how much they raised the log-likelihood of the
    answers; where that is no more than chance they are not used (`calibration` is None) and the result is that of the votes.
    """

    alone: Consensus  # of the answers without the opinions
    consensus: Consensus
    posterior_NC: np.ndarray
    correlation: float
    opinion_NC: np.ndarray
    calibration: Calibration | None
    gain: float

    @property
    def label_N(self) -> np.ndarray:
        """The likeliest class; the first of them where several are."""
        return self.consensus.label_N

    @property
    def confidence_N(self) -> np.ndarray:
        top_N: np.ndarray = self.posterior_NC.max(axis=1)
        return top_N


def fuse(
    votes: Votes,
    opinions: Sequence[np.ndarray],
    *,
    hard_items: bool = True,
    strength: float | None = None,
    tolerance: float = TOLERANCE,
    iterations: int = ITERATIONS,
    start_NC: np.ndarray | None = None,
) -> Fusion:
    """The posterior of every item given its answers and the opinions about it.

    An opinion is a table of scores, items by classes: logits of a classifier, or anything that is larger for likelier classes.
    It must not have seen the item's own answers (`leave_one_out`, or a network trained on other items): an opinion that has
    learned them by heart repeats what people said and would be counted as a second source.

    The weight of each opinion, the annotators' confusion matrices and the labels are estimated in turn, so that the answers
    are as likely as possible. An opinion without information gets no weight. `start_NC`: as in `dawid_skene`.
    """
    alone = dawid_skene(
        votes, hard_items=hard_items, strength=strength, tolerance=tolerance, iterations=iterations, start_NC=start_NC
    )
    score_VNC = _checked(opinions, alone)
    known = np.flatnonzero(alone.answers.known_N)
    looked_at = known[:: 1 + len(known) // CALIBRATION_ITEMS]
    calibration = Calibration(np.zeros(len(score_VNC)), np.log(alone.prior_C))

    seen_VNC = score_VNC[:, looked_at]

    def prior(found: ItemPosterior) -> np.ndarray:
        nonlocal calibration
        calibration = calibrate(seen_VNC, found.rows(looked_at), calibration)
        return calibration.log_probability(score_VNC)

    gain = 0.0
    if len(score_VNC) and alone.answers.answered_N.any():
        both = expectation_maximisation(
            alone.answers, alone.annotators, alone.found, prior, tolerance=tolerance, iterations=iterations
        )
        gain = both.log_likelihood - alone.log_likelihood
        if gain > 0.5 * len(score_VNC) * np.log(max(len(known), 2)):  # Schwarz's criterion: more than chance would give
            return combine(alone, both, np.exp(calibration.log_probability(score_VNC)), calibration, gain)
    return combine(alone, alone, np.broadcast_to(alone.prior_C, alone.found.easy_NC.shape), None, gain)


def combine(
    alone: Consensus, consensus: Consensus, opinion_NC: np.ndarray, calibration: Calibration | None, gain: float
) -> Fusion:
    """Answers and opinions as independent witnesses, made as unsure as their correlation demands."""
    opinion = calibration is not None
    correlation = find_correlation(left_out_answers(consensus, opinion_NC), opinion)
    temperature_N = temperature_of(consensus.answers.count_N + opinion, correlation)
    posterior_NC = tempered(consensus.posterior_NC, temperature_N)
    return Fusion(alone, consensus, posterior_NC, correlation, opinion_NC, calibration, gain)


def calibrate(score_VNC: np.ndarray, target_NC: np.ndarray, start: Calibration, steps: int = 20) -> Calibration:
    """Slopes and biases that make soft labels likeliest: multinomial regression, begun at `start`."""
    views, scale = len(score_VNC), 1 / max(len(target_NC), 1)

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        log_NC = Calibration(x[:views], x[views:]).log_probability(score_VNC)
        rest_NC = np.exp(log_NC) - target_NC
        value = -(target_NC * log_NC).sum() + 0.5 * SHRINKAGE * (x[views:] ** 2).sum()
        slope_V = np.tensordot(score_VNC, rest_NC, axes=2)
        return value * scale, np.concatenate([slope_V, rest_NC.sum(axis=0) + SHRINKAGE * x[views:]]) * scale

    bounds = [(0.0, None)] * views + [(None, None)] * len(start.bias_C)
    found = minimize(
        loss,
        np.concatenate([start.slope_V, start.bias_C]),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": steps},
    )
    return Calibration(found.x[:views], found.x[views:])


def _checked(opinions: Sequence[np.ndarray], alone: Consensus) -> np.ndarray:
    """The scores in one array, each row without its mean (which no probability depends on) and at a common scale."""
    shape = alone.found.easy_NC.shape
    scores = []
    for number, opinion in enumerate(opinions):
        score_NC = np.asarray(opinion, dtype=np.float64)
        if score_NC.shape != shape:
            raise InputError(
                f"Opinion {number} has shape {score_NC.shape}; the votes are about {shape[0]} items and {shape[1]} classes."
            )
        bad_N = ~np.isfinite(score_NC).all(axis=1)
        if bad_N.any():
            raise InputError(f"Opinion {number} holds NaN or infinity, first for item {int(bad_N.argmax())}.")
        score_NC = score_NC - score_NC.mean(axis=1, keepdims=True)
        scores.append(score_NC / max(float(np.sqrt((score_NC**2).mean())), np.finfo(float).tiny))
    return np.stack(scores) if scores else np.zeros((0, *shape))
