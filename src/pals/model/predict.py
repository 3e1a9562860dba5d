"""Predictions for a folder of pictures, one picture or a file of vectors, a stretch at a time: memory does not grow with it."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from pals.labels.taxonomy import RolledUp
from pals.model.saved import Description, Model
from pals.training.inference import BATCH
from pals.util.errors import InputError
from pals.vision.images import SMALLEST_SIDE, BadImage, BadImageError, decode, list_images, survey

Progress = Callable[[int, int], None]


class Stretch(NamedTuple):
    """Some of the items, in order."""

    names: tuple[str, ...]
    inputs: Tensor
    total: int  # of all stretches, good or bad
    bad: tuple[BadImage, ...] = ()


def predict_folder(
    run: Path | str,
    images: Path | str,
    *,
    top: int = 3,
    threshold: float | None = None,
    sure: float | None = None,
    device: str = "auto",
    skip_bad: bool = False,
    batch: int = BATCH,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """What the classifier of a run (its folder, or its model.safetensors) says about new items, one row for each.

    images: a folder of pictures with its subfolders, one picture, or an .npy file with an input per row, whose items are
    called by their row number, from 0.
    threshold: below this confidence the label is left empty and `abstained` is true.
    sure: with a taxonomy, how likely a node must be for `rolled_up`; by default as in the run.
    skip_bad: go on without pictures that cannot be read; they are in `frame.attrs["bad"]`, each with its name and reason.
    progress: called now and then with how many items are done, and of how many.

    Columns: item, label, confidence, abstained, top ("cat 0.91; dog 0.05; deer 0.01"), then label_1, p_1, ... of the `top`
    likeliest classes. Of a run with a taxonomy also rolled_up, the deepest node that is sure enough, and rolled_up_probability.
    """
    if top < 1:
        raise InputError(f"The {top} likeliest classes were asked for; give at least 1.")
    if threshold is not None and not 0 <= threshold <= 1:
        raise InputError(f"The threshold is {threshold}; a confidence is between 0 and 1.")
    if batch < 1:
        raise InputError(f"A batch of {batch} items: give at least 1.")
    model = Model.load(run, device)
    tree = model.about.taxonomy
    if sure is not None and tree is None:
        raise InputError(f"sure = {sure}: the classifier in {run} has no taxonomy to roll up in. Fit with --taxonomy first.")
    source = Path(images)
    stretches = (
        _rows(model.about, source, batch) if source.suffix == ".npy" else _pictures(model.about, source, batch, skip_bad)
    )
    names: list[str] = []
    bad: list[BadImage] = []
    likeliest = [torch.empty(0, min(top, len(model.class_names)))]
    classes = [likeliest[0].long()]
    rolled: list[RolledUp] = []
    for stretch in stretches:
        probability_NC = model.probabilities(stretch.inputs, batch)
        probability_NK, class_NK = probability_NC.topk(likeliest[0].shape[1], dim=1)
        if tree is not None:
            rolled.append(tree.roll_up(probability_NC.numpy(), model.about.sure if sure is None else sure))
        names += stretch.names
        bad += stretch.bad
        likeliest.append(probability_NK)
        classes.append(class_NK)
        if progress is not None:
            progress(len(names) + len(bad), stretch.total)
    if not names:
        raise InputError(f"No picture of {source} can be read; the first of {len(bad)}: {bad[0].name}: {bad[0].reason}.")
    frame = tabulate(names, torch.cat(likeliest), torch.cat(classes), model.class_names, threshold)
    if tree is not None:
        node_N, probability_N = (np.concatenate(part) for part in zip(*rolled, strict=True))
        frame = frame.assign(rolled_up=tree.names_of(node_N), rolled_up_probability=probability_N.round(6))
    frame.attrs["bad"] = tuple(bad)
    return frame


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


def _pictures(about: Description, source: Path, batch: int, skip_bad: bool) -> Iterator[Stretch]:
    """Decoded by as many threads as there are cores, one stretch ahead of the network."""
    size = _side(about, source)
    folder, names = (source.parent, [source.name]) if source.is_file() else (source, list_images(source))
    _refuse_tiny(folder, names)
    pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="pals-predict")
    ahead: deque[list[Future[np.ndarray]]] = deque()
    try:
        for start in range(0, len(names) + batch, batch):
            if start < len(names):
                part = names[start : start + batch]
                ahead.append([pool.submit(decode, folder / name, size, how=about.resize) for name in part])
            if start:
                yield _collect(names[start - batch : start], ahead.popleft(), len(names), size, skip_bad)
    finally:
        pool.shutdown(cancel_futures=True)


def _refuse_tiny(folder: Path, names: Sequence[str]) -> None:
    try:
        side = survey(folder, names).shorter_side
    except InputError:
        return  # none can be read, which is said when they are decoded
    if side < SMALLEST_SIDE:
        raise InputError(
            f"The pictures in {folder} are {side} pixels high or wide, too few to see anything on. Give the originals, of at "
            f"least {SMALLEST_SIDE} pixels."
        )


def _collect(names: Sequence[str], decoded: Sequence[Future[np.ndarray]], total: int, size: int, skip_bad: bool) -> Stretch:
    """Wait for these pictures and put the good ones together."""
    good, bad = dict[str, np.ndarray](), list[BadImage]()
    for name, future in zip(names, decoded, strict=True):
        try:
            good[name] = future.result()
        except BadImageError as error:
            if not skip_bad:
                raise InputError(
                    f"{error} Fix or remove this picture, or skip unreadable ones with --skip-bad (skip_bad=True)."
                ) from None
            bad.append(BadImage(name, error.reason))
    pixels = np.stack(list(good.values())) if good else np.empty((0, 3, size, size), dtype=np.uint8)
    return Stretch(tuple(good), torch.from_numpy(pixels), total, tuple(bad))


def _side(about: Description, source: Path) -> int:
    """The pixels a side that pictures are brought to."""
    if not source.exists():
        raise InputError(f"{source} does not exist. Name a folder of pictures, one picture, or an .npy file.")
    if not about.is_image:
        raise InputError(f"The classifier reads vectors of width {about.input_shape[0]}: give an .npy file, not {source}.")
    channels, height, width = about.input_shape
    if channels != 3 or height != width:
        raise InputError(
            f"The classifier reads inputs of {channels} x {height} x {width}, not coloured squares: give an .npy file of such."
        )
    return height


def _rows(about: Description, source: Path, batch: int) -> Iterator[Stretch]:
    """Rows of an .npy file, which stays on the disk."""
    try:
        array = np.lib.format.open_memmap(source, mode="r")  # numbers only: it never loads a pickle
    except FileNotFoundError:
        raise InputError(f"{source} does not exist. Name a folder of pictures, one picture, or an .npy file.") from None
    except (OSError, ValueError, EOFError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{source} is not an .npy file of numbers ({reason}). Write it with numpy.save.") from None
    right = array.dtype == np.uint8 if about.is_image else array.dtype.kind in "fiu"
    if array.shape[1:] != about.input_shape or not right or not len(array):
        wanted = f"N x {' x '.join(map(str, about.input_shape))} {'uint8' if about.is_image else 'numbers'}"
        found = f"{' x '.join(map(str, array.shape)) or 'a single'} {array.dtype}"
        raise InputError(f"{source} holds {found}; the classifier reads {wanted}.")
    for start in range(0, len(array), batch):
        with np.errstate(over="ignore"):  # too large for float32 is infinite, which is refused below
            part = np.array(array[start : start + batch], dtype=np.uint8 if about.is_image else np.float32)
        _refuse_gaps(source, part, start)
        yield Stretch(tuple(map(str, range(start, start + len(part)))), torch.from_numpy(part), len(array))


def _refuse_gaps(source: Path, part: np.ndarray, start: int) -> None:
    bad = np.flatnonzero(~np.isfinite(part).reshape(len(part), -1).all(axis=1))
    if len(bad):
        raise InputError(f"{source}, row {start + bad[0]} (from 0) holds NaN or infinity; drop it, or fill the gap.")
