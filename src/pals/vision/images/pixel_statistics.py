"""Sizes of image files from their headers; mean and standard deviation of each colour channel."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from torch import Tensor

from pals.util.errors import InputError
from pals.util.even_sample import evenly_spaced
from pals.vision.images.decoding import read_header

SAMPLED_PIXELS = 50_000_000  # per channel
MIN_SIDE = 8
"""Pixels a side; smaller images are refused."""
MIN_SAMPLED_IMAGES = 256  # however many pixels they have
COUNTED_VALUES = 4_000_000  # at a time: bounds the memory to about 40 MB

Channels = tuple[float, float, float]


def median_side(folder: str | Path, names: Sequence[str], sample: int = 200) -> int:
    """Median of the images' shorter side in pixels; only headers are read.

    Args:
        folder: Folder of the images.
        names: Paths of the images relative to the folder.
        sample: Most images to read, evenly spaced over the names; default 200.

    Raises:
        InputError: No name, or no image of the sample that can be read.
    """
    if not names or sample < 1:
        raise InputError(f"The size of images needs some of them; found {len(names)} names and a sample of {sample}.")
    rows = evenly_spaced(len(names), sample).tolist()
    headers = [header for row in rows if (header := read_header(Path(folder) / names[row])) is not None]
    if not headers:
        found = f"of {len(rows)} sampled; the first is {names[rows[0]]!r}"
        raise InputError(f"No image in {folder} can be read, {found}. Is it the right folder?")
    return round(statistics.median(map(min, headers)))


class ImageRows(Protocol):
    """A tensor of images or an `ItemSource`: rows by their numbers."""

    @property
    def shape(self) -> Sequence[int]: ...

    @property
    def ndim(self) -> int: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: list[int], /) -> Tensor: ...


def image_statistics(images: ImageRows) -> tuple[Channels, Channels]:
    """Mean and standard deviation of each colour channel, of values from 0 to 1.

    Large tables are sampled evenly. Integers are summed, so the result is the same on every machine. The deviation is at least
    1/255, so that constant channels can be divided by it.

    Args:
        images: N x 3 x S x S, uint8: a tensor or an `ItemSource`.

    Returns:
        Three means and three standard deviations.

    Raises:
        InputError: No images, or not three channels.

    >>> import torch
    >>> from pals import image_statistics
    >>> image_statistics(torch.full((2, 3, 4, 4), 51, dtype=torch.uint8))[0]
    (0.2, 0.2, 0.2)
    """
    if images.ndim != 4 or images.shape[1] != 3 or not len(images):
        raise InputError(f"Colour statistics need images, N x 3 x S x S; found shape {tuple(images.shape)}.")
    pixels = images.shape[2] * images.shape[3]
    rows = evenly_spaced(len(images), max(MIN_SAMPLED_IMAGES, SAMPLED_PIXELS // pixels))
    count_CV = np.zeros((3, 256), dtype=np.int64)
    step = max(1, COUNTED_VALUES // (3 * pixels))
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
