"""The one loop over batches without gradient: for the networks of a run, a frozen encoder, and a saved classifier.

On a CPU several batches are computed at a time, each in a thread that uses one core: within a small convolution cores mostly
wait for each other, while batches are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import NamedTuple, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from pals.data.row_source import Inputs, in_batches
from pals.training.engine import Engine, EngineConfig
from pals.util.config import build
from pals.util.errors import InputError
from pals.util.threads import in_order
from pals.vision.augment.augmentations import Standardize
from pals.vision.networks import Network, Output

T = TypeVar("T")
R = TypeVar("R")

INFERENCE_BATCH = 256
"""Items at a time; changes speed and memory only."""
OUT_OF_MEMORY_HINT = "Not even one item at a time fits: use --device cpu, or close other programs that use the GPU."
View = Callable[[Tensor], Tensor]
OnBatch = Callable[[int, int], None]
"""Called after each batch with the number of items done and the total."""


class Batches(Protocol):
    """Inputs that are made when they are needed, in order."""

    def __len__(self) -> int: ...

    def batches(self, size: int) -> Iterable[Tensor]:
        """All inputs, `size` at a time; the last batch may be smaller."""
        ...


class InferenceStage(NamedTuple):
    """A network, and the view of its inputs: raw inputs, or the features of the stage before."""

    view: View
    network: nn.Module


def inference_engine(device: str, precision: str = "auto") -> Engine:
    """An engine that compiles nothing, because compilation pays off only in training."""
    return Engine(build(EngineConfig, {"device": device, "precision": precision, "compile": False}, "engine"))


def image_standardizer(mean: Sequence[float], std: Sequence[float]) -> Standardize:
    """(x / 255 - mean) / std of uint8 images, per channel, as in `image_views`."""
    mean_C, std_C = (255 * torch.tensor(list(values), dtype=torch.float64)[:, None, None] for values in (mean, std))
    return Standardize(mean_C, std_C)


def vector_standardizer(mean: Sequence[float], std: Sequence[float]) -> Standardize:
    """(x - mean) / std per feature, as in `vector_views`; a constant feature (std 0) is only centred."""
    mean_D, std_D = (torch.tensor(list(values), dtype=torch.float64) for values in (mean, std))
    return Standardize(mean_D, torch.where(std_D > 0, std_D, 1.0))


def batch_threads(device: torch.device) -> int:
    """How many batches are computed at a time: on a CPU one for each core that torch may use, else 1."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def map_in_threads(work: Callable[[T], R], parts: Iterable[T], threads: int, *, ahead: int = 1) -> Iterator[R]:
    """Apply `work` to each part in threads that use one core each.

    Args:
        work: called in a thread.
        parts: its arguments.
        threads: parts that are worked on at a time.
        ahead: further parts that are taken from `parts` and wait.

    Yields:
        The results in the order of the parts.
    """
    cores = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, "pals-batch", torch.set_num_threads, (1,)) as pool:
            yield from in_order(pool, work, parts, threads + ahead)
    finally:
        torch.set_num_threads(cores)  # the setting of a thread also reaches libraries whose setting is global


def infer(
    engine: Engine,
    stages: Sequence[InferenceStage],
    inputs: Inputs | Batches,
    batch: int = INFERENCE_BATCH,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
    progress: OnBatch | None = None,
    on_oom: Callable[[int], None] | None = None,
    threads: int = 1,
) -> Output:
    """Pass all inputs through the stages, in order.

    Args:
        engine: device and precision.
        stages: networks, each of which reads the features of the one before.
        inputs: N of them.
        batch: items at a time. Batches that exceed the device's memory are halved, and the pass starts again.
        device: of the result; default: the engine's.
        dtype: of the result.
        progress: called after each batch.
        on_oom: called with the new size when batches were halved.
        threads: batches that a CPU computes at a time.

    Returns:
        The logits (N x C) and features (N x D) of the last stage, ordinary tensors.

    Raises:
        InputError: the batch is smaller than 1.
        torch.OutOfMemoryError: a single item exceeds the device's memory.
    """
    if batch < 1:
        raise InputError(f"A batch of {batch} items: give at least 1.")
    where = torch.device(device or engine.device)
    while True:
        try:
            return _pass(engine, stages, inputs, batch, where, dtype, progress, min(threads, -(-len(inputs) // batch)))
        except torch.OutOfMemoryError:
            if batch == 1 or engine.ranks.several:  # the other processes would keep the old size
                raise
        batch //= 2
        engine.free_memory()
        if on_oom is not None:
            on_oom(batch)


def _pass(
    engine: Engine,
    stages: Sequence[InferenceStage],
    inputs: Inputs | Batches,
    batch: int,
    device: torch.device,
    dtype: torch.dtype,
    on_batch: OnBatch | None,
    threads: int,
) -> Output:
    result: Output | None = None  # allocated when the first batch has shown the widths
    with ExitStack() as stack:
        forwards = [(stage.view, stack.enter_context(engine.inference(stage.network))) for stage in stages]

        def forward(part: Tensor) -> tuple[int, Output]:
            count, x = len(part), engine.send(part)
            size = batch if result and engine.compiled else count  # every other size would be compiled again
            for view, network in forwards:
                x = view(x)
                if len(x) < size:  # pad with copies of the last row
                    x = torch.cat([x, x[-1:].expand(size - len(x), *x.shape[1:])])
                output = network(x)
                x = output.features
            return count, output

        def in_thread(part: Tensor) -> tuple[int, Output]:
            with torch.inference_mode(), engine.autocast():  # modes belong to a thread
                return forward(part)

        parts, start = in_batches(inputs, batch) if isinstance(inputs, Tensor) else inputs.batches(batch), 0
        for count, output in map_in_threads(in_thread, parts, threads) if threads > 1 else map(forward, parts):
            if result is None:
                result = _empty_output(len(inputs), [x.shape[1] for x in output], device, dtype)
            for whole, piece in zip(result, output, strict=True):
                whole[start : start + count] = piece[:count]
            start += count
            if on_batch is not None:
                on_batch(start, len(inputs))
    if result is None:
        last = cast(Network, stages[-1].network)
        return _empty_output(0, [last.num_classes, last.feature_width], device, dtype)
    return result


def _empty_output(items: int, widths: Sequence[int], device: torch.device, dtype: torch.dtype) -> Output:
    with torch.inference_mode(False):  # ordinary tensors, which a method may write to
        return Output(*(torch.empty(items, width, device=device, dtype=dtype) for width in widths))
