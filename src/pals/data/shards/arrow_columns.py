"""Columns of Arrow tables in which pictures lie, and what their items are called: for Parquet files and saved data sets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pals.data.shards.shard import NO_PICTURE, BadShardError, Chunk, Item, chunked
from pals.util.words import listed
from pals.vision.images import BadImageError
from pals.vision.images.listing import printable

NAMES = ("item", "path", "id", "__key__")
"""Columns that may name the items, the best first."""
BYTES, PATH = "bytes", "path"  # the fields of a picture as Hugging Face datasets writes it


@dataclass(frozen=True)
class ArrowShard(ABC):
    """A shard whose number of rows is written in it."""

    path: Path

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many; raises `BadShardError`."""

    @abstractmethod
    def _items(self, start: int, stop: int) -> Iterator[Item]: ...

    @property
    def known_count(self) -> int:
        return self.count()

    def count(self) -> int:
        try:
            return self.rows
        except BadShardError:
            return 0

    def chunks(self, size: int, start: int, stop: int | None) -> Iterator[Chunk]:
        return chunked(self._items(start, self.rows if stop is None else stop), size)


def image_column(schema: Any, file: Path) -> str:
    """`image`, or the only one that holds bytes."""
    import pyarrow as pa

    def holds_bytes(kind: Any) -> bool:
        if pa.types.is_struct(kind):
            return any(field.name == BYTES and holds_bytes(field.type) for field in kind)
        return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))

    found = [field.name for field in schema if holds_bytes(field.type)]
    if "image" in found or len(found) == 1:
        return "image" if "image" in found else found[0]
    what = f"several columns with bytes ({listed(found)})" if found else "no column with the bytes of pictures"
    raise BadShardError(str(file), f"it has {what}; name the one of pictures image (found: {listed(schema.names)})")


def name_column(schema: Any, image: str) -> str | None:
    return next((name for name in NAMES if name in schema.names and name != image), None)


def holds_paths(image: Any) -> bool:
    """Whether a column of pictures of this type may name them."""
    import pyarrow as pa

    return bool(pa.types.is_struct(image)) and any(field.name == PATH for field in image)


def items_of(file: Path, rows: range, images: Any, names: Any) -> Iterator[Item]:
    """The items of these rows, whose pictures and names, if they have any, are given."""
    for row, image, name in zip(rows, images, rows if names is None else names, strict=True):
        cell = image.as_py()
        data, path = (cell.get(BYTES), cell.get(PATH)) if isinstance(cell, dict) else (cell, None)
        called = item_name(file, row, (None if names is None else name.as_py(), path))
        yield Item(called, data or BadImageError(f"{file}, row {row} (from 0)", NO_PICTURE))


def item_name(file: Path, row: int, names: Sequence[object]) -> str:
    """The first of these names that says something, else the row of the file."""
    return next(filter(None, map(_text, names)), f"{file.name}:{row}")


def _text(name: object) -> str:
    return "" if name is None else printable(name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name))
