"""What X is, learned in `fit` and applied ever after: feature vectors or pictures, made ready for a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from pals.util.errors import InputError, unknown
from pals.vision.augment import Views, image_views, vector_views

CHANNELS = (1, 3, 4)
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

    def hold(self, X: np.ndarray) -> Tensor:
        """N x D float32."""
        ready = X if self.scaler is None else self.scaler.transform(X)
        return torch.from_numpy(np.array(ready, dtype=np.float32))

    def views(self, options: Mapping[str, Any] | None) -> Views:
        chosen = _chosen(options, {"noise": 0.1, "dropout": 0.1})
        width = self.shape[0]
        return vector_views(torch.zeros(width), torch.ones(width), **chosen)


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
            raise InputError("All pictures are of one and the same colour; there is nothing to learn from them.")
        image_NCHW = _bytes(_arranged(X, last), low, high)
        mean = image_NCHW.mean(axis=(0, 2, 3), dtype=np.float64) / 255
        std = np.maximum(image_NCHW.std(axis=(0, 2, 3), dtype=np.float64) / 255, SMALLEST_STD)
        return cls(low, high, last, image_NCHW.shape[1:], tuple(mean.tolist()), tuple(std.tolist()))

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
