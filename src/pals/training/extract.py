"""Features of images by a frozen encoder: h_i = f((x_i / 255 - mean) / std), made fast on a CPU.

Batch norms are folded into the convolutions before them, images are in the memory format channels_last, each core computes a
batch of its own, and further images are decoded and resized meanwhile.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torch.nn.utils import convert_conv2d_weight_memory_format

from pals.data.row_source import FileImages, Inputs, ItemSource
from pals.training.inference import (
    OUT_OF_MEMORY_HINT,
    InferenceStage,
    OnBatch,
    View,
    batch_threads,
    image_standardizer,
    infer,
    inference_engine,
    map_in_threads,
)
from pals.util.errors import InputError
from pals.vision.images.decoding import How
from pals.vision.images.pixel_statistics import MIN_SIDE, median_side
from pals.vision.networks import Network
from pals.vision.networks.efficientnet_lite import ConvNorm
from pals.vision.pretrained import Encoder, find_encoder

CPU_BATCH_PIXELS = 2 * 224**2
"""Pixels of a batch on a CPU: the feature maps of larger batches exceed its cache, and each layer reallocates their memory."""
GPU_BATCH_IMAGES = 256
BATCHES_AHEAD = 2
"""Batches that are prepared in advance for each that is computed."""


@dataclass(frozen=True)
class ImagePaths:
    """Image files that are decoded when they are needed, at the encoder's input size."""

    paths: Sequence[str | Path]
    side: int
    "Typical shorter side in pixels; decides how far small images are enlarged."
    how: How = "squash"

    @staticmethod
    def of(paths: Sequence[str | Path]) -> ImagePaths:
        """The files with `side` measured on a sample of them."""
        return ImagePaths(paths, median_side(Path(), [str(path) for path in paths]))

    def __len__(self) -> int:
        return len(self.paths)

    def decoded(self, size: int, start: int = 0, stop: int | None = None) -> Tensor:
        """Images `start` to `stop`, decoded on all cores of this thread: N x 3 x size x size, uint8."""
        return FileImages(self.paths, size, self.how, torch.get_num_threads()).rows(slice(start, stop))


Encodable = Inputs | np.ndarray | Sequence[str] | Sequence[Path] | ImagePaths
"""What `encode` reads."""


def encode(
    pictures: Encodable,
    encoder: Encoder | str = "efficientnet-lite0",
    device: str = "cpu",
    batch: int | None = None,
    progress: OnBatch | None = None,
    weights: str | None = None,
) -> Tensor:
    """Features of images. Small images are enlarged as `Encoder.input_size` defines.

    Args:
        pictures: N images: uint8, N x 3 x height x width or N x height x width x 3, as a tensor or an array; or file names.
        encoder: a name of `pals encoders`, or an `Encoder`, which is not changed; default: efficientnet-lite0.
        device: "cpu", "cuda", or "auto"; default: "cpu".
        batch: images per batch, which affects only speed and memory; default: by the encoder's input size.
        progress: called after each batch with the number of images done and N.
        weights: for "timm:NAME": a file, or "timm" to let timm download its own.

    Returns:
        N x D, float32, on the CPU.

    Raises:
        InputError: the images or the batch are invalid, a file cannot be decoded, or the encoder is unknown.

    Example:
        >>> import numpy as np
        >>> images = np.random.default_rng(0).integers(0, 256, (50, 16, 16, 3), dtype=np.uint8)
        >>> pals.encode(images, "patches").shape
        torch.Size([50, 512])
    """
    if batch is not None and batch < 1:
        raise InputError(f"A batch of {batch} pictures: give at least 1.")
    images = _checked(pictures)
    if isinstance(encoder, str):
        encoder = find_encoder(encoder, weights=weights, images=images if isinstance(images, Tensor) else None)
    engine = inference_engine(device, "fp32")
    stage = frozen_stage(image_standardizer(encoder.mean, encoder.std), encoder.network)
    engine.place(stage.network)
    batch, threads = batch or frozen_batch(encoder.input_size(_side(images)), engine.device), batch_threads(engine.device)
    with engine.memory(OUT_OF_MEMORY_HINT):
        prepared = _Prepared(images, encoder, threads)
        return infer(engine, [stage], prepared, batch, device="cpu", progress=progress, threads=threads).features


