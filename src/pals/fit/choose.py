"""What nobody said, chosen: picture size, network and epochs by what there is to learn from and to compute with; and what
it will take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pals.backbones import Network, build_network
from pals.config import merge
from pals.engine import Engine
from pals.neighbors import CPU_BLOCK, DEVICE_BLOCK
from pals.settings import RunConfig, VotesConfig


@dataclass(frozen=True)
class Facts:
    """What is known before any picture is decoded."""

    answered: int
    classes: int
    side: int | None  # median of the pictures' shorter sides; None for feature vectors
    accelerated: bool  # a GPU


def choose(given: Mapping[str, Any], facts: Facts) -> tuple[dict[str, Any], list[str]]:
    """Settings for everything that was not given, and a sentence for each choice that matters."""
    network = dict(given.get("network") or {})
    reasons: list[str] = []
    size = dict(given.get("data") or {}).get("size") or _size(facts, pretrained=network.get("weights") is not None)
    if facts.side is None:
        chosen = _for_vectors(facts)
        reasons.append("Feature vectors: a small network of two hidden layers learns from them.")
    elif network.get("weights") is not None:
        chosen, sentence = _for_weights(facts, network)
        reasons.append(sentence)
    else:
        chosen, sentence = _for_pictures(facts, size)
        reasons.append(sentence)
    if facts.side is not None:
        chosen = merge(chosen, {"data": {"size": size}})
    return merge(chosen, given), reasons


def _size(facts: Facts, pretrained: bool) -> int:
    side = facts.side or 32
    if pretrained:
        return 224 if side > 64 else max(32, side)
    steps = (32, 64, 128, 224) if facts.accelerated else (32, 64)
    return next((step for step in steps if side <= 1.5 * step), steps[-1])


def _for_vectors(facts: Facts) -> dict[str, Any]:
    epochs = min(max(150_000 // facts.answered, 20), 60)
    train = {"epochs": epochs, "batch_size": 64, "lr": 0.05}
    return {"network": {"name": "mlp"}, "train": train}


def _for_weights(facts: Facts, network: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    name = network.get("name", "imagenet-resnet50")
    frozen = network.get("frozen", not facts.accelerated)
    if frozen:
        return (
            merge(_for_vectors(facts), {"network": {"name": name, "frozen": True}}),
            f"{name} with the given weights is left as it is (--no-frozen trains it); what it sees is learned from.",
        )
    epochs = min(max(1_000_000 // facts.answered, 20), 100)
    train = {"epochs": epochs, "batch_size": 64, "lr": 0.01, "encoder_lr_scale": 0.1, "tail": "fill"}
    folds = {"folds": 3, "fold_epochs": epochs}
    return {
        "data": folds,
        "network": {"name": name},
        "train": train,
    }, f"{name} starts from the given weights and is trained on."


def _for_pictures(facts: Facts, size: int) -> tuple[dict[str, Any], str]:
    if not facts.accelerated:
        return (
            merge(_for_vectors(facts), {"network": {"name": "patches", "frozen": True}}),
            "No GPU: features that need no training (patches of the pictures themselves) are learned from. A GPU, or --weights "
            "with a trained network, gives better labels.",
        )
    name = "resnet18" if size <= 64 else "imagenet-resnet18"
    epochs = min(max(10_000_000 // facts.answered, 60), 500)
    batch = 256 if facts.answered >= 10_000 else 64
    train: dict[str, Any] = {"epochs": epochs, "batch_size": batch, "lr": 0.1 * batch / 256, "tail": "fill"}
    folds = {"folds": 3, "fold_epochs": max(epochs // 4, 30)}
    return {"data": folds, "network": {"name": name}, "train": train}, f"{name} is trained from scratch on the GPU."


# ---- what it will take


@dataclass(frozen=True)
class Estimate:
    seconds: float
    bytes: int

    def __str__(self) -> str:
        minutes = self.seconds / 60
        duration = (
            f"{self.seconds:.0f} seconds"
            if minutes < 2
            else f"{minutes:.0f} minutes"
            if minutes < 120
            else f"{minutes / 60:.1f} hours"
        )
        return f"about {duration} and {self.bytes / 2**30:.1f} GiB of memory"


def memory_needed(config: RunConfig, engine: Engine, shape: tuple[int, ...], items: int, answered: int, classes: int) -> int:
    """Bytes: the inputs, the views of one stretch of steps, what a step keeps for its gradient, the neighbours' similarities
    and three copies of the weights."""
    network = build_network(config.network.trained, shape, classes)
    engine.place(network)
    batch = min(config.train.batch_size, answered)
    kept = _kept_by_a_step(engine, network, torch.randn(2 * batch, *shape, device=engine.device))
    size = math.prod(shape)
    whole = items * size * (1 if len(shape) == 3 else 4)
    views = 2 * 4 * size * min(engine.chunk, answered)
    block = CPU_BLOCK if engine.device.type == "cpu" else DEVICE_BLOCK
    weights = 12 * sum(p.numel() for p in network.parameters())
    return whole + views + kept + min(block, 4 * answered**2) + weights


def _kept_by_a_step(engine: Engine, network: Network, inputs: Tensor) -> int:
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    network.train()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), engine.autocast():
        network(inputs)
    return sum(kept.values())


def whole_time(config: RunConfig, per_item: float, answered: int) -> float:
    """Seconds, from those that an epoch takes per item. Cross-fitting is about half as dear: one view, no features."""
    data = config.data
    folds, fold_epochs = (data.folds, data.fold_epochs) if isinstance(data, VotesConfig) else (0, 0)
    epochs = config.train.epochs + 0.5 * max(folds - 1, 0) * fold_epochs
    return per_item * answered * epochs
