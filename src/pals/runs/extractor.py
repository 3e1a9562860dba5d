"""Pretrained networks of a run: from the settings of `--encoder` to features, views and starting weights.

A frozen network f turns each image x_i into a feature vector h_i = f((x_i - mean) / std), which a small head is trained on; a
network that is not frozen is fine-tuned, and only the normalisation is taken over. Features are standardised by the mean of
each and one deviation for all, s = sqrt(mean_i,d (h_id - mean_d)^2), so that their relative sizes stay.

Symbols: N images, D features, M images in a sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pals.data.dataset import Dataset, Items
from pals.data.download import find_weights
from pals.data.row_source import Inputs
from pals.labels.candidates import default_names
from pals.model import Description, Model, Part, is_model
from pals.runs.feature_cache import encode_cached, shifted
from pals.runs.run_config import NetworkConfig
from pals.training.extract import ImagePaths, encode, resized
from pals.training.inference import OnBatch, image_standardizer
from pals.util.errors import InputError
from pals.util.even_sample import evenly_spaced
from pals.vision.augment import Views, vector_views
from pals.vision.images.pixel_statistics import MIN_SIDE, image_statistics
from pals.vision.networks import Network, build_network, load_weights
from pals.vision.networks.patch_features import PATCH_IMAGES, PatchNetwork, learn_patches
from pals.vision.networks.resnets import IMAGENET
from pals.vision.networks.timm_network import DOWNLOAD, PREFIX, build_timm, native_size, native_statistics
from pals.vision.pretrained import (
    ENCODERS,
    PATCHES,
    WEIGHT_SUFFIXES,
    Encoder,
    find_encoder,
    input_size,
    network_of_file,
    unknown_encoder,
    weights_file,
)

AUTO = "auto"
PATCH_SIDES = (32, 64)
"""Pixels per side of images that patches are cut from; larger images are slower and give no better features."""
EXTRACTION_BLOCK = 4096
"""Images that are in memory at the encoder's input size at a time."""

Images = Inputs | ImagePaths
"""uint8, N x channels x height x width, or files of about the same size."""


class Normalisation(NamedTuple):
    """Mean and standard deviation of each channel, or of each feature."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


# ---------------------------------------------------------------------------------------------- settings of an encoder


def network_settings(encoder: str, weights: str | Path | None = None, frozen: bool | None = None) -> dict[str, Any]:
    """The settings of the network that `--encoder NAME` stands for.

    Args:
        encoder: "auto", a name in `ENCODERS`, "timm:NAME", or a file of weights.
        weights: for "timm:NAME": a file, or "timm" to download its own.
        frozen: False to fine-tune the network; default True.

    Returns:
        The section `network` of a run.

    Raises:
        InputError: the encoder is unknown, or it does not go with the other two.
    """
    frozen = True if frozen is None else frozen
    if encoder in (AUTO, *ENCODERS) and weights is not None:
        raise InputError(f"Encoder {encoder!r} has weights of its own: leave out --weights, or give that file as --encoder.")
    if encoder in (AUTO, PATCHES):
        if not frozen:
            raise InputError(f"Encoder {encoder!r} cannot be trained: name a pretrained one (`pals encoders`) for --no-frozen.")
        return {"name": encoder, "frozen": True}
    if encoder in ENCODERS:
        path = weights_file(ENCODERS[encoder])
        return {"name": encoder, "frozen": frozen, **({} if frozen or path is None else {"weights": str(path)})}
    if encoder.startswith(PREFIX):
        if weights is None:
            raise InputError(f"Encoder {encoder!r} needs weights: --weights FILE, or --weights {DOWNLOAD} to download timm's.")
        return {"name": encoder, "frozen": frozen, "weights": str(weights)}
    if encoder.endswith(WEIGHT_SUFFIXES):
        path = Path(find_weights(encoder))
        return {"name": network_of_file(path), "frozen": frozen, "weights": str(path.resolve())}
    raise unknown_encoder(encoder, AUTO)


def dataset_network_settings(encoder: str, weights: str | Path | None = None, frozen: bool | None = None) -> dict[str, Any]:
    """`network_settings` for a data set, in place of the network and weights that it was published with."""
    if encoder == AUTO:
        raise InputError(f"Encoder {AUTO!r} compares encoders by people's answers, which `pals fit` has: name one here.")
    return {"weights": None, **network_settings(encoder, weights, frozen), "adapt": True}


def size_for(name: str, side: int) -> int:
    """Pixels per side at which a pretrained network reads images whose shorter side has `side` pixels."""
    if name == PATCHES:
        return next((size for size in PATCH_SIDES if side <= 1.5 * size), PATCH_SIDES[-1])
    if name.startswith(PREFIX):
        return native_size(name)
    listed = ENCODERS.get(name)
    return input_size(listed.size if listed is not None and listed.size else 224, side)


# ---------------------------------------------------------------------------------------------- networks and weights


def with_weights_found(config: NetworkConfig, data_dir: Path | None = None) -> NetworkConfig:
    """The same settings with the path of the weights, which may lie in the data folder."""
    if config.weights is None or (config.name.startswith(PREFIX) and config.weights == DOWNLOAD):
        return config
    return replace(config, weights=str(find_weights(config.weights, data_dir)))


def starting_network(config: NetworkConfig, shape: tuple[int, ...], class_names: Sequence[str]) -> Network:
    """The network of these settings with its initial weights: random, from a file, or those of a run's own classifier.

    Args:
        config: which network, and the file of weights, if any.
        shape: of one input.
        class_names: classes of the new classifier; the rows of those that the run's classifier has are copied from it.
    """
    own = config.weights is not None and is_model(Path(config.weights))  # first, because timm cannot read such a file
    if config.name.startswith(PREFIX) and not own:
        return build_timm(config.name, shape, len(class_names), weights=config.weights)
    network = build_network(config.name, shape, len(class_names))
    if config.weights is not None and own:
        _copy_weights(network, class_names, Model.load(config.weights, "cpu"), config.weights)
    elif config.weights is not None:
        load_weights(network, config.weights, classifier=False)
    return network


def _copy_weights(network: Network, class_names: Sequence[str], model: Model, path: str) -> None:
    own, theirs = network.state_dict(), model.network.state_dict()
    shapes = [
        {name: value.shape for name, value in state.items() if not name.startswith("classifier.")} for state in (own, theirs)
    ]
    if shapes[0] != shapes[1]:
        raise InputError(f"{path} holds a different network than {type(network).__name__}. Use the settings of its run.")
    place = {name: c for c, name in enumerate(model.class_names)}
    with torch.no_grad():
        for name in shapes[1]:
            own[name].copy_(theirs[name])
        for name in ("classifier.weight", "classifier.bias"):
            for c, class_name in enumerate(class_names):
                if class_name in place:
                    own[name][c] = theirs[name][place[class_name]]


def input_statistics(network: NetworkConfig) -> Normalisation | None:
    """The normalisation that a network's weights were trained with; None where that of the images is used."""
    if network.weights is None and not network.frozen:
        return None
    if network.name in ENCODERS and (network.weights is None or not is_model(Path(network.weights))):
        return Normalisation(*ENCODERS[network.name].normalisation) if network.name != PATCHES else None
    if network.weights is None:
        return None
    if is_model(Path(network.weights)):
        part = Model.load(network.weights, "cpu").about.classifier
        return Normalisation(part.mean, part.std) if part.is_image else None
    if network.name.startswith(PREFIX):
        return Normalisation(*native_statistics(network.name))
    return Normalisation(*IMAGENET)


