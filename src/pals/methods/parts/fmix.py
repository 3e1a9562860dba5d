"""FMix: two images put together along the outlines of a random cloud (Harris et al. 2020, arXiv 2002.12047).

The cloud is noise of low frequency. It is drawn on a grid of its own, because random numbers are drawn before a batch is seen,
and brought to the size of the images when it is used. G in a shape is the side of the grid.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

GRID = 32


def draw_clouds(shape: tuple[int, ...], decay: float, generator: torch.Generator, side: int = GRID) -> Tensor:
    """shape x G x G: Fourier noise. Each wave has a random complex amplitude, divided by its frequency to the power `decay`;
    the constant counts as the slowest wave."""
    device = generator.device
    wave_G = torch.fft.fftfreq(side, device=device)
    frequency_GG = torch.hypot(wave_G[:, None], wave_G).clamp_min(1 / side)
    amplitude = torch.randn(*shape, side, side, dtype=torch.complex64, generator=generator, device=device)
    cloud: Tensor = torch.fft.ifft2(amplitude / frequency_GG**decay).real
    return cloud


def mask_of(cloud_GG: Tensor, share: Tensor, size: tuple[int, ...]) -> Tensor:
    """The highest part of a cloud, as ones in a mask of this size (H, W), or (D) from the cloud's first row: as many as make
    `share`, to the nearest pixel."""
    cloud = cloud_GG[None, None] if len(size) == 2 else cloud_GG[None, :1]
    if cloud.shape[2:] != size:
        cloud = F.interpolate(cloud, size, mode="bilinear" if len(size) == 2 else "linear", align_corners=False)
    rank = cloud.flatten().argsort(descending=True, stable=True).argsort()
    return (rank < (share * len(rank)).round()).view(size).float()


def put_together(x_B: Tensor, other_B: Tensor, mask: Tensor) -> Tensor:
    """The first where the mask is one, the second elsewhere; the same mask for all items and channels."""
    return torch.lerp(other_B, x_B, mask.to(x_B.dtype))
