"""SE-ResNet-50 for pictures of about 32 pixels."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

from pals.vision.networks.fused import conv_norm_relu
from pals.vision.networks.residual import Bottleneck, average
from pals.vision.networks.resnet import ResNet

REDUCTION = 16


class SqueezeExcite(nn.Module):
    """Scales each channel by a number between 0 and 1 that depends on the averages of all channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.squeeze = nn.Linear(channels, channels // REDUCTION)
        self.excite = nn.Linear(channels // REDUCTION, channels)

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
    return ResNet(SqueezeExciteBottleneck, (3, 4, 6, 3), (256, 512, 1024, 2048), channels, num_classes, bias=True)
