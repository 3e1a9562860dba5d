"""How good is it, without the truth? Two criteria for choosing between classifiers, and what is still wrong in the result."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pals.crowd.fusion import Fusion
from pals.crowd.heldout import tempered
from pals.crowd.result import Result
from pals.errors import InputError
from pals.readers import Votes

ROUNDS = 400
SPREAD = 1.25
"""Temperatures this factor above and below the one found predict held-out answers about as well: the interval covers them."""


def covering_rate(probability_NC: np.ndarray, allowed_NC: np.ndarray) -> float:
    """Share of items whose predicted label is among the candidates. It is right about which of two classifiers is better as
    long as a true label is a candidate more often than any wrong one; it is not an accuracy, and large sets make it large."""
    probability_NC, allowed_NC = _checked(probability_NC, allowed_NC)
    return float(allowed_NC[np.arange(len(allowed_NC)), probability_NC.argmax(axis=1)].mean())


def approximate_accuracy(probability_NC: np.ndarray, allowed_NC: np.ndarray) -> float:
    """Mean over items of the probability of the predicted label among the candidates alone, zero where it is none of them: the
    accuracy if the classifier's own probabilities, cut to the candidates, said how likely each of them is."""
    probability_NC, allowed_NC = _checked(probability_NC, allowed_NC)
    inside_NC = probability_NC * allowed_NC
    total_N = inside_NC.sum(axis=1)
    chosen_N = inside_NC[np.arange(len(inside_NC)), probability_NC.argmax(axis=1)]
    return float(np.divide(chosen_N, total_N, out=np.zeros_like(total_N), where=total_N > 0).mean())


def _checked(probability_NC: np.ndarray, allowed_NC: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    probability_NC, allowed_NC = np.asarray(probability_NC, dtype=np.float64), np.asarray(allowed_NC, dtype=bool)
    if probability_NC.ndim != 2 or probability_NC.shape != allowed_NC.shape or not len(allowed_NC):
        raise InputError(
            f"Probabilities of shape {probability_NC.shape} and candidates of shape {allowed_NC.shape} do not belong together; "
            f"give one row per item and one column per class of each."
        )
    return probability_NC, allowed_NC


@dataclass(frozen=True)
class NoiseEstimate:
    """Shares that are expected to be wrong: of the answers, and of the labels of the items that people answered for."""

    answers_wrong: float
    labels_wrong: float
    low: float
    high: float

    @property
    def sentence(self) -> str:
        answers, labels, low, high = (
            f"{100 * share:.1f}%" for share in (self.answers_wrong, self.labels_wrong, self.low, self.high)
        )
        return f"About {answers} of the answers are wrong, and {labels} of the labels in the result (likely {low} to {high})."


def estimate_noise(votes: Votes, fusion: Fusion, seed: int = 0) -> NoiseEstimate:
    """From the probabilities themselves, whose temperature was chosen by predicting held-out answers. The interval holds what
    resampling the items and other temperatures that would do nearly as well make of it; it does not hold errors that all people
    and the classifier share, which nothing but the truth can show."""
    answered_N = fusion.consensus.answers.answered_N & (votes.gold_I < 0)
    if not answered_N.any():
        return NoiseEstimate(0.0, 0.0, 0.0, 0.0)
    posterior_NC = fusion.posterior_NC
    result = Result(votes, posterior_NC)
    rng = np.random.default_rng(seed)
    items = int(answered_N.sum())
    means = []
    for factor in (1 / SPREAD, 1.0, SPREAD):
        wrong_N = 1 - tempered(posterior_NC[answered_N], factor).max(axis=1)
        means += [wrong_N[rng.integers(items, size=items)].mean() for _ in range(ROUNDS)]
    low, high = np.quantile(means, (0.025, 0.975))
    wrong = float((1 - posterior_NC[answered_N].max(axis=1)).mean())
    answers = float(result.wrong_A.mean()) if len(result.wrong_A) else 0.0
    return NoiseEstimate(answers, wrong, float(low), float(high))
