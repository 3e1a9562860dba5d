"""Applies to each image of a batch the operations that this image drew."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Op = Callable[[Tensor, Tensor], Tensor]
"""uint8 images, one value per image -> uint8 images of the same shape."""


def without_value(change: Callable[[Tensor], Tensor]) -> Op:
    """An operation that needs no value, in the shape of one that takes it."""
    return lambda images, _: change(images)


def apply_ops(images: Tensor, ops: Sequence[Op], op_BS: Tensor, value_BS: Tensor) -> Tensor:
    """Image b goes through ops[op_BS[b, 0]] with value value_BS[b, 0], then through ops[op_BS[b, 1]], and so on; the number
    len(ops) means no operation.

    In each round the images are sorted by operation, so that every operation runs once, on just the images that drew it.
    How many those are must be known on the host: one read per call, for all rounds together.
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
