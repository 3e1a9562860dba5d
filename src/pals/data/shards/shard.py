"""What every kind of shard gives: its items a chunk at a time, from any of them on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from pals.util.errors import InputError
from pals.vision.images import BadImageError

CHUNK_BYTES = 32 << 20  # of encoded pictures in a chunk, unless a single one is larger
NO_PICTURE = "there is no picture in it"

Picture = Path | bytes | BadImageError
"""A file, what was in one, or why there is none."""


class Item(NamedTuple):
    name: str
    picture: Picture


class Chunk(NamedTuple):
    """Some items of a shard, one after the other."""

    names: Sequence[str]
    inputs: Sequence[Picture] | np.ndarray
    "Pictures, or numbers, a row for each item."


class BadShardError(InputError):
    """A shard that is missing, or damaged from some place on."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}.")
        self.name, self.reason = name, reason


class Shard(Protocol):
    """Items in a fixed order."""

    @property
    def path(self) -> Path: ...

    @property
    def known_count(self) -> int | None:
        """How many items there are, where that can be told at once."""
        ...

    def count(self) -> int:
        """How many there are, up to where it is damaged; may have to look through the file."""
        ...

    def chunks(self, size: int, start: int, stop: int | None) -> Iterator[Chunk]:
        """Items from `start` to before `stop`, at most `size` at a time. Raises `BadShardError` after the last good one."""
        ...

    def stamps(self) -> Iterator[tuple[object, ...]]:
        """What changes when the items do: names, sizes and times of the files."""
        ...


def stamp_of(path: Path) -> tuple[object, ...]:
    try:
        found = path.stat()
    except OSError:
        return path.name, None
    return path.name, found.st_size, found.st_mtime_ns


def chunked(items: Iterator[Item], size: int) -> Iterator[Chunk]:
    """At most `size` items, and no more bytes than a chunk may hold."""
    held, weight = list[Item](), 0
    try:
        for item in items:
            held.append(item)
            weight += len(item.picture) if isinstance(item.picture, bytes) else 0
            if len(held) == size or weight >= CHUNK_BYTES:
                yield _chunk(held)
                held, weight = [], 0
    except BadShardError:
        if held:
            yield _chunk(held)
        raise
    if held:
        yield _chunk(held)


def _chunk(items: list[Item]) -> Chunk:
    return Chunk(tuple(item.name for item in items), tuple(item.picture for item in items))
