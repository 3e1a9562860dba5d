"""The nine-convolution network of PRODEN and LWS."""

from __future__ import annotations

from torch import Tensor, nn

from pals.vision.networks.batchnorm import BatchNorm2d
from pals.vision.networks.network import Network
from pals.vision.networks.residual import activation, average

SLOPE = 0.01


class ConvNet9(Network):
    """Nine convolutions with norm and leaky ReLU. Dropout rests at evaluation (in the authors' code it does not)."""

    def __init__(self, channels: int, num_classes: int, dropout: float = 0.25) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for widths, padding in (((128, 128, 128), 1), ((256, 256, 256), 1), ((512, 256, 128), 0)):
            for width in widths:
                layers += [nn.Conv2d(channels, width, 3, padding=padding), BatchNorm2d(width), activation(SLOPE)]
                channels = width
            if padding:
                layers += [nn.MaxPool2d(2), nn.Dropout2d(dropout)]
        self.layers = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, num_classes)

    def encode(self, x: Tensor) -> Tensor:
        return average(self.layers(x))