def frozen_network(config: NetworkConfig, size: int, seed: int) -> Network:
    """The frozen network of these settings for images of `size` pixels per side. Patches are not cut yet (`cut_patches`)."""
    if config.weights is None and config.name in ENCODERS and config.name != PATCHES:
        return find_encoder(config.name).network
    torch.manual_seed(seed)
    return starting_network(config, (3, size, size), default_names(2))


def patches_name(mirror: bool) -> str:
    """The patch network, which also reads the mirror image unless that may show another class."""
    return PATCHES if mirror else "patches-no-mirror"


def cut_patches(network: PatchNetwork, images: Inputs, statistics: Normalisation, seed: int) -> None:
    """Cut the patches of a network from a sample of the images."""
    sample = images[evenly_spaced(len(images), PATCH_IMAGES)]
    generator = torch.Generator().manual_seed(seed)
    learn_patches(network.cpu(), image_standardizer(*statistics)(sample), generator)


def feature_statistics(features_ND: Tensor) -> tuple[Tensor, Tensor]:
    """(mean_D, std_D): the mean of each feature and one standard deviation for all."""
    mean_D = features_ND.mean(dim=0)
    return mean_D, (features_ND - mean_D).square().mean().sqrt().expand_as(mean_D)


def feature_normalisation(features_ND: Tensor) -> Normalisation:
    """`feature_statistics` as plain numbers."""
    return Normalisation(*(tuple(values_D.tolist()) for values_D in feature_statistics(features_ND)))


def sized_encoder(name: str, network: Network, statistics: Normalisation) -> Encoder:
    """An encoder for images that have its size already."""
    return Encoder(name, network, None, *statistics, None, "")


# ---------------------------------------------------------------------------------------------- the extractor


