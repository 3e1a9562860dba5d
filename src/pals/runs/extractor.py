"""What stands between pictures and a method: a pretrained network, frozen or to be fine-tuned, and how it is fed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from pals.data import Dataset, Inputs, Items
from pals.model import Description, Model, Part
from pals.runs.encoder_settings import size_for
from pals.runs.feature_cache import encode_kept, shifted
from pals.runs.run_config import NetworkConfig
from pals.runs.starting_networks import (
    Statistics,
    cut_patches,
    feature_statistics,
    frozen_network,
    input_statistics,
    patches_name,
)
from pals.training.extract import PictureFiles, encode, resized
from pals.training.inference import OnBatch, image_standardizer
from pals.util.errors import InputError
from pals.util.even_sample import evenly_spaced
from pals.vision.augment import Views, vector_views
from pals.vision.images import SMALLEST_SIDE, image_statistics
from pals.vision.networks import Network
from pals.vision.networks.patch_features import PATCH_IMAGES, PatchNetwork
from pals.vision.pretrained import PATCHES, Encoder

Pictures = Inputs | PictureFiles
"""uint8, N x channels x height x width, or files of about the same size."""
AT_ONCE = 4096
"""Pictures in memory at a time at the size at which they are encoded."""


@dataclass(frozen=True)
class FrontEnd:
    """A pretrained network and what it is fed with."""

    name: str
    size: int
    "Pixels a side at which it sees pictures."
    statistics: Statistics
    "By which pictures are standardised for it."
    network: Network | None
    "The network itself, where it is frozen and gives features; one that is trained belongs to the method."

    @property
    def part(self) -> Part:
        return Part(self.name, (3, self.size, self.size), *self.statistics)

    def pixels(self, pictures: Pictures) -> Tensor:
        """N x 3 x size x size, uint8."""
        return at_size(pictures, self.size)

    def features(
        self, pictures: Pictures, device: str = "cpu", cache: Path | None = None, progress: OnBatch | None = None
    ) -> Tensor:
        """N x D, float32, by the frozen network. Below `cache`, if given, they are kept by picture and weights."""
        assert self.network is not None
        encoder = Encoder(self.name, self.network, None, *self.statistics, None, "")
        if cache is None and isinstance(pictures, PictureFiles):
            return encode(replace(pictures, side=self.size), encoder, device, progress=progress)
        made = []
        for start in range(0, len(pictures), AT_ONCE):
            part = self.pixels(chosen(pictures, slice(start, start + AT_ONCE)))
            told = None if progress is None else shifted(progress, start, len(pictures))
            if cache is None:
                made.append(encode(part, encoder, device, progress=told))
            else:
                made.append(encode_kept(part, encoder, cache, device, told)[0])
        return torch.cat(made) if made else torch.empty(0, encoder.feature_width)

    def views(self, views: Views) -> Views:
        """The same views of pictures, brought to what the network reads."""
        standardize = image_standardizer(*self.statistics)
        return Views(views.table, lambda images: standardize(self.pixels(images)), views.steps)

    def model(self, class_names: Sequence[str], network: Network, head: Part | None) -> Model:
        """The classifier of pictures: `network` reads the frozen one's features as `head` says, or is the fine-tuned one."""
        if head is None:
            return Model(Description(tuple(class_names), self.part), network, device="cpu")
        return Model(Description(tuple(class_names), head, self.part), network, self.network, device="cpu")


def make_front_end(
    config: NetworkConfig,
    pictures: Pictures,
    seed: int,
    *,
    mirror: bool = True,
    learned: Mapping[str, Tensor] | None = None,
) -> FrontEnd:
    """The one of these settings for such pictures. Patches are cut from them unless they were `learned` before."""
    side = side_of(pictures)
    if side < SMALLEST_SIDE:
        raise InputError(f"The pictures are {side} pixels high or wide; an encoder needs at least {SMALLEST_SIDE}.")
    size = size_for(config.name, side)
    if config.name != PATCHES:
        statistics = input_statistics(replace(config, frozen=True))
        if statistics is None:
            raise InputError(
                f"The network {config.name!r} has no pretrained weights to encode pictures with: name one of `pals encoders`, "
                "or give network.weights."
            )
        network = frozen_network(config, size, seed) if config.frozen else None
        return FrontEnd(config.name, size, statistics, network)
    name = patches_name(mirror)
    sample = at_size(spread(pictures), size)
    statistics = Statistics(*image_statistics(sample))
    network = frozen_network(replace(config, name=name), size, seed)
    if learned:
        network.load_state_dict(dict(learned), strict=False)
    else:
        assert isinstance(network, PatchNetwork)
        cut_patches(network, sample, statistics, seed)
    return FrontEnd(name, size, statistics, network)


@dataclass(frozen=True)
class Seen:
    """A data set as a method is to learn from it."""

    dataset: Dataset
    head: Part | None = None
    "What reads the features of a frozen network."


def through(
    front: FrontEnd,
    dataset: Dataset,
    head: str,
    device: str,
    cache: Path,
    progress: OnBatch | None = None,
) -> Seen:
    """The data set as features of a frozen network, which `head` is to read, or with views for one that is fine-tuned."""
    if front.network is None:
        return Seen(replace(dataset, views=front.views(dataset.views)))
    parts = [items for items in (dataset.train, dataset.test) if items is not None]
    total, done, made = sum(map(len, parts)), 0, []
    for items in parts:
        told = None if progress is None else shifted(progress, done, total)
        made.append(front.features(items.inputs, device, cache, told))
        done += len(items)
    mean_D, std_D = feature_statistics(made[0])
    part = Part(head, (len(mean_D),), tuple(mean_D.tolist()), tuple(std_D.tolist()))
    train, test = Items(made[0], dataset.train.ids), None if dataset.test is None else Items(made[1], dataset.test.ids)
    return Seen(replace(dataset, train=train, test=test, views=vector_views(mean_D, std_D)), part)


def side_of(pictures: Pictures) -> int:
    """Pixels of the shorter side, of files about."""
    return pictures.side if isinstance(pictures, PictureFiles) else min(pictures.shape[2:])


def spread(pictures: Pictures, count: int = PATCH_IMAGES) -> Pictures:
    """So many of them, spread evenly."""
    row_M = evenly_spaced(len(pictures), count)
    if isinstance(pictures, PictureFiles):
        return replace(pictures, paths=[pictures.paths[row] for row in row_M.tolist()])
    return pictures[row_M]


def chosen(pictures: Pictures, rows: slice) -> Pictures:
    return replace(pictures, paths=pictures.paths[rows]) if isinstance(pictures, PictureFiles) else pictures[rows]


def at_size(pictures: Pictures, size: int) -> Tensor:
    """Decoded or resized, with three channels: N x 3 x size x size, uint8."""
    if isinstance(pictures, PictureFiles):
        return pictures.decoded(size)
    pictures = pictures[:]
    if pictures.shape[1] not in (1, 3):
        raise InputError(f"An encoder reads grey or RGB pictures; these have {pictures.shape[1]} channels. Give three.")
    return resized(pictures.expand(-1, 3, -1, -1), size)
