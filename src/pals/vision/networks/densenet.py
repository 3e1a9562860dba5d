"""DenseNet-121 for images of about 32 pixels.

Reference: Huang et al. 2017, arXiv:1608.06993."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, relu

from pals.vision.networks.batchnorm import BatchNorm2d
from pals.vision.networks.network import Network
from pals.vision.networks.residual import average, conv

GROWTH = 32


class DenseLayer(nn.Module):
    """Adds `GROWTH` channels to those it reads."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bn1 = BatchNorm2d(channels)
        self.conv1 = conv(channels, 4 * GROWTH, 1)
        self.bn2 = BatchNorm2d(4 * GROWTH)
        self.conv2 = conv(4 * GROWTH, GROWTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        new = self.conv1(relu(self.bn1(x), inplace=True))
        new = self.conv2(relu(self.bn2(new), inplace=True))
        return torch.cat([x, new], dim=1)


class Transition(nn.Module):
    """Halves channels and image sides. No ReLU, as in the authors' code."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bn = BatchNorm2d(channels)
        self.conv = conv(channels, channels // 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return avg_pool2d(self.conv(self.bn(x)), 2)


class DenseNet(Network):
    def __init__(self, depths: tuple[int, ...], channels: int, num_classes: int) -> None:
        super().__init__()
        width = 2 * GROWTH
        layers: list[nn.Module] = [conv(channels, width, 3)]
        for number, depth in enumerate(depths):
            if number > 0:
                layers.append(Transition(width))
                width //= 2
            layers += [DenseLayer(width + i * GROWTH) for i in range(depth)]
            width += depth * GROWTH
        self.layers = nn.Sequential(*layers)
        self.bn = BatchNorm2d(width)
        self.classifier = nn.Linear(width, num_classes)

    def encode(self, x: Tensor) -> Tensor:
        return average(relu(self.bn(self.layers(x)), inplace=True))


def densenet121(channels: int, num_classes: int) -> DenseNet:
    return DenseNet((6, 12, 24, 16), channels, num_classes)
