"""Changes the size of images: whole ones, or a box of each. Pillow's bilinear filter in Pillow's fixed-point arithmetic: as an
image shrinks the filter widens (antialiasing), the width is done first and rounded, then the height. (Recent versions of
Pillow do the height first where that is cheaper, which moves some pixels by one grey level.)"""

from __future__ import annotations

import math

import torch
from torch import Tensor

PRECISION = 22
"""Bits behind the point in the filter's weights."""


def resize(images: Tensor, height: int, width: int) -> Tensor:
    B, _, H, W = images.shape
    if (height, width) == (H, W):
        return images  # the filter would give the very same pixels
    start_B, height_B, width_B = (torch.full((B,), value, device=images.device) for value in (0, H, W))
    return resized_crop(images, start_B, start_B, height_B, width_B, height, width)


def resize_short(images: Tensor, side: int) -> Tensor:
    """The shorter side becomes `side` pixels, the longer keeps the proportion."""
    H, W = images.shape[2:]
    return resize(images, side * H // min(H, W), side * W // min(H, W))


def resized_crop(
    images: Tensor, top_B: Tensor, left_B: Tensor, height_B: Tensor, width_B: Tensor, height: int, width: int
) -> Tensor:
    """A box of each image, brought to height x width. Nothing outside the box shines through."""
    narrow = _resample_width(images, left_B, width_B, width)
    return _resample_width(narrow.transpose(2, 3), top_B, height_B, height).transpose(2, 3).contiguous()


def _resample_width(images: Tensor, left_B: Tensor, width_B: Tensor, size: int) -> Tensor:
    B, C, H, W = images.shape
    first_BS, weight_BSK = _filter(width_B, size, taps=2 * math.ceil(max(1.0, W / size)) + 1)
    last_B1 = (width_B - 1)[:, None]
    total = torch.full((B, C, H, size), 1 << (PRECISION - 1), dtype=torch.int32, device=images.device)
    for k, weight_BS in enumerate(weight_BSK.unbind(dim=2)):
        column_BS = left_B[:, None] + torch.minimum(first_BS + k, last_B1)
        pixel = images.gather(3, column_BS[:, None, None, :].expand(B, C, H, size))
        total += pixel * weight_BS[:, None, None, :]
    return (total >> PRECISION).clamp_(0, 255).to(torch.uint8)


def _filter(width_B: Tensor, size: int, taps: int) -> tuple[Tensor, Tensor]:
    """For each of `size` pixels made from `width` pixels: the first pixel it reads, and the weights of that and the next."""
    width_B1 = width_B[:, None].to(torch.float64)
    scale_B1 = width_B1 / size
    reach_B1 = scale_B1.clamp_min(1)
    center_BS = (torch.arange(size, device=width_B.device) + 0.5) * scale_B1
    first_BS = (center_BS - reach_B1 + 0.5).clamp_min(0).floor()
    end_BS = torch.minimum((center_BS + reach_B1 + 0.5).floor(), width_B1)
    place_BSK = first_BS[:, :, None] + torch.arange(taps, device=width_B.device)
    distance_BSK = (place_BSK - center_BS[:, :, None] + 0.5).abs() / reach_B1[:, :, None]
    weight_BSK = (1 - distance_BSK).clamp_min(0) * (place_BSK < end_BS[:, :, None])
    weight_BSK = weight_BSK / weight_BSK.sum(dim=2, keepdim=True)
    return first_BS.to(torch.int64), (weight_BSK * (1 << PRECISION) + 0.5).to(torch.int32)
