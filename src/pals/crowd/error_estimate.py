"""What is still wrong in the result, as far as answers and images show (`uncertainty`).

    share of wrong labels = mean over unknown items of 1 - P(label), times their share among all items; gold labels are right

Symbols: N items, A answers, S draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pals.crowd.fusion import Fusion
from pals.crowd.uncertainty import DRAWS, INTERVAL, ITEM_DRAWS, drawn_excess, exponent, raised

MAX_DRAWN_NUMBERS = 1_000_000
"""Items times classes from which on there are fewer draws."""


@dataclass(frozen=True)
class NoiseEstimate:
    """Shares that are expected to be wrong: of the answers, and of the labels of items with an answer or a gold label.

    Args:
        answers_wrong: Of the answers.
        labels_wrong: Of the labels.
        low, high: 95% interval of `labels_wrong`.
        models_differ: Share of the labels that the answers alone would change.
        earlier: Of the labels of an earlier result, by the same fit, with its interval.
        low_N, high_N: 95% interval of the probability of each label.
    """

    answers_wrong: float
    labels_wrong: float
    low: float
    high: float
    models_differ: float
    earlier: tuple[float, float, float] | None
    low_N: np.ndarray
    high_N: np.ndarray


def estimate_noise(fusion: Fusion, seed: int = 0, earlier_N: np.ndarray | None = None) -> NoiseEstimate:
    """Shares of wrong answers and labels.

    Args:
        fusion: The fit.
        seed: Of the draws.
        earlier_N: Labels of an earlier result, -1 where it had none: such an item counts with its present label.
    """
    table, label_N, posterior_NC = fusion.consensus.answers, fusion.label_N, fusion.posterior_NC
    rng = np.random.default_rng(seed)
    before_N = label_N if earlier_N is None else np.where(earlier_N < 0, label_N, earlier_N)
    judged = np.flatnonzero(table.answered_N & (table.gold_N < 0))
    known, gold = max(int(table.known_N.sum()), 1), np.flatnonzero(table.gold_N >= 0)
    known_wrong = float((before_N[gold] != table.gold_N[gold]).sum() / known)
    images, correlation = fusion.calibration is not None, fusion.consensus.correlation
    # Of very many items the shares hardly differ from draw to draw.
    draws = ITEM_DRAWS if len(fusion.fit_BNC) == 1 and len(judged) * table.num_classes > MAX_DRAWN_NUMBERS else DRAWS
    now_S, then_S, inside_SM = np.zeros(draws), np.full(draws, known_wrong), np.zeros((ITEM_DRAWS, len(judged)))
    replicate_S = rng.integers(len(fusion.fit_BNC), size=draws)
    rows = np.arange(len(judged))
    for draw, (replicate, excess) in enumerate(zip(replicate_S, drawn_excess(correlation, draws, rng), strict=True)):
        power_M1 = exponent(table, correlation, images, excess)[judged]
        drawn_MC = raised(fusion.fit_BNC[replicate][judged].astype(np.float64), power_M1)
        chance_M = rng.random(len(judged))
        now_M, then_M = drawn_MC[rows, label_N[judged]], drawn_MC[rows, before_N[judged]]
        now_S[draw] += (chance_M >= now_M).sum() / known
        then_S[draw] += (chance_M >= then_M).sum() / known
        if draw < ITEM_DRAWS:
            inside_SM[draw] = now_M
    top_N = posterior_NC[np.arange(len(label_N)), label_N]
    low_N, high_N = top_N.copy(), top_N.copy()
    if len(judged):
        low_N[judged], high_N[judged] = np.quantile(inside_SM, INTERVAL, axis=0)
    wrong = float((1 - top_N[judged]).sum() / known)
    then = float((1 - posterior_NC[judged, before_N[judged]]).sum() / known) + known_wrong
    low, high = _interval(now_S, wrong)
    return NoiseEstimate(
        answers_wrong=_answers_wrong(fusion),
        labels_wrong=wrong,
        low=low,
        high=high,
        models_differ=float((fusion.alone.label_N != label_N)[table.known_N].mean()) if table.known_N.any() else 0.0,
        earlier=None if earlier_N is None else (then, *_interval(then_S, then)),
        low_N=np.minimum(low_N, top_N),
        high_N=np.maximum(high_N, top_N),
    )


def _answers_wrong(fusion: Fusion) -> float:
    """Weighted share of the answers that list no right label."""
    table = fusion.consensus.answers
    mass_R = fusion.posterior_NC[table.item_R, table.label_R]
    inside_A = np.bincount(table.answer_R, mass_R, minlength=len(table.item_A))
    total = table.weight_A.sum()
    return float((table.weight_A * np.clip(1 - inside_A, 0, 1)).sum() / total) if total > 0 else 0.0


def _interval(share_S: np.ndarray, mean: float) -> tuple[float, float]:
    low, high = np.quantile(share_S, INTERVAL)
    return min(float(low), mean), max(float(high), mean)
