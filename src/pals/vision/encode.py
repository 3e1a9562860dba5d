"""Features of pictures by a frozen encoder, quickly on a CPU: norms folded into convolutions, channels last, pictures prepared
while the network works."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torch.nn.utils import convert_conv2d_weight_memory_format

from pals.util.errors import InputError
from pals.vision.augment.views import Standardize
from pals.vision.backbones import Network
from pals.vision.backbones.efficientnet import ConvNorm
from pals.vision.backbones.folded import fold
from pals.vision.backbones.norm import BatchNorm2d
from pals.vision.encoders import Encoder, find_encoder
from pals.vision.images import How, decode

PIXELS = 2 * 224**2
"""In a batch on a CPU. The maps of more leave its cache, and the system takes back their memory after each layer."""
LARGEST_BATCH = 256
"""Pictures at a time elsewhere."""
AHEAD = 2
"""Batches that are prepared before they are asked for."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PictureFiles:
    """Pictures that are decoded when they are needed, at the size that the encoder wants."""

    paths: Sequence[str | Path]
    side: int
    "Pixels of the shorter side, about: decides how far small pictures are enlarged."
    how: How = "squash"

    def __len__(self) -> int:
        return len(self.paths)


@torch.inference_mode()
def encode(
    pictures: Tensor | PictureFiles,
    encoder: Encoder | str = "efficientnet-lite0",
    device: str | torch.device = "cpu",
    batch: int | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """N x D features, float32, on the host. `pictures` are uint8 (N x 3 x height x width) or files; `encoder` is one of
    `pals encoders`, by name or as found by `find_encoder`.

    Small pictures are enlarged as `Encoder.input_size` says. The encoder stays as it is. `batch` changes speed and memory
    only. `progress` is called after each batch with the pictures that are done and all of them.
    """
    _check(pictures, batch)
    if isinstance(encoder, str):
        encoder = find_encoder(encoder, images=pictures if isinstance(pictures, Tensor) else None)
    batch = batch or _quick_batch(pictures, encoder, torch.device(device))
    network = folded(encoder.network).to(device)
    convert_conv2d_weight_memory_format(network, torch.channels_last)
    standardize = Standardize(*(255 * torch.tensor(values)[:, None, None] for values in (encoder.mean, encoder.std)))
    features_ND = torch.empty(len(pictures), encoder.feature_width)
    done = 0
    for images in _prepared(pictures, encoder, batch):
        x = standardize(images.to(device, non_blocking=True)).contiguous(memory_format=torch.channels_last)
        features_ND[done : done + len(images)] = network.encode(x).float().cpu()
        done += len(images)
        if progress is not None:
            progress(done, len(pictures))
    return features_ND


def folded(network: Network) -> Network:
    """A copy for evaluation whose norms have moved into the convolutions before them, where they follow one."""
    network = copy.deepcopy(network).eval()
    for module in network.modules():
        if isinstance(module, ConvNorm) and isinstance(module.norm, BatchNorm2d):
            weight, bias = fold(module.conv, module.norm)
            module.conv.weight, module.conv.bias = nn.Parameter(weight), nn.Parameter(bias)
            module.norm = nn.Identity()
    return network.requires_grad_(False)


def _prepared(pictures: Tensor | PictureFiles, encoder: Encoder, batch: int) -> Iterator[Tensor]:
    """Batches at the size of the encoder, in order, a few of them made ahead in a thread."""

    def make(start: int) -> Tensor:
        if isinstance(pictures, PictureFiles):
            size = encoder.input_size(pictures.side)
            chosen = pictures.paths[start : start + batch]
            return torch.stack([torch.from_numpy(decode(path, size, how=pictures.how)) for path in chosen])
        return enlarged(pictures[start : start + batch], encoder)

    with ThreadPoolExecutor(1, thread_name_prefix="pals-encode") as pool:
        waiting: deque[Future[Tensor]] = deque()
        try:
            for start in range(0, len(pictures), batch):
                waiting.append(pool.submit(make, start))
                if len(waiting) > AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def enlarged(images: Tensor, encoder: Encoder) -> Tensor:
    """uint8 pictures at the size at which they are encoded, by the bicubic filter that files are decoded with."""
    size = encoder.input_size(min(images.shape[2:]))
    if encoder.size is None or tuple(images.shape[2:]) == (size, size):
        return images
    resized = interpolate(images.float(), size=(size, size), mode="bicubic", antialias=True)
    return resized.round_().clamp_(0, 255).to(torch.uint8)


def _quick_batch(pictures: Tensor | PictureFiles, encoder: Encoder, device: torch.device) -> int:
    if device.type != "cpu":
        return LARGEST_BATCH
    side = pictures.side if isinstance(pictures, PictureFiles) else min(pictures.shape[2:])
    return max(1, PIXELS // max(encoder.input_size(side), 1) ** 2)


def _check(pictures: Tensor | PictureFiles, batch: int | None) -> None:
    if batch is not None and batch < 1:
        raise InputError(f"A batch of {batch} pictures: give at least 1.")
    if isinstance(pictures, Tensor) and (pictures.dtype != torch.uint8 or pictures.ndim != 4):
        raise InputError(
            f"An encoder reads uint8 pictures (N x 3 x height x width); found {pictures.dtype} of shape "
            f"{tuple(pictures.shape)}."
        )
