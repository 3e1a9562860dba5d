"""Predictions for pictures or vectors, a stretch at a time, wherever they lie: memory does not grow with their number."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from pals.data.shards import STREAM_START, ArrayShard, EncodedImage, FolderShard, Stream, StreamPart, StreamPosition
from pals.model.saved import Description, Model
from pals.training.inference import INFERENCE_BATCH
from pals.util.errors import InputError
from pals.vision.images import MIN_SIDE, BadImage, BadImageError, How, decode, decode_bytes, survey

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Question:
    """What is asked of a classifier about each item; `predict_folder` says what the words mean."""

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


class Predicted(NamedTuple):
    """What the classifier says of some items, in order, and where in the stream they end."""

    frame: pd.DataFrame
    bad: tuple[BadImage, ...]
    end: StreamPosition

    @property
    def seen(self) -> int:
        """Items, good or bad."""
        return len(self.frame) + len(self.bad)


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
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Predictions of a run's classifier (its folder, or its model.safetensors) for new items, one row for each.

    The columns are item, label, confidence, abstained, top ("cat 0.91; dog 0.05; deer 0.01"), then label_1, p_1, ... for the
    `top` likeliest classes. With a taxonomy also rolled_up, the deepest node that is sure enough, and rolled_up_probability.
    All rows are held in memory; `pals predict` writes them to a file as they come.

    Args:
        images: A folder of pictures with its subfolders, one picture, or an .npy file with one input per row, whose items are
            named by row number, from 0; also WebDataset tar files and Parquet files with pictures, a folder of them, or a
            pattern.
        threshold: Below this confidence the label is empty and `abstained` is true.
        sure: With a taxonomy, how likely a node must be for `rolled_up`; by default as in the run.
        skip_bad: Leave out pictures that cannot be read; they are listed in `frame.attrs["bad"]`, each with name and reason.
        progress: Called now and then with the number of items done and the total.
    """
    question = Question(top, threshold, sure, batch)
    model = Model.load(run, device)
    check_question(model, question, run)
    stream = Stream.of(images)
    total = stream.count() if progress is not None else 0
    frames, bad, done = list[pd.DataFrame](), list[BadImage](), 0
    for part in predictions(model, stream, question, skip_bad=skip_bad):
        if len(part.frame):
            frames.append(part.frame)
        bad += part.bad
        done += part.seen
        if progress is not None:
            progress(done, total)
    if not frames:
        raise nothing_left(stream, bad, len(bad))
    frame = pd.concat(frames, ignore_index=True)
    frame.attrs["bad"] = tuple(bad)
    return frame


def check_question(model: Model, question: Question, run: Path | str) -> None:
    if question.sure is not None and model.about.taxonomy is None:
        raise InputError(
            f"sure = {question.sure}: the classifier in {run} has no taxonomy to roll up in. Fit with --taxonomy first."
        )


def nothing_left(stream: Stream, first_bad: Sequence[BadImage], count: int) -> InputError:
    if not first_bad:
        return InputError(f"{stream.name} holds no item. Name another folder, or other shards.")
    first = first_bad[0]
    return InputError(f"No picture of {stream.name} can be read; the first of {count:,}: {first.name}: {first.reason}.")


def predictions(
    model: Model, stream: Stream, question: Question, *, at: StreamPosition = STREAM_START, skip_bad: bool = False
) -> Iterator[Predicted]:
    """What the classifier says of the items from a place on, stretch by stretch. The stretches, and so the numbers to their
    last bit, are the same whether one starts at the beginning or at the end of one of them."""
    for names, inputs, bad, end in _inputs(model.about, stream, question.batch, at, skip_bad):
        yield Predicted(answers(model, question, names, inputs), bad, end)


def answers(model: Model, question: Question, names: Sequence[str], inputs: Tensor) -> pd.DataFrame:
    """One row for each input."""
    tree = model.about.taxonomy
    probability_NC = model.probabilities(inputs, question.batch)
    probability_NK, class_NK = probability_NC.topk(min(question.top, len(model.class_names)), dim=1)
    frame = tabulate(names, probability_NK, class_NK, model.class_names, question.threshold)
    if tree is None:
        return frame
    rolled = tree.roll_up(probability_NC.numpy(), model.about.sure if question.sure is None else question.sure)
    return frame.assign(rolled_up=tree.names_of(rolled.node_N), rolled_up_probability=rolled.probability_N.round(6))


def no_answers(model: Model, question: Question) -> pd.DataFrame:
    """The same columns without a row."""
    kind = torch.uint8 if model.about.is_image else torch.float32
    return answers(model, question, (), torch.empty(0, *model.about.input_shape, dtype=kind))


def tabulate(
    names: Sequence[str], probability_NK: Tensor, class_NK: Tensor, class_names: Sequence[str], threshold: float | None
) -> pd.DataFrame:
    """Rows in words from the likeliest classes of each item, the likeliest first."""
    p_NK = probability_NK.double().numpy().round(6)
    label_NK = np.array(class_names, dtype=object)[class_NK.numpy()]
    abstained_N = p_NK[:, 0] < (0.0 if threshold is None else threshold)
    words = [
        "; ".join(f"{label} {p:.2f}" for label, p in zip(labels, row, strict=True))
        for labels, row in zip(label_NK, p_NK, strict=True)
    ]
    columns: dict[str, object] = {
        "item": list(names),
        "label": np.where(abstained_N, "", label_NK[:, 0]),
        "confidence": p_NK[:, 0],
        "abstained": abstained_N,
        "top": words,
    }
    for place in range(p_NK.shape[1]):
        columns |= {f"label_{place + 1}": label_NK[:, place], f"p_{place + 1}": p_NK[:, place]}
    return pd.DataFrame(columns)


