"""Rows of inputs that need not fit in memory: an array in a file, or images that are decoded on demand."""

from __future__ import annotations

import math
import os
import re
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pals.util.errors import InputError
from pals.util.files import check_readable, without_advice
from pals.util.threads import read_ahead
from pals.vision.images.decoding import BadImageError, How, decode

MEMINFO, CONTAINER_LIMIT = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")
NUMPY_TO_TORCH = {np.dtype(name): getattr(torch, name) for name in ("uint8", "float16", "float32", "float64")}
"""Types that rows may have."""
BLOCK_BYTES = 16 << 20
"""Bytes of rows that are read together in a pass over all rows."""


class ItemSource(ABC):
    """Rows of one shape that need not fit in memory.

    Items are read by `inputs[10:20]`, `inputs[row_M]`, `len`, `shape` and `dtype` alone, so a tensor can be used in its place.
    Subclasses set `shape` (of all rows together) and `dtype`, and define `take`.

    >>> import torch
    >>> from pals import ItemSource
    >>> class Squares(ItemSource):
    ...     shape, dtype = (10, 1), torch.float32
    ...
    ...     def take(self, row_M):
    ...         return row_M[:, None].float() ** 2
    >>> Squares()[2:4]
    tensor([[4.],
            [9.]])
    """

    shape: tuple[int, ...]
    dtype: torch.dtype

    @abstractmethod
    def take(self, row_M: Tensor) -> Tensor:
        """These rows, in this order, in host memory. May be called by several threads at once."""

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
        return math.prod(self.shape) * self.dtype.itemsize


Inputs = Tensor | ItemSource
"""All inputs of a data set."""


def in_batches(inputs: Inputs, size: int) -> Iterator[Tensor]:
    """All rows in order, `size` at a time."""
    if isinstance(inputs, Tensor):
        return (inputs[start : start + size] for start in range(0, len(inputs), size))  # unlike torch.split none of no rows
    return inputs.batches(size)


