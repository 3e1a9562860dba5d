"""Real pictures cut into patches, and what Pillow makes of them: the reference for the batched operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor

PillowOp = Callable[[Image.Image, float], Image.Image]
AFFINE, BICUBIC = Image.Transform.AFFINE, Image.Resampling.BICUBIC


@cache
def photos(height: int, width: int, count: int, channels: int = 3) -> Tensor:
    """Patches of two photographs, uint8."""
    rng = np.random.default_rng(height * width)
    pictures = load_sample_images().images
    patches = []
    for number in range(count):
        picture = pictures[number % 2]
        top, left = rng.integers(picture.shape[0] - height), rng.integers(picture.shape[1] - width)
        patches.append(picture[top : top + height, left : left + width, :channels])
    return torch.from_numpy(np.stack(patches)).permute(0, 3, 1, 2).contiguous()


@cache
def digits(count: int) -> Tensor:
    """Handwritten digits, 8 x 8, one channel."""
    return (torch.from_numpy(load_digits().images[:count]) * 255 / 16).to(torch.uint8)[:, None]


def to_pillow(image: Tensor) -> Image.Image:
    return Image.fromarray(image[0].numpy() if len(image) == 1 else image.permute(1, 2, 0).numpy())


def from_pillow(image: Image.Image) -> Tensor:
    pixels = torch.from_numpy(np.array(image))
    return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)


def one_by_one(images: Tensor, op: PillowOp, values: Iterable[float]) -> Tensor:
    return torch.stack([from_pillow(op(to_pillow(image), value)) for image, value in zip(images, values, strict=True)])


def _grey(image: Image.Image) -> int | tuple[int, ...]:
    return 128 if image.mode == "L" else (128, 128, 128)


def _rotate(image: Image.Image, degrees: float) -> Image.Image:
    """On grey, by way of an alpha channel, as the authors' code does it."""
    turned = image.convert("RGBA").rotate(degrees)
    return Image.composite(turned, Image.new("RGBA", turned.size, (128,) * 4), turned).convert(image.mode)


def _shear(image: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    return image.transform(image.size, AFFINE, matrix, BICUBIC, fillcolor=_grey(image))


def _move(image: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    return image.transform(image.size, AFFINE, matrix, fillcolor=_grey(image))


PILLOW: dict[str, PillowOp] = {
    "SX": lambda image, v: _shear(image, (1, v, 0, 0, 1, 0)),
    "SY": lambda image, v: _shear(image, (1, 0, 0, v, 1, 0)),
    "TX": lambda image, v: _move(image, (1, 0, v * image.size[0], 0, 1, 0)),
    "TY": lambda image, v: _move(image, (1, 0, 0, 0, 1, v * image.size[1])), "RO": _rotate,
    "CO": lambda image, v: ImageEnhance.Color(image).enhance(v),
    "CN": lambda image, v: ImageEnhance.Contrast(image).enhance(v),
    "BR": lambda image, v: ImageEnhance.Brightness(image).enhance(v),
    "SH": lambda image, v: ImageEnhance.Sharpness(image).enhance(v),
    "PO": lambda image, v: ImageOps.posterize(image, int(v)), "SO": lambda image, v: ImageOps.solarize(image, v),
    "AC": lambda image, _: ImageOps.autocontrast(image), "EQ": lambda image, _: ImageOps.equalize(image),
    "IN": lambda image, _: ImageOps.invert(image),
}  # fmt: skip
