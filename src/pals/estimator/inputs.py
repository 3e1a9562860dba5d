"""What X is, learned in `fit` and applied ever after: feature vectors or pictures, made ready for a network."""

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
OF_VECTORS = {"noise": 0.1, "dropout": 0.1}
ENCODER_OPTIONS = ("frozen", "weights", "cache")
SMALLEST_STD = 1e-3  # of a channel, as a share of the range: pictures of one colour are not blown up


@dataclass(frozen=True)
class Vectors:
    """Feature vectors, each feature brought to mean 0 and deviation 1 unless `scaler` is None."""

    scaler: Any  # a fitted StandardScaler
    shape: tuple[int, ...]
    network: str = "mlp"

    @classmethod
    def fit(cls, X: np.ndarray, standardize: bool) -> Vectors:
        return cls(StandardScaler().fit(X) if standardize else None, X.shape[1:])

    @property
    def given(self) -> Vectors:
        return self

    def hold(self, X: np.ndarray) -> Tensor:
        """N x D float32."""
        ready = X if self.scaler is None else self.scaler.transform(X)
        return torch.from_numpy(np.array(ready, dtype=np.float32))

    def views(self, options: Mapping[str, Any] | None) -> Views:
        width = self.shape[0]
        return vector_views(torch.zeros(width), torch.ones(width), **_chosen(options, OF_VECTORS))


@dataclass(frozen=True)
class Images:
    """Pictures, held as uint8: bytes are taken as they are, of other numbers the lowest and highest seen in `fit` become 0 and
    255."""

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
        std = np.maximum(image_NCHW.std(axis=(0, 2, 3), dtype=np.float64) / 255, SMALLEST_STD)
        return cls(low, high, last, image_NCHW.shape[1:], tuple(mean.tolist()), tuple(std.tolist()))

    @property
    def given(self) -> Images:
        return self

    def hold(self, X: np.ndarray) -> Tensor:
        """N x channels x height x width, uint8."""
        image_NCHW = _arranged(X, self.channels_last)
        if image_NCHW.shape[1:] != self.shape:
            raise InputError(
                f"These pictures have the shape {image_NCHW.shape[1:]} (channels, height, width); those seen in fit had "
                f"{self.shape}. Bring them to the same size first."
            )
        return torch.from_numpy(np.ascontiguousarray(_bytes(image_NCHW, self.low, self.high)))

    def views(self, options: Mapping[str, Any] | None) -> Views:
        usual = {"pad": min(self.shape[1:]) // 8, "flip": False, "strong": "light", "cutout": None}
        return image_views(self.mean, self.std, **_chosen(options, usual))


@dataclass(frozen=True)
class Encoded:
    """Pictures, in an array or in files, through a pretrained network: as its features if it is frozen, else as pixels."""

    front: FeatureExtractor
    given: Images
    "How arrays are read, and what files become."
    files: bool
    device: str
    "Where features are made."
    config: NetworkConfig
    cache: Path | None = None
    "Where features of files are kept; None: where `pals fit` keeps them."
    statistics: Normalisation | None = None
    "Of the features."

    @classmethod
    def fit(cls, X: Any, config: NetworkConfig, seed: int, device: str, cache: Path | None = None) -> tuple[Encoded, Tensor]:
        """And what it makes of these very pictures, so that they are encoded once."""
        names = file_names(X)
        given = Images.fit(X) if names is None else None
        pictures = ImagePaths.of(names or ()) if given is None else given.hold(X)
        with torch.random.fork_rng(devices=[]):
            front = make_extractor(config, pictures, seed)
        if given is None:
            given = Images(0.0, 255.0, False, (3, front.size, front.size), *front.statistics)
        inputs = cls(front, given, names is not None, device, config, cache)
        held = inputs.hold(X)
        if front.network is None:
            return inputs, held
        return replace(inputs, statistics=feature_normalisation(held)), held

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input as the network that learns reads it."""
        return self.front.part.input_shape if self.front.network is None else (self.front.network.feature_width,)

    @property
    def network(self) -> str:
        return self.config.trained

    def hold(self, X: Any) -> Tensor:
        """N x D float32, or pictures as uint8."""
        names = file_names(X)
        if (names is not None) != self.files:
            seen, found = ("names of files", "an array") if self.files else ("an array", "names of files")
            raise InputError(f"fit has seen pictures as {seen}; these are {found}. Give them in the same way.")
        if names is None:
            pictures: Tensor | ImagePaths = self.given.hold(X)
        else:
            pictures = ImagePaths(names, self.front.size)
        if self.front.network is not None:
            return self.front.features(pictures, self.device, self._store())
        return pictures if isinstance(pictures, Tensor) else self.front.pixels(pictures)

    def _store(self) -> Path | None:
        """Features of files by a pretrained network serve every later fit; patches are cut anew each time."""
        return self.cache or default_cache() if self.files and self.config.name != PATCHES else None

    def views(self, options: Mapping[str, Any] | None) -> Views:
        if self.statistics is None:
            return self.front.views(self.given.views(options))
        return vector_views(*map(torch.tensor, self.statistics), **_chosen(options, OF_VECTORS))


def encoder_config(encoder: str, options: Mapping[str, Any] | None) -> NetworkConfig:
    """What the parameters `encoder` and `encoder_options` mean."""
    for name in options or ():
        if name not in ENCODER_OPTIONS:
            raise unknown("encoder option", name, ENCODER_OPTIONS)
    of_network = {name: value for name, value in (options or {}).items() if name != "cache"}
    settings = dataset_network_settings(encoder, **of_network)
    return with_weights_found(build(NetworkConfig, settings, "network"))


def file_names(X: Any) -> list[str] | None:
    """X, if it is a sequence of names of files."""
    if getattr(X, "ndim", 1) != 1 or isinstance(X, (str, bytes, Mapping)) or not hasattr(X, "__len__") or not len(X):
        return None
    names = list(X)
    return [str(Path(name)) for name in names] if all(isinstance(name, (str, PathLike)) for name in names) else None


def _chosen(options: Mapping[str, Any] | None, usual: Mapping[str, Any]) -> dict[str, Any]:
    for name in options or ():
        if name not in usual:
            raise unknown("view option", name, usual)
    return {**usual, **(options or {})}


def _channels_last(X: np.ndarray) -> bool:
    """Channels are the axis after the items, or the last; where both could be, the former."""
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
