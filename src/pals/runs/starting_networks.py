"""The networks of a run: the weights that one starts from, what its pictures are standardised by, and the frozen ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from pals.data import Inputs, find_weights
from pals.labels.candidates import default_names
from pals.model import Model, is_model
from pals.runs.run_config import NetworkConfig
from pals.training.inference import image_standardizer
from pals.util.errors import InputError
from pals.util.even_sample import evenly_spaced
from pals.vision.networks import Network, build_network, load_weights
from pals.vision.networks.patch_features import PATCH_IMAGES, PatchNetwork, learn_patches
from pals.vision.networks.resnets import IMAGENET
from pals.vision.networks.timm_network import DOWNLOAD, PREFIX, build_timm, native_statistics
from pals.vision.pretrained import ENCODERS, PATCHES, find_encoder


class Statistics(NamedTuple):
    """By which inputs are standardised: of each channel, or of each feature."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


def with_weights_found(config: NetworkConfig, data_dir: Path | None = None) -> NetworkConfig:
    """The same with the path of the weights, which may lie in the data folder."""
    if config.weights is None or (config.name.startswith(PREFIX) and config.weights == DOWNLOAD):
        return config
    return replace(config, weights=str(find_weights(config.weights, data_dir)))


def starting_network(config: NetworkConfig, shape: tuple[int, ...], class_names: Sequence[str]) -> Network:
    """The network of these settings with the weights that it starts from: a file of weights, or a run's own classifier, of
    which the classes that are known by name are taken over."""
    own = config.weights is not None and is_model(Path(config.weights))  # asked first: timm knows no such file
    if config.name.startswith(PREFIX) and not own:
        return build_timm(config.name, shape, len(class_names), weights=config.weights)
    network = build_network(config.name, shape, len(class_names))
    if config.weights is not None and own:
        _take_over(network, class_names, Model.load(config.weights, "cpu"), config.weights)
    elif config.weights is not None:
        load_weights(network, config.weights, classifier=False)
    return network


def _take_over(network: Network, class_names: Sequence[str], model: Model, path: str) -> None:
    own, theirs = network.state_dict(), model.network.state_dict()
    body = {name: value for name, value in theirs.items() if not name.startswith("classifier.")}
    if {name: value.shape for name, value in body.items()} != {
        name: value.shape for name, value in own.items() if not name.startswith("classifier.")
    }:
        raise InputError(f"{path} holds a different network than {type(network).__name__}. Use the settings of its run.")
    place = {name: c for c, name in enumerate(model.class_names)}
    known = [(c, place[name]) for c, name in enumerate(class_names) if name in place]
    with torch.no_grad():
        for name, value in body.items():
            own[name].copy_(value)
        for name in ("classifier.weight", "classifier.bias"):
            for mine, other in known:
                own[name][mine] = theirs[name][other]


def input_statistics(network: NetworkConfig) -> Statistics | None:
    """Those that the weights a network starts from were made for; None: the pictures' own."""
    if network.weights is None and not network.frozen:
        return None
    if network.name in ENCODERS and (network.weights is None or not is_model(Path(network.weights))):
        return Statistics(*ENCODERS[network.name].normalisation) if network.name != PATCHES else None
    if network.weights is None:
        return None
    if is_model(Path(network.weights)):
        part = Model.load(network.weights, "cpu").about.classifier
        return Statistics(part.mean, part.std) if part.is_image else None
    if network.name.startswith(PREFIX):
        return Statistics(*native_statistics(network.name))
    return Statistics(*IMAGENET)


def frozen_network(config: NetworkConfig, size: int, seed: int) -> Network:
    """That of these settings with its weights, for pictures of `size` pixels a side; its own classifier is never asked, and
    patches are still to be cut."""
    if config.weights is None and config.name in ENCODERS and config.name != PATCHES:
        return find_encoder(config.name).network
    torch.manual_seed(seed)
    return starting_network(config, (3, size, size), default_names(2))


def patches_name(mirror: bool) -> str:
    """Of the patch network, which looks at mirror images as well unless they may show something else."""
    return PATCHES if mirror else "patches-no-mirror"


def cut_patches(network: PatchNetwork, images: Inputs, statistics: Statistics, seed: int) -> None:
    """From some of the pictures, spread evenly."""
    sample = images[evenly_spaced(len(images), PATCH_IMAGES)]
    generator = torch.Generator().manual_seed(seed)
    learn_patches(network.cpu(), image_standardizer(*statistics)(sample), generator)


def feature_statistics(features_ND: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of each feature and one deviation for all: large ones stay large."""
    mean_D = features_ND.mean(dim=0)
    return mean_D, (features_ND - mean_D).square().mean().sqrt().expand_as(mean_D)
