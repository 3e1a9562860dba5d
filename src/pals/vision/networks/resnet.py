"""Residual networks for pictures of about 32 pixels: 3x3 stem, no max-pool."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from pals.vision.networks.batchnorm import BatchNorm2d
from pals.vision.networks.fused import conv_norm_relu
from pals.vision.networks.residual import BasicBlock, Block, PreActBlock, Staged, average, conv, kaiming_fan_out


class ResNet(Staged):
    """3x3 convolution, norm, ReLU; stages that halve the picture from the second on; global average; linear."""

    def __init__(
        self,
        block: Block,
        depths: Sequence[int],
        widths: Sequence[int],
        channels: int,
        num_classes: int,
        *,
        stem_width: int = 64,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.conv1 = conv(channels, stem_width, 3, bias=bias)
        self.bn1 = BatchNorm2d(stem_width)
        width = self.add_stages(block, stem_width, widths, depths, (1, *(2 for _ in widths[1:])))
        self.classifier = nn.Linear(width, num_classes)

    def stem(self, x: Tensor) -> Tensor:
        return conv_norm_relu(self.conv1, self.bn1, x)

    def encode(self, x: Tensor) -> Tensor:
        return average(self.run_stages(self.stem(x)))


def resnet18(channels: int, num_classes: int) -> ResNet:
    """The main network of the paper (norm after the convolution)."""
    return kaiming_fan_out(ResNet(BasicBlock, (2, 2, 2, 2), (64, 128, 256, 512), channels, num_classes))


def preact_resnet18(channels: int, num_classes: int) -> ResNet:
    """The network of DivideMix and ELR+: norm before the convolution, normed stem, no norm after the last block."""
    return ResNet(PreActBlock, (2, 2, 2, 2), (64, 128, 256, 512), channels, num_classes)


def resnet20(channels: int, num_classes: int) -> ResNet:
    return _thin(3, channels, num_classes)


def resnet32(channels: int, num_classes: int) -> ResNet:
    return _thin(5, channels, num_classes)


def _thin(depth: int, channels: int, num_classes: int) -> ResNet:
    """6 * depth + 2 layers of width 16, 32, 64."""
    return kaiming_fan_out(ResNet(BasicBlock, (depth,) * 3, (16, 32, 64), channels, num_classes, stem_width=16))
