"""The pictures of shards in any order: tar files by the offsets of their members, Parquet files by row groups, saved data
sets by rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from copy import copy
from functools import lru_cache
from itertools import accumulate, chain
from pathlib import Path
from threading import Lock

import numpy as np

from pals.data.row_source import DecodedPictures
from pals.data.shards.parquet_shards import ParquetShard
from pals.data.shards.saved_datasets import SavedDataset
from pals.data.shards.shard import BadShardError, Item, Picture
from pals.data.shards.stream import Stream
from pals.data.shards.tar import Location, TarShard
from pals.util.errors import InputError
from pals.vision.images import BadImageError, How, decode_bytes

GROUPS = 4
"""Row groups of Parquet files that are kept in memory: what lies together is asked for together."""


class ShardPictures(DecodedPictures):
    """Pictures in tar or Parquet files, or in a data set saved by Hugging Face datasets. The files are indexed once. `names`
    are the names of the items."""

    def __init__(
        self, shards: str | Path | Sequence[str | Path], size: int, how: How = "squash", threads: int | None = None
    ) -> None:
        """shards: files, a folder of them, or a pattern, as for `pals predict`."""
        groups = _Groups()
        try:
            self._indexes = [_index(span.shard, groups) for span in Stream.of(shards).spans]
        except BadShardError as error:
            raise _broken(error) from None
        self._ends = list(accumulate(len(index.names) for index in self._indexes))
        self.names = tuple(chain.from_iterable(index.names for index in self._indexes))
        super().__init__(len(self.names), size, how, threads)

    def at(self, size: int, how: How) -> ShardPictures:
        """The same pictures at another size, without indexing again."""
        other = copy(self)
        DecodedPictures.__init__(other, len(self), size, how, self.threads)
        return other

    def encoded(self, row: int) -> bytes:
        """The encoded bytes of a picture. Raises `BadImageError` if there is none."""
        number = bisect_right(self._ends, row)
        index = self._indexes[number]
        try:
            picture = index.picture(row - self._ends[number] + len(index.names))
        except BadShardError as error:
            raise _broken(error) from None
        if isinstance(picture, BadImageError):
            raise picture
        assert isinstance(picture, bytes)
        return picture

    def decode(self, row: int) -> np.ndarray:
        shard = self._indexes[bisect_right(self._ends, row)].shard
        return decode_bytes(self.encoded(row), f"{shard.path}: {self.names[row]}", self.size, how=self.how)


class _Groups:
    """Row groups that were read last."""

    def __init__(self) -> None:
        self._lock, self._read = Lock(), lru_cache(GROUPS)(ParquetShard.read)

    def __call__(self, shard: ParquetShard, rows: range) -> list[Item]:
        with self._lock:  # whoever needs the same one waits for it
            return self._read(shard, rows)


class _TarIndex:
    def __init__(self, shard: TarShard) -> None:
        found = list(shard.locations())
        self.shard, self.names = shard, [location.name for location in found]
        self._span_N2 = np.array([(location.offset, location.bytes) for location in found], dtype=np.int64).reshape(-1, 2)

    def picture(self, row: int) -> Picture:
        return self.shard.read(Location(self.names[row], *self._span_N2[row].tolist()))


class _ParquetIndex:
    def __init__(self, shard: ParquetShard, groups: _Groups) -> None:
        self.shard, self._groups, self._rows = shard, groups, shard.groups()
        self._ends = [rows.stop for rows in self._rows]
        self.names = shard.names()

    def picture(self, row: int) -> Picture:
        rows = self._rows[bisect_right(self._ends, row)]
        return self._groups(self.shard, rows)[row - rows.start].picture


class _SavedIndex:
    def __init__(self, shard: SavedDataset) -> None:
        self.shard, self.names = shard, shard.names()

    def picture(self, row: int) -> Picture:
        return self.shard.read(row).picture


def _index(shard: object, groups: _Groups) -> _TarIndex | _ParquetIndex | _SavedIndex:
    if isinstance(shard, TarShard):
        return _TarIndex(shard)
    if isinstance(shard, ParquetShard):
        return _ParquetIndex(shard, groups)
    if isinstance(shard, SavedDataset):
        return _SavedIndex(shard)
    where = getattr(shard, "path", shard)
    raise InputError(f"{where} is not a shard: name tar or Parquet files, a folder of them, or a saved data set.")


def _broken(error: BadShardError) -> InputError:
    return InputError(f"{error} Fetch or write this shard again.")
