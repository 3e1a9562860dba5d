from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from _refused import refused
from pals.vision.networks import NETWORKS, Network, build_network, load_weights
from pals.vision.networks.weight_loading import PREFIXES

State = dict[str, Tensor]


def network(name: str = "resnet20", num_classes: int = 10, seed: int = 0) -> Network:
    torch.manual_seed(seed)
    made = build_network(name, (3, 32, 32), num_classes)
    with torch.no_grad():  # also norms and running statistics must differ between seeds
        for value in made.state_dict().values():
            if value.is_floating_point():
                value.add_(torch.rand_like(value), alpha=0.01)
    return made


def as_torchvision(source: Network) -> State:
    """The same weights as torchvision would save them: a classifier `fc` for a thousand classes."""
    state = {name: value.clone() for name, value in source.state_dict().items() if not name.startswith("classifier.")}
    return {**state, "fc.weight": torch.ones(1000, source.feature_width), "fc.bias": torch.ones(1000)}


def torchvision_shapes(depths: tuple[int, ...], bottleneck: bool) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a torchvision ResNet without classifier, written down from its layout."""
    shapes: dict[str, tuple[int, ...]] = {}

    def add(conv: str, bn: str, *shape: int) -> None:
        shapes[f"{conv}.weight"] = shape
        for name in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{bn}.{name}"] = shape[:1]
        shapes[f"{bn}.num_batches_tracked"] = ()

    add("conv1", "bn1", 64, 3, 7, 7)
    inputs = 64
    for stage, depth in enumerate(depths):
        inner = 64 * 2**stage
        outputs = 4 * inner if bottleneck else inner
        for number in range(depth):
            block = f"layer{stage + 1}.{number}"
            kernels = (1, 3, 1) if bottleneck else (3, 3)
            widths = (inputs, inner, inner, outputs) if bottleneck else (inputs, inner, inner)
            for i, kernel in enumerate(kernels):
                add(f"{block}.conv{i + 1}", f"{block}.bn{i + 1}", widths[i + 1], widths[i], kernel, kernel)
            if number == 0 and (stage > 0 or bottleneck):
                add(f"{block}.downsample.0", f"{block}.downsample.1", outputs, inputs, 1, 1)
            inputs = outputs
    return shapes


@pytest.mark.parametrize(
    ("name", "depths", "bottleneck"),
    [("imagenet-resnet18", (2, 2, 2, 2), False), ("imagenet-resnet34", (3, 4, 6, 3), False),
     ("imagenet-resnet50", (3, 4, 6, 3), True), ("imagenet-resnet50-projected", (3, 4, 6, 3), True)],
)  # fmt: skip
def test_names_and_shapes_are_torchvisions(name: str, depths: tuple[int, ...], bottleneck: bool) -> None:
    with torch.device("meta"):
        made = build_network(name, (3, 224, 224), 10)
    state = made.state_dict()
    ours = {key: tuple(value.shape) for key, value in state.items() if not key.startswith(("classifier.", "projection."))}
    assert ours == torchvision_shapes(depths, bottleneck)
    strides = [made.get_submodule(f"layer2.0.conv{i}").stride[0] for i in range(1, 4 if bottleneck else 3)]
    assert strides == ([1, 2, 1] if bottleneck else [2, 1])  # of a bottleneck the 3x3 has it


@pytest.mark.parametrize("name", NETWORKS)
def test_no_name_of_ours_looks_like_a_prefix(name: str) -> None:
    with torch.device("meta"):
        made = build_network(name, (8,) if name in ("mlp", "linear") else (3, 32, 32), 10)
    assert not [key for key in made.state_dict() if key.startswith((*PREFIXES, "fc."))]


def assert_same(target: Network, state: State) -> None:
    assert not [name for name, value in state.items() if not torch.equal(target.state_dict()[name], value)]


def saved(state: Any, path: Path) -> Path:
    """As PyTorch or, where the ending tells so, safetensors saves it."""
    if path.suffix == ".safetensors":
        pytest.importorskip("safetensors.torch").save_file(state, path)
    else:
        torch.save(state, path)
    return path


def test_torchvision_checkpoint_and_other_classes(tmp_path: Path) -> None:
    source, target = network("imagenet-resnet18"), network("imagenet-resnet18", 7, seed=1)
    classifier = target.classifier.weight.clone()
    state = as_torchvision(source)
    old_style = {name: value for name, value in state.items() if not name.endswith("num_batches_tracked")}
    report = load_weights(target, saved(old_style, tmp_path / "r18.pth"))
    assert report.dropped == ("fc.weight", "fc.bias")
    fresh = {name for name in report.fresh if not name.endswith("num_batches_tracked")}
    assert fresh == {"classifier.weight", "classifier.bias"} and len(report.loaded) == len(old_style) - 2
    assert_same(target, {name: value for name, value in old_style.items() if name in report.loaded})
    assert torch.equal(target.classifier.weight, classifier)
    source, target = network(), network(num_classes=7, seed=1)
    path = saved(source.state_dict(), tmp_path / "ten.pt")
    refused(r"classifier.weight \(10, 64\) instead of \(7, 64\).*classifier=False", load_weights, target, path)
    report = load_weights(target, path, classifier=False)
    assert report.dropped == report.fresh == ("classifier.weight", "classifier.bias")
    assert_same(target, {name: source.state_dict()[name] for name in report.loaded})


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_own_checkpoint_round_trip_and_half_precision(tmp_path: Path, suffix: str) -> None:
    source, target = network(), network(seed=1)
    report = load_weights(target, str(saved(source.state_dict(), tmp_path / f"own{suffix}")))
    assert_same(target, source.state_dict())
    assert (report.fresh, report.dropped, set(report.loaded)) == ((), (), set(source.state_dict()))
    x = torch.ones(1, 3, 8, 8)
    assert torch.equal(target.eval()(x).logits, source.eval()(x).logits)
    source, target = network(), network(seed=1)
    state = {name: value.half() if value.is_floating_point() else value for name, value in source.state_dict().items()}
    load_weights(target, saved(state, tmp_path / "half.pt"))
    assert target.classifier.weight.dtype == torch.float32
    assert_same(target, {name: value.float() if value.is_floating_point() else value for name, value in state.items()})


def prefixed(prefix: str) -> Callable[[State], Any]:
    return lambda state: {prefix + name: value for name, value in state.items()}


@pytest.mark.parametrize(
    "wrap",
    [lambda state: {"state_dict": state, "epoch": 3},
     lambda state: {"model": {"state_dict": state}, "optimizer": {"state": {}}}, prefixed("module."),
     prefixed("encoder."), prefixed("backbone."), prefixed("module._orig_mod.encoder."),
     lambda state: {"state_dict": prefixed("module.")(state)},
     lambda state: {**prefixed("encoder.")(state), "fc.weight": torch.ones(2, 2)}],
)  # fmt: skip
def test_wrapped_checkpoints_are_unwrapped(tmp_path: Path, wrap: Callable[[State], Any]) -> None:
    source, target = network(), network(seed=1)
    state = as_torchvision(source)
    report = load_weights(target, saved(wrap(state), tmp_path / "w.pt"))
    assert set(report.fresh) == {"classifier.weight", "classifier.bias"}
    assert_same(target, {name: state[name] for name in report.loaded})


def without(name: str) -> Callable[[State], State]:
    return lambda state: {key: value for key, value in state.items() if key != name}


def with_value(name: str, at: int, value: float) -> Callable[[State], State]:
    def change(state: State) -> State:
        changed = state[name].double()
        changed[at] = value
        return {**state, name: changed}

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("bn1.weight"), "missing: bn1.weight. Choose the network"),
        (lambda state: {**state, "head.bias": torch.ones(3)}, "unexpected: head.bias. Choose"),
        (
            lambda state: {**state, "conv1.weight": torch.ones(16, 1, 3, 3)},
            r"conv1.weight \(16, 1, 3, 3\) instead of \(16, 3, 3, 3\).*as many channels",
        ),
        (lambda state: {**without("bn1.bias")(state), "x": torch.ones(1)}, "missing: bn1.bias; unexpected: x"),
        (lambda state: {"x": torch.ones(1)}, r"missing: conv1.weight, bn1.weight, .* and \d+ more"),
        (lambda state: {**state, "module.bn1.bias": torch.ones(16)}, "'bn1.bias' twice"),
        (with_value("bn1.bias", 3, math.nan), "damaged: 1 of the 16 values of bn1.bias are NaN or infinite"),
        (with_value("layer1.0.bn1.running_var", 0, -math.inf), "1 of the 16 values of layer1.0.bn1.running_var are NaN"),
        (with_value("bn1.bias", 3, 1e300), "1 of the 16 values of bn1.bias are NaN or infinite"),  # too large for our precision
        (
            lambda state: {name: value.to(torch.int8) for name, value in state.items()},
            "not floating-point numbers: conv1.weight is int8",
        ),
        (lambda state: {**state, "bn1.bias": state["bn1.bias"].to(torch.complex64)}, "bn1.bias is complex64"),
    ],
)
def test_misfit_is_named_and_changes_nothing(tmp_path: Path, change: Callable[[State], State], message: str) -> None:
    target = network(seed=1)
    before = {name: value.clone() for name, value in target.state_dict().items()}
    path = saved(change(as_torchvision(network())), tmp_path / "bad.pt")
    said = refused(message, load_weights, target, path)
    assert "bad.pt" in said
    assert_same(target, before)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("damage", ["half", "first bytes", "empty", "text"])
def test_damaged_file_is_named(tmp_path: Path, suffix: str, damage: str) -> None:
    path = saved(network().state_dict(), tmp_path / f"broken{suffix}")
    whole = path.read_bytes()
    contents = {"half": whole[: len(whole) // 2], "first bytes": whole[:5], "empty": b"", "text": b"<html>no</html>"}
    path.write_bytes(contents[damage])
    refused(r"broken.* is damaged or not a checkpoint", load_weights, network(seed=1), path)


def test_file_with_something_else(tmp_path: Path) -> None:
    for content, message in (
        ([1, 2], "holds no weights, but a list"),
        ({"epoch": 3, "loss": 0.1}, "holds no weights, but the keys epoch, loss"),
        ({}, "holds no weights, but an empty dictionary"),
        ({"epoch": 3, "state_dict": {}}, "holds no weights, but an empty dictionary"),
        ({"state_dict": {}, "args": argparse.Namespace(lr=0.1)}, "holds Python objects"),
    ):
        refused(f"other.pt {message}", load_weights, network(), saved(content, tmp_path / "other.pt"))
    refused(r"no weights file .*absent\.pt", load_weights, network(), tmp_path / "absent.pt")
    refused("no weights file", load_weights, network(), tmp_path)