def frozen_stage(standardize: View, network: Network) -> InferenceStage:
    """The inference stage of a frozen network: a copy of it with folded norms, in the memory format channels_last."""
    network = folded(network)
    convert_conv2d_weight_memory_format(network, torch.channels_last)
    return InferenceStage(lambda images: standardize(images).contiguous(memory_format=torch.channels_last), network)


def frozen_batch(side: int, device: torch.device) -> int:
    """How many images with `side` pixels per side are encoded at a time."""
    return max(1, CPU_BATCH_PIXELS // max(side, 1) ** 2) if device.type == "cpu" else GPU_BATCH_IMAGES


def folded(network: Network) -> Network:
    """A copy for evaluation whose batch norms are folded into the convolutions before them."""
    network = copy.deepcopy(network).eval()
    for module in network.modules():
        if isinstance(module, ConvNorm):
            module.fold()
    return network.requires_grad_(False)


@dataclass(frozen=True)
class _Prepared:
    """Images at the encoder's input size; some batches are prepared in advance by threads."""

    images: Inputs | ImagePaths
    encoder: Encoder
    threads: int
    "Batches that are encoded at a time; as many are prepared."

    def __len__(self) -> int:
        return len(self.images)

    def batches(self, size: int) -> Iterator[Tensor]:
        starts, ahead = range(0, len(self), size), BATCHES_AHEAD * self.threads
        return map_in_threads(partial(self._make, size=size), starts, self.threads, ahead=ahead)

    def _make(self, start: int, size: int) -> Tensor:
        if isinstance(self.images, ImagePaths):
            return self.images.decoded(self.encoder.input_size(self.images.side), start, start + size)
        return enlarged(self.images[start : start + size], self.encoder)


def enlarged(images: Tensor, encoder: Encoder) -> Tensor:
    """uint8 images resized to the encoder's input size for images of their size."""
    return images if encoder.size is None else resized(images, encoder.input_size(min(images.shape[2:])))


def resized(images: Tensor, size: int) -> Tensor:
    """uint8 images, N x C x height x width, as squares of `size` pixels per side, by the bicubic filter of the decoder."""
    if tuple(images.shape[2:]) == (size, size):
        return images
    made = interpolate(images.float(), size=(size, size), mode="bicubic", antialias=True)
    return made.round_().clamp_(0, 255).to(torch.uint8)


def _side(images: Inputs | ImagePaths) -> int:
    return images.side if isinstance(images, ImagePaths) else min(images.shape[2:])


def _checked(images: Encodable) -> Inputs | ImagePaths:
    """Files as `ImagePaths`, arrays as a tensor with the channels first."""
    if isinstance(images, np.ndarray) and images.dtype.kind in "bfiu":
        images = torch.from_numpy(np.ascontiguousarray(images))
    if not isinstance(images, Tensor | ItemSource | ImagePaths):
        names = [] if isinstance(images, str | bytes | Path) or not hasattr(images, "__len__") else list(images)
        if not names or not all(isinstance(name, str | Path) for name in names):
            raise InputError("An encoder reads uint8 pictures (N x 3 x height x width) or a list of names of picture files.")
        images = ImagePaths.of([str(name) for name in names])
    if not isinstance(images, ImagePaths):
        axes = (1, 3) if isinstance(images, Tensor) else (1,)  # where the channels may be
        if images.dtype != torch.uint8 or images.ndim != 4 or 3 not in [images.shape[axis] for axis in axes]:
            raise InputError(f"An encoder reads uint8 pictures (N x 3 x H x W); found {images.dtype} {tuple(images.shape)}.")
        if isinstance(images, Tensor) and images.shape[1] != 3:
            images = images.movedim(3, 1)
    if _side(images) < MIN_SIDE:
        raise InputError(f"The pictures are {_side(images)} pixels high or wide; an encoder needs at least {MIN_SIDE}.")
    return images
