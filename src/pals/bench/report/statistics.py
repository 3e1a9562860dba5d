"""What a handful of runs says: mean and spread, differences between rows, and how that compares with a published number."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import stats

from pals.bench.paper.published import PAPER_RUNS

ROUNDING = 0.005  # published numbers have two decimals

Verdict = Literal["within", "better", "worse", "not run", ""]


@dataclass(frozen=True)
class Summary:
    """Of several runs. The deviation is that of a sample (n - 1); one run has none."""

    mean: float
    std: float | None
    n: int


@dataclass(frozen=True)
class Paired:
    """Mean difference over seeds that both rows have, with the interval in which it lies with 95% confidence; from one seed
    there is no interval."""

    mean: float
    low: float | None
    high: float | None
    n: int


def summarise(values: Sequence[float]) -> Summary | None:
    """None where there is nothing."""
    if not values:
        return None
    return Summary(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


def paired(ours: Mapping[int, float], theirs: Mapping[int, float], confidence: float = 0.95) -> Paired | None:
    """Ours minus theirs, by seed: what all runs of a seed share, such as the data, cancels out. Student's t, which takes the
    differences to be about normal. None where no seed is shared."""
    differences = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    summary = summarise(differences)
    if summary is None:
        return None
    if summary.std is None:
        return Paired(summary.mean, None, None, 1)
    half = float(stats.t.ppf((1 + confidence) / 2, summary.n - 1)) * summary.std / math.sqrt(summary.n)
    return Paired(summary.mean, summary.mean - half, summary.mean + half, summary.n)


def verdict(ours: Summary | None, published: tuple[float, float | None], runs: int = PAPER_RUNS) -> Verdict:
    """Whether our mean differs from a published one of so many `runs` by more than chance would have it: Welch's t-test at 95%.
    A spread that is not known, of one run of ours or where none is published, is taken to be the other's; where neither is,
    nothing can be said ("")."""
    if ours is None:
        return "not run"
    mean, std = published
    half = _half_width((ours.std, ours.n), (std, runs))
    if half is None:
        return ""
    if abs(ours.mean - mean) <= half + ROUNDING:
        return "within"
    return "better" if ours.mean > mean else "worse"


def _half_width(*samples: tuple[float | None, int], confidence: float = 0.95) -> float | None:
    """Of the interval about no difference, from the deviation and the size of two samples."""
    known = [(std, n) for std, n in samples if std is not None]
    if not known:
        return None
    if len(known) == 1:
        ((std, n),) = known
        error, freedom = std * math.sqrt(sum(1 / size for _, size in samples)), float(n - 1)
    else:
        squares = [(std**2 / n, n) for std, n in known]
        error = math.sqrt(sum(square for square, _ in squares))
        spread = sum(square**2 / (n - 1) for square, n in squares)
        freedom = error**4 / spread if spread else math.inf
    return float(stats.t.ppf((1 + confidence) / 2, freedom)) * error
