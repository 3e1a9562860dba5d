"""Shards that need no unpacking: image files in a folder, rows of an .npy file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pals.data.shards.shard import Chunk, Shard, stamp_of
from pals.util.errors import InputError
from pals.util.files import check_readable


@dataclass(frozen=True)
class FolderShard(Shard):
    """A folder and the paths of its images within it."""

    names: Sequence[str]

    def count(self) -> int:
        return len(self.names)

    def chunks(self, size: int, start: int, stop: int | None) -> Iterator[Chunk]:
        end = len(self.names) if stop is None else min(stop, len(self.names))
        for first in range(start, end, size):
            part = tuple(self.names[first : min(first + size, end)])
            yield Chunk(part, tuple(self.path / name for name in part))

    def stamps(self) -> Iterator[tuple[object, ...]]:
        for name in self.names:
            yield name, *stamp_of(self.path / name)[1:]


@dataclass(frozen=True)
class ArrayShard(Shard):
    """An .npy file with an input per row, which stays on disk. Items are named by their row number, from 0."""

    @cached_property
    def array(self) -> np.ndarray:
        return self._mapped()

    def _mapped(self) -> np.ndarray:
        check_readable(self.path, "the .npy file")
        try:
            return np.lib.format.open_memmap(self.path, mode="r")  # numbers only: it never loads a pickle
        except (OSError, ValueError, EOFError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"{self.path} is not an .npy file of numbers ({reason}). Write it with numpy.save.") from None

    def count(self) -> int:
        return len(self.array) if self.array.ndim else 0

    def chunks(self, size: int, start: int, stop: int | None) -> Iterator[Chunk]:
        end = len(self.array) if stop is None else min(stop, len(self.array))
        for first in range(start, end, size):
            rows = range(first, min(first + size, end))
            mapped = self._mapped()  # a new mapping: pages read through it count as memory of the process until it is closed
            yield Chunk(tuple(map(str, rows)), mapped[rows.start : rows.stop])
