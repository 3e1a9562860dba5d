"""EfficientNet-Lite: EfficientNet without squeeze-and-excitation and with ReLU6, for weights trained in TensorFlow.

Compound scaling: every stage has ceil(d repeats) blocks of width round8(w width), (w, d) from SCALES; stem and head are fixed.
A block (inverted residual):  x + project(relu6(depthwise(relu6(expand(x))))), the sum only where the shape is unchanged.

References: Tan and Le 2019, arXiv:1905.11946; Sandler et al. 2018, arXiv:1801.04381 (inverted residuals); the Lite variants:
github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite (2020).
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.functional import pad, relu6

from pals.vision.networks.batchnorm import BatchNorm2d
from pals.vision.networks.fused import conv_relu6, fold
from pals.vision.networks.network import Network
from pals.vision.networks.residual import average

STEM_WIDTH, HEAD_WIDTH = 32, 1280
"""Channels of the first and of the last convolution: the same in every size of the family."""
TF_EPS, TF_MOMENTUM = 1e-3, 0.01
"""Epsilon and momentum of TensorFlow's batch norms."""


class Stage(NamedTuple):
    repeats: int
    kernel: int
    stride: int
    expansion: int
    width: int


STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)
SCALES = {0: (1.0, 1.0), 1: (1.0, 1.1), 2: (1.1, 1.2)}  # factors of width and depth


class SameConv(nn.Conv2d):
    """A convolution that pads as TensorFlow does: to an output of ceil(input / stride), the odd pixel at the bottom and on the
    right. With stride 1 that is what torch does anyway."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        padding = kernel // 2 if stride == 1 else 0
        super().__init__(channels_in, channels_out, kernel, stride, padding, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.padded(x))

    def padded(self, x: Tensor) -> Tensor:
        """Padded by what torch's own padding does not add."""
        if self.stride == (1, 1):
            return x
        height, width = (  # pixels to add on both sides together
            max((math.ceil(side / stride) - 1) * stride + kernel - side, 0)
            for side, kernel, stride in zip(x.shape[2:], self.kernel_size, self.stride, strict=True)
        )
        return pad(x, (width // 2, width - width // 2, height // 2, height - height // 2))


class ConvNorm(nn.Module):
    """Convolution, norm and, if `active`, ReLU6."""

    def __init__(
        self, channels_in: int, channels_out: int, kernel: int, stride: int = 1, *, groups: int = 1, active: bool = True
    ) -> None:
        super().__init__()
        self.conv = SameConv(channels_in, channels_out, kernel, stride, groups)
        self.norm: nn.Module = BatchNorm2d(channels_out, eps=TF_EPS, momentum=TF_MOMENTUM)
        self.active = active

    def forward(self, x: Tensor) -> Tensor:
        if self.active and isinstance(self.norm, nn.Identity):
            return conv_relu6(self.conv, self.conv.padded(x))
        x = self.norm(self.conv(x))
        return relu6(x, inplace=True) if self.active else x

    def fold(self) -> None:
        """From now on for evaluation only: the norm moves into the convolution."""
        if isinstance(self.norm, BatchNorm2d):
            weight, bias = fold(self.conv, self.norm)
            self.conv.weight, self.conv.bias = nn.Parameter(weight), nn.Parameter(bias)
            self.norm = nn.Identity()


class InvertedResidual(nn.Module):
    """1x1 to more channels, depthwise, 1x1 to fewer; added to the input where the shape stays."""

    def __init__(self, channels: int, stage: Stage, stride: int) -> None:
        super().__init__()
        inner = channels * stage.expansion
        self.expand = ConvNorm(channels, inner, 1) if stage.expansion > 1 else nn.Identity()
        self.depthwise = ConvNorm(inner, inner, stage.kernel, stride, groups=inner)
        self.project = ConvNorm(inner, stage.width, 1, active=False)
        self.residual = stride == 1 and channels == stage.width

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.project(self.depthwise(self.expand(x)))
        return out + x if self.residual else out


class EfficientNetLite(Network):
    """Lite0, Lite1 or Lite2. Inputs: (x - 127) / 128 with x in 0..255, RGB."""

    def __init__(self, number: int, channels: int, num_classes: int) -> None:
        super().__init__()
        width, depth = SCALES[number]
        self.stem = ConvNorm(channels, STEM_WIDTH, 3, 2)
        blocks, now = [], STEM_WIDTH
        for place, stage in enumerate(STAGES):
            scaled = stage._replace(width=_round(stage.width * width))
            # the first and the last stage are not repeated more often
            repeats = stage.repeats if place in (0, len(STAGES) - 1) else math.ceil(stage.repeats * depth)
            for repeat in range(repeats):
                blocks.append(InvertedResidual(now, scaled, stage.stride if repeat == 0 else 1))
                now = scaled.width
        self.blocks = nn.Sequential(*blocks)
        self.head = ConvNorm(now, HEAD_WIDTH, 1)
        self.classifier = nn.Linear(HEAD_WIDTH, num_classes)

    def encode(self, x: Tensor) -> Tensor:
        return average(self.head(self.blocks(self.stem(x))))

    def own_name(self, published: str) -> str:
        """Published: _blocks.3._bn1.weight; here: blocks.3.depthwise.norm.weight."""
        name = published.removeprefix("_")
        if name.startswith("fc."):
            return f"classifier.{name.removeprefix('fc.')}"
        place, table, layer = "", PUBLISHED_OUTER, name
        if inside := re.match(r"(blocks\.\d+\.)_", name):
            place, table, layer = inside[1], PUBLISHED_INNER, name[inside.end() :]
        module, _, value = layer.rpartition(".")
        return f"{place}{table[module]}.{value}" if module in table else published


PUBLISHED_OUTER = {"conv_stem": "stem.conv", "bn0": "stem.norm", "conv_head": "head.conv", "bn1": "head.norm"}
PUBLISHED_INNER = {
    "expand_conv": "expand.conv",
    "bn0": "expand.norm",
    "depthwise_conv": "depthwise.conv",
    "bn1": "depthwise.norm",
    "project_conv": "project.conv",
    "bn2": "project.norm",
}
"""Names of the layers in published files, outside and inside of blocks."""


def _round(width: float) -> int:
    """To a multiple of eight, and never down by more than a tenth."""
    rounded = max(8, int(width + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * width else rounded
