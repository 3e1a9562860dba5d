"""Orders in which items are visited in an epoch."""

from __future__ import annotations

import torch
from torch import Tensor


def shuffled(index_M: Tensor, generator: torch.Generator) -> Tensor:
    """Each item once, in random order."""
    return index_M[torch.randperm(len(index_M), generator=generator, device=index_M.device)]


def drawn(weight_N: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """Independent draws with replacement, each item in proportion to its weight. Reads nothing back to the host."""
    return torch.multinomial(weight_N, draws, replacement=True, generator=generator)


def passes(index_M: Tensor, length: int, generator: torch.Generator) -> Tensor:
    """As many shuffled passes as it takes to fill `length`: an item returns only after all others had their turn."""
    rounds = max(1, -(-length // max(len(index_M), 1)))
    return torch.cat([shuffled(index_M, generator) for _ in range(rounds)])[:length]
