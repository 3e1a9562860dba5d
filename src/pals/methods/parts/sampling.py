"""Orders in which items are visited in an epoch, and parts of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def shuffled(index_M: Tensor, generator: torch.Generator) -> Tensor:
    """Each item once, in random order."""
    return index_M[torch.randperm(len(index_M), generator=generator, device=index_M.device)]


def drawn(selected_N: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """Independent draws with replacement from the selected items (torch.multinomial would take at most 2^24 of them)."""
    index_M = selected_N.nonzero().flatten()
    return index_M[torch.randint(len(index_M), (draws,), generator=generator, device=index_M.device)]


def passes(index_M: Tensor, length: int, generator: torch.Generator) -> Tensor:
    """One shuffled pass over the items after the other, the last cut off at `length`."""
    if not len(index_M):
        return index_M
    count = -(-length // len(index_M))
    order = torch.rand(count, len(index_M), generator=generator, device=index_M.device).argsort(dim=1)
    return index_M[order.flatten()[:length]]


def part(share: float, count: int) -> int:
    """How many items a share of them is, rounded down; a share such as 0.29 of 100 is meant as 29."""
    return math.floor(share * count + 1e-9)
