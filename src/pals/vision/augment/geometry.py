"""Moves pixels: flip, crop, cutout, shear, translate, rotate, resize. Batches of uint8 images, B x channels x height x width,
each image with its own offset or magnitude. The same code runs on any device and never reads a value back to the host.

Each operation computes what Pillow computes, bit for bit. Resizing is Pillow's bilinear filter in its fixed-point arithmetic:
as an image shrinks the filter widens (antialiasing); the width is resampled first and rounded, then the height. (Recent
versions of Pillow start with the height where that is cheaper, which moves some pixels by one grey level.)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pals.util.errors import InputError

RESAMPLE_BITS = 22
"""Fractional bits of the resampling filter's weights."""


def take_pixels(images: Tensor, row_BHW: Tensor, column_BHW: Tensor) -> Tensor:
    """out[b, :, y, x] = images[b, :, row[b, y, x], column[b, y, x]]; the two indices broadcast against each other."""
    position_BHW = row_BHW * images.shape[3] + column_BHW
    B, H, W = position_BHW.shape
    index = position_BHW.view(B, 1, H * W).expand(-1, images.shape[1], -1)
    return images.flatten(2).gather(2, index).view(B, -1, H, W)


def flip(images: Tensor, flip_B: Tensor) -> Tensor:
    """Left and right exchanged where `flip_B` is true."""
    return torch.where(flip_B[:, None, None, None], images.flip(3), images)


def reflect_crop(images: Tensor, pad: int, top_B: Tensor, left_B: Tensor) -> Tensor:
    """Pad each side with its mirror image (the edge itself is not repeated), then cut the old size out of it, `top_B`
    and `left_B` pixels from the upper left corner."""
    H, W = images.shape[2:]
    if pad >= min(H, W):
        raise InputError(f"Images of {H} x {W} pixels cannot be mirrored by {pad} pixels; choose a pad below {min(H, W)}.")
    row_BH = _mirror(_span(top_B - pad, H), H)
    column_BW = _mirror(_span(left_B - pad, W), W)
    return take_pixels(images, row_BH[:, :, None], column_BW[:, None, :])


def center_crop(images: Tensor, height: int, width: int) -> Tensor:
    H, W = images.shape[2:]
    if height > H or width > W:
        raise InputError(f"No {height} x {width} crop fits into images of {H} x {W} pixels; resize them first.")
    top, left = round((H - height) / 2), round((W - width) / 2)
    return images[:, :, top : top + height, left : left + width]


def cutout(images: Tensor, row_B: Tensor, column_B: Tensor, side: int | Tensor, fill: int = 0) -> Tensor:
    """One square set to `fill`, centred on pixel (row, column) and clipped at the border; an even side reaches one pixel
    further to the upper left. `side` may be one number or one per image."""
    return torch.where(square(images, row_B, column_B, side), fill, images)


def square(images: Tensor, row_B: Tensor, column_B: Tensor, side: int | Tensor) -> Tensor:
    """B x 1 x H x W: true inside the square that `cutout` fills."""
    inside_BH = _within(row_B, side, images.shape[2])
    inside_BW = _within(column_B, side, images.shape[3])
    return inside_BH[:, None, :, None] & inside_BW[:, None, None, :]


def shear_x(images: Tensor, slope_B: Tensor, fill: int = 128, *, bicubic: bool = True) -> Tensor:
    """Each row moved to the left by `slope` times its distance from the upper edge. Bicubic, or nearest pixel."""
    if not bicubic:
        zero_B, one_B = torch.zeros_like(slope_B), torch.ones_like(slope_B)
        return _nearest(images, torch.stack([one_B, slope_B, zero_B, zero_B, one_B, zero_B], dim=1), fill)
    row_H, column_W = _centers(images, 2), _centers(images, 3)
    return _bicubic_along_rows(images, column_W + slope_B[:, None, None] * row_H[:, None], fill)


def shear_y(images: Tensor, slope_B: Tensor, fill: int = 128, *, bicubic: bool = True) -> Tensor:
    """Each column moved up by `slope` times its distance from the left edge. Bicubic, or nearest pixel."""
    return shear_x(images.transpose(2, 3), slope_B, fill, bicubic=bicubic).transpose(2, 3)


def translate_x(images: Tensor, share_B: Tensor, fill: int = 128) -> Tensor:
    """Moved to the left by a share of the width, rounded to whole pixels."""
    _, _, H, W = images.shape
    shift_B = (share_B * W + 0.5).floor().to(torch.int64)
    row_H = torch.arange(H, device=images.device)
    return _take_or_fill(images, row_H[None, :, None], _span(shift_B, W)[:, None, :], fill)


def translate_y(images: Tensor, share_B: Tensor, fill: int = 128) -> Tensor:
    """Moved up by a share of the height, rounded to whole pixels."""
    return translate_x(images.transpose(2, 3), share_B, fill).transpose(2, 3)


def rotate(images: Tensor, degrees_B: Tensor, fill: int = 128) -> Tensor:
    """Turned counter-clockwise about the middle; nearest pixel."""
    middle_y, middle_x = images.shape[2] / 2, images.shape[3] / 2
    angle_B = degrees_B.deg2rad()
    cos_B, sin_B = angle_B.cos(), angle_B.sin()
    left_B = middle_x - cos_B * middle_x + sin_B * middle_y
    top_B = middle_y - sin_B * middle_x - cos_B * middle_y
    return _nearest(images, torch.stack([cos_B, -sin_B, left_B, sin_B, cos_B, top_B], dim=1), fill)


