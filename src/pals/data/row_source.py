"""Items as rows of something that need not fit into memory: a file, pictures that are decoded when they are needed, shards."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from pals.util.errors import InputError
from pals.util.files import check_readable, without_advice
from pals.util.memory import available_memory
from pals.util.threads import read_ahead
from pals.vision.images import BadImageError, How, NoRoomError, decode

NUMPY_TO_TORCH = {np.dtype(name): getattr(torch, name) for name in ("uint8", "float16", "float32", "float64")}
"""What items may be made of."""
MOST_OF_DISK = 0.9
"""Of what is free: more than that is not taken for decoded pictures."""
BLOCK = 16 << 20
"""Bytes that are looked at together where all rows are to be seen once."""


class ItemSource(ABC):
    """Rows of one shape that need not fit in memory. Whatever reads items uses only `inputs[10:20]`, `inputs[row_M]`, `len`,
    `shape` and `dtype`, so a plain tensor works as a source too."""

    shape: tuple[int, ...]
    "Shape of all rows together, as of a tensor."
    dtype: torch.dtype

    @abstractmethod
    def take(self, row_M: Tensor) -> Tensor:
        """These rows, in this order, in host memory. Several threads may call it at once."""

    def rows(self, part: slice) -> Tensor:
        """Consecutive rows."""
        return self.take(torch.arange(*part.indices(len(self))))

    def batches(self, size: int) -> Iterator[Tensor]:
        """All rows in order, `size` at a time, read ahead."""
        return read_ahead(self.rows, [slice(start, start + size) for start in range(0, len(self), size)])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: slice | Tensor | Sequence[int] | int) -> Tensor:
        if isinstance(which, slice):
            return self.rows(which)
        if isinstance(which, int):
            return self.take(torch.tensor([which]))[0]
        return self.take(torch.as_tensor(which, dtype=torch.int64).cpu())

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


Inputs = Tensor | ItemSource
"""All items of a data set."""


def in_batches(inputs: Inputs, size: int) -> Iterator[Tensor]:
    """All rows in order, `size` at a time."""
    if isinstance(inputs, Tensor):
        return (inputs[start : start + size] for start in range(0, len(inputs), size))  # of none none, unlike torch.split
    return inputs.batches(size)


def in_blocks(inputs: Inputs) -> Iterator[Tensor]:
    """All rows in order, as many at a time as take a little memory."""
    return in_batches(inputs, 1 + BLOCK * len(inputs) // max(inputs.nbytes, 1))


def subset(inputs: Inputs, row_M: Tensor) -> Inputs:
    """These rows; of a source they are not read yet."""
    return inputs[row_M] if isinstance(inputs, Tensor) else Subset(inputs, row_M.cpu())


def within_memory(inputs: Tensor) -> Inputs:
    """A tensor that lies in a file: as it is, or, where it would take more than half of the free memory, read row by row."""
    return TensorRows(inputs) if inputs.nbytes > available_memory() / 2 else inputs


class TensorRows(ItemSource):
    """Rows of a tensor that is slow to reach: one that is mapped to a file, or in the host's memory beside a GPU."""

    def __init__(self, rows: Tensor, check: Callable[[], None] = lambda: None) -> None:
        """`check` is called before rows are read, and raises if they are no longer there."""
        self._rows, self._check = rows, check
        self.shape, self.dtype = tuple(rows.shape), rows.dtype

    def take(self, row_M: Tensor) -> Tensor:
        """In the order in which they lie in the file, so that each page is read once, and then put into the order asked for."""
        self._check()
        sorted_M, order_M = row_M.sort()
        taken = torch.empty(len(row_M), *self.shape[1:], dtype=self.dtype)
        return taken.index_copy_(0, order_M, self._rows.index_select(0, sorted_M))

    def rows(self, part: slice) -> Tensor:
        self._check()
        return self._rows[part].clone()  # read now, in the thread that asks


def open_array(path: str | Path) -> TensorRows:
    """The rows of an .npy file of bytes or floats, which stays on the disk."""
    path = Path(path)
    check_readable(path, "the .npy file with a row for each item")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        found = f"{path} is cut off, or not an .npy file of numbers ({without_advice(error)})"
        raise InputError(f"{found}. Rewrite it with numpy.save.") from None
    if not isinstance(array, np.memmap) or array.ndim < 2 or array.dtype not in NUMPY_TO_TORCH or not array.flags.c_contiguous:
        found = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else "several arrays"
        raise InputError(f"{path} holds {found}; rows of uint8 or floats, in C order, are read without loading the file.")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return TensorRows(torch.from_numpy(array), _Whole(path))


