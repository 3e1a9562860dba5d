"""What several networks share: convolutions, norms, residual blocks, stages, initialisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor, nn

from pals.vision.networks.batchnorm import BatchNorm2d
from pals.vision.networks.fused import conv_norm_relu
from pals.vision.networks.network import Network

Block = Callable[[int, int, int], nn.Module]  # channels in, channels out, stride
M = TypeVar("M", bound=nn.Module)


def conv(
    channels_in: int, channels_out: int, kernel: int, stride: int = 1, *, groups: int = 1, bias: bool = False
) -> nn.Conv2d:
    """A convolution that keeps the size (up to the stride)."""
    return nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2, groups=groups, bias=bias)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions, the norm after each. Parameter names are torchvision's."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv(channels_in, channels_out, 3, stride)
        self.bn1 = BatchNorm2d(channels_out)
        self.conv2 = conv(channels_out, channels_out, 3)
        self.bn2 = BatchNorm2d(channels_out)
        self.downsample = projected(channels_in, channels_out, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = conv_norm_relu(self.conv1, self.bn1, x)
        return conv_norm_relu(self.conv2, self.bn2, out, self.downsample(x))


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolution, the norm after each; the 3x3 carries the stride. Parameter names are torchvision's."""

    def __init__(
        self, channels_in: int, channels_out: int, stride: int, *, shrink: int = 4, groups: int = 1, bias: bool = False
    ) -> None:
        super().__init__()
        inner = channels_out // shrink
        self.conv1 = conv(channels_in, inner, 1, groups=groups, bias=bias)
        self.bn1 = BatchNorm2d(inner)
        self.conv2 = conv(inner, inner, 3, stride, groups=groups, bias=bias)
        self.bn2 = BatchNorm2d(inner)
        self.conv3 = conv(inner, channels_out, 1, bias=bias)
        self.bn3 = BatchNorm2d(channels_out)
        self.downsample = projected(channels_in, channels_out, stride, bias=bias)

    def inner(self, x: Tensor) -> Tensor:
        """Up to the last convolution."""
        return conv_norm_relu(self.conv2, self.bn2, conv_norm_relu(self.conv1, self.bn1, x))

    def forward(self, x: Tensor) -> Tensor:
        return conv_norm_relu(self.conv3, self.bn3, self.inner(x), self.downsample(x))


class PreActBlock(nn.Module):
    """Two 3x3 convolutions, norm and activation before each. A shortcut that changes shape reads the activated input."""

    def __init__(self, channels_in: int, channels_out: int, stride: int, *, slope: float = 0.0, momentum: float = 0.1) -> None:
        super().__init__()
        self.bn1 = BatchNorm2d(channels_in, momentum=momentum)
        self.conv1 = conv(channels_in, channels_out, 3, stride)
        self.bn2 = BatchNorm2d(channels_out, momentum=momentum)
        self.conv2 = conv(channels_out, channels_out, 3)
        self.act = activation(slope)
        same = stride == 1 and channels_in == channels_out
        self.shortcut = None if same else conv(channels_in, channels_out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        active = self.act(self.bn1(x))
        shortcut: Tensor = x if self.shortcut is None else self.shortcut(active)
        out: Tensor = self.conv2(self.act(self.bn2(self.conv1(active))))
        return out + shortcut


class Staged(Network):
    """A network with stages `layer1`, `layer2`, ... of blocks. Only the first block of a stage has the stage's stride."""

    def add_stages(
        self, block: Block, channels: int, widths: Sequence[int], depths: Sequence[int], strides: Sequence[int]
    ) -> int:
        """Build the stages; returns the width of the last one."""
        self.stage_names = tuple(f"layer{i}" for i in range(1, len(widths) + 1))
        for name, width, depth, stride in zip(self.stage_names, widths, depths, strides, strict=True):
            first = block(channels, width, stride)
            self.add_module(name, nn.Sequential(first, *(block(width, width, 1) for _ in range(depth - 1))))
            channels = width
        return channels

    def run_stages(self, x: Tensor) -> Tensor:
        for name in self.stage_names:
            x = self.get_submodule(name)(x)
        return x


def projected(channels_in: int, channels_out: int, stride: int, *, bias: bool = False) -> nn.Module:
    """The shortcut of a residual block: nothing, or a 1x1 convolution and a norm where the shape changes."""
    if stride == 1 and channels_in == channels_out:
        return nn.Identity()
    return nn.Sequential(conv(channels_in, channels_out, 1, stride, bias=bias), BatchNorm2d(channels_out))


def activation(slope: float) -> nn.Module:
    return nn.LeakyReLU(slope, inplace=True) if slope else nn.ReLU(inplace=True)


def average(x: Tensor) -> Tensor:
    """Global average pooling: B x D x H x W to B x D."""
    return x.mean(dim=(2, 3))


def kaiming_fan_out(network: M) -> M:
    """Re-initialise every convolution, Kaiming-normal by fan-out; norms and linear layers keep torch's initialisation."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return network
