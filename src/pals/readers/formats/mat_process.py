"""Program that reads matrices of a MATLAB file (version 5) with scipy: `python mat_process.py FORM CELLS BYTES NAME... < FILE`.

It runs in a process of its own (`mat.read_matrices`), because scipy trusts the sizes that a file claims: one changed byte can
end the process, and a few kilobytes can fill the memory. It imports numpy and scipy alone, to start quickly.

Standard output is one line of JSON, the shape of every variable, and then an .npz archive of the variables NAME that have two
dimensions and at most CELLS cells. With the form `dense` a variable is one array; with `entries` it is the arrays NAME.row,
NAME.column and NAME.value of what is not zero, row by row. The process may use BYTES of memory. An error is one line on
standard error and exit code 1.
"""

from __future__ import annotations

import io
import json
import math
import sys
from contextlib import suppress
from typing import Any

import numpy as np
from scipy.io import loadmat, whosmat
from scipy.sparse import issparse


def main(form: str, max_cells: int, max_bytes: int, names: list[str]) -> None:
    """Read the file from standard input and write what was found to standard output."""
    _limit_memory(max_bytes)
    file = io.BytesIO(sys.stdin.buffer.read())
    shapes: dict[str, list[int]] = {}
    for name, shape, _ in whosmat(file):
        shapes.setdefault(name, [int(size) for size in shape])
    if any(size < 0 for shape in shapes.values() for size in shape):
        raise ValueError("a variable has a negative size")
    small = [name for name in names if len(shapes.get(name, ())) == 2 and math.prod(shapes[name]) <= max_cells]
    file.seek(0)
    found = loadmat(file, variable_names=small) if small else {}
    arrays: dict[str, Any] = {}
    for name in small:
        value = found[name]
        if getattr(value, "dtype", np.dtype(object)).kind not in "biuf" or list(value.shape) != shapes[name]:
            raise ValueError(f"`{name}` is not a matrix of real numbers")
        if issparse(value):
            value.check_format(full_check=True)
        if form == "dense":
            arrays[name] = value.toarray() if issparse(value) else value
        else:
            arrays |= {f"{name}.{part}": array for part, array in _entries(value).items()}
    sys.stdout.buffer.write(json.dumps(shapes).encode() + b"\n")
    archive = io.BytesIO()
    np.savez(archive, **arrays)
    sys.stdout.buffer.write(archive.getvalue())


def _entries(matrix: Any) -> dict[str, np.ndarray]:
    """Row, column and value of what is not zero, row by row; a sparse matrix is not written out."""
    if issparse(matrix):
        cells = matrix.tocoo()
        row, column, value = cells.row.astype(np.int64), cells.col.astype(np.int64), cells.data
    else:
        row, column = np.nonzero(matrix)
        value = matrix[row, column]
    place = row * matrix.shape[1] + column
    if len(np.unique(place)) < len(place):
        raise ValueError("a sparse matrix has a cell twice")
    order = np.argsort(place)[value[np.argsort(place)] != 0]
    return {"row": row[order], "column": column[order], "value": value[order]}


def _limit_memory(max_bytes: int) -> None:
    with suppress(ImportError, ValueError, OSError):  # not on every system
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = max_bytes if hard == resource.RLIM_INFINITY else min(max_bytes, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
    except MemoryError:
        sys.exit("it needs more memory than is allowed")
    except Exception as error:
        sys.exit(" ".join(str(error).split()) or type(error).__name__)
