"""Residual networks: ResNet, pre-activation and wide ResNets, ResNeXt, SE-ResNet, and torchvision's ResNets for large images.

    a block:   x_out = act(F(x) + shortcut(x)),    pre-activation:   x_out = F(act(norm(x))) + shortcut
    encode(x) = mean over positions of the last stage;    logits = W encode(x) + b

Unless they are called imagenet-*, the networks are made for images of about 32 pixels: 3x3 stem, no max-pool.

References: He et al. 2016, arXiv:1512.03385 (ResNet) and arXiv:1603.05027 (pre-activation); Zagoruyko and Komodakis 2016,
arXiv:1605.07146 (wide); Xie et al. 2017, arXiv:1611.05431 (ResNeXt); Hu et al. 2018, arXiv:1709.01507 (squeeze-and-excitation).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from pals.vision.networks.batchnorm import BatchNorm2d
from pals.vision.networks.fused import conv_norm_relu
from pals.vision.networks.residual import (
    BasicBlock,
    Block,
    Bottleneck,
    PreActBlock,
    Staged,
    activation,
    average,
    conv,
    kaiming_fan_out,
)

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation, of pixels from 0 to 1, that most networks trained on ImageNet expect."""
SE_REDUCTION = 16
FOUR_WIDTHS = (64, 128, 256, 512)
BOTTLENECK_WIDTHS = (256, 512, 1024, 2048)


class ResNet(Staged):
    """3x3 convolution, norm, ReLU; stages that halve the image from the second on; global average; linear."""

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
    return kaiming_fan_out(ResNet(BasicBlock, (2, 2, 2, 2), FOUR_WIDTHS, channels, num_classes))


def preact_resnet18(channels: int, num_classes: int) -> ResNet:
    """The network of DivideMix and ELR+: norm before the convolution, normed stem, no norm after the last block."""
    return ResNet(PreActBlock, (2, 2, 2, 2), FOUR_WIDTHS, channels, num_classes)


def thin_resnet(channels: int, num_classes: int, *, depth: int) -> ResNet:
    """6 * depth + 2 layers of width 16, 32, 64: ResNet-20 and ResNet-32."""
    return kaiming_fan_out(ResNet(BasicBlock, (depth,) * 3, (16, 32, 64), channels, num_classes, stem_width=16))


def resnext50(channels: int, num_classes: int) -> ResNet:
    """ResNeXt-50 (32x4d). Both inner convolutions are grouped, as in the authors' code; usually the 1x1 is dense."""
    return ResNet(partial(Bottleneck, shrink=2, groups=32), (3, 4, 6, 3), BOTTLENECK_WIDTHS, channels, num_classes)


class SqueezeExcite(nn.Module):
    """Scales each channel by a number between 0 and 1 that depends on the averages of all channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.squeeze = nn.Linear(channels, channels // SE_REDUCTION)
        self.excite = nn.Linear(channels // SE_REDUCTION, channels)

    def forward(self, x: Tensor) -> Tensor:
        gate_BD: Tensor = self.excite(relu(self.squeeze(average(x)))).sigmoid()
        return x * gate_BD[:, :, None, None]


class SqueezeExciteBottleneck(Bottleneck):
    """A bottleneck with biases whose residual passes one more ReLU and then the gate, as in the authors' code."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__(channels_in, channels_out, stride, bias=True)
        self.gate = SqueezeExcite(channels_out)

    def forward(self, x: Tensor) -> Tensor:
        residual = self.gate(conv_norm_relu(self.conv3, self.bn3, self.inner(x)))
        return relu(residual + self.downsample(x), inplace=True)


def se_resnet50(channels: int, num_classes: int) -> ResNet:
    return ResNet(SqueezeExciteBottleneck, (3, 4, 6, 3), BOTTLENECK_WIDTHS, channels, num_classes, bias=True)


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
    """As semi-supervised methods use it: leaky activations and running statistics with momentum 0.001."""
    return kaiming_fan_out(WideResNet(28, 2, channels, num_classes, slope=0.1, momentum=0.001))


class ImageNetResNet(ResNet):
    """7x7 stem with stride 2 and max-pool; architecture and parameter names are torchvision's, so that its checkpoints fit.
    With `projection` a linear layer follows the pooling; its output is the feature."""

    def __init__(self, *shape: Any, projection: int | None = None) -> None:
        super().__init__(*shape)
        self.conv1 = conv(self.conv1.in_channels, self.conv1.out_channels, 7, 2)
        self.projection: nn.Module = nn.Identity()
        if projection is not None:
            self.projection = nn.Linear(self.classifier.in_features, projection)
            self.classifier = nn.Linear(projection, self.num_classes)

    def encode(self, x: Tensor) -> Tensor:
        x = max_pool2d(self.stem(x), 3, stride=2, padding=1)
        features: Tensor = self.projection(average(self.run_stages(x)))
        return features


def imagenet_resnet18(channels: int, num_classes: int) -> ImageNetResNet:
    return kaiming_fan_out(ImageNetResNet(BasicBlock, (2, 2, 2, 2), FOUR_WIDTHS, channels, num_classes))


def imagenet_resnet34(channels: int, num_classes: int) -> ImageNetResNet:
    return kaiming_fan_out(ImageNetResNet(BasicBlock, (3, 4, 6, 3), FOUR_WIDTHS, channels, num_classes))


def imagenet_resnet50(channels: int, num_classes: int, *, projection: int | None = None) -> ImageNetResNet:
    """With projection=512 the network of the paper's crowd experiments."""
    depths = (3, 4, 6, 3)
    return kaiming_fan_out(ImageNetResNet(Bottleneck, depths, BOTTLENECK_WIDTHS, channels, num_classes, projection=projection))
