"""Features of pictures by a frozen encoder, quickly on a CPU: norms folded into convolutions, channels last, a batch for every
core, pictures prepared while the network works."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torch.nn.utils import convert_conv2d_weight_memory_format

from pals.data.row_source import FileImages, Inputs, ItemSource
from pals.training.cpu_threads import in_lanes, lanes_on
from pals.training.inference import TOO_SMALL, Link, OnBatch, View, image_standardizer, infer, make_engine
from pals.util.errors import InputError
from pals.vision.images import MIN_SIDE, How, survey
from pals.vision.networks import Network
from pals.vision.networks.efficientnet_lite import ConvNorm
from pals.vision.pretrained import Encoder, find_encoder

PIXELS = 2 * 224**2
"""In a batch on a CPU. The maps of more leave its cache, and the system takes back their memory after each layer."""
LARGEST_BATCH = 256
"""Pictures at a time elsewhere."""
AHEAD = 2
"""Batches that are prepared before they are asked for, for each that is worked on."""


@dataclass(frozen=True)
class PictureFiles:
    """Pictures that are decoded when they are needed, at the size that the encoder wants."""

    paths: Sequence[str | Path]
    side: int
    "Pixels of the shorter side, about: decides how far small pictures are enlarged."
    how: How = "squash"

    @staticmethod
    def of(paths: Sequence[str | Path]) -> PictureFiles:
        """With about the size that these have."""
        return PictureFiles(paths, survey(Path(), [str(path) for path in paths]).shorter_side)

    def __len__(self) -> int:
        return len(self.paths)

    def decoded(self, size: int, start: int = 0, stop: int | None = None) -> Tensor:
        """Some of them, or all, on all cores that this thread may use: N x 3 x size x size, uint8."""
        return FileImages(self.paths, size, self.how, torch.get_num_threads()).rows(slice(start, stop))


Encodable = Inputs | np.ndarray | Sequence[str] | Sequence[Path] | PictureFiles
"""What `encode` reads."""


def encode(
    pictures: Encodable,
    encoder: Encoder | str = "efficientnet-lite0",
    device: str = "cpu",
    batch: int | None = None,
    progress: OnBatch | None = None,
    weights: str | None = None,
) -> Tensor:
    """N x D features of pictures, float32, on the host. Small pictures are enlarged as `Encoder.input_size` says.

    Args:
        pictures: uint8, in a tensor or an array (N x 3 x height x width, or channels last), or file names.
        encoder: One of `pals encoders`, by name or from `find_encoder`. It is not changed.
        batch: Pictures per batch; affects only speed and memory.
        progress: Called after each batch with the number of pictures done and the total.
        weights: For "timm:NAME": a file, or "timm" to let timm download its own.
    """
    if batch is not None and batch < 1:
        raise InputError(f"A batch of {batch} pictures: give at least 1.")
    pictures = _checked(pictures)
    if isinstance(encoder, str):
        encoder = find_encoder(encoder, weights=weights, images=pictures if isinstance(pictures, Tensor) else None)
    engine = make_engine(device, "fp32")
    link = quick_link(image_standardizer(encoder.mean, encoder.std), encoder.network)
    engine.place(link.network)
    side = pictures.side if isinstance(pictures, PictureFiles) else min(pictures.shape[2:])
    batch, lanes = batch or quick_batch(encoder.input_size(side), engine.device), lanes_on(engine.device)
    with engine.memory(TOO_SMALL):
        prepared = _Prepared(pictures, encoder, lanes)
        return infer(engine, [link], prepared, batch, device="cpu", progress=progress, lanes=lanes).features


def quick_link(standardize: View, network: Network) -> Link:
    """What a frozen network does to pictures, made quick: a copy of it with folded norms, channels last."""
    network = folded(network)
    convert_conv2d_weight_memory_format(network, torch.channels_last)
    return Link(lambda images: standardize(images).contiguous(memory_format=torch.channels_last), network)


def quick_batch(side: int, device: torch.device) -> int:
    """Pictures of so many pixels a side that are encoded at a time."""
    return max(1, PIXELS // max(side, 1) ** 2) if device.type == "cpu" else LARGEST_BATCH


def folded(network: Network) -> Network:
    """A copy for evaluation whose norms have moved into the convolutions before them, where they follow one."""
    network = copy.deepcopy(network).eval()
    for module in network.modules():
        if isinstance(module, ConvNorm):
            module.fold()
    return network.requires_grad_(False)


@dataclass(frozen=True)
class _Prepared:
    """Pictures at the size of the encoder, a few batches of them made ahead in threads."""

    pictures: Inputs | PictureFiles
    encoder: Encoder
    lanes: int
    "Batches that are encoded at a time; as many are prepared."

    def __len__(self) -> int:
        return len(self.pictures)

    def batches(self, size: int) -> Iterator[Tensor]:
        return in_lanes(partial(self._make, size=size), range(0, len(self), size), self.lanes, ahead=AHEAD * self.lanes)

    def _make(self, start: int, size: int) -> Tensor:
        pictures, encoder = self.pictures, self.encoder
        if isinstance(pictures, PictureFiles):
            return pictures.decoded(encoder.input_size(pictures.side), start, start + size)
        return enlarged(pictures[start : start + size], encoder)


def enlarged(images: Tensor, encoder: Encoder) -> Tensor:
    """uint8 pictures at the size at which they are encoded."""
    return images if encoder.size is None else resized(images, encoder.input_size(min(images.shape[2:])))


def resized(images: Tensor, size: int) -> Tensor:
    """uint8 pictures as squares of `size` pixels a side, by the bicubic filter that files are decoded with."""
    if tuple(images.shape[2:]) == (size, size):
        return images
    made = interpolate(images.float(), size=(size, size), mode="bicubic", antialias=True)
    return made.round_().clamp_(0, 255).to(torch.uint8)


def _checked(pictures: Encodable) -> Inputs | PictureFiles:
    """Files as such, arrays as a tensor with the channels first."""
    if isinstance(pictures, np.ndarray) and pictures.dtype.kind in "bfiu":
        pictures = torch.from_numpy(np.ascontiguousarray(pictures))
    if not isinstance(pictures, Tensor | ItemSource | PictureFiles):
        pictures = PictureFiles.of(_names(pictures))
    if not isinstance(pictures, PictureFiles):
        axes = (1, 3) if isinstance(pictures, Tensor) else (1,)  # where the channels may be
        if pictures.dtype != torch.uint8 or pictures.ndim != 4 or 3 not in [pictures.shape[axis] for axis in axes]:
            raise InputError(
                f"An encoder reads uint8 pictures (N x 3 x height x width); found {pictures.dtype} of shape "
                f"{tuple(pictures.shape)}."
            )
        if isinstance(pictures, Tensor) and pictures.shape[1] != 3:
            pictures = pictures.movedim(3, 1)
    side = pictures.side if isinstance(pictures, PictureFiles) else min(pictures.shape[2:])
    if side < MIN_SIDE:
        raise InputError(f"The pictures are {side} pixels high or wide; an encoder needs at least {MIN_SIDE}.")
    return pictures


def _names(pictures: Any) -> list[str]:
    names = [] if isinstance(pictures, str | bytes | Path) or not hasattr(pictures, "__len__") else list(pictures)
    if not names or not all(isinstance(name, str | Path) for name in names):
        raise InputError("An encoder reads uint8 pictures (N x 3 x height x width) or a list of names of picture files.")
    return [str(name) for name in names]
