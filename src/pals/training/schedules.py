"""Learning rate as a pure function of how far the training is: nothing to save, nothing to restore."""

from __future__ import annotations

import math
from collections.abc import Sequence


def cosine(rate: float, floor: float, done: float) -> float:
    """Half a cosine from `rate` to `floor`; `done` runs from 0 to 1."""
    return floor + (rate - floor) * (1 + math.cos(math.pi * done)) / 2


def linear(rate: float, floor: float, done: float) -> float:
    """A line from `rate` to `floor`."""
    return rate + (floor - rate) * done


def short_cosine(rate: float, done: float) -> float:
    """FixMatch's: 7/16 of half a cosine, from `rate` to a fifth of it."""
    return rate * math.cos(math.pi * done * 7 / 16)


def exponential(rate: float, factor: float, period: float, epochs_done: int) -> float:
    """Times `factor` in every `period` epochs, evenly."""
    return rate * math.pow(factor, epochs_done / period)


def stepped(rate: float, factor: float, milestones: Sequence[int], epochs_done: int) -> float:
    """Times `factor` after each milestone (in epochs)."""
    return rate * factor ** sum(epochs_done >= milestone for milestone in milestones)
