"""Mix-up: pairs of images blended, and the loss of the blend against both labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor


def draw_weights(shape: tuple[int, ...], zeta: float, rng: np.random.Generator, *, fold: bool) -> Tensor:
    """Mix-up weights from Beta(zeta, zeta); `fold` keeps the larger of w and 1 - w, so that the first image dominates."""
    weight = rng.beta(zeta, zeta, shape)
    return torch.from_numpy(np.maximum(weight, 1 - weight) if fold else weight).to(torch.float32)


def draw_mixup(
    shape: tuple[int, int], batch_size: int, zeta: float, rng: np.random.Generator, generator: torch.Generator, *, fold: bool
) -> dict[str, Tensor]:
    """For (steps, views): the weights, and the uniform numbers from which `mixed` makes partners, where the generator is."""
    weight = draw_weights(shape, zeta, rng, fold=fold).to(generator.device)
    return {"weight": weight, "uniform": torch.rand(*shape, batch_size, generator=generator, device=generator.device)}


def mixed(views: Sequence[Tensor], random: Mapping[str, Tensor]) -> tuple[list[Tensor], Tensor]:
    """Each view blended by a weight and a permutation of its own, and those permutations (one row per view)."""
    partner_VB = partners(random["uniform"][:, : len(views[0])])
    return [blend(x_B, partner_VB[v], random["weight"][v]) for v, x_B in enumerate(views)], partner_VB


def partners(uniform_B: Tensor) -> Tensor:
    """A random permutation in each row, from as many uniform numbers."""
    return uniform_B.argsort(dim=-1)


def blend(x_B: Tensor, partner_B: Tensor, weight: Tensor) -> Tensor:
    """`weight` of each row plus the rest of its partner's row."""
    return torch.lerp(x_B[partner_B], x_B, weight.to(x_B.dtype))
