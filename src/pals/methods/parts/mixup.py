"""Mix-up and FMix: two images blended, with one weight or along the outlines of a random cloud.

    mix-up  x = w x_i + (1 - w) x_j,                     w ~ Beta(zeta, zeta), perhaps max(w, 1 - w)
    FMix    x = m x_i + (1 - m) x_j,  m in {0, 1}        m: the highest part of low-frequency noise
            noise = Re F^-1(a / f^decay)                 a: complex normal numbers, f: frequency

Symbols: i an item of the batch, j its partner by a random permutation; S steps, V views, G side of the grid of the noise.
References: Zhang et al., ICLR 2018, arXiv 1710.09412; Harris et al. 2020 (FMix), arXiv 2002.12047.

Random numbers are drawn before a batch is loaded; the noise is brought to the size of the images when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

FMIX_GRID = 32


def draw_weights(shape: tuple[int, ...], zeta: float, rng: np.random.Generator, *, fold: bool) -> Tensor:
    """Draw mix-up weights.

    Args:
        shape: shape of the result.
        zeta: parameter of Beta(zeta, zeta).
        rng: random numbers.
        fold: take max(w, 1 - w), so that the first image dominates.

    Returns:
        float32, on the CPU.

    >>> bool((draw_weights((5,), 1.0, np.random.default_rng(0), fold=True) >= 0.5).all())
    True
    """
    weight = rng.beta(zeta, zeta, shape)
    return torch.from_numpy(np.maximum(weight, 1 - weight) if fold else weight).to(torch.float32)


def draw_mixup(
    shape: tuple[int, ...], batch_size: int, zeta: float, rng: np.random.Generator, generator: torch.Generator, *, fold: bool
) -> dict[str, Tensor]:
    """Draw the random inputs of mix-up for an epoch.

    Args:
        shape: steps, or steps x views.
        batch_size: B.
        zeta: parameter of Beta(zeta, zeta).
        rng: random numbers for the weights.
        generator: random numbers for the permutations, on the device.
        fold: see `draw_weights`.

    Returns:
        "weight" of this shape, and "uniform", shape x B, from which `partners` makes permutations.
    """
    weight = draw_weights(shape, zeta, rng, fold=fold).to(generator.device)
    return {"weight": weight, "uniform": torch.rand(*shape, batch_size, generator=generator, device=generator.device)}


def mixed(views: Sequence[Tensor], random: Mapping[str, Tensor]) -> tuple[list[Tensor], Tensor]:
    """Blend each view with a weight and a permutation of its own.

    Args:
        views: inputs, each B x ...
        random: one step of `draw_mixup`.

    Returns:
        The blended views, and the partners, V x B.
    """
    partner_VB = partners(random["uniform"][:, : len(views[0])])
    return [blend(x_B, partner_VB[v], random["weight"][v]) for v, x_B in enumerate(views)], partner_VB


def partners(uniform_B: Tensor) -> Tensor:
    """A random permutation in each row, from uniform random numbers.

    Args:
        uniform_B: random numbers, ... x B.

    Returns:
        int64, ... x B.
    """
    return uniform_B.argsort(dim=-1)


def blend(x_B: Tensor, partner_B: Tensor, weight: Tensor) -> Tensor:
    """w x_i + (1 - w) x_j for inputs or targets.

    Args:
        x_B: rows of any shape.
        partner_B: j of each row.
        weight: w, or a weight per row.

    Returns:
        Like `x_B`.

    >>> blend(torch.tensor([0.0, 4.0]), torch.tensor([1, 0]), torch.tensor(0.75)).tolist()
    [1.0, 3.0]
    """
    return torch.lerp(x_B[partner_B], x_B, weight.to(x_B.dtype))


def draw_clouds(shape: tuple[int, ...], decay: float, generator: torch.Generator, side: int = FMIX_GRID) -> Tensor:
    """Draw the low-frequency noise of FMix.

    Args:
        shape: shape of the draws.
        decay: a larger value makes smoother noise.
        generator: random numbers, on the device.
        side: G.

    Returns:
        float32, shape x G x G. The constant wave has the amplitude of the slowest one.
    """
    device = generator.device
    wave_G = torch.fft.fftfreq(side, device=device)
    frequency_GG = torch.hypot(wave_G[:, None], wave_G).clamp_min(1 / side)
    amplitude = torch.randn(*shape, side, side, dtype=torch.complex64, generator=generator, device=device)
    cloud: Tensor = torch.fft.ifft2(amplitude / frequency_GG**decay).real
    return cloud


def fmix_mask(cloud_GG: Tensor, share: Tensor, size: tuple[int, ...]) -> Tensor:
    """The mask m: ones on the highest part of a cloud.

    Args:
        cloud_GG: noise.
        share: share of ones, to the nearest pixel.
        size: (H, W), or (D,) for vectors, which use the first row of the cloud.

    Returns:
        float32 of this size.
    """
    cloud = cloud_GG[None, None] if len(size) == 2 else cloud_GG[None, :1]
    if cloud.shape[2:] != size:
        cloud = F.interpolate(cloud, size, mode="bilinear" if len(size) == 2 else "linear", align_corners=False)
    rank = cloud.flatten().argsort(descending=True, stable=True).argsort()
    return (rank < (share * len(rank)).round()).view(size).float()
