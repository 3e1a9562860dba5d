"""What nobody said, chosen: picture size, network, method and epochs by what there is to learn from and to compute with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pals.crowd.linear_ridge import LARGEST
from pals.methods import method_options
from pals.runs.extractor import AUTO, size_for
from pals.runs.published_settings import encoder_settings
from pals.runs.run_config import CLOSED_FORM
from pals.util.config import merge
from pals.util.errors import InputError
from pals.vision.pretrained import ENCODERS, PATCHES

VOTING = method_options("pals", {}).neighbors
MANY = 5000
"""Pictures from which on a GPU trains a network of its own unless an encoder is asked for."""
PRETRAINED = "imagenet-resnet50"
"""What a file of weights is taken for where nobody says."""
SELDOM = {"checkpoint_every": 10}
"""For networks of some size: to write all of it takes a good part of the time of an epoch on a GPU."""


@dataclass(frozen=True)
class Facts:
    """What is known before any picture is decoded."""

    answered: int
    classes: int
    side: int | None  # median of the pictures' shorter sides; None for feature vectors
    accelerated: bool  # a GPU
    width: int | None = None  # of feature vectors


def choose(given: Mapping[str, Any], facts: Facts) -> tuple[dict[str, Any], list[str]]:
    """Settings for everything that was not given, and a sentence for each choice that matters."""
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
    """Whether encoders are to be compared: for pictures, if asked for, or if nothing was said of a network and there is no GPU,
    or little for it to learn from."""
    network = dict(given.get("network") or {})
    if facts.side is None or network.get("name", AUTO) != AUTO or network.get("weights") is not None:
        return False
    return network.get("name") == AUTO or not facts.accelerated or facts.answered < MANY


def _learner(given: Mapping[str, Any], facts: Facts, fixed: bool) -> tuple[dict[str, Any], list[str]]:
    """How labels come from features that stay as they are (`fixed`), or from pictures: the method, and for how long."""
    if is_solved(given, facts, fixed):
        head = {"head": "linear"} if facts.side is not None else {"name": "linear"}
        return {"method": {"name": CLOSED_FORM}, "network": head}, []
    method = dict(given.get("method") or {}).get("name", "pals")
    chosen: dict[str, Any] = merge({"method": {"name": method}}, _training(facts) if fixed else {})
    reasons = ["A small network with two hidden layers learns from the features."] if fixed else []
    if 1 < facts.answered <= VOTING and method == "pals":
        chosen = merge(chosen, {"method": {"neighbors": facts.answered - 1}})
        reasons.append(f"Only {facts.answered} items have answers: all others vote on each, instead of {VOTING} neighbours.")
    return chosen, reasons


def is_solved(given: Mapping[str, Any], facts: Facts, fixed: bool) -> bool:
    """The closed form is for features that stay as they are; whoever names a method, a head or epochs wants training."""
    method = dict(given.get("method") or {})
    wide = facts.width is not None and min(facts.width, facts.answered) > LARGEST
    if method.get("name") == CLOSED_FORM:
        if not fixed or wide:
            reason = "needs fixed features" if not fixed else f"takes at most {LARGEST:,} features"
            raise InputError(f"Method {CLOSED_FORM} {reason}: leave out --method, or give --encoder with pictures.")
        return True
    network, data = (dict(given.get(name) or {}) for name in ("network", "data"))
    asked = method or given.get("train") or data.get("folds") or "head" in network or (facts.side is None and "name" in network)
    return fixed and not wide and not asked


def _size(facts: Facts, pretrained: bool) -> int:
    """Of pictures that a network is trained on."""
    side = facts.side or 32
    if pretrained:
        return 224 if side > 64 else max(32, side)
    steps = (32, 64, 128, 224) if facts.accelerated else (32, 64)
    return next((step for step in steps if side <= 1.5 * step), steps[-1])


def _training(facts: Facts) -> dict[str, Any]:
    """Of a small network on features."""
    epochs = min(max(150_000 // facts.answered, 20), 60)
    return {"train": {"epochs": epochs, **encoder_settings("head")}}


def _for_pictures(network: Mapping[str, Any], facts: Facts) -> tuple[dict[str, Any], str]:
    """The network that looks at the pictures; how it is trained, if it is."""
    name, weights = network.get("name"), network.get("weights")
    if name == PATCHES or network.get("frozen", weights is not None and not facts.accelerated):
        name = name or PRETRAINED
        tune = "" if name == PATCHES else " Pass --no-frozen to train it further."
        described = "patches cut from them" if name == PATCHES else f"{name}, which stays frozen"
        return {"network": {"name": name, "frozen": True}}, f"Pictures are described by {described}.{tune}"
    if weights is not None:
        return _fine_tuned(facts, name or PRETRAINED)
    if name is not None and not facts.accelerated:
        train = _training(facts)["train"]
        folds = {"folds": 3, "fold_epochs": train["epochs"]}
        return {"data": folds, "train": train}, f"Training {name} from scratch, which is slow without a GPU."
    return _from_scratch(facts, name or ("resnet18" if _size(facts, pretrained=False) <= 64 else "imagenet-resnet18"))


def _folds_no_longer(chosen: dict[str, Any], epochs: int | None) -> dict[str, Any]:
    """Networks for a second opinion are trained no longer than the classifier, where somebody says how long that is."""
    folds = chosen.get("data")
    if folds is None or epochs is None:
        return chosen
    return merge(chosen, {"data": {"fold_epochs": min(folds["fold_epochs"], epochs)}})


def _fine_tuned(facts: Facts, name: str) -> tuple[dict[str, Any], str]:
    epochs = min(max(1_000_000 // facts.answered, 20), 100)
    train = {"epochs": epochs, **encoder_settings("fine_tuned"), "tail": "fill", **SELDOM}
    folds = {"folds": 3, "fold_epochs": epochs}
    return {"data": folds, "network": {"name": name}, "train": train}, f"Training {name} further, from the given weights."


def _from_scratch(facts: Facts, name: str) -> tuple[dict[str, Any], str]:
    epochs = min(max(10_000_000 // facts.answered, 60), 500)
    batch = 256 if facts.answered >= 10_000 else 64
    train: dict[str, Any] = {"epochs": epochs, "batch_size": batch, "lr": 0.1 * batch / 256, "tail": "fill", **SELDOM}
    folds = {"folds": 3, "fold_epochs": max(epochs // 4, 30)}
    return {"data": folds, "network": {"name": name}, "train": train}, f"Training {name} from scratch on the GPU."
