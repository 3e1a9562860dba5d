"""The interface of shards: files or folders whose items are read in order, a chunk at a time, from any item on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pals.util.errors import InputError
from pals.vision.images.decoding import BadImageError

CHUNK_BYTES = 32 << 20  # of encoded images in a chunk, unless a single one is larger
NO_IMAGE = "there is no image in it"

EncodedImage = Path | bytes | BadImageError
"""A file, the bytes of a file, or the reason why there is none."""


class ShardItem(NamedTuple):
    name: str
    image: EncodedImage


class Chunk(NamedTuple):
    """Consecutive items of a shard."""

    names: Sequence[str]
    inputs: Sequence[EncodedImage] | np.ndarray
    "Images, or an array with a row for each item."


class BadShardError(InputError):
    """A shard that is missing, or damaged from some item on."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}.")
        self.name, self.reason = name, reason


@dataclass(frozen=True)
class Shard(ABC):
    """Items in a fixed order."""

    path: Path

    @property
    def known_count(self) -> int | None:
        """Number of items, or None if it takes a pass over the file."""
        return self.count()

    @abstractmethod
    def count(self) -> int:
        """Number of items before any damage; may read through the file."""

    @abstractmethod
    def chunks(self, size: int, start: int, stop: int | None) -> Iterator[Chunk]:
        """Items from `start` to before `stop`, at most `size` at a time. Raises `BadShardError` after the last good one."""

    def stamps(self) -> Iterator[tuple[object, ...]]:
        """Names, sizes and times of the files: they change when the items do."""
        yield stamp_of(self.path)


class PackedShard(Shard):
    """Encoded images with names in one file, read in order by `items` or at random by `read`."""

    @abstractmethod
    def items(self, start: int, stop: int | None) -> Iterator[ShardItem]:
        """Items from `start` to before `stop`."""

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Names of all items; their images are not read. Raises `BadShardError` for damage anywhere."""

    def rows_with(self, row: int) -> range:
        """The rows that have to be read together to read this one."""
        return range(row, row + 1)

    def read(self, rows: range) -> list[EncodedImage]:
        """The images of these rows."""
        return [item.image for item in self.items(rows.start, rows.stop)]

    def chunks(self, size: int, start: int, stop: int | None) -> Iterator[Chunk]:
        """Chunks of at most `size` items and about `CHUNK_BYTES`."""
        part, weight = list[ShardItem](), 0
        try:
            for item in self.items(start, stop):
                part.append(item)
                weight += len(item.image) if isinstance(item.image, bytes) else 0
                if len(part) == size or weight >= CHUNK_BYTES:
                    yield _chunk(part)
                    part, weight = [], 0
        except BadShardError:
            if part:
                yield _chunk(part)
            raise
        if part:
            yield _chunk(part)


def _chunk(items: list[ShardItem]) -> Chunk:
    return Chunk(tuple(item.name for item in items), tuple(item.image for item in items))


def stamp_of(path: Path) -> tuple[object, ...]:
    try:
        found = path.stat()
    except OSError:
        return path.name, None
    return path.name, found.st_size, found.st_mtime_ns
