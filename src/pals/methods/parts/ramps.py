"""Schedules of weights over the epochs."""

from __future__ import annotations


def linear_ramp(done: float, length: float) -> float:
    """min(max(done / length, 0), 1): a line from 0 to 1.

    Args:
        done: epochs or steps done.
        length: epochs or steps until 1 is reached; 0: always 1.

    >>> [linear_ramp(done, 4) for done in (-1, 0, 1, 8)], linear_ramp(0, 0)
    ([0.0, 0.0, 0.25, 1.0], 1.0)
    """
    return min(max(done / length, 0.0), 1.0) if length else 1.0


def momentum_at(epoch: int, epochs: int, high: float, low: float) -> float:
    """The momentum of PiCO's and PaPi's schedules, high - (high - low) (t - 2) / T, and .99 in the first epoch.

    Args:
        epoch: t, from 1.
        epochs: T.
        high: momentum of the second epoch.
        low: momentum that would be reached two epochs after the last.

    >>> momentum_at(1, 10, 0.95, 0.8), momentum_at(2, 10, 0.95, 0.8)
    (0.99, 0.95)
    """
    return FIRST_MOMENTUM if epoch == 1 else high - (high - low) * (epoch - 2) / epochs


FIRST_MOMENTUM = 0.99
"""Momentum of the first epoch, before the line begins, as published."""
