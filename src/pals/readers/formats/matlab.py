"""Matrices of numbers in MATLAB files of version 5 (`save -v6` and `-v7`), dense or sparse.

Read here and not by scipy, whose reader trusts the sizes that a file claims: one changed byte can end the whole program, and a
few kilobytes can fill the memory. Here every claim is held against the bytes that are there before anything is made of it.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

HEADER = 128  # bytes
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
MATRIX, COMPRESSED = 14, 15  # kinds of elements
SPARSE, NUMBERS, OPAQUE = 5, range(6, 16), 17  # classes of matrices
COMPLEX = 0x800
PEEK = 4096  # bytes that hold the head of any honest matrix


class DamagedError(ValueError):
    """The file is not what it claims to be."""


class Element(NamedTuple):
    """A stretch of the file that says what it is and how long."""

    kind: int
    size: int
    start: int


class Matrix(NamedTuple):
    """One variable: what it claims to be, and its bytes as they are stored."""

    name: str
    shape: tuple[int, ...]
    kind: int
    is_complex: bool
    size: int
    "Bytes once it is unpacked."
    stored: memoryview
    is_packed: bool
    order: str
    "Of the bytes in a number, as numpy writes it."

    @property
    def cells(self) -> int:
        return math.prod(self.shape)


class Entries(NamedTuple):
    """What a matrix holds that is not zero."""

    row: np.ndarray
    column: np.ndarray
    value: np.ndarray


def matrices(data: bytes) -> dict[str, Matrix]:
    """The variables in a file by their names. Nothing but their heads is unpacked."""
    if len(data) < HEADER or data[126:128] not in (b"IM", b"MI"):
        raise DamagedError("there is no header of version 5")
    order, view, at = "<" if data[126:128] == b"IM" else ">", memoryview(data), HEADER
    found: dict[str, Matrix] = {}
    while at < len(view):
        element = _element(view, at, order)
        at = element.start + element.size
        stored = view[element.start : at]
        if len(stored) < element.size or element.kind not in (MATRIX, COMPRESSED):
            raise DamagedError(f"the file ends within a variable, or has one of the unknown kind {element.kind}")
        matrix = _packed(stored, order) if element.kind == COMPRESSED else _matrix(stored, order, element.size, stored)
        if matrix is not None and matrix.name:
            found[matrix.name] = matrix
    return found


def dense(matrix: Matrix) -> np.ndarray:
    """All numbers of a matrix. Whoever asks has looked at `cells` and `size`."""
    if matrix.kind == SPARSE:
        found = entries(matrix)
        values = np.zeros(matrix.shape, dtype=np.float64)
        values[found.row, found.column] = found.value
        return values
    real = _parts(matrix)[3]
    if len(real) != matrix.cells:
        raise DamagedError(f"`{matrix.name}` has {len(real):,} numbers for {matrix.cells:,} places")
    return real.reshape(matrix.shape, order="F")


def entries(matrix: Matrix) -> Entries:
    """What is not zero in a matrix of two dimensions, row by row. A sparse one is not written out."""
    if matrix.kind != SPARSE:
        values = dense(matrix)
        row, column = values.nonzero()
        return Entries(row, column, values[row, column])
    row, start, value = [*_parts(matrix)[3:], *[np.empty(0)] * 3][:3]
    rows, columns = matrix.shape
    if len(start) != columns + 1 or start[0] != 0 or (np.diff(start) < 0).any() or start[-1] > min(len(row), len(value)):
        raise DamagedError(f"the columns of the sparse `{matrix.name}` do not fit its shape")
    row, value = row[: start[-1]].astype(np.int64), value[: start[-1]]
    column = np.repeat(np.arange(columns), np.diff(start))
    order = np.lexsort((column, row))
    place = (row * columns + column)[order]
    if len(row) and (row.min() < 0 or row.max() >= rows or (np.diff(place) == 0).any()):
        raise DamagedError(f"the sparse `{matrix.name}` has rows that it cannot have")
    order = order[value[order] != 0]
    return Entries(row[order], column[order], value[order])


# ---- bytes


def _element(view: memoryview, at: int, order: str) -> Element:
    """The element that begins at `at`; whether its bytes are all there is for the caller to see."""
    if at + 8 > len(view):
        raise DamagedError("the file ends within a variable")
    first, second = struct.unpack_from(f"{order}II", view, at)
    if first >> 16:  # a small one: kind and size share a number, four bytes follow
        if first >> 16 > 4:
            raise DamagedError("a small element is too long")
        return Element(first & 0xFFFF, first >> 16, at + 4)
    return Element(first, second, at + 8)


def _packed(stored: memoryview, order: str) -> Matrix | None:
    head = memoryview(_unpack(stored, PEEK))
    element = _element(head, 0, order)
    if element.kind != MATRIX:
        raise DamagedError("a packed variable is not a matrix")
    return _matrix(head[element.start :], order, element.size, stored, is_packed=True)


def _unpack(stored: memoryview, most: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(stored, most)
    except zlib.error:
        raise DamagedError("a packed variable cannot be unpacked") from None


def _matrix(head: memoryview, order: str, size: int, stored: memoryview, is_packed: bool = False) -> Matrix | None:
    """What a matrix says of itself; None for MATLAB's own objects, which have no shape."""
    parts = _arrays(head[:PEEK], order)
    flags = next(parts, np.empty(0))
    if len(flags) != 2 or flags.dtype.kind != "u":
        raise DamagedError("a variable does not say of what class it is")
    kind = int(flags[0]) & 0xFF
    if kind == OPAQUE:
        return None
    shape, name = next(parts, np.empty(0)), next(parts, np.empty(0))
    if not 2 <= len(shape) <= 32 or shape.dtype.kind != "i" or (shape < 0).any() or name.dtype.itemsize != 1:
        raise DamagedError("a variable has no shape or no name")
    spelled = name.tobytes().decode("latin-1")
    dims = tuple(int(n) for n in shape)
    return Matrix(spelled, dims, kind, bool(int(flags[0]) & COMPLEX), size, stored, is_packed, order)


def _parts(matrix: Matrix) -> list[np.ndarray]:
    """All that a matrix consists of: flags, shape, name, then its numbers."""
    if matrix.kind not in (SPARSE, *NUMBERS) or matrix.is_complex or (matrix.kind == SPARSE and len(matrix.shape) != 2):
        raise DamagedError(f"`{matrix.name}` is not a matrix of real numbers")
    whole = memoryview(_unpack(matrix.stored, matrix.size + 8))[8:] if matrix.is_packed else matrix.stored
    if len(whole) < matrix.size:
        raise DamagedError(f"`{matrix.name}` is cut off")
    parts = list(_arrays(whole, matrix.order))
    if len(parts) < 4:
        raise DamagedError(f"`{matrix.name}` has no numbers")
    return parts


def _arrays(view: memoryview, order: str) -> Iterator[np.ndarray]:
    """The elements of a matrix, each as an array; up to the first that is not there as a whole."""
    at = 0
    while at + 8 <= len(view):
        element = _element(view, at, order)
        end = element.start + element.size
        kind = np.dtype(order + TYPES.get(element.kind, "u1"))
        if end > len(view) or element.size % kind.itemsize:
            return
        yield np.frombuffer(view[element.start : end], dtype=kind)
        at = end + -end % 8
