"""Small classifiers of every kind: of images, of frozen features, of patches, of vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from pals.model import FILE_NAME, Description, Model, Part
from pals.vision.networks import Network, build_network
from pals.vision.networks.patch_features import PatchNetwork, learn_patches

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
NAMES = ("frog", "Kröte", "toad, common")


def network(name: str = "small-cnn", shape: tuple[int, ...] = (3, 8, 8), classes: int = 3, sure: float = 1.0) -> Network:
    """Not fresh: norms have statistics that matter; with `sure` probabilities are far from even."""
    torch.manual_seed(0)
    made = build_network(name, shape, classes).train()
    for _ in range(3):
        made(torch.randn(6, *shape) + 0.5)
    with torch.no_grad():
        made.classifier.weight.mul_(sure)
    return made


def image_model(temperature: float = 0.7, side: int = 8, sure: float = 1.0, **more: Any) -> Model:
    shape = (3, side, side)
    about = Description(NAMES, Part("small-cnn", shape, MEAN, STD), temperature=temperature, **more)
    return Model(about, network("small-cnn", shape, sure=sure), device="cpu")


def with_head(encoder: Network, name: str, side: int, **more: Any) -> Model:
    width = encoder.feature_width
    reads = Part("mlp", (width,), (0.3,) * width, (0.7,) * width)
    about = Description(NAMES, reads, encoder=Part(name, (3, side, side), MEAN, STD), **more)
    return Model(about, network("mlp", (width,)), encoder, device="cpu")


def frozen_model() -> Model:
    return with_head(network("resnet20", classes=5), "resnet20", 8, temperature=1.5, resize="pad")


def patches_model() -> Model:
    """What a machine without a GPU saves by default: patches of the images, cut a few images at a time."""
    torch.manual_seed(0)
    encoder = PatchNetwork(3, 2)
    learn_patches(encoder, torch.randn(20, 3, 12, 12), torch.Generator().manual_seed(0), samples=1000)
    return with_head(encoder, "patches", 12)


def vector_model(temperature: float = 1.0) -> Model:
    reads = Part("mlp", (4,), (1.0, 2.0, 3.0, 4.0), (1.0, 0.0, 2.0, 0.5))
    return Model(Description(("a", "b"), reads, temperature=temperature), network("mlp", (4,), 2), device="cpu")


def save_model(folder: Path, name: str, shape: tuple[int, ...], seed: int = 0, **more: Any) -> Path:
    """A run folder with a random classifier of frog, newt and a name that a spreadsheet would take for a formula."""
    torch.manual_seed(seed)
    reads = Part(name, shape, (0.5,) * shape[0], (0.25,) * shape[0])
    about = Description(("frog", "newt", "=toad"), reads, **more)
    Model(about, build_network(name, shape, 3), device="cpu").save(folder / FILE_NAME)
    return folder
