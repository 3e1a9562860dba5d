"""Predictions of a saved classifier for images or vectors, batch by batch, in memory that does not grow with their number."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from pals.data.shards.plain_files import ArrayShard, FolderShard
from pals.data.shards.shard import EncodedImage
from pals.data.shards.stream import STREAM_START, Stream, StreamPart, StreamPosition
from pals.model.saved import Description, Model
from pals.training.inference import INFERENCE_BATCH, OnBatch
from pals.util.errors import InputError
from pals.util.threads import read_ahead
from pals.vision.images.decoding import BadImageError, decode, decode_bytes
from pals.vision.images.image_cache import BadImage
from pals.vision.images.pixel_statistics import MIN_SIDE, median_side


@dataclass(frozen=True)
class PredictionOptions:
    """What is predicted for each item, as in `predict_folder`."""

    top: int = 3
    threshold: float | None = None
    sure: float | None = None
    batch: int = INFERENCE_BATCH

    def __post_init__(self) -> None:
        if self.top < 1:
            raise InputError(f"The {self.top} likeliest classes were asked for; give at least 1.")
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise InputError(f"The threshold is {self.threshold}; a confidence is between 0 and 1.")
        if self.batch < 1:
            raise InputError(f"A batch of {self.batch} items: give at least 1.")

    def check(self, model: Model, run: Path | str) -> None:
        """Refuse options that the classifier does not support."""
        if self.sure is not None and model.about.taxonomy is None:
            raise InputError(f"sure = {self.sure}: the classifier in {run} has no taxonomy. Fit with --taxonomy first.")


class PredictedPart(NamedTuple):
    """Predictions for consecutive items."""

    frame: pd.DataFrame
    "One row per item, see `prediction_rows`."
    bad: tuple[BadImage, ...]
    "Images that cannot be read."
    end: StreamPosition
    "The position in the stream after these items."


def predict_folder(
    run: Path | str,
    images: Path | str,
    *,
    top: int = 3,
    threshold: float | None = None,
    sure: float | None = None,
    device: str = "auto",
    skip_bad: bool = False,
    batch: int = INFERENCE_BATCH,
    progress: OnBatch | None = None,
) -> pd.DataFrame:
    """Predictions of a run's classifier for new items. All rows are in memory; `pals predict` writes them to a file instead.

    Args:
        run: the run folder, or its model.safetensors.
        images: a folder of images with its subfolders, one image, or an .npy file with one input per row, whose items are
            named by row number from 0; also WebDataset tar files and Parquet files with images, a folder of them, or a
            pattern such as shards-*.tar.
        top: how many of the likeliest classes have columns of their own; default: 3.
        threshold: below this confidence the label is empty and `abstained` is true; default: never.
        sure: with a taxonomy, how likely a node must be for `rolled_up`; default: as in the run.
        device: "cpu", "cuda", or "auto", the default.
        skip_bad: leave out images that cannot be read, and list name and reason of each in `frame.attrs["bad"]`.
        batch: items per batch; default: 256.
        progress: called after each batch with the number of items done and the total.

    Returns:
        One row per item with the columns item, label, confidence, abstained, top ("cat 0.91; dog 0.05; deer 0.01"), then
        label_1, p_1, label_2, p_2, ...; with a taxonomy also rolled_up, the deepest node that is likely enough, and
        rolled_up_probability.

    Raises:
        InputError: the run has no classifier, an option is invalid, no item can be read, or, unless `skip_bad`, one cannot.

    Example:
        >>> import numpy as np
        >>> from pals.model import Description, Model, Part
        >>> from pals.vision.networks import build_network
        >>> about = Description(("cat", "dog"), Part("mlp", (2,), (0, 0), (1, 1)))
        >>> Model(about, build_network("mlp", (2,), 2), device="cpu").save("model.safetensors")
        >>> np.save("new.npy", np.zeros((3, 2)))
        >>> pals.predict_folder("model.safetensors", "new.npy", device="cpu", top=1).columns.tolist()
        ['item', 'label', 'confidence', 'abstained', 'top', 'label_1', 'p_1']
    """
    options = PredictionOptions(top, threshold, sure, batch)
    model = Model.load(run, device)
    options.check(model, run)
    stream = Stream.of(images)
    total = stream.count() if progress is not None else 0
    frames, bad, done = list[pd.DataFrame](), list[BadImage](), 0
    for part in predictions(model, stream, options, skip_bad=skip_bad):
        if len(part.frame):
            frames.append(part.frame)
        bad += part.bad
        done += len(part.frame) + len(part.bad)
        if progress is not None:
            progress(done, total)
    if not frames:
        raise no_items_error(stream, bad, len(bad))
    frame = pd.concat(frames, ignore_index=True)
    frame.attrs["bad"] = tuple(bad)
    return frame


def no_items_error(stream: Stream, first_bad: Sequence[BadImage], count: int) -> InputError:
    if not first_bad:
        return InputError(f"{stream.name} holds no item. Name another folder, or other shards.")
    first = first_bad[0]
    return InputError(f"No picture of {stream.name} can be read; the first of {count:,}: {first.name}: {first.reason}.")


def predictions(
    model: Model, stream: Stream, options: PredictionOptions, *, at: StreamPosition = STREAM_START, skip_bad: bool = False
) -> Iterator[PredictedPart]:
    """Predict the items of a stream from one position on.

    Each batch is decoded by as many threads as there are cores while the network computes the one before. Batches, and so the
    probabilities to the last bit, are the same whether one starts at the beginning or at the end of any part.

    Args:
        model: the classifier.
        stream: the items.
        options: what each row holds.
        at: where to begin.
        skip_bad: report unreadable items instead of raising an InputError.
    """
    size = _check_inputs(model.about, stream)

    def load(part: StreamPart) -> tuple[StreamPart, np.ndarray | list[np.ndarray | BadImageError]]:
        names, inputs = part.chunk
        if isinstance(inputs, np.ndarray):
            return part, inputs
        shard = stream.ranges[part.end.shard].shard.path if names else ""
        return part, list(pool.map(lambda name, image: _decode(image, f"{shard}: {name}", size, model.about), names, inputs))

    with ThreadPoolExecutor(os.cpu_count() or 1, "pals-predict") as pool:
        for part, loaded in read_ahead(load, stream.parts(options.batch, at, skip_bad=skip_bad), 1):
            if isinstance(loaded, np.ndarray):
                rows = _finite_rows(model.about, stream, part, loaded)
                yield PredictedPart(prediction_rows(model, options, part.chunk.names, rows), part.bad, part.end)
                continue
            names, images, bad = list[str](), list[np.ndarray](), list(part.bad)
            for name, image in zip(part.chunk.names, loaded, strict=True):
                if not isinstance(image, BadImageError):
                    names.append(name)
                    images.append(image)
                elif skip_bad:
                    bad.append(BadImage(name, image.reason))
                else:
                    raise InputError(f"{image} Fix or remove this picture, or skip it: --skip-bad (skip_bad=True).")
            pixels = np.stack(images) if images else np.empty((0, *model.about.input_shape), dtype=np.uint8)
            frame = prediction_rows(model, options, names, torch.from_numpy(pixels))
            yield PredictedPart(frame, tuple(bad), part.end)


def prediction_rows(model: Model, options: PredictionOptions, names: Sequence[str], inputs: Tensor) -> pd.DataFrame:
    """The table of `predict_folder` for some inputs.

    Args:
        model: the classifier.
        options: what is predicted.
        names: of the N items.
        inputs: N x the input shape of the classifier.
    """
    tree = model.about.taxonomy
    probability_NC = model.probabilities(inputs, options.batch)
    top_NK = probability_NC.topk(min(options.top, len(model.class_names)), dim=1)
    p_NK = top_NK.values.double().numpy().round(6)
    label_NK = np.array(model.class_names, dtype=object)[top_NK.indices.numpy()]
    abstained_N = p_NK[:, 0] < (0.0 if options.threshold is None else options.threshold)
    text_N = [
        "; ".join(f"{label} {p:.2f}" for label, p in zip(labels, row, strict=True))
        for labels, row in zip(label_NK, p_NK, strict=True)
    ]
    columns: dict[str, object] = {
        "item": list(names),
        "label": np.where(abstained_N, "", label_NK[:, 0]),
        "confidence": p_NK[:, 0],
        "abstained": abstained_N,
        "top": text_N,
    }
    for k in range(p_NK.shape[1]):
        columns |= {f"label_{k + 1}": label_NK[:, k], f"p_{k + 1}": p_NK[:, k]}
    if tree is not None:
        rolled = tree.roll_up(probability_NC.numpy(), model.about.sure if options.sure is None else options.sure)
        columns |= {"rolled_up": tree.names_of(rolled.node_N), "rolled_up_probability": rolled.probability_N.round(6)}
    return pd.DataFrame(columns)


def empty_rows(model: Model, options: PredictionOptions) -> pd.DataFrame:
    """The table of `predict_folder` without a row."""
    kind = torch.uint8 if model.about.is_image else torch.float32
    return prediction_rows(model, options, (), torch.empty(0, *model.about.input_shape, dtype=kind))


def _decode(image: EncodedImage, label: str, size: int, about: Description) -> np.ndarray | BadImageError:
    if isinstance(image, BadImageError):
        return image
    try:
        if isinstance(image, Path):
            return decode(image, size, how=about.resize)
        return decode_bytes(image, label, size, how=about.resize)
    except BadImageError as error:
        return error


def _finite_rows(about: Description, stream: Stream, part: StreamPart, rows: np.ndarray) -> Tensor:
    with np.errstate(over="ignore"):  # a number too large for float32 becomes infinity, which is refused here
        array = np.array(rows, dtype=np.uint8 if about.is_image else np.float32)
    bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))
    if len(bad):
        path, row = stream.ranges[part.end.shard].shard.path, part.chunk.names[bad[0]]
        raise InputError(f"{path}, row {row} (from 0) holds NaN or infinity; drop it, or fill the gap.")
    return torch.from_numpy(array)


def _check_inputs(about: Description, stream: Stream) -> int:
    """Refuse inputs that the classifier does not read.

    Returns:
        Pixels per side of the images it reads; 0 where there are none.
    """
    shards, shape = [span.shard for span in stream.ranges], about.input_shape
    for shard in shards:
        if isinstance(shard, ArrayShard):
            array = shard.array
            right = array.dtype == np.uint8 if about.is_image else array.dtype.kind in "fiu"
            if array.shape[1:] != shape or not right or not len(array):
                wanted = f"N x {' x '.join(map(str, shape))} {'uint8' if about.is_image else 'numbers'}"
                found = f"{' x '.join(map(str, array.shape)) or 'a single'} {array.dtype}"
                raise InputError(f"{shard.path} holds {found}; the classifier reads {wanted}.")
        elif isinstance(shard, FolderShard):
            _refuse_tiny(shard.path, shard.names)
    if all(isinstance(shard, ArrayShard) for shard in shards):
        return 0
    if not about.is_image:
        raise InputError(f"The classifier reads vectors of width {shape[0]}: give an .npy file, not {stream.name}.")
    channels, height, width = shape
    if channels != 3 or height != width:
        raise InputError(f"The classifier reads {channels} x {height} x {width}, not square colour images: give an .npy file.")
    return height


def _refuse_tiny(folder: Path, names: Sequence[str]) -> None:
    try:
        side = median_side(folder, names)
    except InputError:
        return  # no image can be read, which is an error when they are decoded
    if side < MIN_SIDE:
        raise InputError(f"The pictures in {folder} are {side} pixels wide or high; give originals of at least {MIN_SIDE}.")
