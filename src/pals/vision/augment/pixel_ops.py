"""Changes colours: the ten colour operations of AutoAugment on batches of uint8 images, B x channels x height x width with
one or three channels. Each gives what Pillow gives, to the last bit, with a magnitude of its own for every image.

The same code runs on any device and never reads a value back to the host. Sums that Pillow forms in floating point are
formed here in the same precision and order (no fused multiply-add), because the last step always cuts off the fraction.
"""

from __future__ import annotations

import torch
from torch import Tensor


def invert(images: Tensor) -> Tensor:
    return 255 - images


def solarize(images: Tensor, threshold_B: Tensor) -> Tensor:
    """Pixels at or above the threshold (0 to 256) inverted."""
    threshold_B = threshold_B.ceil().to(torch.int16)
    return torch.where(images < _per_image(threshold_B), images, 255 - images)


def posterize(images: Tensor, bits_B: Tensor) -> Tensor:
    """Only the highest `bits` (0 to 8) of each pixel kept."""
    dropped_B = torch.bitwise_left_shift(torch.ones_like(bits_B, dtype=torch.int64), 8 - bits_B.to(torch.int64)) - 1
    return images & _per_image(255 - dropped_B).to(torch.uint8)


def brightness(images: Tensor, factor_B: Tensor) -> Tensor:
    """Factor 0 gives black, 1 the image."""
    return blend(torch.zeros((), device=images.device), images, factor_B)


def contrast(images: Tensor, factor_B: Tensor) -> Tensor:
    """Factor 0 gives an even grey, the image's mean; 1 gives the image."""
    pixels = images.shape[2] * images.shape[3]
    total_B = gray(images).sum(dim=(1, 2, 3))
    mean_B = (2 * total_B + pixels) // (2 * pixels)  # rounded half up
    return blend(_per_image(mean_B), images, factor_B)


def color(images: Tensor, factor_B: Tensor) -> Tensor:
    """Factor 0 gives the grey image, 1 the image. An image with one channel is unchanged."""
    return images if images.shape[1] == 1 else blend(gray(images), images, factor_B)


def sharpness(images: Tensor, factor_B: Tensor) -> Tensor:
    """Factor 0 gives the image smoothed, 1 the image, 2 the image sharpened."""
    return blend(smooth(images), images, factor_B)


def autocontrast(images: Tensor) -> Tensor:
    """Each channel stretched so that its darkest pixel becomes 0 and its brightest 255; a constant channel is unchanged."""
    low_BC, high_BC = images.flatten(2).aminmax(dim=2)
    low_BC1, high_BC1 = low_BC[..., None].to(torch.float64), high_BC[..., None].to(torch.float64)
    span_BC1 = (high_BC1 - low_BC1).clamp_min(1)
    scale_BC1 = torch.full_like(span_BC1, 255) / span_BC1  # 255 / span would be 255 times a rounded reciprocal
    table_BCV = _levels(images) * scale_BC1 - low_BC1 * scale_BC1
    table_BCV = torch.where(high_BC1 > low_BC1, table_BCV.clamp(0, 255), _levels(images))
    return look_up(images, table_BCV.to(torch.uint8))


