"""Random augmentation without a learnt policy on the operations of AutoAugment; colour jitter of contrastive learning.

    x -> o_R(... o_1(x)),   o_r uniform over RANGES,   value_r = low + m (high - low), m ~ U(0, 1); sign random where `signed`

References: Cubuk et al. 2020, arXiv:1909.13719 (RandAugment); Wang et al. 2022, arXiv:2201.08984 (PiCO: three operations);
Sohn et al. 2020, arXiv:2001.07685 (FixMatch: two, each with probability 0.5); Chen et al. 2020, arXiv:2002.05709 (jitter).
"""

from __future__ import annotations

from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from pals.vision.augment import geometry, pixel_ops
from pals.vision.augment.apply_ops import Op, apply_ops, draw_centers, uniform, without_value


class Range(NamedTuple):
    """An operation and the values it may take: those from low to high, or their negatives too."""

    apply: Op
    low: float = 0.0
    high: float = 0.0
    signed: bool = False


# Pixels outside the image are black, and shears take the nearest pixel: Pillow's defaults, unlike in AutoAugment.
RANGES: dict[str, Range] = {
    "autocontrast": Range(without_value(pixel_ops.autocontrast)),
    "brightness": Range(pixel_ops.brightness, 0.05, 0.95),
    "color": Range(pixel_ops.color, 0.05, 0.95),
    "contrast": Range(pixel_ops.contrast, 0.05, 0.95),
    "equalize": Range(without_value(pixel_ops.equalize)),
    "identity": Range(lambda images, _: images),
    "posterize": Range(lambda images, bits_B: pixel_ops.posterize(images, bits_B.floor()), 4, 8),
    "rotate": Range(partial(geometry.rotate, fill=0), 0, 30, signed=True),
    "sharpness": Range(pixel_ops.sharpness, 0.05, 0.95),
    "shear_x": Range(partial(geometry.shear_x, fill=0, bicubic=False), 0, 0.3, signed=True),
    "shear_y": Range(partial(geometry.shear_y, fill=0, bicubic=False), 0, 0.3, signed=True),
    "solarize": Range(pixel_ops.solarize, 0, 256),
    "translate_x": Range(partial(geometry.translate_x, fill=0), 0, 0.3, signed=True),
    "translate_y": Range(partial(geometry.translate_y, fill=0), 0, 0.3, signed=True),
}


def pico_randaugment(images: Tensor, generator: Generator) -> Tensor:
    """Three operations with uniform magnitudes, then a square of random side, up to half the width, in the colour of an
    average pixel."""
    images = apply_ops(images, [entry.apply for entry in RANGES.values()], *draw_operations(len(images), generator, rounds=3))
    side_B = uniform(images, generator, 0, 0.5 * images.shape[3]).to(torch.int64)
    inside = geometry.square(images, *draw_centers(images, generator), side_B)[:, 0]
    colors = (125, 123, 114) if images.shape[1] == 3 else (123,)
    channels = zip(colors, images.unbind(dim=1), strict=True)
    return torch.stack([torch.where(inside, color, channel) for color, channel in channels], dim=1)


def fixmatch_randaugment(images: Tensor, generator: Generator) -> Tensor:
    """Two operations, each applied with probability 0.5 at one of nine levels, then a grey square of half the width."""
    drawn = draw_operations(len(images), generator, rounds=2, probability=0.5, levels=10)
    images = apply_ops(images, [entry.apply for entry in RANGES.values()], *drawn)
    return geometry.cutout(images, *draw_centers(images, generator), images.shape[3] // 2, fill=127)


def draw_operations(
    count: int, generator: Generator, *, rounds: int, probability: float = 1.0, levels: int | None = None
) -> tuple[Tensor, Tensor]:
    """For each of `count` images and each round an operation, as position in RANGES (its length: none), and its value.
    Magnitudes are uniform or, with `levels`, one of 1/levels, 2/levels, ... below 1."""
    shape, device = (count, rounds), generator.device
    op_BR = torch.randint(len(RANGES), shape, generator=generator, device=device)
    if levels is None:
        magnitude_BR = torch.rand(shape, dtype=torch.float64, generator=generator, device=device)
    else:
        magnitude_BR = torch.randint(1, levels, shape, generator=generator, device=device).to(torch.float64) / levels
    low_BR, span_BR, signed_BR = (column_O[op_BR] for column_O in _columns(device))
    value_BR = low_BR + span_BR * magnitude_BR
    negative_BR = (torch.rand(shape, generator=generator, device=device) < 0.5) & (signed_BR > 0)
    fires_BR = torch.rand(shape, generator=generator, device=device) < probability
    return torch.where(fires_BR, op_BR, len(RANGES)), torch.where(negative_BR, -value_BR, value_BR)


@cache
def _columns(device: torch.device) -> Tensor:
    """Low, high - low, and whether signed, of each entry of RANGES; cached for each device."""
    rows = [[entry.low, entry.high - entry.low, float(entry.signed)] for entry in RANGES.values()]
    return torch.tensor(rows, dtype=torch.float64).T.to(device)


def color_jitter(images: Tensor, generator: Generator, *, spread: float, turn: float, probability: float) -> Tensor:
    """With that probability: brightness, contrast and colour times factors within 1 ± spread and hue turned by up to
    `turn`, in an order that is random for each image."""
    factors = [uniform(images, generator, 1 - spread, 1 + spread) for _ in range(3)]
    value_B4 = torch.stack([*factors, uniform(images, generator, -turn, turn)], dim=1)
    order_B4 = torch.rand(value_B4.shape, generator=generator, device=images.device).argsort(dim=1)
    fires_B1 = uniform(images, generator)[:, None] < probability
    applied = [pixel_ops.brightness, pixel_ops.contrast, pixel_ops.color, pixel_ops.hue]
    return apply_ops(images, applied, torch.where(fires_B1, order_B4, len(applied)), value_B4.gather(1, order_B4))


def random_gray(images: Tensor, generator: Generator, *, probability: float) -> Tensor:
    """With that probability without colour, the number of channels unchanged."""
    fires_B = uniform(images, generator) < probability
    return torch.where(fires_B[:, None, None, None], pixel_ops.gray(images).to(images.dtype), images)
