"""The pictures of a fit: decoded once into the cache on disk, or, without room for that, whenever they are needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
from pals.pipeline.progress import Monitor
from pals.pipeline.time_left import Count, said_once
from pals.runs.run_config import VotesConfig
from pals.util.errors import InputError
from pals.util.even_sample import evenly_spaced
from pals.util.threads import in_order
from pals.vision.images.decoding import BadImageError, read_header_bytes
from pals.vision.images.image_cache import BadImage, NoRoomError, Watch
from pals.vision.images.listing import list_images
from pals.vision.images.load_folder import load_images
from pals.vision.images.pixel_statistics import survey

SAMPLE = 200
"""Pictures of shards whose headers are looked at."""
READING = "Reading pictures"
LOOKING = "Looking at pictures"
"""Reading them, and encoding those that are read already."""


class ReadPictures(NamedTuple):
    """Those that can be read, N x 3 x size x size bytes, in the order of their names."""

    inputs: Inputs
    names: tuple[str, ...]
    bad: tuple[BadImage, ...]


def names_in(images: str) -> list[str]:
    """Of all pictures of a folder, or of the shards that are named."""
    shards = shards_of(images)
    if shards is None:
        return list_images(Path(images))
    name, count = Counter(shards.names).most_common(1)[0]
    if count > 1:
        raise InputError(f"{images}: {count} pictures are called {name!r}. Give each picture a unique name.")
    return list(shards.names)


def shorter_side(images: str, names: Sequence[str]) -> int:
    """Median of some of the pictures, in pixels."""
    shards = shards_of(images)
    if shards is None:
        return survey(Path(images), names).shorter_side
    rows = evenly_spaced(len(shards), SAMPLE).tolist()
    sizes = [size for row in rows if (size := _size(shards, row)) is not None]
    if not sizes:
        raise InputError(f"No picture that was looked at in {images} can be read, of {len(rows)}. Are they the right shards?")
    return round(median(map(min, sizes)))


def _size(shards: ShardImages, row: int) -> tuple[int, int] | None:
    try:
        return read_header_bytes(shards.encoded(row))
    except BadImageError:
        return None


def shards_of(images: str) -> ShardImages | None:
    """The tar or Parquet files that are named, or lie in the folder in place of pictures, or the data set that was saved there;
    None if there are only pictures."""
    path = Path(images)
    inside = path.is_dir() and (is_saved(path) or any(file.suffix in SHARD_TYPES for file in path.glob("*")))
    named = inside or (not path.is_dir() and path.suffix in SHARD_TYPES)
    stream = Stream.of(images) if named else None
    return _indexed(images, stream.fingerprint()) if stream is not None and stream.packed else None


@lru_cache(1)
def _indexed(images: str, fingerprint: str) -> ShardImages:
    """Looked through once while they stay as they are."""
    return ShardImages(images, 1)


def read_pictures(
    data: VotesConfig,
    names: Sequence[str],
    cache: Path,
    stream: bool | None,
    monitor: Monitor,
    watch: Watch | None = None,
) -> ReadPictures:
    """stream: decode each whenever it is needed; None: if the disk has no room for all. The pixels are the same. `watch` sees
    those that are decoded now."""
    shards = shards_of(data.images or "")
    if shards is not None:
        shards = shards.at(data.size, data.resize)
    if not stream:
        try:
            return _cached(data, shards, names, cache, monitor, watch)
        except NoRoomError as error:
            if stream is False:
                raise
            monitor.say(
                f"{error.what[:1].upper()}{error.what[1:]} in {cache}: each picture is decoded every time it is needed."
            )
    if shards is None:
        paths = [Path(data.images or "") / name for name in names]
        return _streamed(FileImages(paths, data.size, data.resize), range(len(names)), names, data, monitor)
    row_of = {name: row for row, name in enumerate(shards.names)}
    return _streamed(shards, [row_of[name] for name in names], names, data, monitor)


def _cached(
    data: VotesConfig, shards: ShardImages | None, names: Sequence[str], cache: Path, monitor: Monitor, watch: Watch | None
) -> ReadPictures:
    what = READING if watch is None else LOOKING
    with monitor.counting(what) as count:
        progress = count if watch is None else said_once(count, monitor.say, what)
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
        monitor.say(f"The decoded pictures take {size}, more than half of the free memory: they are read from disk as needed.")
    return ReadPictures(inputs, table.names, table.bad)


def _streamed(
    source: DecodedImages, rows: Sequence[int], names: Sequence[str], data: VotesConfig, monitor: Monitor
) -> ReadPictures:
    """Rows of a source, and what they are called. Bad ones are looked for only if they are to be left out: else whoever reads
    the first of them says so."""
    if not data.skip_bad:
        return ReadPictures(subset(source, torch.tensor(rows)), tuple(names), ())
    with monitor.counting(READING) as count:
        reasons = _reasons(source, rows, count)
    bad = tuple(BadImage(name, reason) for name, reason in zip(names, reasons, strict=True) if reason is not None)
    good = [(name, row) for name, row, reason in zip(names, rows, reasons, strict=True) if reason is None]
    if not good:
        raise InputError(f"No picture in {data.images} can be read, of {len(names):,} ({bad[0].name}: {bad[0].reason}).")
    names, rows = zip(*good, strict=True)
    return ReadPictures(subset(source, torch.tensor(rows)), names, bad)


def _reasons(source: DecodedImages, rows: Sequence[int], count: Count) -> list[str | None]:
    """For each row why its picture cannot be used, or None."""

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
