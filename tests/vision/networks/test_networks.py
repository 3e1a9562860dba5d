from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from _refused import refused
from _slow import rest_slow
from pals.vision.networks import MLP, NETWORKS, Network, SmallCNN, build_network
from pals.vision.networks.batchnorm import BatchNorm1d, BatchNorm2d
from pals.vision.networks.densenet import Transition
from pals.vision.networks.residual import PreActBlock
from pals.vision.networks.resnets import ResNet, SqueezeExciteBottleneck

TABLE = {  # parameters for 10 classes and three channels, feature width, side of the last map from 32 (ImageNet: 224) pixels
    "resnet18": (11_173_962, 512, 4),
    "preact-resnet18": (11_171_274, 512, 4),
    "resnet20": (272_474, 64, 8),
    "resnet32": (466_906, 64, 8),
    "wrn-34-10": (46_160_474, 640, 8),
    "wrn-28-2": (1_467_610, 128, 8),
    "resnext50": (14_604_362, 2048, 4),
    "se-resnet50": (26_078_394, 2048, 4),
    "densenet121": (6_956_298, 1024, 4),
    "convnet9": (4_434_570, 128, 2),
    # torchvision's count less its classifier, plus ours
    "imagenet-resnet18": (11_689_512 - 513_000 + 5_130, 512, 7),
    "imagenet-resnet34": (21_797_672 - 513_000 + 5_130, 512, 7),
    "imagenet-resnet50": (25_557_032 - 2_049_000 + 20_490, 2048, 7),
    "imagenet-resnet50-projected": (25_557_032 - 2_049_000 + 1_049_088 + 5_130, 512, 7),
    # published counts, likewise
    "efficientnet-lite0": (4_652_008 - 1_281_000 + 12_810, 1280, 7),
    "efficientnet-lite1": (5_416_680 - 1_281_000 + 12_810, 1280, 7),
    "efficientnet-lite2": (6_092_072 - 1_281_000 + 12_810, 1280, 7),
    "small-cnn": (3 * 288 + 18_432 + 73_728 + 448 + 1_290, 128, 4),
    # stem, three stages of a convolution and a block of two, norms, classifier
    "small-resnet": (432 + 23_040 + 92_160 + 368_640 + 1_376 + 1_290, 128, 4),
    "patches": (5_130, 512, 3),  # the classifier alone: all else is cut from the data
    "patches-no-mirror": (5_130, 512, 3),
    "mlp": (20 * 256 + 65_536 + 1_024 + 2_570, 256, 1),
    "linear": (210, 20, 3),
}
ON_VECTORS = ("mlp", "linear")

LIGHT = ("small-cnn", "mlp", "resnet20", "wrn-28-2")  # cheap enough to compute with on one core


def shape_of(name: str, side: int = 32) -> tuple[int, ...]:
    return (20,) if name in ON_VECTORS else (3, side, side)


def on_meta(name: str, num_classes: int, shape: tuple[int, ...] | None = None) -> Network:
    with torch.device("meta"):
        return build_network(name, shape or shape_of(name), num_classes)


def seeded(name: str, num_classes: int = 5, side: int = 8) -> Network:
    torch.manual_seed(0)
    return build_network(name, shape_of(name, side), num_classes)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", NETWORKS)
def test_parameter_count_and_shapes(name: str) -> None:
    count, width, last_map = TABLE[name]
    counts = tuple(sum(p.numel() for p in on_meta(name, classes).parameters()) for classes in (10, 100))
    assert counts == (count, count + 90 * (width + 1))
    network = on_meta(name, 7)
    side = 224 if name.startswith(("imagenet", "efficientnet")) else 32
    seen: list[torch.Size] = []
    for norm in network.modules():
        if isinstance(norm, nn.modules.batchnorm._BatchNorm):
            norm.register_forward_hook(lambda _m, _i, out: seen.append(out.shape))
    output = network(torch.empty(2, *shape_of(name, side), device="meta"))
    assert output.logits.shape == (2, 7) and output.features.shape == (2, width)
    assert (network.feature_width, network.num_classes) == (width, 7)
    assert math.prod(seen[-1][2:] if seen else (3, 3)) == last_map**2  # patches and linear have no norm


@pytest.mark.parametrize(
    "name", rest_slow(4, [name for name in NETWORKS if name not in (*ON_VECTORS, "patches", "patches-no-mirror")])
)
def test_one_channel(name: str) -> None:
    network = on_meta(name, 10, (1, 32, 32))
    assert network(torch.empty(2, 1, 32, 32, device="meta")).logits.shape == (2, 10)
    one = sum(p.numel() for p in network.parameters())
    first_kernel = next(network.parameters())
    assert TABLE[name][0] - one == 2 * first_kernel.numel()  # only the first layer differs


