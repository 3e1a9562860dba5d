"""The inputs X: feature vectors or images, with the scale that `fit` learns and every prediction uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from pals.runs.extractor import (
    FeatureExtractor,
    Normalisation,
    dataset_network_settings,
    feature_normalisation,
    make_extractor,
    with_weights_found,
)
from pals.runs.run_config import NetworkConfig
from pals.training.extract import ImagePaths
from pals.util.config import build
from pals.util.errors import InputError, unknown
from pals.vision.augment import Views, image_views, vector_views
from pals.vision.images.image_cache import default_cache
from pals.vision.pretrained import PATCHES

CHANNELS = (1, 3, 4)
VECTOR_VIEWS = {"noise": 0.1, "dropout": 0.1}
ENCODER_OPTIONS = ("frozen", "weights", "cache")
MIN_CHANNEL_STD = 1e-3
"""As a share of the range, so that images of a single colour are not amplified."""


@dataclass(frozen=True)
class Vectors:
    """Feature vectors, each feature scaled to mean 0 and deviation 1 unless `scaler` is None."""

    scaler: Any  # a fitted StandardScaler
    shape: tuple[int, ...]
    network: str = "mlp"

    @classmethod
    def fit(cls, X: np.ndarray, standardize: bool) -> Vectors:
        return cls(StandardScaler().fit(X) if standardize else None, X.shape[1:])

    @property
    def given(self) -> Vectors:
        return self

    def prepare(self, X: np.ndarray) -> Tensor:
        """N x D float32."""
        ready = X if self.scaler is None else self.scaler.transform(X)
        return torch.from_numpy(np.array(ready, dtype=np.float32))

    def views(self, options: Mapping[str, Any] | None) -> Views:
        width = self.shape[0]
        return vector_views(torch.zeros(width), torch.ones(width), **_chosen(options, VECTOR_VIEWS))


@dataclass(frozen=True)
class Images:
    """Images as uint8. Bytes are used unchanged; of other numbers the smallest and largest of `fit` become 0 and 255."""

    low: float
    high: float
    channels_last: bool
    shape: tuple[int, ...]  # channels, height, width
    mean: tuple[float, ...]
    std: tuple[float, ...]
    network: str = "small-cnn"

    @classmethod
    def fit(cls, X: np.ndarray) -> Images:
        last = _channels_last(X)
        low, high = (0.0, 255.0) if X.dtype == np.uint8 else (float(X.min()), float(X.max()))
        if high <= low:
            raise InputError("All pictures have the same single colour; there is nothing to learn from them.")
        image_NCHW = _bytes(_arranged(X, last), low, high)
        mean = image_NCHW.mean(axis=(0, 2, 3), dtype=np.float64) / 255
        std = np.maximum(image_NCHW.std(axis=(0, 2, 3), dtype=np.float64) / 255, MIN_CHANNEL_STD)
        return cls(low, high, last, image_NCHW.shape[1:], tuple(mean.tolist()), tuple(std.tolist()))

    @property
    def given(self) -> Images:
        return self

    def prepare(self, X: np.ndarray) -> Tensor:
        """N x channels x height x width, uint8."""
        image_NCHW = _arranged(X, self.channels_last)
        if image_NCHW.shape[1:] != self.shape:
            raise InputError(f"These images have the shape {image_NCHW.shape[1:]}, those of fit {self.shape}. Resize them.")
        return torch.from_numpy(np.ascontiguousarray(_bytes(image_NCHW, self.low, self.high)))

    def views(self, options: Mapping[str, Any] | None) -> Views:
        defaults = {"pad": min(self.shape[1:]) // 8, "flip": False, "strong": "light", "cutout": None}
        return image_views(self.mean, self.std, **_chosen(options, defaults))


@dataclass(frozen=True)
class EncodedImages:
    """Images, in an array or in files, for a pretrained network: its features if it is frozen, else pixels."""

    extractor: FeatureExtractor
    given: Images
    "How arrays are read, and the size of files."
    files: bool
    device: str
    "Where features are computed."
    config: NetworkConfig
    cache: Path | None = None
    "Folder of the features of files; None: that of `pals fit`."
    statistics: Normalisation | None = None
    "Of the features."

    @classmethod
    def fit(
        cls, X: Any, config: NetworkConfig, seed: int, device: str, cache: Path | None = None
    ) -> tuple[EncodedImages, Tensor]:
        """The encoder made for these images, and their features or pixels, so that they are encoded once."""
        names = file_names(X)
        given = Images.fit(X) if names is None else None
        images = ImagePaths.of(names or ()) if given is None else given.prepare(X)
        with torch.random.fork_rng(devices=[]):
            extractor = make_extractor(config, images, seed)
        if given is None:
            given = Images(0.0, 255.0, False, (3, extractor.size, extractor.size), *extractor.statistics)
        inputs = cls(extractor, given, names is not None, device, config, cache)
        prepared = inputs.prepare(X)
        if extractor.network is None:
            return inputs, prepared
        return replace(inputs, statistics=feature_normalisation(prepared)), prepared

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input of the network that is trained."""
        return self.extractor.part.input_shape if self.extractor.network is None else (self.extractor.network.feature_width,)

    @property
    def network(self) -> str:
        return self.config.trained

    def prepare(self, X: Any) -> Tensor:
        """The features, N x D float32, or images as uint8."""
        names = file_names(X)
        if (names is not None) != self.files:
            seen, found = ("names of files", "an array") if self.files else ("an array", "names of files")
            raise InputError(f"fit has seen pictures as {seen}; these are {found}. Give them in the same way.")
        images = self.given.prepare(X) if names is None else ImagePaths(names, self.extractor.size)
        if self.extractor.network is not None:
            # features of files by a pretrained network are cached for every later fit; patches are cut from each data set
            cached = self.files and self.config.name != PATCHES
            return self.extractor.features(images, self.device, self.cache or default_cache() if cached else None)
        return images if isinstance(images, Tensor) else self.extractor.pixels(images)

    def views(self, options: Mapping[str, Any] | None) -> Views:
        if self.statistics is None:
            return self.extractor.views(self.given.views(options))
        return vector_views(*map(torch.tensor, self.statistics), **_chosen(options, VECTOR_VIEWS))


