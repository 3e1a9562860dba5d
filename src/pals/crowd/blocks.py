"""Large tables part by part: no more than a few million numbers at once, and on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import csr_matrix

BLOCK = 1 << 18
"""Numbers in a part of a table: what a core works on at once."""

SINGLE = 150_000_000
"""Numbers in a table from which on it is kept in single precision."""

Part = TypeVar("Part")
Found = TypeVar("Found")


def precision(*shapes: tuple[int, int]) -> type[np.floating[Any]]:
    """Of tables of these shapes."""
    return np.float32 if max(rows * columns for rows, columns in shapes) > SINGLE else np.float64


def row_blocks(first_X: np.ndarray, columns: int, block: int = BLOCK) -> list[slice]:
    """Slices of things (X) with several rows each, of which thing x has those from `first_X[x]` to `first_X[x + 1]`: as many
    at once as make a block, and at least one. Work that makes a table of its own of every part asks for larger ones."""
    cuts, things = [0], len(first_X) - 1
    step = max(1, block // max(columns, 1))
    while cuts[-1] < things:
        start = cuts[-1]
        stop = int(np.searchsorted(first_X, first_X[start] + step, side="right")) - 1
        cuts.append(min(max(stop, start + 1), start + step, things))
    return [slice(start, stop) for start, stop in pairwise(cuts)]


def in_parallel(work: Callable[[Part], Found], parts: list[Part]) -> Iterator[Found]:
    """What the work makes of each part, in their order."""
    threads = min(len(parts), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    if threads < 2:
        yield from map(work, parts)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(work, parts)


def some_rows(matrix: Any, part: slice) -> Any:
    """These rows of a CSR matrix, without looking at the others."""
    first_R = matrix.indptr[part.start : part.stop + 1]
    entries = slice(first_R[0], first_R[-1])
    rows = matrix.data[entries], matrix.indices[entries], first_R - first_R[0]
    return csr_matrix(rows, shape=(len(first_R) - 1, matrix.shape[1]))


def dense(table: Any) -> np.ndarray:
    """The same numbers in an array, if they are in a sparse matrix."""
    return table if isinstance(table, np.ndarray) else table.toarray()


def values_at(matrix: Any, row_T: np.ndarray, column_T: np.ndarray) -> np.ndarray:
    """What a CSR matrix holds in these places."""
    return np.asarray(matrix[row_T, column_T]).ravel() if len(row_T) else np.zeros(0)


def product(left: Any, table_NC: np.ndarray, out: np.ndarray) -> np.ndarray:
    """A CSR matrix times a table, in the table's precision, into `out`."""
    left = left.astype(table_NC.dtype, copy=False)

    def fill(part: slice) -> None:
        out[part] = some_rows(left, part) @ table_NC

    for _ in in_parallel(fill, row_blocks(left.indptr, table_NC.shape[1])):
        pass
    return out