@pytest.mark.parametrize("name", LIGHT)
def test_every_parameter_learns_in_any_layout_and_precision(name: str) -> None:
    network, x = seeded(name), random(4, *shape_of(name, 8))
    output = network(x)
    torch.testing.assert_close(output.logits, output.features @ network.classifier.weight.T + network.classifier.bias)
    assert output.features.norm(dim=1).sub(1).abs().max() > 1e-3  # not normalised
    output.logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())
    plain = network.eval()(x).logits
    if x.ndim == 4:
        network, x = network.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    torch.testing.assert_close(network(x).logits, plain, rtol=1e-4, atol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        rough = network(x).logits
    assert rough.dtype == torch.bfloat16 and (rough.float() - plain).norm() < 0.05 * plain.norm()


@pytest.mark.parametrize(
    "network",
    [MLP(20, 5), ResNet(SqueezeExciteBottleneck, (1,), (64,), 3, 5, bias=True)],  # all of them: on the GPU, below
    ids=lambda network: type(network).__name__,
)
def test_one_graph_without_a_break(network: Network) -> None:
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    x = random(4, 20) if isinstance(network, MLP) else random(4, 3, 8, 8)
    torch.testing.assert_close(compiled(x).logits, network(x).logits)


@pytest.mark.gpu
@pytest.mark.parametrize("name", NETWORKS)
def test_compiled_training_step_on_the_gpu(name: str) -> None:
    """Channels last, bf16, one graph: as near to plain fp32 as bf16 without compilation is, every gradient finite."""
    side = 64 if name.startswith(("imagenet", "efficientnet")) else 32
    network = seeded(name, side=side).cuda()
    x = random(16, *shape_of(name, side)).cuda()
    if x.ndim == 4:
        network, x = network.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    for module in network.modules():
        if isinstance(module, nn.Dropout2d):
            module.p = 0.0
    plain = network(x).logits
    compiled = torch.compile(network, fullgraph=True)
    with torch.autocast("cuda", torch.bfloat16):
        eager, rough = network(x).logits, compiled(x).logits
    rough.float().square().mean().backward()
    # rounding alone moves an untrained ResNet-50 by a fifth here (its last map is 2x2), so the bound is relative
    assert (rough.float() - plain).norm() < 1.5 * (eager.float() - plain).norm() + 0.01 * plain.norm()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize("side", [1, 2, 3, 4, 8, 28, 32])
def test_small_networks_take_any_size(side: int) -> None:
    assert SmallCNN(1, 3, side)(random(2, 1, side, side)).logits.shape == (2, 3)
    assert MLP(side, 3, width=17)(random(2, side)).features.shape == (2, 17)
    name = {28: "convnet9", 8: "densenet121"}.get(side)  # the smallest pictures that these take
    if name is not None:
        assert on_meta(name, 3, (3, side, side))(torch.empty(2, 3, side, side, device="meta")).logits.shape == (2, 3)


@pytest.mark.parametrize(
    ("name", "layer", "std", "most", "zero_bias"),
    [
        ("resnet18", "layer3.0.conv1.weight", math.sqrt(2 / (256 * 9)), math.inf, False),  # 128 -> 256: fan-out is not fan-in
        ("wrn-28-2", "layer3.0.conv1.weight", math.sqrt(2 / (128 * 9)), math.inf, True),  # 64 -> 128
        ("densenet121", "layers.1.conv1.weight", 1 / math.sqrt(3 * 64), 1 / math.sqrt(64), False),  # torch's default; 1 x 1
    ],
)
def test_weights_begin_as_the_authors_begin(name: str, layer: str, std: float, most: float, zero_bias: bool) -> None:
    network = seeded(name)
    weight = network.get_parameter(layer).detach()
    assert float(weight.std()) == pytest.approx(std, rel=0.05 if name == "densenet121" else 0.02)
    assert float(weight.mean().abs()) < 0.03 * std and float(weight.abs().max()) <= most
    assert most < math.inf or float(weight.abs().max()) > 4 * float(weight.std())  # normal, not uniform
    assert all(bool((m.weight == 1).all()) for m in network.modules() if isinstance(m, BatchNorm2d))  # no zero-init
    assert bool((network.classifier.bias == 0).all()) == bool((network.classifier.bias == 0).any()) == zero_bias


def test_settings_of_some_networks() -> None:
    modules = list(on_meta("wrn-28-2", 10).modules())
    assert {m.momentum for m in modules if isinstance(m, BatchNorm2d)} == {0.001}
    assert {m.negative_slope for m in modules if isinstance(m, nn.LeakyReLU)} == {0.1}
    assert not any(isinstance(m, nn.ReLU) for m in modules)
    x, transition = random(2, 6, 4, 4), Transition(6).eval()
    torch.testing.assert_close(transition(-x), -transition(x))  # without activation
    network, x = seeded("convnet9", side=28).eval(), random(2, 3, 28, 28)
    assert torch.equal(network(x).logits, network(x).logits)
    network.train()  # with dropout
    assert not torch.equal(network(x).logits, network(x).logits)
    refused("momentum None", BatchNorm2d, 3, momentum=None)


def test_blocks_of_preact_and_squeeze_excite() -> None:
    x = random(2, 4, 6, 6)
    changing, same = PreActBlock(4, 8, 2).eval(), PreActBlock(4, 4, 1).eval()
    nn.init.zeros_(changing.conv2.weight)
    nn.init.zeros_(same.conv2.weight)
    assert changing.shortcut is not None
    active = x.clamp_min(0) / math.sqrt(1 + changing.bn1.eps)  # running statistics are still 0 and 1
    torch.testing.assert_close(changing(x), changing.shortcut(active))
    torch.testing.assert_close(same(x), x)
    block = SqueezeExciteBottleneck(64, 64, 1).eval()
    x = random(2, 64, 4, 4)
    inner = block.bn3(block.conv3(block.bn2(block.conv2(block.bn1(block.conv1(x)).relu())).relu())).relu()
    gate_BD = (block.gate.excite(block.gate.squeeze(inner.mean((2, 3))).relu())).sigmoid()
    assert float(inner.detach().min()) == 0
    torch.testing.assert_close(block(x), (torch.einsum("bdhw,bd->bdhw", inner, gate_BD) + x).clamp_min(0))


@pytest.mark.parametrize(("ours", "theirs", "tail"), [(BatchNorm1d, nn.BatchNorm1d, ()), (BatchNorm2d, nn.BatchNorm2d, (1, 1))])
def test_norm_of_one_value_uses_running_statistics(
    ours: type[nn.Module], theirs: type[nn.Module], tail: tuple[int, ...]
) -> None:
    norm, reference = ours(3), theirs(3)
    many = random(8, 3, *tail)
    torch.testing.assert_close(norm(many), reference(many))
    torch.testing.assert_close(norm.state_dict(), reference.state_dict())
    one = random(1, 3, *tail, seed=1)
    torch.testing.assert_close(norm(one), reference.eval()(one))
    torch.testing.assert_close(norm.state_dict(), reference.state_dict())  # and leaves them alone


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1, 1), (4, 3), (2, 3, 2, 1)], ids=str)
def test_norm_in_parts_is_the_same_compiled(shape: tuple[int, ...]) -> None:
    """Outputs, gradients and running statistics; the first two shapes leave one value per channel in each part."""
    torch.manual_seed(0)
    norm = (BatchNorm1d if len(shape) == 2 else BatchNorm2d)(3).double()
    norm.parts = 2
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2.0)
        norm.get_buffer("running_mean").fill_(0.5)
        norm.get_buffer("running_var").fill_(2.0)
    other = copy.deepcopy(norm)
    x, y = (random(*shape).double().requires_grad_() for _ in range(2))
    plain, compiled = norm(x), torch.compile(other, backend="eager", fullgraph=True)(y)
    torch.testing.assert_close(compiled, plain)
    torch.testing.assert_close(other.state_dict(), norm.state_dict())
    plain.square().sum().backward()
    compiled.square().sum().backward()
    torch.testing.assert_close((y.grad, other.weight.grad), (x.grad, norm.weight.grad))
    if math.prod(shape) == 2 * 3:
        torch.testing.assert_close(plain, norm.eval()(x))
        assert int(norm.get_buffer("num_batches_tracked")) == 0


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [("resnet18", (20,), "'resnet18' reads images.*choose 'mlp'"),
     ("small-cnn", (20,), "'small-cnn' reads images.*choose 'mlp'"),
     ("mlp", (1, 8, 8), "'mlp' reads feature vectors.*choose 'small-cnn'"),
     ("resnet18", (8, 8), "channels, height, width"), ("resnet18", (32, 32, 3), "channels last"),
     ("resnet18", (3, 0, 32), "no pixel"), ("mlp", (0,), "feature vectors"),
     ("convnet9", (3, 27, 32), "28 pixels.*'small-cnn'"), ("densenet121", (3, 7, 7), "needs 8 pixels"),
     ("resnet-18", (3, 32, 32), "Unknown network 'resnet-18': did you mean 'resnet18'")],
)  # fmt: skip
def test_wrong_choice_names_the_right_one(name: str, shape: tuple[int, ...], message: str) -> None:
    refused(message, build_network, name, shape, 10)
    refused("two classes", build_network, "mlp", (4,), 1)


@pytest.mark.parametrize("name", ["small-cnn", "resnet20"])
def test_views_in_one_pass_are_the_same_as_one_pass_after_the_other(name: str) -> None:
    """Outputs, gradients and running statistics, in double precision."""
    torch.manual_seed(0)
    network = build_network(name, (1, 8, 8), 4).double()
    other = copy.deepcopy(network)
    views = [torch.randn(6, 1, 8, 8, dtype=torch.float64) * scale + scale for scale in (1.0, 3.0, 0.5)]
    together = network.each(views)
    apart = [other(view) for view in views]
    for a, b in zip(together, apart, strict=True):
        torch.testing.assert_close(a, b)
    for outputs in (together, apart):
        torch.stack([output.logits.square().sum() for output in outputs]).sum().backward()
    for (key, mine), theirs in zip(network.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, msg=key)
    for (key, mine), theirs in zip(network.named_buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, msg=key)
    joined = network(torch.cat(views)).logits.chunk(3)[0]
    assert not torch.allclose(joined, network.each(views)[0].logits)  # common statistics would be something else
