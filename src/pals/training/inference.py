"""Networks that only answer: raw inputs standardised as in training, then through one network, or through a frozen encoder
and a small network that reads its features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import torch
from torch import Tensor

from pals.training.engine import Engine, EngineConfig
from pals.util.config import build
from pals.util.errors import InputError
from pals.vision.augment.views import Standardize
from pals.vision.backbones import Network, Output

BATCH = 256  # items at a time; changes speed and memory only


class Link(NamedTuple):
    """A network and what is done to its inputs before."""

    standardize: Standardize
    network: Network


def make_engine(device: str, precision: str = "auto") -> Engine:
    """An engine that answers at once: to compile a network pays only where it is trained."""
    return Engine(build(EngineConfig, {"device": device, "precision": precision, "compile": False}, "engine"))


def image_standardizer(mean: Sequence[float], std: Sequence[float]) -> Standardize:
    """For uint8 images; `mean` and `std` are per channel, of pixels from 0 to 1, as for `image_views`."""
    mean_C, std_C = _numbers(mean), _numbers(std)
    return Standardize(255 * mean_C[:, None, None], 255 * std_C[:, None, None])


def vector_standardizer(mean: Sequence[float], std: Sequence[float]) -> Standardize:
    """For vectors, as `vector_views` does it: a feature that never varies is only centred."""
    std_D = _numbers(std)
    return Standardize(_numbers(mean), torch.where(std_D > 0, std_D, 1.0))


def _numbers(values: Sequence[float]) -> Tensor:
    return torch.tensor(list(values), dtype=torch.float64)


def encode_images(
    encoder: Network,
    images: Tensor,
    mean: Sequence[float],
    std: Sequence[float],
    device: str = "auto",
    batch: int = BATCH,
    *,
    precision: str = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """N x D features of uint8 images (N x channels x height x width), float32, on the host. The encoder is moved to the
    device; nothing in it changes. These are the very features that a `Model` with this encoder hands to its classifier.
    `progress` is called after each batch with the images that are done and all of them."""
    if images.dtype != torch.uint8 or images.ndim != 4:
        raise InputError(
            f"An encoder reads uint8 images (N x channels x height x width); found {images.dtype} of shape "
            f"{tuple(images.shape)}."
        )
    engine = make_engine(device, precision)
    engine.place(encoder)
    return infer(engine, [Link(image_standardizer(mean, std), encoder)], images, batch, progress).features


def infer(
    engine: Engine,
    chain: Sequence[Link],
    inputs: Tensor,
    batch: int = BATCH,
    progress: Callable[[int, int], None] | None = None,
) -> Output:
    """All inputs through the chain, each network reading the features of the one before; what the last one gives, in order,
    float32, on the host."""
    if batch < 1:
        raise InputError(f"A batch of {batch} items: give at least 1.")
    last = chain[-1].network
    parts = [Output(torch.empty(0, last.num_classes), torch.empty(0, last.feature_width))]
    with ExitStack() as stack, engine.memory(f"Lower the batch (now {batch})."):
        steps = [(link.standardize, stack.enter_context(engine.inference(link.network))) for link in chain]
        for start in range(0, len(inputs), batch):
            x = inputs[start : start + batch].to(engine.device, non_blocking=True)
            for standardize, forward in steps:
                output = forward(standardize(x))
                x = output.features
            parts.append(Output(output.logits.float().cpu(), output.features.float().cpu()))
            if progress is not None:
                progress(min(start + batch, len(inputs)), len(inputs))
    return Output(*(torch.cat(pieces) for pieces in zip(*parts, strict=True)))
