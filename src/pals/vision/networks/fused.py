"""Convolution, norm, sum and ReLU as one operation where nothing is learnt.

A norm in evaluation is a scale and a shift per channel:  norm(W * x) = (s W) * x + (b - s mean),  s = weight / sqrt(var + eps).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, relu, relu6

from pals.vision.networks.batchnorm import BatchNorm2d


def conv_norm_relu(conv: nn.Conv2d, norm: BatchNorm2d, x: Tensor, shortcut: Tensor | None = None) -> Tensor:
    """relu(norm(conv(x)) + shortcut).

    In evaluation at half precision the norm, by then a fixed scale and shift per channel, moves into the weights, and the sum
    and the ReLU into the convolution: none of them passes over memory again.
    """
    device = x.device.type
    out: Tensor
    learning = norm.training or torch.is_grad_enabled()
    if learning or conv.groups > 1 or not torch.is_autocast_enabled(device):
        out = norm(conv(x))
        return relu(out if shortcut is None else out + shortcut, inplace=True)
    dtype = torch.get_autocast_dtype(device)
    weight, bias = fold(conv, norm)
    shortcut = None if shortcut is None else shortcut.to(dtype)
    out = conv_relu(x.to(dtype), weight.to(dtype), bias.to(dtype), shortcut, conv.stride, conv.padding)
    return out


def fold(conv: nn.Conv2d, norm: BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Weight and bias of the single convolution that equals both, the norm being in evaluation."""
    assert norm.running_mean is not None and norm.running_var is not None
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    mean = norm.running_mean if conv.bias is None else norm.running_mean - conv.bias
    return conv.weight * scale.view(-1, 1, 1, 1), norm.bias - mean * scale


def conv_relu6(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """relu6(conv(x)), in one pass over memory where the CPU's library can do that."""
    if x.device.type == "cpu" and x.dtype == torch.float32 and has_clamped_conv():
        return _clamped_conv(conv, x)
    return relu6(conv2d(x, conv.weight, conv.bias, conv.stride, conv.padding, conv.dilation, conv.groups), inplace=True)


@cache
def has_clamped_conv() -> bool:
    """Whether oneDNN is available through torch's private operation, which may change."""
    conv = nn.Conv2d(1, 2, 1, device="cpu").requires_grad_(False)
    conv.weight[:] = torch.tensor([1.0, -1.0])[:, None, None, None]
    try:
        return _clamped_conv(conv, torch.full((1, 1, 1, 1), 99.0)).flatten().tolist() == [6.0, 0.0]
    except (AttributeError, RuntimeError, TypeError):
        return False


def _clamped_conv(conv: nn.Conv2d, x: Tensor) -> Tensor:
    how = conv.padding, conv.stride, conv.dilation, conv.groups
    out: Tensor = torch.ops.mkldnn._convolution_pointwise(x, conv.weight, conv.bias, *how, "hardtanh", [0.0, 6.0], "")
    return out


def _conv_relu(
    x: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, stride: Sequence[int], padding: Sequence[int]
) -> Tensor:
    out = conv2d(x, weight, bias, tuple(stride), tuple(padding))
    return relu(out if shortcut is None else out + shortcut)


SCHEMA = "(Tensor x, Tensor weight, Tensor bias, Tensor? shortcut, int[] stride, int[] padding) -> Tensor"
conv_relu = torch.library.custom_op("pals::conv_relu", _conv_relu, mutates_args=(), schema=SCHEMA)
"""relu(conv(x) + bias + shortcut) as one operation; the engine has a kernel for it where the device's library does."""
conv_relu.register_fake(_conv_relu)
