"""Samples without random numbers."""

from __future__ import annotations

import torch
from torch import Tensor


def evenly_spaced(count: int, sample: int) -> Tensor:
    """At most `sample` of `count` rows, evenly spaced from the first to the last, as int64 on the host.

    Computed in float64: float32 has no odd numbers above 2^24, and its last row could be beyond the end.
    """
    return torch.linspace(0, count - 1, min(count, sample), dtype=torch.float64).long()
