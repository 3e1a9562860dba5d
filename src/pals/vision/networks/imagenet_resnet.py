"""ResNets for large pictures, with torchvision's architecture and parameter names so that its checkpoints fit."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from pals.vision.networks.residual import BasicBlock, Block, Bottleneck, average, conv, kaiming_fan_out
from pals.vision.networks.resnet import ResNet

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and deviation, of pixels from 0 to 1, that networks trained on ImageNet mostly expect."""


class ImageNetResNet(ResNet):
    """7x7 stem with stride 2 and max-pool. With `projection` a linear layer follows the pooling; its output is the feature."""

    def __init__(
        self,
        block: Block,
        depths: Sequence[int],
        widths: Sequence[int],
        channels: int,
        num_classes: int,
        *,
        projection: int | None = None,
    ) -> None:
        super().__init__(block, depths, widths, channels, num_classes)
        self.conv1 = conv(channels, self.conv1.out_channels, 7, 2)
        self.projection: nn.Module = nn.Identity()
        if projection is not None:
            self.projection = nn.Linear(self.classifier.in_features, projection)
            self.classifier = nn.Linear(projection, num_classes)

    def encode(self, x: Tensor) -> Tensor:
        x = max_pool2d(self.stem(x), 3, stride=2, padding=1)
        features: Tensor = self.projection(average(self.run_stages(x)))
        return features


def imagenet_resnet18(channels: int, num_classes: int) -> ImageNetResNet:
    return kaiming_fan_out(ImageNetResNet(BasicBlock, (2, 2, 2, 2), (64, 128, 256, 512), channels, num_classes))


def imagenet_resnet34(channels: int, num_classes: int) -> ImageNetResNet:
    return kaiming_fan_out(ImageNetResNet(BasicBlock, (3, 4, 6, 3), (64, 128, 256, 512), channels, num_classes))


def imagenet_resnet50(channels: int, num_classes: int, *, projection: int | None = None) -> ImageNetResNet:
    widths = (256, 512, 1024, 2048)
    return kaiming_fan_out(ImageNetResNet(Bottleneck, (3, 4, 6, 3), widths, channels, num_classes, projection=projection))


def imagenet_resnet50_projected(channels: int, num_classes: int) -> ImageNetResNet:
    """As in the crowd experiments of the paper: features of width 512."""
    return imagenet_resnet50(channels, num_classes, projection=512)