def in_blocks(inputs: Inputs) -> Iterator[Tensor]:
    """All rows in order, `BLOCK_BYTES` at a time."""
    return in_batches(inputs, 1 + BLOCK_BYTES * len(inputs) // max(inputs.nbytes, 1))


def subset(inputs: Inputs, row_M: Tensor) -> Inputs:
    """These rows; those of a source are not read yet."""
    return inputs[row_M] if isinstance(inputs, Tensor) else SourceSubset(inputs, row_M.cpu())


def within_memory(inputs: Tensor) -> Inputs:
    """A tensor that is mapped to a file: unchanged or, if it is larger than half of the free memory, as rows read on demand."""
    return TensorRows(inputs) if inputs.nbytes > available_memory() / 2 else inputs


def available_memory() -> float:
    """Bytes that the system can give without swapping, at most the limit of the container; infinite if unknown (not Linux)."""

    def text(path: Path) -> str:
        try:
            return path.read_text(encoding="ascii")
        except OSError:
            return ""

    found = re.search(r"^MemAvailable:\s*(\d+) kB", text(MEMINFO), re.MULTILINE)
    free = math.inf if found is None else 1024.0 * int(found[1])
    limit = text(CONTAINER_LIMIT).strip()  # or "max"
    return min(free, float(limit)) if limit.isdigit() else free


class TensorRows(ItemSource):
    """Rows of a tensor that is slow to access: mapped to a file, or in host memory while a GPU computes.

    `check` is called before rows are read, and raises if they are no longer there.
    """

    def __init__(self, rows: Tensor, check: Callable[[], None] = lambda: None) -> None:
        self._rows, self._check = rows, check
        self.shape, self.dtype = tuple(rows.shape), rows.dtype

    def take(self, row_M: Tensor) -> Tensor:
        self._check()
        sorted_M, order_M = row_M.sort()  # in the order of the file, so that each page is read once
        taken = torch.empty(len(row_M), *self.shape[1:], dtype=self.dtype)
        return taken.index_copy_(0, order_M, self._rows.index_select(0, sorted_M))

    def rows(self, part: slice) -> Tensor:
        self._check()
        return self._rows[part].clone()  # read now, by the calling thread


def open_array(path: str | Path) -> TensorRows:
    """Opens an .npy file as rows that stay on disk.

    Args:
        path: File with an array of two or more dimensions in C order: uint8, float16, float32 or float64.

    Returns:
        An `ItemSource` with one row per item.

    Raises:
        InputError: The file is missing, damaged, or holds another kind of array; also when rows are read, if the file has
            been truncated meanwhile.

    >>> import numpy as np
    >>> from pals import open_array
    >>> np.save("vectors.npy", np.arange(6, dtype=np.float32).reshape(3, 2))
    >>> open_array("vectors.npy")[1:]
    tensor([[2., 3.],
            [4., 5.]])
    """
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
        return TensorRows(torch.from_numpy(array), _TruncationCheck(path))


class _TruncationCheck:
    """Raises if a file has become shorter since it was opened, as the system kills a process that reads a mapping beyond the
    end of the file. A deleted or replaced file stays readable while it is open."""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, path.open("rb")
        weakref.finalize(self, self.file.close)
        self.bytes = os.fstat(self.file.fileno()).st_size

    def __call__(self) -> None:
        now = os.fstat(self.file.fileno()).st_size
        if now < self.bytes:
            raise InputError(f"{self.path} was cut off while in use: {now:,} of {self.bytes:,} bytes are left. Write it again.")


class SourceSubset(ItemSource):
    """Some rows of another source."""

    def __init__(self, source: ItemSource, row_M: Tensor) -> None:
        self._source, self._row_M = source, row_M
        self.shape, self.dtype = (len(row_M), *source.shape[1:]), source.dtype

    def take(self, row_M: Tensor) -> Tensor:
        return self._source.take(self._row_M[row_M])


class DecodedImages(ItemSource):
    """Images, N x 3 x size x size, decoded on every use, by default in one thread per core."""

    dtype = torch.uint8

    def __init__(self, count: int, size: int, how: How, threads: int | None) -> None:
        self.size, self.how, self.shape = size, how, (count, 3, size, size)
        self.threads = threads or os.cpu_count() or 1

    @abstractmethod
    def decode(self, row: int) -> np.ndarray:
        """3 x size x size. Raises `BadImageError` if this one is bad."""

    def take(self, row_M: Tensor) -> Tensor:
        taken = torch.empty(len(row_M), *self.shape[1:], dtype=self.dtype)
        pixels, (sorted_M, order_M) = taken.numpy(), row_M.sort()  # decoded in the order of the files

        def put(place: int, row: int) -> None:
            pixels[place] = self.decode(row)

        with ThreadPoolExecutor(self.threads, "pals-decode") as pool:
            try:
                list(pool.map(put, order_M.tolist(), sorted_M.tolist()))
            except BadImageError as error:
                raise InputError(f"{error} Fix this image, or leave it out.") from None
        return taken


class FileImages(DecodedImages):
    """Image files, decoded on every use (`load_images` decodes each once, into a cache).

    Args:
        paths: The files, one per item.
        size: Pixels a side.
        how: "squash", "crop", "pad", "torchvision-squash" or "torchvision-crop"; default "squash". See docs/images.md.
        threads: Threads that decode; default one per core.

    >>> from PIL import Image
    >>> from pals import FileImages
    >>> Image.new("RGB", (20, 10), (200, 120, 40)).save("frog.png")
    >>> FileImages(["frog.png"], size=4)[0][:, 0, 0]
    tensor([200, 120,  40], dtype=torch.uint8)
    """

    def __init__(self, paths: Sequence[str | Path], size: int, how: How = "squash", threads: int | None = None) -> None:
        super().__init__(len(paths), size, how, threads)
        self.paths = paths

    def decode(self, row: int) -> np.ndarray:
        return decode(self.paths[row], self.size, how=self.how)
