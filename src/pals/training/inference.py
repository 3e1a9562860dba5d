"""The one loop over batches without gradient, and what is built from it: any network of a run, a frozen encoder, a saved
classifier."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn

from pals.data.row_source import Inputs, in_batches
from pals.training.cpu_threads import in_lanes
from pals.training.engine import Engine, EngineConfig
from pals.util.config import build
from pals.util.errors import InputError
from pals.vision.augment.augmentations import Standardize
from pals.vision.networks import Network, Output

BATCH = 256  # items at a time; changes speed and memory only


TOO_SMALL = "Not even one item at a time fits: use --device cpu, or close other programs that use the GPU."
View = Callable[[Tensor], Tensor]
Forward = Callable[[Tensor], Output]
OnBatch = Callable[[int, int], None]  # called after each batch with the items that are done and all of them


class Batches(Protocol):
    """Inputs that are made when they are needed, in order."""

    def __len__(self) -> int: ...

    def batches(self, size: int) -> Iterable[Tensor]:
        """All of them, `size` at a time; the last batch may be smaller."""
        ...


class Link(NamedTuple):
    """A network and how its inputs are made: from raw inputs, or from the features of the network before it."""

    view: View
    network: nn.Module


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


def infer(
    engine: Engine,
    chain: Sequence[Link],
    inputs: Inputs | Batches,
    batch: int = BATCH,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
    progress: OnBatch | None = None,
    smaller: Callable[[int], None] | None = None,
    lanes: int = 1,
) -> Output:
    """All inputs through the chain, in order; what its last network gives, as ordinary tensors on `device` (the engine's unless
    given). Batches that the device's memory does not hold are halved and the pass starts again, after `smaller` has been told
    the new size; when single items do not fit, the error is torch's. On a CPU `lanes` batches are worked on at a time."""
    if batch < 1:
        raise InputError(f"A batch of {batch} items: give at least 1.")
    while True:
        try:
            here = torch.device(device or engine.device)
            return _pass(engine, chain, inputs, batch, here, dtype, progress, min(lanes, -(-len(inputs) // batch)))
        except torch.OutOfMemoryError:
            if batch == 1 or engine.ranks.several:  # the other processes would go on with the old size
                raise
        batch //= 2
        engine.free_memory()
        if smaller is not None:
            smaller(batch)


def _pass(
    engine: Engine,
    chain: Sequence[Link],
    inputs: Inputs | Batches,
    batch: int,
    device: torch.device,
    dtype: torch.dtype,
    on_batch: OnBatch | None,
    lanes: int,
) -> Output:
    kept: Output | None = None  # made once, when the first batch has told the widths
    with ExitStack() as stack:
        steps = [(link.view, stack.enter_context(engine.inference(link.network))) for link in chain]

        def through(part: Tensor) -> tuple[int, Output]:
            size = batch if kept and engine.compiled else len(part)  # a batch of another size would be compiled anew
            return len(part), _through(steps, engine.send(part), size)

        def apart(part: Tensor) -> tuple[int, Output]:
            with torch.inference_mode(), engine.autocast():  # another thread knows nothing of the modes of this one
                return through(part)

        parts, start = in_batches(inputs, batch) if isinstance(inputs, Tensor) else inputs.batches(batch), 0
        for count, output in in_lanes(apart, parts, lanes) if lanes > 1 else map(through, parts):
            if kept is None:
                kept = _buffers(output, len(inputs), device, dtype)
            for whole, piece in zip(kept, output, strict=True):
                whole[start : start + count] = piece[:count]
            start += count
            if on_batch is not None:
                on_batch(start, len(inputs))
    return _empty(cast(Network, chain[-1].network), device, dtype) if kept is None else kept


def _through(steps: Sequence[tuple[View, Forward]], x: Tensor, size: int) -> Output:
    for view, forward in steps:
        output = forward(_padded(view(x), size))
        x = output.features
    return output


def _buffers(output: Output, items: int, device: torch.device, dtype: torch.dtype) -> Output:
    with torch.inference_mode(False):  # ordinary tensors, which a method may write to
        return Output(*(torch.empty(items, o.shape[1], device=device, dtype=dtype) for o in output))


def _empty(network: Network, device: torch.device, dtype: torch.dtype) -> Output:
    widths = (network.num_classes, network.feature_width)
    return Output(*(torch.empty(0, width, device=device, dtype=dtype) for width in widths))


def _padded(batch: Tensor, size: int) -> Tensor:
    """The batch with its last row repeated, up to this size."""
    return torch.cat([batch, batch[-1:].expand(size - len(batch), *batch.shape[1:])]) if len(batch) < size else batch