def equalize(images: Tensor) -> Tensor:
    """Each channel's grey levels spread so that its histogram is as even as it can be. The step between two levels is
    counted in whole pixels: images of fewer than 256 pixels are unchanged."""
    count_BCV = histogram(images)
    level_V = _levels(images)
    brightest_BC1 = torch.where(count_BCV > 0, level_V, 0).amax(dim=2, keepdim=True)
    others_BC1 = images.shape[2] * images.shape[3] - count_BCV.gather(2, brightest_BC1)
    step_BC1 = others_BC1 // 255
    below_BCV = count_BCV.cumsum(dim=2, dtype=torch.int32) - count_BCV
    table_BCV = ((below_BCV + step_BC1 // 2) // step_BC1.clamp_min(1)).clamp_max(255)
    return look_up(images, torch.where(step_BC1 > 0, table_BCV, level_V).to(torch.uint8))


def hue(images: Tensor, turn_B: Tensor) -> Tensor:
    """Colours turned round the colour wheel, -0.5 to 0.5 of a full turn, by way of Pillow's 8-bit hue, saturation and
    value. An image with one channel is unchanged."""
    if images.shape[1] == 1:
        return images
    hue_, saturation, value = _to_hsv(images)
    hue_ = (hue_ + _per_image((turn_B * 255).trunc())[:, 0]) % 256
    return _from_hsv(hue_.to(torch.float32), saturation, value)


def _to_hsv(images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hue, saturation and value, each B x H x W: whole numbers from 0 to 255."""
    red, green, blue = images.to(torch.float32).unbind(dim=1)
    value, least = images.amax(dim=1).to(torch.float32), images.amin(dim=1).to(torch.float32)
    span = (value - least).clamp_min(1)
    # Pillow keeps every quotient in float32 but adds and multiplies in float64
    far_red, far_green, far_blue = (((value - channel) / span).to(torch.float64) for channel in (red, green, blue))
    sixths = torch.where(green == value, 2 + far_red - far_blue, 4 + far_green - far_red)
    sixths = torch.where(red == value, far_blue - far_green, sixths)
    turn = (sixths.to(torch.float32).to(torch.float64) / 6 + 1).frac().to(torch.float32).to(torch.float64)
    colored = value > least
    saturation = ((value - least) / value.clamp_min(1)).to(torch.float64) * 255
    return (turn * 255).floor() * colored, saturation.floor().to(torch.float32) * colored, value


def _from_hsv(hue_: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    most = hue_.new_full((), 255)  # a tensor: a GPU would divide by a plain number through its rounded reciprocal
    share = saturation / most
    sixths = hue_ * 6 / most
    rest = sixths.frac()
    low, falling, rising = ((value * (1 - share * depth) + 0.5).floor() for depth in (torch.ones_like(rest), rest, 1 - rest))
    sector = sixths.floor() % 6
    order = (
        (value, falling, low, low, rising, value),
        (rising, value, value, falling, low, low),
        (low, low, rising, value, value, falling),
    )
    channels = []
    for by_sector in order:
        channel = by_sector[0]
        for number, other in enumerate(by_sector[1:], start=1):
            channel = torch.where(sector == number, other, channel)
        channels.append(channel)
    return torch.stack(channels, dim=1).to(torch.uint8)


def gray(images: Tensor) -> Tensor:
    """B x 1 x H x W, int32: brightness as the eye weighs red, green and blue (ITU-R 601-2)."""
    channels = images.to(torch.int32)
    if images.shape[1] == 1:
        return channels
    red, green, blue = channels[:, 0:1], channels[:, 1:2], channels[:, 2:3]
    return (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16


def smooth(images: Tensor) -> Tensor:
    """Mean over 3 x 3 pixels, the middle one counted five times, rounded; the outermost pixels stay."""
    wide = images.to(torch.int16)
    rows = wide[:, :, :-2] + wide[:, :, 1:-1] + wide[:, :, 2:]
    total = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * wide[:, :, 1:-1, 1:-1]
    out = images.clone()
    # thirteenths are never within 1/26 of a half, so float32 rounds them as exact arithmetic would
    out[:, :, 1:-1, 1:-1] = (total.to(torch.float32) / 13 + 0.5).to(torch.uint8)
    return out


def blend(base: Tensor, images: Tensor, factor_B: Tensor) -> Tensor:
    """base + factor * (images - base), clipped, the fraction cut off: factor 0 gives the base, 1 the images."""
    step = images.to(torch.float32) - base
    return (step.mul_(_per_image(factor_B.to(torch.float32))).add_(base)).clamp_(0, 255).to(torch.uint8)


def look_up(images: Tensor, table_BCV: Tensor) -> Tensor:
    """Each pixel replaced by the entry of its own image's and channel's table."""
    return table_BCV.gather(2, images.flatten(2).to(torch.int64)).view(images.shape)


def histogram(images: Tensor) -> Tensor:
    """B x channels x 256, int32: how many pixels have each grey level."""
    pixel_BCP = images.flatten(2).to(torch.int64)
    count_BCV = torch.zeros(*images.shape[:2], 256, dtype=torch.int32, device=images.device)
    one = torch.ones((), dtype=torch.int32, device=images.device)
    return count_BCV.scatter_add_(2, pixel_BCP, one.expand_as(pixel_BCP))


def _levels(images: Tensor) -> Tensor:
    return torch.arange(256, device=images.device)


def _per_image(value_B: Tensor) -> Tensor:
    return value_B[:, None, None, None]