def _nearest(images: Tensor, matrix_B6: Tensor, fill: int) -> Tensor:
    """Pixel (x, y) is read at column m0 x + m1 y + m2 and row m3 x + m4 y + m5, in Pillow's 16-bit fixed-point arithmetic."""
    across_B2, down_B2, start_B2 = matrix_B6.view(-1, 2, 3).unbind(dim=2)
    start_B2 = start_B2 + 0.5 * (across_B2 + down_B2)  # pixels are read at their middle
    fixed_3B2 = (65536 * torch.stack([across_B2, down_B2, start_B2]) + 0.5).floor().to(torch.int64)
    across, down, start = fixed_3B2[..., None, None].unbind()
    x = torch.arange(images.shape[3], device=images.device)
    y = torch.arange(images.shape[2], device=images.device)[:, None]
    column_BHW, row_BHW = ((start + across * x + down * y) >> 16).unbind(dim=1)
    return _take_or_fill(images, row_BHW, column_BHW, fill)


def _take_or_fill(images: Tensor, row_BHW: Tensor, column_BHW: Tensor, fill: int) -> Tensor:
    H, W = images.shape[2:]
    inside_BHW = (row_BHW >= 0) & (row_BHW < H) & (column_BHW >= 0) & (column_BHW < W)
    taken = take_pixels(images, row_BHW.clamp(0, H - 1), column_BHW.clamp(0, W - 1))
    return torch.where(inside_BHW[:, None], taken, fill)


def _bicubic_along_rows(images: Tensor, source_BHW: Tensor, fill: int) -> Tensor:
    """Each pixel interpolated, within its own row, at the place given (0 is the left edge, 0.5 the middle of the first
    pixel). The cubic is Pillow's, and as there the fraction is cut off: hence float64 and this order of sums."""
    B, C, H, W = images.shape
    start_BHW = (source_BHW - 0.5).floor()
    t = ((source_BHW - 0.5) - start_BHW)[:, None]
    row_H1 = torch.arange(H, device=images.device)[:, None]
    four_411 = torch.arange(-1, 3, device=images.device)[:, None, None]
    column_B4HW = (start_BHW.to(torch.int64)[:, None] + four_411).clamp(0, W - 1)
    taken = take_pixels(images, row_H1.repeat(4, 1), column_B4HW.flatten(1, 2))
    a, b, c, d = taken.view(B, C, 4, H, W).to(torch.int16).unbind(dim=2)
    value = (b - a - c + d).to(torch.float64)
    value.mul_(t).add_(2 * (a - b) + c - d).mul_(t).add_(c - a).mul_(t).add_(b).clamp_(0, 255)
    inside_BHW = (source_BHW >= 0) & (source_BHW < W)
    return torch.where(inside_BHW[:, None], value.to(torch.uint8), fill)


def _centers(images: Tensor, dim: int) -> Tensor:
    return torch.arange(images.shape[dim], dtype=torch.float64, device=images.device) + 0.5


def _within(center_B: Tensor, side: int | Tensor, length: int) -> Tensor:
    start_B = center_B - side // 2
    place = torch.arange(length, device=center_B.device)
    return (place >= start_B[:, None]) & (place < (start_B + side)[:, None])


def _span(start_B: Tensor, length: int) -> Tensor:
    return start_B[:, None] + torch.arange(length, device=start_B.device)


def _mirror(place: Tensor, length: int) -> Tensor:
    """Places outside 0 .. length-1 folded back, the edge not repeated: -1 -> 1, length -> length-2."""
    return (length - 1) - ((length - 1) - place.abs()).abs()


def resize(images: Tensor, height: int, width: int) -> Tensor:
    B, _, H, W = images.shape
    if (height, width) == (H, W):
        return images  # the filter would return the same pixels
    start_B, height_B, width_B = (torch.full((B,), value, device=images.device) for value in (0, H, W))
    return resized_crop(images, start_B, start_B, height_B, width_B, height, width)


def resize_short(images: Tensor, side: int) -> Tensor:
    """The shorter side becomes `side` pixels, the longer keeps the proportion."""
    H, W = images.shape[2:]
    return resize(images, side * H // min(H, W), side * W // min(H, W))


def resized_crop(
    images: Tensor, top_B: Tensor, left_B: Tensor, height_B: Tensor, width_B: Tensor, height: int, width: int
) -> Tensor:
    """A box of each image, brought to height x width. Pixels outside the box have no influence."""
    narrow = _resample_width(images, left_B, width_B, width)
    return _resample_width(narrow.transpose(2, 3), top_B, height_B, height).transpose(2, 3).contiguous()


def _resample_width(images: Tensor, left_B: Tensor, width_B: Tensor, size: int) -> Tensor:
    B, C, H, W = images.shape
    first_BS, weight_BSK = _filter(width_B, size, taps=2 * math.ceil(max(1.0, W / size)) + 1)
    last_B1 = (width_B - 1)[:, None]
    total = torch.full((B, C, H, size), 1 << (RESAMPLE_BITS - 1), dtype=torch.int32, device=images.device)
    for k, weight_BS in enumerate(weight_BSK.unbind(dim=2)):
        column_BS = left_B[:, None] + torch.minimum(first_BS + k, last_B1)
        pixel = images.gather(3, column_BS[:, None, None, :].expand(B, C, H, size))
        total += pixel * weight_BS[:, None, None, :]
    return (total >> RESAMPLE_BITS).clamp_(0, 255).to(torch.uint8)


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
    return first_BS.to(torch.int64), (weight_BSK * (1 << RESAMPLE_BITS) + 0.5).to(torch.int32)
