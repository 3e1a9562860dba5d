"""What a run costs, about: measured seconds of one kind of epoch, times how much more another has to compute."""

from __future__ import annotations

from collections.abc import Mapping

from pals.bench.paper.experiment import Recipe
from pals.methods import find_method
from pals.methods.upllrs import most_steps
from pals.runs.run_config import RunConfig

PLAIN_EPOCH = 0.733
"""Seconds of supervised training on one H200: 50,000 items of 32 x 32 pixels, ResNet-18, batches of 256
(benchmarks/results/methods_h200_2026-11-15.jsonl)."""

MEASURED: Mapping[str, float] = {
    "average": 1.0,
    "cc": 1.02,
    "proden": 1.01,
    "rc": 1.31,
    "lws": 1.32,
    "pico": 1.56,
    "pals": 2.10,
    "crdpll": 2.50,
}
"""An epoch of a method in plain epochs, from the same file. For the others: what their passes through the network add up to."""

NETWORKS: Mapping[str, tuple[float, float, int]] = {
    "resnet18": (0.555, 1.23, 32),
    "preact-resnet18": (0.555, 1.23, 32),
    "resnet20": (0.0408, 0.401, 32),
    "resnet32": (0.0691, 0.631, 32),
    "wrn-28-2": (0.214, 1.01, 32),
    "wrn-34-10": (6.66, 6.05, 32),
    "resnext50": (0.751, 9.01, 32),
    "se-resnet50": (1.30, 6.86, 32),
    "densenet121": (0.888, 6.91, 32),
    "convnet9": (0.746, 1.23, 32),
    "imagenet-resnet18": (1.81, 4.97, 224),
    "imagenet-resnet50": (4.09, 22.2, 224),
    "imagenet-resnet50-projected": (4.09, 22.2, 224),
}
"""For one picture: thousand million multiplications, million values written by convolutions and normalisations, and its
pixels a side."""

SIZES: Mapping[str, tuple[int, int]] = {
    "cifar10": (50_000, 32),
    "cifar10n": (50_000, 32),
    "cifar100": (50_000, 32),
    "cifar100h": (50_000, 32),
    "cub200": (5_994, 224),
    "treeversity": (5_882, 224),
    "benthic": (2_954, 112),
    "plankton": (7_350, 96),
}
"""Items to train on, and pixels a side."""

UPLLRS_ENDS = 263  # epochs after which the run ended whose time its authors give; its schedule is far longer


def estimate(recipe: Recipe, epochs: int | None = None) -> float | None:
    """Seconds of one run on one H200, about; None for data or networks that nothing is known of. Compiling (half a minute)
    is not in it, nor that small batches and narrow networks leave a GPU idle. Of other hardware nothing is said."""
    return seconds(recipe.config(1, epochs))


def seconds(config: RunConfig) -> float | None:
    """As `estimate`, for the settings of any run."""
    if config.data.name not in SIZES or config.network.name not in NETWORKS or config.network.frozen:
        return None
    items, side = SIZES[config.data.name]
    work = _epochs(config) * _passes(config) * _size(config.network.name, side)
    if config.method_name == "upllrs":
        work += _separation(config, side)
    return PLAIN_EPOCH * items / 50_000 * work


def left(config: RunConfig, done: int) -> float | None:
    """As `seconds`, of a run that has done so many epochs, all phases together. The phases of UPLLRS differ too much to be
    counted alike: all of it."""
    whole = seconds(config)
    if whole is None or config.method_name == "upllrs":
        return whole
    return whole * max(0.0, 1 - done / _epochs(config))


def _size(network: str, side: int) -> float:
    """How long a network takes for a picture of so many pixels a side, in ResNet-18s for 32: by its arithmetic or by its
    traffic with the memory, whichever is more."""
    *work, counted_at = NETWORKS[network]
    more = max(own / plain for own, plain in zip(work, NETWORKS["resnet18"], strict=False))
    return more * (side / counted_at) ** 2


def _passes(config: RunConfig) -> float:
    """An epoch in plain epochs: without mix-up or a second view it is a shorter one."""
    name, options = config.method_name, config.method
    factor = MEASURED.get(name, find_method(name).cost)
    if name == "pals" and not options.consistency:
        return factor * 4 / 7
    if name in ("pico+", "alim-scale", "alim-onehot") and not options.mixup_weight:
        return MEASURED["pico"]
    if name == "dividemix" and options.train_on == "labeled":
        return factor * 8 / 12
    return factor


def _epochs(config: RunConfig) -> int:
    """Of the main network, all phases together."""
    epochs, options = config.train.epochs, config.method
    if config.method_name == "fredis":
        return epochs + (epochs if options.warm_up is None else options.warm_up)
    if config.method_name == "upllrs" and options.held_out:
        return min(epochs, UPLLRS_ENDS)
    return epochs


def _separation(config: RunConfig, side: int) -> float:
    """The first part of UPLLRS, if it takes all its steps, in plain epochs."""
    options = config.method
    steps = most_steps(options.exclude) if options.max_steps is None else options.max_steps
    separator = options.separator or config.network.name
    return float(steps * options.separation_epochs * _size(separator, side))
