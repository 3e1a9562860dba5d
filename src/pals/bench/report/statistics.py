"""Means over seeds, differences between rows, and comparison with a published number.

    paired    d_s = ours_s - theirs_s over shared seeds s:  mean(d) -+ t(n - 1) std(d) / sqrt(n)           (Student)
    verdict   |ours - published| against  t(df) sqrt(std_1^2 / n_1 + std_2^2 / n_2)                        (Welch)

with sample standard deviations (n - 1), 95% confidence and Welch's degrees of freedom df (Welch 1947, doi:10.2307/2332510).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import stats

from pals.bench.paper.published import PAPER_RUNS

ROUNDING = 0.005  # published numbers have two decimals
SIGNIFICANCE = 0.05

Verdict = Literal["within", "better", "worse", "not run", ""]


@dataclass(frozen=True)
class Summary:
    """Mean, sample standard deviation and number of several runs; one run has no deviation."""

    mean: float
    std: float | None
    n: int


@dataclass(frozen=True)
class Paired:
    """Mean difference over the seeds that two rows share, and its confidence interval; one seed has no interval."""

    mean: float
    low: float | None
    high: float | None
    n: int


def summarise(values: Sequence[float]) -> Summary | None:
    """Mean and sample standard deviation.

    Args:
        values: of the runs.

    Returns:
        None if there are no values.

    >>> summarise([90.0, 92.0, 94.0])
    Summary(mean=92.0, std=2.0, n=3)
    """
    if not values:
        return None
    return Summary(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


def paired(ours: Mapping[int, float], theirs: Mapping[int, float], confidence: float = 0.95) -> Paired | None:
    """The difference of two rows, ours minus theirs, by seed: what all runs of a seed share, such as the data, cancels out.

    Args:
        ours: value by seed.
        theirs: the same of the other row.
        confidence: of the interval, which takes the differences to be normal.

    Returns:
        None if no seed is shared.
    """
    differences = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    summary = summarise(differences)
    if summary is None:
        return None
    if summary.std is None:
        return Paired(summary.mean, None, None, 1)
    half = float(stats.t.ppf((1 + confidence) / 2, summary.n - 1)) * summary.std / math.sqrt(summary.n)
    return Paired(summary.mean, summary.mean - half, summary.mean + half, summary.n)


def verdict(ours: Summary | None, published: tuple[float, float | None], runs: int = PAPER_RUNS) -> Verdict:
    """Whether our mean differs from a published one by Welch's t-test at 95%.

    Args:
        ours: our runs; None if there are none.
        published: mean and standard deviation. A deviation that is not known, of one run of ours or where none is published,
            is taken to be the other's.
        runs: behind the published mean.

    Returns:
        "within" the spread, "better" or "worse"; "" if neither deviation is known.

    >>> verdict(Summary(97.51, None, 1), (97.0, 0.1))
    'better'
    """
    if ours is None:
        return "not run"
    mean, std = published
    excess = abs(ours.mean - mean) - ROUNDING
    if ours.std is None and std is None:
        return ""
    if excess <= 0:
        return "within"
    if ours.std is not None and std is not None:
        p = stats.ttest_ind_from_stats(excess, ours.std, ours.n, 0.0, std, runs, equal_var=False).pvalue
    else:
        known, n = (ours.std, ours.n) if ours.std is not None else (std, runs)
        error = float(known or 0.0) * math.sqrt(1 / ours.n + 1 / runs)
        p = 2 * stats.t.sf(excess / error, n - 1) if error else 0.0
    if p >= SIGNIFICANCE:
        return "within"
    return "better" if ours.mean > mean else "worse"
