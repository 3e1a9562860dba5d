"""Orders in which items are visited in an epoch, and shares of items."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def shuffled(index_M: Tensor, generator: torch.Generator) -> Tensor:
    """Each item once, in random order.

    Args:
        index_M: items.
        generator: random numbers, on their device.

    Returns:
        A permutation of `index_M`.
    """
    return index_M[torch.randperm(len(index_M), generator=generator, device=index_M.device)]


def drawn(selected_N: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """Independent draws with replacement from the selected items; unlike torch.multinomial without a limit of 2^24 items.

    Args:
        selected_N: items to draw from, bool.
        draws: number of draws M.
        generator: random numbers, on their device.

    Returns:
        Items, int64, M.
    """
    index_M = selected_N.nonzero().flatten()
    return index_M[torch.randint(len(index_M), (draws,), generator=generator, device=index_M.device)]


def passes(index_M: Tensor, length: int, generator: torch.Generator) -> Tensor:
    """One shuffled pass over the items after the other.

    Args:
        index_M: items.
        length: number of visits; the last pass is cut off there.
        generator: random numbers, on their device.

    Returns:
        Items; none if there are none.
    """
    if not len(index_M):
        return index_M
    count = -(-length // len(index_M))
    order = torch.rand(count, len(index_M), generator=generator, device=index_M.device).argsort(dim=1)
    return index_M[order.flatten()[:length]]


def part(share: float, count: int) -> int:
    """A share of a number of items, rounded down.

    Args:
        share: between 0 and 1.
        count: number of items.

    >>> part(0.29, 100)  # 28.999999999999996 in floats
    29
    """
    return math.floor(share * count + 1e-9)
