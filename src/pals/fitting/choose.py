"""What nobody said, chosen: picture size, network and epochs by what there is to learn from and to compute with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pals.methods.pals import PALS
from pals.util.config import merge

VOTING = PALS.Config().neighbors


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
        reasons.append(f"Only {facts.answered} items have answers: all others vote on each, not the usual {VOTING} neighbours.")
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


def _for_name(facts: Facts, name: str) -> tuple[dict[str, Any], str]:
    """A network that somebody asks for without weights: nothing but training can make something of it."""
    if facts.accelerated:
        return _from_scratch(facts, name)
    train = _for_vectors(facts)["train"]
    return {
        "data": {"folds": 3, "fold_epochs": train["epochs"]},
        "train": train,
    }, f"{name} is trained from scratch, which takes long without a GPU."


def _for_pictures(facts: Facts, size: int, patches: bool) -> tuple[dict[str, Any], str]:
    if patches or not facts.accelerated:
        return (
            merge(_for_vectors(facts), {"network": {"name": "patches", "frozen": True}}),
            f"{'As asked' if patches else 'No GPU'}: features that need no training (patches of the pictures themselves) are "
            f"learned from. A GPU, or --weights with a trained network, gives better labels.",
        )
    return _from_scratch(facts, "resnet18" if size <= 64 else "imagenet-resnet18")


def _from_scratch(facts: Facts, name: str) -> tuple[dict[str, Any], str]:
    epochs = min(max(10_000_000 // facts.answered, 60), 500)
    batch = 256 if facts.answered >= 10_000 else 64
    train: dict[str, Any] = {"epochs": epochs, "batch_size": batch, "lr": 0.1 * batch / 256, "tail": "fill"}
    folds = {"folds": 3, "fold_epochs": max(epochs // 4, 30)}
    return {"data": folds, "network": {"name": name}, "train": train}, f"{name} is trained from scratch on the GPU."
