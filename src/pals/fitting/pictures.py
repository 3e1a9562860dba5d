"""The pictures of a fit: decoded once into the cache on disk, or, without room for that, whenever they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from pals.data import Inputs, Pictures
from pals.data.source import within_memory
from pals.fitting.monitor import Monitor
from pals.fitting.time_left import Count
from pals.runs.settings import VotesConfig
from pals.util.ahead import in_order
from pals.util.errors import InputError
from pals.vision.images import BadImage, BadImageError, NoRoomError, load_images

READING = "Reading pictures"


class ReadPictures(NamedTuple):
    """Those that can be read, N x 3 x size x size bytes, in the order of their names."""

    inputs: Inputs
    names: tuple[str, ...]
    bad: tuple[BadImage, ...]


def read_pictures(data: VotesConfig, names: Sequence[str], cache: Path, stream: bool | None, monitor: Monitor) -> ReadPictures:
    """stream: decode each whenever it is needed; None: if the disk has no room for all. The pixels are the same."""
    if stream:
        return _streamed(data, names, monitor)
    try:
        return _stored(data, names, cache, monitor)
    except NoRoomError as error:
        if stream is False:
            raise
        monitor.say(f"{error.what[:1].upper()}{error.what[1:]} in {cache}: each picture is decoded whenever it is needed.")
        return _streamed(data, names, monitor)


def _stored(data: VotesConfig, names: Sequence[str], cache: Path, monitor: Monitor) -> ReadPictures:
    with monitor.counting(READING) as count:
        table = load_images(
            Path(data.images or ""),
            data.size,
            cache=cache,
            names=names,
            skip_bad=data.skip_bad,
            how=data.resize,
            progress=count,
        )
    inputs = within_memory(table.images)
    if not isinstance(inputs, Tensor):
        size = f"{table.images.nbytes / 1e9:.1f} GB"
        monitor.say(f"The decoded pictures take {size}, more than half of the free memory: they are read from disk as needed.")
    return ReadPictures(inputs, table.names, table.bad)


def _streamed(data: VotesConfig, names: Sequence[str], monitor: Monitor) -> ReadPictures:
    folder = Path(data.images or "")
    source = Pictures([folder / name for name in names], data.size, data.resize)
    if not data.skip_bad:  # whichever is read first says so
        return ReadPictures(source, tuple(names), ())
    with monitor.counting(READING) as count:
        reasons = _reasons(source, count)
    bad = tuple(BadImage(name, reason) for name, reason in zip(names, reasons, strict=True) if reason is not None)
    good = tuple(name for name, reason in zip(names, reasons, strict=True) if reason is None)
    if not good:
        raise InputError(f"No picture in {folder} can be read, of {len(names):,} ({bad[0].name}: {bad[0].reason}).")
    return ReadPictures(Pictures([folder / name for name in good], data.size, data.resize), good, bad)


def _reasons(source: Pictures, count: Count) -> list[str | None]:
    """For each picture why it cannot be used, or None."""

    def reason(row: int) -> str | None:
        try:
            source.decode(row)
        except BadImageError as error:
            return error.reason
        return None

    found = []
    with ThreadPoolExecutor(source.threads, "pals-decode") as pool:
        for reason_ in in_order(pool, reason, range(len(source)), 4 * source.threads):
            found.append(reason_)
            count(len(found), len(source))
    return found
