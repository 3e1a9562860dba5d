"""A first look at pictures: how large they are, and the mean and spread of their colours."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from torch import Tensor

from pals.util.errors import InputError
from pals.util.even_sample import evenly_spaced
from pals.vision.images.decoding import read_header

PIXELS = 50_000_000  # per channel that the statistics look at
SMALLEST_SIDE = 8
"""Pixels a side of pictures in which there is something to see."""
FEWEST = 256  # pictures that they look at even if those are larger
BLOCK_VALUES = 4_000_000  # values that are counted at a time: bounds the memory to about 40 MB

Channels = tuple[float, float, float]


@dataclass(frozen=True)
class Survey:
    """What the headers of a sample of files say."""

    pictures: int
    "All pictures, of which the sample is taken."
    looked_at: int
    unreadable: int
    "Files of the sample whose header cannot be read."
    shorter_side: int
    "Median of the shorter side, in pixels."
    smallest_side: int
    largest_side: int
    megapixels: float
    "Mean of the sample."
    bytes: int
    "Size of all files together, estimated from the sample."

    def cache_bytes(self, size: int) -> int:
        """What the decoded pictures take on the disk."""
        return self.pictures * 3 * size * size


def survey(folder: str | Path, names: Sequence[str], sample: int = 200) -> Survey:
    """A quick look at some of the files, spread evenly over the names; only their headers are read."""
    if not names or sample < 1:
        raise InputError(f"A survey needs pictures; found {len(names)} names and a sample of {sample}.")
    chosen = [names[row] for row in evenly_spaced(len(names), sample).tolist()]
    headers = [header for name in chosen if (header := read_header(Path(folder) / name)) is not None]
    if not headers:
        raise InputError(
            f"No picture that was looked at in {folder} can be read; the first of {len(chosen)} is {chosen[0]!r}. "
            f"Is it the right folder?"
        )
    return Survey(
        pictures=len(names),
        looked_at=len(chosen),
        unreadable=len(chosen) - len(headers),
        shorter_side=round(statistics.median(min(width, height) for width, height, _ in headers)),
        smallest_side=min(min(width, height) for width, height, _ in headers),
        largest_side=max(max(width, height) for width, height, _ in headers),
        megapixels=statistics.fmean(width * height for width, height, _ in headers) / 1e6,
        bytes=round(statistics.fmean(size for _, _, size in headers) * len(names)),
    )


class Rows(Protocol):
    """Pictures that can be asked for by their numbers, as those of a tensor."""

    @property
    def shape(self) -> Sequence[int]: ...

    @property
    def ndim(self) -> int: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: list[int], /) -> Tensor: ...


def image_statistics(images: Rows) -> tuple[Channels, Channels]:
    """Mean and standard deviation of each channel of N x 3 x S x S bytes, as values from 0 to 1.

    A large table is sampled evenly. Only whole numbers are summed, so the result is the same on every machine. A channel that
    never varies gets the spread of a single step, so that dividing by it does no harm.
    """
    if images.ndim != 4 or images.shape[1] != 3 or not len(images):
        raise InputError(f"Colour statistics need pictures, N x 3 x S x S; found shape {tuple(images.shape)}.")
    pixels = images.shape[2] * images.shape[3]
    rows = evenly_spaced(len(images), max(FEWEST, PIXELS // pixels))
    count_CV = np.zeros((3, 256), dtype=np.int64)
    step = max(1, BLOCK_VALUES // (3 * pixels))
    for start in range(0, len(rows), step):
        part = images[rows[start : start + step].tolist()].cpu().numpy()
        for channel in range(3):
            count_CV[channel] += np.bincount(part[:, channel].reshape(-1), minlength=256)
    value_V = np.arange(256) / 255
    share_CV = count_CV / count_CV.sum(axis=1, keepdims=True)
    mean_C = share_CV @ value_V
    std_C = np.sqrt(np.maximum(share_CV @ value_V**2 - mean_C**2, 0)).clip(min=1 / 255)
    red, green, blue = mean_C.tolist()
    red_std, green_std, blue_std = std_C.tolist()
    return (red, green, blue), (red_std, green_std, blue_std)
