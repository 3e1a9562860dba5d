"""Large tables part by part: no more than a few million numbers at once."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

BLOCK_NUMBERS = 1 << 18
"""Numbers in a part of a table: what a core works on at once."""

MAX_DOUBLE_NUMBERS = 150_000_000
"""Numbers in a table from which on it is kept in single precision."""


def precision(*shapes: tuple[int, int]) -> type[np.floating[Any]]:
    """Of tables of these shapes."""
    return np.float32 if max(rows * columns for rows, columns in shapes) > MAX_DOUBLE_NUMBERS else np.float64


def row_blocks(first_X: np.ndarray, columns: int, block: int = BLOCK_NUMBERS) -> list[slice]:
    """Slices of things (X) with several rows each, of which thing x has those from `first_X[x]` to `first_X[x + 1]`: as many
    at once as make a block, and at least one. Work that makes a table of its own of every part asks for larger ones."""
    cuts, things = [0], len(first_X) - 1
    step = max(1, block // max(columns, 1))
    while cuts[-1] < things:
        start = cuts[-1]
        stop = int(np.searchsorted(first_X, first_X[start] + step, side="right")) - 1
        cuts.append(min(max(stop, start + 1), start + step, things))
    return [slice(start, stop) for start, stop in pairwise(cuts)]


def values_at(matrix: Any, row_T: np.ndarray, column_T: np.ndarray) -> np.ndarray:
    """What a CSR matrix holds in these places."""
    return np.asarray(matrix[row_T, column_T]).ravel() if len(row_T) else np.zeros(0)
