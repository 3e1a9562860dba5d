"""What is still wrong in the result, as far as answers alone can tell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pals.crowd.answers import arrange, subset
from pals.crowd.fusion import Fusion
from pals.crowd.gibbs import SWEEPS, Start, wrong_shares
from pals.crowd.set_answers import Named
from pals.readers import Votes

LARGEST = 150_000
"""Answers times classes that are drawn again and again; where there are more, of a random part of the items."""
INTERVAL = (0.025, 0.975)
COMPARED = 100
"""Sweeps of the answers alone, for seeing whether the opinion contradicts them."""


@dataclass(frozen=True)
class NoiseEstimate:
    """Shares that are expected to be wrong: of the answers, and of the labels of all items with an answer or a gold label."""

    answers_wrong: float
    labels_wrong: float
    low: float
    high: float
    disagreement: tuple[float, float] | None = None
    """Of the labels by the answers alone, the shares that are wrong: judged by the answers alone, and with the opinion. Only
    where these contradict each other. Not looked at where there are gold labels: if they were asked for where the opinion spoke
    against people, it speaks for them in all other items and finds fewer wrong."""
    earlier: tuple[float, float, float] | None = None
    """Share of the labels of an earlier result that is wrong, and its interval, by the same draws: comparable with
    `labels_wrong`, as the earlier result's own estimate is not."""


def estimate_noise(votes: Votes, fusion: Fusion, seed: int = 0, earlier_N: np.ndarray | None = None) -> NoiseEstimate:
    """Items without an answer are left out; gold labels are right.

    The true classes, who errs how, and how far sources repeat each other are drawn together, as probable as the answers make
    them (`gibbs`); the interval holds 95% of the shares of wrong labels that come out. It does not hold what all sources have
    in common, say a class that everybody takes for another: nothing but the truth can show that.

    `earlier_N` are labels of an earlier result, -1 where it had none: such an item counts with its present label.
    """
    answers = fusion.consensus.answers
    use = np.flatnonzero(answers.answered_N & (answers.gold_N < 0))
    label_N, alone_N = fusion.label_N, fusion.alone.label_N
    before = [] if earlier_N is None else [np.where(earlier_N < 0, label_N, earlier_N)]
    gold_N = answers.gold_N
    told_wrong = [((gold_N >= 0) & (labels_N != gold_N)).sum() / max(answers.known_N.sum(), 1) for labels_N in before]
    if not len(use):
        wrong = 1 - Named(answers).right_share(gold_N) if answers.answered_N.any() else 0.0
        return NoiseEstimate(wrong, 0.0, 0.0, 0.0, earlier=_summary(np.array(told_wrong)) if before else None)
    rng = np.random.default_rng(seed)
    opinion, told = fusion.calibration is not None, len(use) < answers.answered_N.sum()
    if told or not opinion:
        (labels, *others), answers_wrong = _shares(votes, fusion, [label_N, *before], opinion, rng, SWEEPS)
        earlier = _summary(others[0] + told_wrong[0]) if others else None
        return NoiseEstimate(answers_wrong, *_summary(labels), earlier=earlier)
    (labels, alone_with, *others), answers_wrong = _shares(votes, fusion, [label_N, alone_N, *before], True, rng, SWEEPS)
    (alone_without,), _ = _shares(votes, fusion, [alone_N], False, rng, COMPARED)
    apart = alone_with.min() > alone_without.max() or alone_without.min() > alone_with.max()  # not one draw in common
    means = float(alone_without.mean()), float(alone_with.mean())
    return NoiseEstimate(answers_wrong, *_summary(labels), means if apart else None, _summary(others[0]) if others else None)


def _shares(
    votes: Votes, fusion: Fusion, labels: list[np.ndarray], opinion: bool, rng: np.random.Generator, sweeps: int
) -> tuple[list[np.ndarray], float]:
    """Drawn shares of wrong labels, with the opinion or by the answers alone, and the mean share of wrong answers; of a part of
    the items where they are many.

    A part has the luck of a part: by how much its shares differ from those of all is known from the fit, and chance is the
    smaller the more items there are. What is not known of people stays as it is in the part, so that the interval is rather too
    wide than too narrow.
    """
    consensus = fusion.consensus if opinion else fusion.alone
    answers = consensus.answers
    known, numbers = np.flatnonzero(answers.known_N), answers.given_NS.nnz * answers.num_classes
    open_N, part = answers.gold_N < 0, known
    if numbers > LARGEST:
        part = np.sort(rng.choice(known, max(1, len(known) * LARGEST // numbers), replace=False))
        if not open_N[part].any():  # all of them gold
            part = np.union1d(part, known[open_N[known]][:1])
    posterior_NC = consensus.posterior_NC
    start = Start(posterior_NC[part], consensus.annotators, fusion.correlation if opinion else 0.0)
    log_opinion_NC = np.log(np.maximum(fusion.opinion_NC[part], np.finfo(float).tiny)) if opinion else None
    parts = [label_N[part] for label_N in labels]
    drawn = wrong_shares(arrange(subset(votes, part)), log_opinion_NC, start, parts, rng, sweeps)
    found = []
    for label_N, drawn_S, expected_S in zip(labels, drawn.drawn_VS, drawn.expected_VS, strict=True):
        wrong_N = 1 - posterior_NC[np.arange(len(label_N)), label_N]
        shift = wrong_N[known][open_N[known]].mean() - wrong_N[part][open_N[part]].mean()
        chance_S = (drawn_S - expected_S) * np.sqrt(len(part) / len(known))
        found.append((expected_S + chance_S + shift).clip(0.0, 1.0) * open_N[known].mean())
    return found, float(drawn.answers_S.mean())


def _summary(share_S: np.ndarray) -> tuple[float, float, float]:
    """Mean, and the interval."""
    mean = float(share_S.mean())
    low, high = np.quantile(share_S, INTERVAL[0], method="lower"), np.quantile(share_S, INTERVAL[1], method="higher")
    return mean, min(float(low), mean), max(float(high), mean)