@dataclass(frozen=True)
class FeatureExtractor:
    """A pretrained network and its input format."""

    name: str
    size: int
    "Pixels per side of its images."
    statistics: Normalisation
    "Normalisation of its images."
    network: Network | None
    "The frozen network; None where the network is fine-tuned, which is then the method's."

    @property
    def part(self) -> Part:
        return Part(self.name, (3, self.size, self.size), *self.statistics)

    def pixels(self, images: Images) -> Tensor:
        """The images decoded or resized, with three channels: N x 3 x size x size, uint8."""
        if isinstance(images, ImagePaths):
            return images.decoded(self.size)
        images = images[:]
        if images.shape[1] not in (1, 3):
            raise InputError(f"An encoder reads grey or RGB images; these have {images.shape[1]} channels. Give three.")
        return resized(images.expand(-1, 3, -1, -1), self.size)

    def features(
        self, images: Images, device: str = "cpu", cache: Path | None = None, progress: OnBatch | None = None
    ) -> Tensor:
        """Features of images by the frozen network.

        Args:
            images: N of them.
            device: where the network runs.
            cache: folder in which features are kept by image and weights; None: they are not.
            progress: called with the number of images done and N.

        Returns:
            N x D, float32.
        """
        assert self.network is not None
        encoder = sized_encoder(self.name, self.network, self.statistics)
        if cache is None and isinstance(images, ImagePaths):
            return encode(replace(images, side=self.size), encoder, device, progress=progress)
        made = [torch.empty(0, encoder.feature_width)]
        for start in range(0, len(images), EXTRACTION_BLOCK):
            block = self.pixels(_rows(images, slice(start, start + EXTRACTION_BLOCK)))
            report = None if progress is None else shifted(progress, start, len(images))
            if cache is None:
                made.append(encode(block, encoder, device, progress=report))
            else:
                made.append(encode_cached(block, encoder, cache, device, report)[0])
        return torch.cat(made)

    def views(self, views: Views) -> Views:
        """The same views, normalised and resized for the network."""
        standardize = image_standardizer(*self.statistics)
        return Views(views.table, lambda images: standardize(self.pixels(images)), views.steps)

    def model(self, class_names: Sequence[str], network: Network, head: Part | None) -> Model:
        """The classifier of images: `network` is the head that reads the features, or (`head` None) the fine-tuned network."""
        if head is None:
            return Model(Description(tuple(class_names), self.part), network, device="cpu")
        return Model(Description(tuple(class_names), head, self.part), network, self.network, device="cpu")


def make_extractor(
    config: NetworkConfig, images: Images, seed: int, *, mirror: bool = True, learned: Mapping[str, Tensor] | None = None
) -> FeatureExtractor:
    """The extractor of these settings for images such as these.

    Args:
        config: the network; its `frozen` decides whether it gives features or is fine-tuned.
        images: training images, from which patches are cut.
        seed: of the patches.
        mirror: whether a mirrored image keeps its class.
        learned: patches that were cut before (`patch_state`), instead of new ones.

    Raises:
        InputError: the images are too small, or the network has no pretrained weights.
    """
    side = images.side if isinstance(images, ImagePaths) else min(images.shape[2:])
    if side < MIN_SIDE:
        raise InputError(f"The images are {side} pixels high or wide; an encoder needs at least {MIN_SIDE}.")
    size = size_for(config.name, side)
    if config.name != PATCHES:
        statistics = input_statistics(replace(config, frozen=True))
        if statistics is None:
            raise InputError(f"Network {config.name!r} has no pretrained weights: give network.weights, or an encoder.")
        return FeatureExtractor(config.name, size, statistics, frozen_network(config, size, seed) if config.frozen else None)
    name = patches_name(mirror)
    sample = FeatureExtractor(name, size, Normalisation((), ()), None).pixels(
        _rows(images, evenly_spaced(len(images), PATCH_IMAGES))
    )
    statistics = Normalisation(*image_statistics(sample))
    network = frozen_network(replace(config, name=name), size, seed)
    assert isinstance(network, PatchNetwork)
    if learned:
        network.load_state_dict(dict(learned), strict=False)
    else:
        cut_patches(network, sample, statistics, seed)
    return FeatureExtractor(name, size, statistics, network)


@dataclass(frozen=True)
class ExtractedDataset:
    """A data set as a method learns from it."""

    dataset: Dataset
    head: Part | None = None
    "The network that reads the features; None where there are none."


def extract_dataset(
    extractor: FeatureExtractor, dataset: Dataset, head: str, device: str, cache: Path, progress: OnBatch | None = None
) -> ExtractedDataset:
    """A data set as the features of a frozen network, or with views for one that is fine-tuned.

    Args:
        extractor: made for the data set's images.
        dataset: of images.
        head: name of the network that reads the features.
        device: where features are computed.
        cache: folder in which they are kept.
        progress: called with the number of images done and their total.
    """
    if extractor.network is None:
        return ExtractedDataset(replace(dataset, views=extractor.views(dataset.views)))
    parts = [items for items in (dataset.train, dataset.test) if items is not None]
    total, done, made = sum(map(len, parts)), 0, list[Items]()
    for items in parts:
        report = None if progress is None else shifted(progress, done, total)
        made.append(Items(extractor.features(items.inputs, device, cache, report), items.ids))
        done += len(items)
    features_ND = made[0].inputs[:]
    statistics = feature_normalisation(features_ND)
    views = vector_views(*feature_statistics(features_ND))
    test = made[1] if len(made) > 1 else None
    part = Part(head, (features_ND.shape[1],), *statistics)
    return ExtractedDataset(replace(dataset, train=made[0], test=test, views=views), part)


def _rows(images: Images, rows: slice | Tensor) -> Images:
    if not isinstance(images, ImagePaths):
        return images[rows]
    paths = images.paths[rows] if isinstance(rows, slice) else [images.paths[row] for row in rows.tolist()]
    return replace(images, paths=paths)
