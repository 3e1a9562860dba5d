"""Random steps that views are chained from: (images, generator) -> images, every image with a draw of its own."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from pals.vision.augment import geometry, pixel_ops, resample

View = Callable[[Tensor, Generator], Tensor]
"""Raw inputs to augmented raw inputs: uint8 images to uint8 images, or float vectors to float vectors. Never in place."""


def chain(*steps: View) -> View:
    """One step after the other; none at all leaves the images as they are."""

    def run(images: Tensor, generator: Generator) -> Tensor:
        for step in steps:
            images = step(images, generator)
        return images

    return run


def random_flip(images: Tensor, generator: Generator) -> Tensor:
    """Left and right exchanged in half of the images."""
    return geometry.flip(images, uniform(images, generator) < 0.5)


def random_crop(images: Tensor, generator: Generator, *, pad: int) -> Tensor:
    """Padded by the mirror image on all sides, then cut back to the old size at a random place."""
    top_B, left_B = integers(images, generator, 2 * pad + 1), integers(images, generator, 2 * pad + 1)
    return geometry.reflect_crop(images, pad, top_B, left_B)


def random_resized_crop(
    images: Tensor, generator: Generator, *, size: int | None = None, scale: tuple[float, float] = (0.08, 1.0)
) -> Tensor:
    """A box of random area (a share of the image from `scale`) and shape (3:4 to 4:3) at a random place, brought to
    size x size or, without a size, back to the size of the image."""
    height, width = images.shape[2:] if size is None else (size, size)
    return resample.resized_crop(images, *draw_boxes(images, generator, scale), height, width)


def draw_boxes(
    images: Tensor,
    generator: Generator,
    scale: tuple[float, float],
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    tries: int = 10,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Top, left, height and width of a box for each image, by torchvision's rule: area uniform, logarithm of the ratio
    uniform; the first of ten tries that fits into the image counts, and if none does, the largest central box of an
    allowed shape."""
    B, _, H, W = images.shape
    share_BT, shape_BT = torch.rand(2, B, tries, dtype=torch.float64, generator=generator, device=images.device)
    area_BT = H * W * (scale[0] + (scale[1] - scale[0]) * share_BT)
    ratio_BT = torch.exp(math.log(ratio[0]) + math.log(ratio[1] / ratio[0]) * shape_BT)
    width_BT = (area_BT * ratio_BT).sqrt().round().to(torch.int64)
    height_BT = (area_BT / ratio_BT).sqrt().round().to(torch.int64)
    fits_BT = (width_BT > 0) & (width_BT <= W) & (height_BT > 0) & (height_BT <= H)
    first_B1 = fits_BT.to(torch.uint8).argmax(dim=1, keepdim=True)  # of equal values argmax gives the first
    fits_B = fits_BT.any(dim=1)
    whole_height, whole_width = min(H, round(W / ratio[0])), min(W, round(H * ratio[1]))
    height_B = torch.where(fits_B, height_BT.gather(1, first_B1).squeeze(1), whole_height)
    width_B = torch.where(fits_B, width_BT.gather(1, first_B1).squeeze(1), whole_width)
    top_B = torch.where(fits_B, (uniform(images, generator) * (H - height_B + 1)).floor(), (H - whole_height) // 2)
    left_B = torch.where(fits_B, (uniform(images, generator) * (W - width_B + 1)).floor(), (W - whole_width) // 2)
    return top_B.to(torch.int64), left_B.to(torch.int64), height_B, width_B


def random_cutout(images: Tensor, generator: Generator, *, side: int) -> Tensor:
    """One black square; its centre may be any pixel, so near the border part of it falls outside."""
    return geometry.cutout(images, *draw_centers(images, generator), side)


def random_light(images: Tensor, generator: Generator, *, spread: float = 0.4) -> Tensor:
    """Brightness and contrast each times a factor within 1 ± spread."""
    images = pixel_ops.brightness(images, uniform(images, generator, 1 - spread, 1 + spread))
    return pixel_ops.contrast(images, uniform(images, generator, 1 - spread, 1 + spread))


def draw_centers(images: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """Row and column of a pixel of each image."""
    return integers(images, generator, images.shape[2]), integers(images, generator, images.shape[3])


def uniform(images: Tensor, generator: Generator, low: float = 0.0, high: float = 1.0) -> Tensor:
    """One number per image, from low to high."""
    draw_B = torch.rand(len(images), dtype=torch.float64, generator=generator, device=images.device)
    return low + (high - low) * draw_B


def integers(images: Tensor, generator: Generator, bound: int) -> Tensor:
    """One whole number per image, from 0 to bound - 1."""
    return torch.randint(bound, (len(images),), generator=generator, device=images.device)
