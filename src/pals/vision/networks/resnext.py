"""ResNeXt-50 (32x4d) for pictures of about 32 pixels."""

from __future__ import annotations

from functools import partial

from pals.vision.networks.residual import Bottleneck
from pals.vision.networks.resnet import ResNet


def resnext50(channels: int, num_classes: int) -> ResNet:
    """Both inner convolutions are grouped, as in the authors' code; the usual ResNeXt has the 1x1 dense."""
    block = partial(Bottleneck, shrink=2, groups=32)
    return ResNet(block, (3, 4, 6, 3), (256, 512, 1024, 2048), channels, num_classes)
