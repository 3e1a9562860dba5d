"""Feature vectors in place of images: the table, and the item of each row."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pals.readers import Votes
from pals.runs.run_config import VotesConfig
from pals.util.errors import InputError
from pals.util.files import check_readable, without_advice
from pals.util.words import quoted


def row_names(config: VotesConfig, votes: Votes) -> list[str]:
    """The item of each row: from the file of names, or row numbers if the votes use them."""
    rows = len(read_matrix(config))
    if config.names is not None:
        names = _read_names(Path(config.names))
        if len(names) != rows:
            raise InputError(f"{config.names} names {len(names):,} items, but {config.features} has {rows:,} rows.")
        return names
    numbers = [str(row) for row in range(rows)]
    if set(votes.items) <= set(numbers):
        return numbers
    raise InputError(
        f"Which row of {config.features} is {quoted(votes.items[0])}? Give --names, a text file with one item per line in the "
        f"order of the rows; or use row numbers, from 0, as item names in the votes."
    )


def _read_names(path: Path) -> list[str]:
    check_readable(path, "the file with the items' names")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"--names: cannot read {path} ({error}). Give a readable text file in UTF-8, one item per line."
        ) from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def read_matrix(config: VotesConfig) -> np.ndarray:
    """The feature vectors (N x D), mapped from the file."""
    path = Path(config.features or "")
    check_readable(path, "the .npy file with the feature vectors")
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(
            f"{path} is not a readable .npy file of numbers ({without_advice(error)}). Write it with numpy.save."
        ) from None
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or matrix.dtype.kind not in "fiu" or not matrix.size:
        found = f"shape {matrix.shape}, {matrix.dtype}" if isinstance(matrix, np.ndarray) else "several arrays"
        raise InputError(f"{path} holds {found}; expected one row of numbers per item.")
    return matrix
