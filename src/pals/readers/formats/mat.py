"""MATLAB files of partial label learning: `partial_target` (classes by items, maybe sparse, maybe transposed), `target`."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn

import numpy as np

from pals.readers.columns import Columns
from pals.readers.reader_table import Coded, Table, no_annotators
from pals.readers.source import Source
from pals.util.errors import InputError
from pals.util.words import listed

MAT_HINT = (
    "A file for partial label learning holds `partial_target` (classes x items) of 0 and 1, and `data` (items x features)."
)
SAVE_HINT = "Get it again, or save it in MATLAB with save(name, '-v7')."
HEADER_BYTES = 128
MIN_SECONDS, BYTES_PER_SECOND = 60, 1 << 22
"""Reading may take a minute, and a second for every 4 MiB."""
PROCESS_BYTES = 1 << 30
"""Memory of the process that reads, beside what the file needs."""


class Matrices(NamedTuple):
    """Variables of a MATLAB file."""

    shapes: dict[str, tuple[int, ...]]
    "Of all variables."
    arrays: dict[str, np.ndarray]
    "Of those that were asked for and are not too large, as `mat_process` names them."


def read_mat(source: Source, columns: Columns) -> Table:
    """One answer per item: its candidates. `target`, if there, is the gold label. Items and classes are numbered from 0."""
    source.no_columns(columns)
    found = read_matrices(source, ["partial_target", "target"], "entries")
    if "partial_target" not in found.shapes:
        source.refuse(f"there is no `partial_target`; found: {listed(sorted(found.shapes))}", MAT_HINT)
    item_R, label_R, (items, classes) = _pairs(source, "partial_target", found)
    gold_R = np.zeros(len(item_R), dtype=bool)
    if "target" in found.shapes:
        gold_item, gold_label, shape = _pairs(source, "target", found)
        if shape != (items, classes):
            source.refuse(f"`target` and `partial_target` differ in shape: {shape}, {(items, classes)}", MAT_HINT)
        item_R, label_R = np.append(item_R, gold_item), np.append(label_R, gold_label)
        gold_R = np.append(gold_R, np.ones(len(gold_item), dtype=bool))
    class_names = np.array([str(c) for c in range(classes)], dtype=object)
    return Table(
        path=source.path,
        unit="item",
        place_R=item_R,
        item=Coded(item_R, np.array([str(i) for i in range(items)], dtype=object)),
        annotator=no_annotators(len(item_R)),
        label=Coded(label_R, class_names),
        answer_R=np.where(gold_R, items + item_R, item_R),
        gold_R=gold_R,
        classes=tuple(class_names.tolist()),
    )


def features(source: Source) -> np.ndarray:
    """`data`, items by features."""
    found = read_matrices(source, ["data"], "dense")
    if "data" not in found.shapes:
        raise InputError(f"{source.path}: there is no `data`. A file with features holds them as `data`, items by features.")
    _check_size(source, "data", found.shapes["data"])
    if "data" not in found.arrays:
        source.refuse(f"`data` has the shape {found.shapes['data']}", MAT_HINT)
    return found.arrays["data"]


def read_matrices(source: Source, names: Sequence[str], form: Literal["dense", "entries"]) -> Matrices:
    """Read the variables `names` in a process of its own, which a damaged file may end.

    Raises:
        InputError: The file is not of MATLAB's version 5, is damaged, needs too much memory or takes too long.
    """
    data, limits = source.data, source.limits
    if data.startswith(b"\x89HDF") or b"MATLAB 7.3" in data[:HEADER_BYTES]:
        source.refuse("this is a MATLAB 7.3 file", "Save it in MATLAB with save(name, '-v7').")
    if len(data) < HEADER_BYTES or data[126:HEADER_BYTES] not in (b"IM", b"MI"):
        _refuse_damaged(source, "there is no header of version 5")
    command = [sys.executable, "-P", "-W", "ignore", str(Path(__file__).with_name("mat_process.py")), form]
    command += [str(limits.max_cells(len(data))), str(limits.bytes + PROCESS_BYTES), *names]
    seconds = MIN_SECONDS + len(data) // BYTES_PER_SECOND
    try:
        done = subprocess.run(
            command,
            input=data,
            capture_output=True,
            timeout=seconds,
            check=False,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        )
    except subprocess.TimeoutExpired:
        _refuse_damaged(source, f"reading it takes more than {seconds} seconds")
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2] if done.returncode == 1 else ""
        _refuse_damaged(source, reason[:120].rstrip(".") or "it ends the process that reads it")
    shapes, _, archive = done.stdout.partition(b"\n")
    with np.load(io.BytesIO(archive), allow_pickle=False) as arrays:
        return Matrices({name: tuple(shape) for name, shape in json.loads(shapes).items()}, dict(arrays))


def _pairs(source: Source, name: str, found: Matrices) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
    """Item and class of every 1, item by item; and the numbers of both."""
    shape = found.shapes[name]
    if len(shape) != 2:
        source.refuse(f"`{name}` has the shape {shape}", MAT_HINT)
    _check_size(source, name, shape)
    row, column, value = (found.arrays[f"{name}.{part}"] for part in ("row", "column", "value"))
    if not (value == 1).all():
        source.refuse(f"`{name}` is not a matrix of 0 and 1", MAT_HINT)
    data = found.shapes.get("data", ())
    if len(data) == 2 and data[0] not in shape:
        source.refuse(f"`{name}` has shape {shape}, but `data` has {data[0]} items", MAT_HINT)
    if len(data) == 2 and shape[1] != data[0]:
        return row, column, (shape[0], shape[1])
    order = np.lexsort((row, column))
    return column[order], row[order], (shape[1], shape[0])


def _check_size(source: Source, name: str, shape: tuple[int, ...]) -> None:
    reason = source.limits.too_many_cells(math.prod(shape), len(source.data))
    if reason:
        raise InputError(f"{source.path}: `{name}` is {' x '.join(map(str, shape[:4]))}, and {reason}")


def _refuse_damaged(source: Source, reason: str) -> NoReturn:
    source.refuse(f"the MATLAB file is truncated or damaged ({reason})", SAVE_HINT)