class _Whole:
    """Raises if a file has lost its end since it was opened: the system kills whoever reads from there. (One that was deleted
    or replaced by another stays as it was for those who have it open.)"""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, path.open("rb")
        weakref.finalize(self, self.file.close)
        self.bytes = os.fstat(self.file.fileno()).st_size

    def __call__(self) -> None:
        now = os.fstat(self.file.fileno()).st_size
        if now < self.bytes:
            raise InputError(
                f"{self.path} was cut off while it was in use: {now:,} of {self.bytes:,} bytes are left. Write it again and "
                f"resume."
            )


class Subset(ItemSource):
    """Some rows of another source."""

    def __init__(self, source: ItemSource, row_M: Tensor) -> None:
        self._source, self._row_M = source, row_M
        self.shape, self.dtype = (len(row_M), *source.shape[1:]), source.dtype

    def take(self, row_M: Tensor) -> Tensor:
        return self._source.take(self._row_M[row_M])


class DecodedPictures(ItemSource):
    """Pictures, N x 3 x size x size, decoded whenever they are asked for by as many threads as there are cores."""

    dtype = torch.uint8

    def __init__(self, count: int, size: int, how: How, threads: int | None) -> None:
        self.size, self.how, self.shape = size, how, (count, 3, size, size)
        self.threads = threads or os.cpu_count() or 1

    @abstractmethod
    def decode(self, row: int) -> np.ndarray:
        """3 x size x size. Raises `BadImageError` if this one is bad."""

    def take(self, row_M: Tensor) -> Tensor:
        """Decoded in the order in which they lie."""
        taken = torch.empty(len(row_M), *self.shape[1:], dtype=self.dtype)
        pixels, (sorted_M, order_M) = taken.numpy(), row_M.sort()

        def put(place: int, row: int) -> None:
            pixels[place] = self.decode(row)

        with ThreadPoolExecutor(self.threads, "pals-decode") as pool:
            try:
                list(pool.map(put, order_M.tolist(), sorted_M.tolist()))
            except BadImageError as error:
                raise InputError(f"{error} Fix this picture, or leave it out.") from None
        return taken

    def kept(self, folder: str | Path) -> KeptPictures:
        """The same pictures, each decoded once and then read from a file in this folder, which is removed with the process."""
        return KeptPictures(self, Path(folder))


class KeptPictures(DecodedPictures):
    """Pictures that are decoded when they are first asked for, and from then on lie in a file without a name. Once the disk is
    full, those that are not in it yet are decoded whenever they are asked for."""

    def __init__(self, source: DecodedPictures, folder: Path) -> None:
        """Raises `NoRoomError` if there is no room for all of them."""
        super().__init__(len(source), source.size, source.how, source.threads)
        self._source, self._full, self._done_N = source, False, torch.zeros(len(source), dtype=torch.bool)
        self._file = _nameless(folder, self.nbytes)
        weakref.finalize(self, self._file.close)
        self._rows = TensorRows(_mapped(self._file, self.shape))

    def decode(self, row: int) -> np.ndarray:
        if self._done_N[row]:
            return self._rows[row].numpy()
        pixels = self._source.decode(row)
        self._keep(row, pixels)
        return pixels

    def take(self, row_M: Tensor) -> Tensor:
        return self._rows.take(row_M) if self._done_N[row_M].all() else super().take(row_M)

    def _keep(self, row: int, pixels: np.ndarray) -> None:
        """By a write, which fails where there is no room; through the mapping it would kill the process."""
        if not self._full:
            try:
                written = os.pwrite(self._file.fileno(), np.ascontiguousarray(pixels).data, row * pixels.nbytes)
            except OSError:
                written = 0
            stored = written == pixels.nbytes  # of this row: another thread may find room, or none, in the meantime
            self._full = self._full or not stored
            self._done_N[row] = stored


def _nameless(folder: Path, size: int) -> IO[bytes]:
    """A file of this size, which takes up room only where it is written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if size > MOST_OF_DISK * free:
            raise NoRoomError(folder, False, f"they need {size / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free")
        file = tempfile.TemporaryFile(dir=folder, prefix="pals-")  # noqa: SIM115 (lives as long as its owner)
        file.truncate(size)
    except OSError as error:
        raise NoRoomError(folder, False, error.strerror or str(error)) from None
    return file


def _mapped(file: IO[bytes], shape: tuple[int, ...]) -> Tensor:
    if not prod(shape):
        return torch.zeros(shape, dtype=torch.uint8)  # nothing cannot be mapped
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.from_numpy(np.memmap(file, np.uint8, "r", shape=shape))


class Pictures(DecodedPictures):
    """Picture files, decoded on every use."""

    def __init__(self, paths: Sequence[str | Path], size: int, how: How = "squash", threads: int | None = None) -> None:
        super().__init__(len(paths), size, how, threads)
        self.paths = paths

    def decode(self, row: int) -> np.ndarray:
        return decode(self.paths[row], self.size, how=self.how)
