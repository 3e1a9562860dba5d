"""Items that need no unpacking: pictures in a folder, rows of an .npy file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np

from pals.data.shards.shard import Chunk, stamp_of
from pals.util.errors import InputError
from pals.util.files import check_readable


@dataclass(frozen=True)
class PictureFiles:
    """A folder and the paths of its pictures within it."""

    path: Path
    names: Sequence[str]

    @property
    def known_count(self) -> int:
        return len(self.names)

    def count(self) -> int:
        return len(self.names)

    def chunks(self, size: int, start: int, stop: int | None) -> Iterator[Chunk]:
        names = iter(self.names[start:stop])
        while part := tuple(islice(names, size)):
            yield Chunk(part, tuple(self.path / name for name in part))

    def stamps(self) -> Iterator[tuple[object, ...]]:
        for name in self.names:
            yield name, *stamp_of(self.path / name)[1:]


@dataclass(frozen=True)
class Rows:
    """An .npy file with an input per row, which stays on the disk. Items are called by their row number, from 0."""

    path: Path

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

    @property
    def known_count(self) -> int:
        return self.count()

    def count(self) -> int:
        return len(self.array) if self.array.ndim else 0

    def chunks(self, size: int, start: int, stop: int | None) -> Iterator[Chunk]:
        end = len(self.array) if stop is None else min(stop, len(self.array))
        for first in range(start, end, size):
            rows = range(first, min(first + size, end))
            mapped = self._mapped()  # anew: what has been read of one mapping would count as memory of the process
            yield Chunk(tuple(map(str, rows)), mapped[rows.start : rows.stop])

    def stamps(self) -> Iterator[tuple[object, ...]]:
        yield stamp_of(self.path)
