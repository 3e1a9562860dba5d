"""Defaults of a fit: image size, network, method and epochs, chosen by the number of items and the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pals.crowd.linear_ridge import MAX_SIDE
from pals.methods import method_options
from pals.runs.extractor import AUTO, size_for
from pals.runs.published_settings import encoder_settings
from pals.runs.run_config import CLOSED_FORM
from pals.util.config import merge
from pals.util.errors import InputError
from pals.vision.pretrained import ENCODERS, PATCHES

DEFAULT_NEIGHBORS = method_options("pals", {}).neighbors
MIN_ITEMS_TO_TRAIN = 5000
"""Answered images from which on a GPU trains a network by default."""
DEFAULT_WEIGHTS_NETWORK = "imagenet-resnet50"
"""Network that a file of weights belongs to by default."""
RARE_CHECKPOINTS = {"checkpoint_every": 10}
"""For large networks, whose checkpoint takes up to a third of the time of an epoch on a GPU."""


@dataclass(frozen=True)
class Facts:
    """What is known before an image is decoded.

    Args:
        answered: Number of items with answers.
        classes: Number of classes.
        side: Median of the images' shorter sides, in pixels; None for feature vectors.
        accelerated: Whether there is a GPU.
        width: Of feature vectors.
    """

    answered: int
    classes: int
    side: int | None
    accelerated: bool
    width: int | None = None


def choose(given: Mapping[str, Any], facts: Facts) -> tuple[dict[str, Any], list[str]]:
    """All settings, and a sentence for each choice that matters.

    Args:
        given: Settings of the user by section; they are kept.
        facts: What the others are chosen by.
    """
    if facts.side is None:
        learned, reasons = _learner(given, facts, fixed=True)
        return merge({"network": {"name": "mlp"}}, learned, given), reasons
    chosen, reason = _for_pictures(dict(given.get("network") or {}), facts)
    chosen = _folds_no_longer(chosen, dict(given.get("train") or {}).get("epochs"))
    network = merge(chosen, given)["network"]
    fixed = network.get("frozen", False)
    pretrained = network.get("weights") is not None
    as_encoder = fixed or (pretrained and network["name"] in ENCODERS)
    size = size_for(network["name"], facts.side) if as_encoder else _size(facts, pretrained)
    learned, reasons = _learner(given, facts, fixed)
    return merge({"data": {"size": size}}, chosen, learned, given), [reason, *reasons]


def is_open(given: Mapping[str, Any], facts: Facts) -> bool:
    """Whether the encoder is chosen by a comparison: for images, if `auto` is given, or if no network is given and there is no
    GPU or there are fewer than MIN_ITEMS_TO_TRAIN items."""
    network = dict(given.get("network") or {})
    if facts.side is None or network.get("name", AUTO) != AUTO or network.get("weights") is not None:
        return False
    return network.get("name") == AUTO or not facts.accelerated or facts.answered < MIN_ITEMS_TO_TRAIN


def _learner(given: Mapping[str, Any], facts: Facts, fixed: bool) -> tuple[dict[str, Any], list[str]]:
    """Method and training, on frozen features (`fixed`) or on images."""
    if is_solved(given, facts, fixed):
        head = {"head": "linear"} if facts.side is not None else {"name": "linear"}
        return {"method": {"name": CLOSED_FORM}, "network": head}, []
    method = dict(given.get("method") or {}).get("name", "pals")
    chosen: dict[str, Any] = merge({"method": {"name": method}}, _training(facts) if fixed else {})
    reasons = ["A small network with two hidden layers learns from the features."] if fixed else []
    if 1 < facts.answered <= DEFAULT_NEIGHBORS and method == "pals":
        chosen = merge(chosen, {"method": {"neighbors": facts.answered - 1}})
        reasons.append(f"Only {facts.answered} items have answers: all others vote on each, instead of {DEFAULT_NEIGHBORS}.")
    return chosen, reasons


def is_solved(given: Mapping[str, Any], facts: Facts, fixed: bool) -> bool:
    """Whether labels come in closed form: on frozen features, unless a method, a head, folds or epochs ask for training."""
    method = dict(given.get("method") or {})
    wide = facts.width is not None and min(facts.width, facts.answered) > MAX_SIDE
    if method.get("name") == CLOSED_FORM:
        if not fixed or wide:
            reason = "needs fixed features" if not fixed else f"takes at most {MAX_SIDE:,} features"
            raise InputError(f"Method {CLOSED_FORM} {reason}: leave out --method, or give --encoder with pictures.")
        return True
    network, data = (dict(given.get(name) or {}) for name in ("network", "data"))
    asked = method or given.get("train") or data.get("folds") or "head" in network or (facts.side is None and "name" in network)
    return fixed and not wide and not asked


def _size(facts: Facts, pretrained: bool) -> int:
    """Pixels per side of images that a network is trained on."""
    side = facts.side or 32
    if pretrained:
        return 224 if side > 64 else max(32, side)
    steps = (32, 64, 128, 224) if facts.accelerated else (32, 64)
    return next((step for step in steps if side <= 1.5 * step), steps[-1])


def _training(facts: Facts) -> dict[str, Any]:
    """Settings for a small network on features."""
    epochs = min(max(150_000 // facts.answered, 20), 60)
    return {"train": {"epochs": epochs, **encoder_settings("head")}}


def _for_pictures(network: Mapping[str, Any], facts: Facts) -> tuple[dict[str, Any], str]:
    """The network for images, with the settings of its training, and a sentence."""
    name, weights = network.get("name"), network.get("weights")
    if name == PATCHES or network.get("frozen", weights is not None and not facts.accelerated):
        name = name or DEFAULT_WEIGHTS_NETWORK
        tune = "" if name == PATCHES else " Pass --no-frozen to train it further."
        described = "patches cut from them" if name == PATCHES else f"{name}, which stays frozen"
        return {"network": {"name": name, "frozen": True}}, f"Images are described by {described}.{tune}"
    if weights is not None:
        return _fine_tuned(facts, name or DEFAULT_WEIGHTS_NETWORK)
    if name is not None and not facts.accelerated:
        train = _training(facts)["train"]
        folds = {"folds": 3, "fold_epochs": train["epochs"]}
        return {"data": folds, "train": train}, f"Training {name} from scratch, which is slow without a GPU."
    return _from_scratch(facts, name or ("resnet18" if _size(facts, pretrained=False) <= 64 else "imagenet-resnet18"))


def _folds_no_longer(chosen: dict[str, Any], epochs: int | None) -> dict[str, Any]:
    """The networks of the folds are trained no longer than the classifier, if its epochs are given."""
    folds = chosen.get("data")
    if folds is None or epochs is None:
        return chosen
    return merge(chosen, {"data": {"fold_epochs": min(folds["fold_epochs"], epochs)}})


def _fine_tuned(facts: Facts, name: str) -> tuple[dict[str, Any], str]:
    epochs = min(max(1_000_000 // facts.answered, 20), 100)
    train = {"epochs": epochs, **encoder_settings("fine_tuned"), "tail": "fill", **RARE_CHECKPOINTS}
    folds = {"folds": 3, "fold_epochs": epochs}
    return {"data": folds, "network": {"name": name}, "train": train}, f"Training {name} further, from the given weights."


def _from_scratch(facts: Facts, name: str) -> tuple[dict[str, Any], str]:
    epochs = min(max(10_000_000 // facts.answered, 60), 500)
    batch = 256 if facts.answered >= 10_000 else 64
    train: dict[str, Any] = {"epochs": epochs, "batch_size": batch, "lr": 0.1 * batch / 256, "tail": "fill", **RARE_CHECKPOINTS}
    folds = {"folds": 3, "fold_epochs": max(epochs // 4, 30)}
    return {"data": folds, "network": {"name": name}, "train": train}, f"Training {name} from scratch on the GPU."
