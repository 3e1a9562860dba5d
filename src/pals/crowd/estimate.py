"""What is still wrong in the result, as far as answers alone can tell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pals.crowd.fusion import Fusion
from pals.crowd.left_out import left_out_answers, log_predicted, prior_loss, temperature_of, tempered
from pals.crowd.result import Result
from pals.readers import Votes

BOOTSTRAP_ROUNDS = 200
GRID = np.linspace(0.0, 1.0, 41) ** 2
"""Correlations of sources that are tried for the interval."""

BOOTSTRAP_ITEMS = 100_000
"""Items that the interval is made from, where there are more: it is narrow then."""


@dataclass(frozen=True)
class NoiseEstimate:
    """Shares that are expected to be wrong: of the answers, and of the labels of the items that people answered for."""

    answers_wrong: float
    labels_wrong: float
    low: float
    high: float


def estimate_noise(votes: Votes, fusion: Fusion, seed: int = 0) -> NoiseEstimate:
    """From the probabilities themselves, which were made to predict held-out answers. Items with a gold label and items without
    an answer are left out.

    The interval says what would come out for other items of the same kind and other answers to them: items are drawn again,
    with their answers, and the correlation of the sources is found again from those. It does not hold what all sources have
    in common, say a class that everybody takes for another: nothing but the truth can show that.
    """
    consensus = fusion.consensus
    answers, opinion = consensus.answers, fusion.calibration is not None
    use = np.flatnonzero(answers.answered_N & (answers.gold_N < 0))
    if not len(use):
        return NoiseEstimate(0.0, 0.0, 0.0, 0.0)
    shares = _bootstrap(fusion, use[:: 1 + len(use) // BOOTSTRAP_ITEMS], opinion, np.random.default_rng(seed))
    low, high = np.quantile(shares, (0.025, 0.975))
    result = Result(votes, fusion.posterior_NC)
    counted_A = np.isin(result.item_A, use)
    wrong = float((1 - fusion.confidence_N[use]).mean())
    return NoiseEstimate(float(result.wrong_A[counted_A].mean()), wrong, min(float(low), wrong), max(float(high), wrong))


def _bootstrap(fusion: Fusion, use: np.ndarray, opinion: bool, rng: np.random.Generator) -> list[float]:
    """The share of wrong labels in bootstrap samples of these items, drawn with replacement."""
    consensus = fusion.consensus
    held = left_out_answers(consensus)
    sources_N, posterior_NC = consensus.answers.count_N[use] + opinion, consensus.posterior_NC[use]
    fits, wrongs = [], []
    for correlation in GRID:
        fit_A = held.weight_A * log_predicted(held, opinion, correlation)
        fits.append(np.bincount(held.item_A, fit_A, minlength=consensus.answers.num_items)[use])
        wrongs.append(1 - tempered(posterior_NC, temperature_of(sources_N, correlation)).max(axis=1))
    fit_NG, wrong_NG = np.stack(fits, axis=1), np.stack(wrongs, axis=1)
    shares = []
    for _ in range(BOOTSTRAP_ROUNDS):
        times_N = rng.poisson(1.0, len(use)).astype(np.float64)  # how often each item is drawn
        best = int((times_N @ fit_NG - prior_loss(GRID)).argmax())
        shares.append(float(times_N @ wrong_NG[:, best] / max(times_N.sum(), 1.0)))
    return shares
