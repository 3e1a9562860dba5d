"""Convolution, norm, sum and ReLU in one operation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from _slow import rest_slow
from pals.training.engine import Engine, EngineConfig
from pals.vision.networks import Network, build_network, fused
from pals.vision.networks.batchnorm import BatchNorm2d
from pals.vision.networks.residual import Block, Bottleneck
from pals.vision.networks.resnets import ResNet, SqueezeExciteBottleneck, imagenet_resnet18, thin_resnet

resnet20 = partial(thin_resnet, depth=3)


def lived_in(make: Callable[[int, int], Network], device: str = "cpu", side: int = 32) -> tuple[Network, Tensor]:
    """A network whose norms have seen pictures and whose scales and shifts are no longer one and zero; and pictures."""
    torch.manual_seed(0)
    network = make(3, 10).to(device)
    for module in network.modules():
        if isinstance(module, BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    x = torch.randn(16, 3, side, side, device=device)
    with torch.no_grad():
        for _ in range(20):
            network(x + 0.1 * torch.randn_like(x))
    return network.eval(), x


def two_blocks(block: Block) -> Callable[[int, int], Network]:
    return lambda channels, classes: ResNet(block, (1, 1), (64, 128), channels, classes)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For every call of the one operation: did it add a shortcut?"""
    made: list[bool] = []

    def counted(x: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, *rest: object) -> Tensor:
        made.append(shortcut is not None)
        return fused._conv_relu(x, weight, bias, shortcut, *rest)

    monkeypatch.setattr(fused, "conv_relu", counted)
    return made


@pytest.mark.parametrize("bias", [False, True])
def test_a_norm_moves_into_the_weights(bias: bool) -> None:
    torch.manual_seed(0)
    conv, norm = nn.Conv2d(3, 5, 3, 2, padding=1, bias=bias).double(), BatchNorm2d(5).double()
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.uniform_(norm.bias)
    x = torch.randn(4, 3, 8, 8, dtype=torch.float64)
    norm(conv(x))  # running statistics
    norm.eval()
    weight, shift = fused.fold(conv, norm)
    torch.testing.assert_close(conv2d(x, weight, shift, 2, 1), norm(conv(x)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "adds"),
    rest_slow(2, [
        (resnet20, True), (two_blocks(SqueezeExciteBottleneck), False),  # its gate comes before the sum
        (two_blocks(Bottleneck), True), (imagenet_resnet18, True),
    ]),
)  # fmt: skip
def test_one_operation_is_as_near_as_several(make: Callable[[int, int], Network], adds: bool, calls: list[bool]) -> None:
    """As near to full precision."""
    network, x = lived_in(make)
    with torch.autocast("cpu", torch.bfloat16):
        several = network(x).features.float()
        assert not calls, "gradients are wanted here"
        with torch.inference_mode():
            one = network(x).features.float()
    exact = network(x).features
    assert set(calls) == ({True, False} if adds else {False})
    assert (one - exact).norm() < 1.5 * (several - exact).norm() and (one - exact).norm() < 0.05 * exact.norm()


def test_it_stays_out_of_training_full_precision_and_groups(calls: list[bool]) -> None:
    network, x = lived_in(resnet20)
    with torch.no_grad():
        network(x)
        network.train()
        with torch.autocast("cpu", torch.bfloat16):
            network(x)
    assert not calls
    network.eval()
    with torch.autocast("cpu", torch.bfloat16):
        network(x).logits.float().square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())
    network, x = lived_in(two_blocks(partial(Bottleneck, shrink=2, groups=8)))
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        network(x)
    assert calls == [False, True, True]


@pytest.mark.slow
def test_one_graph_without_a_break() -> None:
    network, x = lived_in(resnet20)
    compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(x).logits, network(x).logits)


def test_the_operation_keeps_torchs_rules() -> None:
    x, weight, bias = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4)
    shortcut = torch.randn(2, 4, 4, 4)
    checks = ("test_schema", "test_faketensor")
    for added in (None, shortcut):
        torch.library.opcheck(fused.conv_relu, (x, weight, bias, added, [2, 2], [1, 1]), test_utils=checks)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "precision", "compiled"),
    [*((name, "bf16", True) for name in ("resnet18", "se-resnet50", "resnext50", "imagenet-resnet18")),
     ("resnet18", "bf16", False), ("resnet18", "fp16", True)],
)  # fmt: skip
def test_inference_of_an_engine_is_near_full_precision(name: str, precision: Literal["bf16", "fp16"], compiled: bool) -> None:
    side = 64 if name.startswith("imagenet") else 32
    network, x = lived_in(lambda channels, classes: build_network(name, (channels, side, side), classes), "cuda", side)
    with torch.no_grad():
        exact = network(x).features
    engine = Engine(EngineConfig(device="cuda", precision=precision, compile=compiled))
    engine.place(network)
    with engine.inference(network) as forward:
        for _ in range(5):  # with a graph, the last are replayed
            rough = forward(x).features.float()
    assert (rough - exact).norm() < 0.03 * exact.norm()