def encoder_config(encoder: str, options: Mapping[str, Any] | None) -> NetworkConfig:
    """The network settings of the parameters `encoder` and `encoder_options`."""
    for name in options or ():
        if name not in ENCODER_OPTIONS:
            raise unknown("encoder option", name, ENCODER_OPTIONS)
    of_network = {name: value for name, value in (options or {}).items() if name != "cache"}
    settings = dataset_network_settings(encoder, **of_network)
    return with_weights_found(build(NetworkConfig, settings, "network"))


def file_names(X: Any) -> list[str] | None:
    """X as a list, if it is a sequence of file names; else None."""
    if getattr(X, "ndim", 1) != 1 or isinstance(X, (str, bytes, Mapping)) or not hasattr(X, "__len__") or not len(X):
        return None
    names = list(X)
    return [str(Path(name)) for name in names] if all(isinstance(name, (str, PathLike)) for name in names) else None


def _chosen(options: Mapping[str, Any] | None, defaults: Mapping[str, Any]) -> dict[str, Any]:
    for name in options or ():
        if name not in defaults:
            raise unknown("view option", name, defaults)
    return {**defaults, **(options or {})}


def _channels_last(X: np.ndarray) -> bool:
    """Whether the channels are the last axis and not the one after the items, which is preferred where both fit."""
    if X.ndim == 3:
        return False
    if X.ndim != 4 or not {X.shape[1], X.shape[3]} & set(CHANNELS):
        raise InputError(
            f"X has the shape {X.shape}. Pictures are (items, height, width), (items, channels, height, width) or (items, "
            f"height, width, channels) with 1, 3 or 4 channels; vectors are (items, features)."
        )
    return X.shape[1] not in CHANNELS


def _arranged(X: np.ndarray, channels_last: bool) -> np.ndarray:
    if X.ndim == 3:
        return X[:, None]
    return np.moveaxis(X, 3, 1) if channels_last else X


def _bytes(X: np.ndarray, low: float, high: float) -> np.ndarray:
    if X.dtype == np.uint8 and (low, high) == (0.0, 255.0):
        return X
    return ((X.clip(low, high) - low) * (255 / (high - low))).round().astype(np.uint8)