class _Inputs(NamedTuple):
    """Items that the network can be given, and those that cannot be read."""

    names: Sequence[str]
    inputs: Tensor
    bad: tuple[BadImage, ...]
    end: StreamPosition


def _inputs(about: Description, stream: Stream, batch: int, at: StreamPosition, skip_bad: bool) -> Iterator[_Inputs]:
    """Pictures are decoded by as many threads as there are cores, one stretch ahead of the network."""
    for span in stream.ranges:
        if isinstance(span.shard, ArrayShard):
            _check_rows(about, span.shard)
        elif isinstance(span.shard, FolderShard):
            _refuse_tiny(span.shard.path, span.shard.names)
    size = 0 if all(isinstance(span.shard, ArrayShard) for span in stream.ranges) else _side(about, stream.name)
    pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="pals-predict")
    ahead: deque[tuple[StreamPart, list[Future[np.ndarray]]]] = deque()
    try:
        for stretch in stream.parts(batch, at, skip_bad=skip_bad):
            ahead.append((stretch, _begin(pool, stream, stretch, size, about.resize)))
            if len(ahead) > 1:
                yield _finish(about, stream, *ahead.popleft(), size, skip_bad)
        while ahead:
            yield _finish(about, stream, *ahead.popleft(), size, skip_bad)
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(pool: ThreadPoolExecutor, stream: Stream, stretch: StreamPart, size: int, how: How) -> list[Future[np.ndarray]]:
    names, inputs = stretch.chunk
    if isinstance(inputs, np.ndarray) or not names:
        return []
    shard = stream.ranges[stretch.end.shard].shard.path
    return [pool.submit(_decode, picture, f"{shard}: {name}", size, how) for name, picture in zip(names, inputs, strict=True)]


def _decode(picture: EncodedImage, called: str, size: int, how: How) -> np.ndarray:
    if isinstance(picture, BadImageError):
        raise picture
    return decode(picture, size, how=how) if isinstance(picture, Path) else decode_bytes(picture, called, size, how=how)


def _finish(
    about: Description, stream: Stream, stretch: StreamPart, decoded: Sequence[Future[np.ndarray]], size: int, skip_bad: bool
) -> _Inputs:
    names, inputs = stretch.chunk
    if isinstance(inputs, np.ndarray):
        return _Inputs(names, _numbers(about, stream, inputs, stretch), stretch.bad, stretch.end)
    good, good_names, bad = list[np.ndarray](), list[str](), list(stretch.bad)
    for name, future in zip(names, decoded, strict=True):
        try:
            good.append(future.result())
            good_names.append(name)
        except BadImageError as error:
            if not skip_bad:
                raise InputError(
                    f"{error} Fix or remove this picture, or skip unreadable ones with --skip-bad (skip_bad=True)."
                ) from None
            bad.append(BadImage(name, error.reason))
    pixels = np.stack(good) if good else np.empty((0, *about.input_shape), dtype=np.uint8)
    return _Inputs(good_names, torch.from_numpy(pixels), tuple(bad), stretch.end)


def _numbers(about: Description, stream: Stream, rows: np.ndarray, stretch: StreamPart) -> Tensor:
    with np.errstate(over="ignore"):  # too large for float32 is infinite, which is refused here
        part = np.array(rows, dtype=np.uint8 if about.is_image else np.float32)
    bad = np.flatnonzero(~np.isfinite(part).reshape(len(part), -1).all(axis=1))
    if len(bad):
        path, row = stream.ranges[stretch.end.shard].shard.path, stretch.chunk.names[bad[0]]
        raise InputError(f"{path}, row {row} (from 0) holds NaN or infinity; drop it, or fill the gap.")
    return torch.from_numpy(part)


def _side(about: Description, source: str) -> int:
    """The pixels a side that pictures are brought to."""
    if not about.is_image:
        raise InputError(f"The classifier reads vectors of width {about.input_shape[0]}: give an .npy file, not {source}.")
    channels, height, width = about.input_shape
    if channels != 3 or height != width:
        raise InputError(
            f"The classifier reads inputs of {channels} x {height} x {width}, not square colour pictures: give an .npy file."
        )
    return height


def _refuse_tiny(folder: Path, names: Sequence[str]) -> None:
    try:
        side = survey(folder, names).shorter_side
    except InputError:
        return  # none can be read, which is said when they are decoded
    if side < MIN_SIDE:
        raise InputError(
            f"The pictures in {folder} are {side} pixels high or wide, too small to show anything. Give the originals, of at "
            f"least {MIN_SIDE} pixels."
        )


def _check_rows(about: Description, rows: ArrayShard) -> None:
    array = rows.array
    right = array.dtype == np.uint8 if about.is_image else array.dtype.kind in "fiu"
    if array.shape[1:] != about.input_shape or not right or not len(array):
        wanted = f"N x {' x '.join(map(str, about.input_shape))} {'uint8' if about.is_image else 'numbers'}"
        found = f"{' x '.join(map(str, array.shape)) or 'a single'} {array.dtype}"
        raise InputError(f"{rows.path} holds {found}; the classifier reads {wanted}.")
