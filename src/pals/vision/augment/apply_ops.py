"""Random numbers for each image of a batch, and operations that are applied to those images only that drew them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor

Op = Callable[[Tensor, Tensor], Tensor]
"""uint8 images, one value per image -> uint8 images of the same shape."""


def without_value(change: Callable[[Tensor], Tensor]) -> Op:
    """An operation without a value as one that takes and ignores it."""
    return lambda images, _: change(images)


def apply_ops(images: Tensor, ops: Sequence[Op], op_BS: Tensor, value_BS: Tensor) -> Tensor:
    """Image b goes through ops[op_BS[b, 0]] with value value_BS[b, 0], then through ops[op_BS[b, 1]], ...; the number
    len(ops) means no operation.

    In each round the images are sorted by operation, so that every operation runs once, on the images that drew it. Their
    counts are needed on the host: one read per call, for all rounds together.
    """
    number_O = torch.arange(len(ops), device=images.device)
    counts = (op_BS[:, :, None] == number_O).sum(dim=0).tolist()
    order_BS = op_BS.argsort(dim=0)
    images = images.clone()
    for round_, count_O in enumerate(counts):
        start = 0
        for op, count in zip(ops, count_O, strict=True):
            if count:
                index = order_BS[start : start + count, round_]
                images.index_copy_(0, index, op(images[index], value_BS[index, round_]))
                start += count
    return images


def uniform(images: Tensor, generator: Generator, low: float = 0.0, high: float = 1.0) -> Tensor:
    """One number per image, from low to high."""
    draw_B = torch.rand(len(images), dtype=torch.float64, generator=generator, device=images.device)
    return low + (high - low) * draw_B


def integers(images: Tensor, generator: Generator, bound: int) -> Tensor:
    """One integer per image, from 0 to bound - 1."""
    return torch.randint(bound, (len(images),), generator=generator, device=images.device)


def draw_centers(images: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """Row and column of a pixel of each image."""
    return integers(images, generator, images.shape[2]), integers(images, generator, images.shape[3])
