"""Wide residual networks: pre-activation blocks, three stages."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from pals.vision.networks.batchnorm import BatchNorm2d
from pals.vision.networks.residual import PreActBlock, Staged, activation, average, conv, kaiming_fan_out


class WideResNet(Staged):
    """Plain 3x3 stem of width 16; stages of width 16, 32, 64 times `factor`; norm, activation, global average, linear."""

    def __init__(
        self, depth: int, factor: int, channels: int, num_classes: int, *, slope: float = 0.0, momentum: float = 0.1
    ) -> None:
        super().__init__()
        blocks = (depth - 4) // 6  # per stage, two convolutions each; stem, shortcuts and classifier make the other four
        block = partial(PreActBlock, slope=slope, momentum=momentum)
        self.conv1 = conv(channels, 16, 3)
        width = self.add_stages(block, 16, (16 * factor, 32 * factor, 64 * factor), (blocks,) * 3, (1, 2, 2))
        self.bn1 = BatchNorm2d(width, momentum=momentum)
        self.act = activation(slope)
        self.classifier = nn.Linear(width, num_classes)
        nn.init.zeros_(self.classifier.bias)

    def encode(self, x: Tensor) -> Tensor:
        x = self.run_stages(self.conv1(x))
        return average(self.act(self.bn1(x)))


def wrn_34_10(channels: int, num_classes: int) -> WideResNet:
    return kaiming_fan_out(WideResNet(34, 10, channels, num_classes))


def wrn_28_2(channels: int, num_classes: int) -> WideResNet:
    """As semi-supervised methods use it: leaky activations and slow running statistics."""
    return kaiming_fan_out(WideResNet(28, 2, channels, num_classes, slope=0.1, momentum=0.001))
