"""Networks that train in minutes on small images and feature vectors, and the nine-convolution network of PRODEN and LWS."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from pals.vision.networks.batchnorm import BatchNorm1d, BatchNorm2d
from pals.vision.networks.network import Network
from pals.vision.networks.residual import BasicBlock, activation, average, conv


class SmallCNN(Network):
    """Three convolutions. `side` is the shorter side of the images: strides are reduced for small ones."""

    def __init__(self, channels: int, num_classes: int, side: int, widths: tuple[int, int, int] = (32, 64, 128)) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        for number, width in enumerate(widths):
            stride = 2 if side >= (16 if number == 0 else 4) else 1  # 8 px end at 2x2, 32 px at 4x4
            stages += [conv(channels, width, 3, stride), BatchNorm2d(width), nn.ReLU(inplace=True)]
            channels, side = width, -(-side // stride)
        self.stages = nn.Sequential(*stages)
        self.classifier = nn.Linear(channels, num_classes)

    def encode(self, x: Tensor) -> Tensor:
        return average(self.stages(x))


class SmallResNet(Network):
    """A convolution, then stages of a convolution that halves the image and a residual block: trainable on a CPU with a few
    thousand small images. 18 million multiplications for 32 px."""

    def __init__(self, channels: int, num_classes: int, widths: tuple[int, ...] = (16, 32, 64, 128)) -> None:
        super().__init__()
        stages: list[nn.Module] = [conv(channels, widths[0], 3), BatchNorm2d(widths[0]), nn.ReLU(inplace=True)]
        for before, width in pairwise(widths):
            stages += [conv(before, width, 3, 2), BatchNorm2d(width), nn.ReLU(inplace=True), BasicBlock(width, width, 1)]
        self.stages = nn.Sequential(*stages)
        self.classifier = nn.Linear(widths[-1], num_classes)

    def encode(self, x: Tensor) -> Tensor:
        return average(self.stages(x))


class ConvNet9(Network):
    """Nine convolutions with norm and leaky ReLU (PRODEN, LWS). No dropout at evaluation, unlike in the authors' code."""

    def __init__(self, channels: int, num_classes: int, dropout: float = 0.25) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for widths, padding in (((128, 128, 128), 1), ((256, 256, 256), 1), ((512, 256, 128), 0)):
            for width in widths:
                layers += [nn.Conv2d(channels, width, 3, padding=padding), BatchNorm2d(width), activation(0.01)]
                channels = width
            if padding:
                layers += [nn.MaxPool2d(2), nn.Dropout2d(dropout)]
        self.layers = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, num_classes)

    def encode(self, x: Tensor) -> Tensor:
        return average(self.layers(x))


class MLP(Network):
    """Two hidden layers with batch norm, for feature vectors."""

    def __init__(self, inputs: int, num_classes: int, width: int = 256) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before in (inputs, width):
            layers += [nn.Linear(before, width, bias=False), BatchNorm1d(width), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)
        self.classifier = nn.Linear(width, num_classes)

    def encode(self, x: Tensor) -> Tensor:
        features: Tensor = self.layers(x)
        return features


class RootLinear(Network):
    """One linear layer on the signed roots of feature vectors: the classifier of the closed form."""

    def __init__(self, inputs: int, num_classes: int) -> None:
        super().__init__()
        self.classifier = nn.Linear(inputs, num_classes)

    def encode(self, x: Tensor) -> Tensor:
        return signed_root(x)


def signed_root(x: Tensor) -> Tensor:
    """sign(x) sqrt(|x|), so that a few large activations do not dominate every comparison."""
    return x * torch.rsqrt(x.abs() + 1e-6)  # finite at zero, also its slope; onnxruntime drops what is smaller
