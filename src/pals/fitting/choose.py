"""What nobody said, chosen: picture size, network and epochs by what there is to learn from and to compute with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pals.methods import method_options
from pals.util.config import merge

VOTING = method_options("pals", {}).neighbors
SELDOM = {"checkpoint_every": 10}
"""For networks of some size: to write all of it takes a good part of the time of an epoch on a GPU."""


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
        reasons.append("Training a small network of two hidden layers on the feature vectors.")
    elif network.get("weights") is not None:
        chosen, sentence = _for_weights(facts, network)
        reasons.append(sentence)
    elif network.get("name", "patches") != "patches":
        chosen, sentence = _for_name(facts, network["name"])
        reasons.append(sentence)
    else:
        chosen, sentence = _for_pictures(facts, size, patches="name" in network)
        reasons.append(sentence)
    if facts.side is not None:
        chosen = merge(chosen, {"data": {"size": size}})
    if 1 < facts.answered <= VOTING and dict(given.get("method") or {}).get("name", "pals") == "pals":
        chosen = merge(chosen, {"method": {"neighbors": facts.answered - 1}})
        reasons.append(f"Only {facts.answered} items have answers: all others vote on each instead of {VOTING} neighbours.")
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
            f"Using {name} as a frozen feature extractor. Pass --no-frozen to fine-tune it.",
        )
    epochs = min(max(1_000_000 // facts.answered, 20), 100)
    train = {"epochs": epochs, "batch_size": 64, "lr": 0.01, "encoder_lr_scale": 0.1, "tail": "fill", **SELDOM}
    folds = {"folds": 3, "fold_epochs": epochs}
    return {
        "data": folds,
        "network": {"name": name},
        "train": train,
    }, f"Fine-tuning {name} from the given weights."


def _for_name(facts: Facts, name: str) -> tuple[dict[str, Any], str]:
    """A network that somebody asks for without weights: nothing but training can make something of it."""
    if facts.accelerated:
        return _from_scratch(facts, name)
    train = _for_vectors(facts)["train"]
    return {
        "data": {"folds": 3, "fold_epochs": train["epochs"]},
        "train": train,
    }, f"Training {name} from scratch, which is slow without a GPU."


def _for_pictures(facts: Facts, size: int, patches: bool) -> tuple[dict[str, Any], str]:
    if patches or not facts.accelerated:
        return (
            merge(_for_vectors(facts), {"network": {"name": "patches", "frozen": True}}),
            f"{'Using' if patches else 'No GPU found: using'} fixed patch features instead of training a network. "
            f"A GPU or pretrained weights (--weights) will give better labels.",
        )
    return _from_scratch(facts, "resnet18" if size <= 64 else "imagenet-resnet18")


def _from_scratch(facts: Facts, name: str) -> tuple[dict[str, Any], str]:
    epochs = min(max(10_000_000 // facts.answered, 60), 500)
    batch = 256 if facts.answered >= 10_000 else 64
    train: dict[str, Any] = {"epochs": epochs, "batch_size": batch, "lr": 0.1 * batch / 256, "tail": "fill", **SELDOM}
    folds = {"folds": 3, "fold_epochs": max(epochs // 4, 30)}
    return {"data": folds, "network": {"name": name}, "train": train}, f"Training {name} from scratch on the GPU."
