"""The images of a fit: decoded once into the cache on disk, or, if the disk has no room, whenever they are needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from pals.data.row_source import DecodedImages, FileImages, Inputs, subset, within_memory
from pals.data.shards.arrow import is_saved
from pals.data.shards.random_access import ShardImages
from pals.data.shards.stream import SHARD_TYPES, Stream
from pals.pipeline.progress import Count, Monitor, reporting_time_left
from pals.runs.run_config import VotesConfig
from pals.util.errors import InputError
from pals.util.even_sample import evenly_spaced
from pals.util.threads import in_order
from pals.vision.images.decoding import BadImageError, read_header
from pals.vision.images.image_cache import BadImage, NoRoomError, Watch
from pals.vision.images.listing import list_images
from pals.vision.images.load_folder import load_images
from pals.vision.images.pixel_statistics import median_side

MAX_READ_HEADERS = 200  # images of shards whose headers are read for their size
READING = "Reading images"
ENCODING = "Encoding images"
"""Titles of progress bars; encoding may include reading."""


class ReadImages(NamedTuple):
    """The images that can be read, N x 3 x size x size bytes, in the order of their names."""

    inputs: Inputs
    names: tuple[str, ...]
    bad: tuple[BadImage, ...]


def names_in(images: str) -> list[str]:
    """Names of all images in a folder or in shards."""
    shards = shards_of(images)
    if shards is None:
        return list_images(Path(images))
    name, count = Counter(shards.names).most_common(1)[0]
    if count > 1:
        raise InputError(f"{images}: {count} images are called {name!r}. Give each image a unique name.")
    return list(shards.names)


def shorter_side(images: str, names: Sequence[str]) -> int:
    """Median of the shorter sides of some of the images, in pixels."""
    shards = shards_of(images)
    if shards is None:
        return median_side(Path(images), names)
    rows = evenly_spaced(len(shards), MAX_READ_HEADERS).tolist()
    sides = list[int]()
    for row in rows:
        with suppress(BadImageError):
            size = read_header(shards.encoded(row))
            sides += [] if size is None else [min(size)]
    if not sides:
        raise InputError(f"None of {len(rows)} images of {images} can be read. Are they the right shards?")
    return round(median(sides))


def shards_of(images: str) -> ShardImages | None:
    """The tar or Parquet files that a path names, those in a folder, or the data set saved there; None for a folder of
    images."""
    path = Path(images)
    inside = path.is_dir() and (is_saved(path) or any(file.suffix in SHARD_TYPES for file in path.glob("*")))
    named = inside or (not path.is_dir() and path.suffix in SHARD_TYPES)
    stream = Stream.of(images) if named else None
    return _indexed(images, stream.fingerprint()) if stream is not None and stream.packed else None


@lru_cache(1)
def _indexed(images: str, fingerprint: str) -> ShardImages:
    """Indexed once while the files do not change."""
    return ShardImages(images, 1)


def read_images(
    data: VotesConfig,
    names: Sequence[str],
    cache: Path,
    stream: bool | None,
    monitor: Monitor,
    watch: Watch | None = None,
) -> ReadImages:
    """The images with these names, decoded.

    Args:
        data: Settings of the data: folder, size, resize, skip_bad.
        names: Names of the images.
        cache: Folder of decoded images.
        stream: Whether to decode each image whenever it is needed; None: if the disk has no room for all. The pixels are the
            same.
        monitor: Receives progress.
        watch: Called with the images that are decoded now.

    Raises:
        InputError: An image cannot be read (without skip_bad), or none can.
        NoRoomError: With `stream=False`, if the disk has no room.
    """
    shards = shards_of(data.images or "")
    if shards is not None:
        shards = shards.at(data.size, data.resize)
    if not stream:
        try:
            return _cached(data, shards, names, cache, monitor, watch)
        except NoRoomError as error:
            if stream is False:
                raise
            monitor.say(f"{error.what[:1].upper()}{error.what[1:]} in {cache}: each image is decoded every time it is needed.")
    if shards is None:
        paths = [Path(data.images or "") / name for name in names]
        return _streamed(FileImages(paths, data.size, data.resize), range(len(names)), names, data, monitor)
    row_of = {name: row for row, name in enumerate(shards.names)}
    return _streamed(shards, [row_of[name] for name in names], names, data, monitor)


def _cached(
    data: VotesConfig, shards: ShardImages | None, names: Sequence[str], cache: Path, monitor: Monitor, watch: Watch | None
) -> ReadImages:
    what = READING if watch is None else ENCODING
    with monitor.counting(what) as count:
        progress = count if watch is None else reporting_time_left(count, monitor.say, what)
        if shards is not None:
            table = shards.cached(cache, names, skip_bad=data.skip_bad, progress=progress, watch=watch)
        else:
            table = load_images(
                Path(data.images or ""),
                data.size,
                cache=cache,
                names=names,
                skip_bad=data.skip_bad,
                how=data.resize,
                progress=progress,
                watch=watch,
            )
    inputs = within_memory(table.images)
    if not isinstance(inputs, Tensor):
        size = f"{table.images.nbytes / 1e9:.1f} GB"
        monitor.say(f"The decoded images take {size}, more than half of the free memory: they are read from disk as needed.")
    return ReadImages(inputs, table.names, table.bad)


def _streamed(
    source: DecodedImages, rows: Sequence[int], names: Sequence[str], data: VotesConfig, monitor: Monitor
) -> ReadImages:
    """Rows of a source with their names. Only with skip_bad is every image checked first: else reading a bad one is an
    error."""
    if not data.skip_bad:
        return ReadImages(subset(source, torch.tensor(rows)), tuple(names), ())
    with monitor.counting(READING) as count:
        reasons = _reasons(source, rows, count)
    bad = tuple(BadImage(name, reason) for name, reason in zip(names, reasons, strict=True) if reason is not None)
    good = [(name, row) for name, row, reason in zip(names, rows, reasons, strict=True) if reason is None]
    if not good:
        raise InputError(f"No image in {data.images} can be read, of {len(names):,} ({bad[0].name}: {bad[0].reason}).")
    names, rows = zip(*good, strict=True)
    return ReadImages(subset(source, torch.tensor(rows)), names, bad)


def _reasons(source: DecodedImages, rows: Sequence[int], count: Count) -> list[str | None]:
    """For each row the reason why its image cannot be used, or None."""

    def reason(row: int) -> str | None:
        try:
            source.decode(row)
        except BadImageError as error:
            return error.reason
        return None

    found = []
    with ThreadPoolExecutor(source.threads, "pals-decode") as pool:
        for why in in_order(pool, reason, rows, 4 * source.threads):
            found.append(why)
            count(len(found), len(rows))
    return found
