"""MATLAB files of partial label learning: `partial_target` (classes by items, maybe sparse, maybe transposed), `target`."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from pals.readers.columns import Columns
from pals.readers.formats.matlab import DamagedError, Matrix, dense, entries, matrices
from pals.readers.reader_table import Coded, Table, nobody
from pals.readers.source import Source
from pals.util.errors import InputError
from pals.util.words import listed

REMEDY = "A file for partial label learning holds `partial_target` (classes x items) of 0 and 1, and `data` (items x features)."


def read_mat(source: Source, columns: Columns) -> Table:
    """One answer per item: its candidates. `target`, if there, is the gold label. Items and classes are numbered from 0."""
    source.no_columns(columns)
    found = variables(source)
    if "partial_target" not in found:
        source.refuse(f"there is no `partial_target`; found: {listed(sorted(found))}", REMEDY)
    item_R, label_R, (items, classes) = _pairs(source, "partial_target", found)
    gold_R = np.zeros(len(item_R), dtype=bool)
    if "target" in found:
        gold_item, gold_label, shape = _pairs(source, "target", found)
        if shape != (items, classes):
            source.refuse(f"`target` and `partial_target` differ in shape: {shape}, {(items, classes)}", REMEDY)
        item_R, label_R = np.append(item_R, gold_item), np.append(label_R, gold_label)
        gold_R = np.append(gold_R, np.ones(len(gold_item), dtype=bool))
    class_names = np.array([str(c) for c in range(classes)], dtype=object)
    return Table(
        path=source.path,
        unit="item",
        place_R=item_R,
        item=Coded(item_R, np.array([str(i) for i in range(items)], dtype=object)),
        worker=nobody(len(item_R)),
        label=Coded(label_R, class_names),
        answer_R=np.where(gold_R, items + item_R, item_R),
        gold_R=gold_R,
        classes=tuple(class_names.tolist()),
    )


def variables(source: Source) -> dict[str, Matrix]:
    """What the file holds; nothing is unpacked yet."""
    if source.data.startswith(b"\x89HDF") or b"MATLAB 7.3" in source.data[:128]:
        source.refuse("this is a MATLAB 7.3 file", "Save it in MATLAB with save(name, '-v7').")
    try:
        return matrices(source.data)
    except DamagedError as error:
        _refuse_damaged(source, error)


def features(source: Source) -> np.ndarray:
    """`data`, items by features."""
    found = variables(source)
    if "data" not in found:
        raise InputError(f"{source.path}: there is no `data`. A file with features holds them as `data`, items by features.")
    _refuse_huge(source, found["data"])
    try:
        return dense(found["data"])
    except DamagedError as error:
        _refuse_damaged(source, error)


def _pairs(source: Source, name: str, found: dict[str, Matrix]) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
    """Item and class of every 1, item by item; and how many of both there are."""
    matrix = found[name]
    if len(matrix.shape) != 2:
        source.refuse(f"`{name}` has the shape {matrix.shape}", REMEDY)
    _refuse_huge(source, matrix)
    try:
        row, column, value = entries(matrix)
    except DamagedError as error:
        _refuse_damaged(source, error)
    if not (value == 1).all():
        source.refuse(f"`{name}` is not a matrix of 0 and 1", REMEDY)
    data = found.get("data")
    items = data.shape[0] if data is not None and len(data.shape) == 2 else None
    if items is not None and items not in matrix.shape:
        source.refuse(f"`{name}` has shape {matrix.shape}, but `data` has {items} items", REMEDY)
    if items is not None and matrix.shape[1] != items:
        return row, column, (matrix.shape[0], matrix.shape[1])
    order = np.lexsort((row, column))
    return column[order], row[order], (matrix.shape[1], matrix.shape[0])


def _refuse_huge(source: Source, matrix: Matrix) -> None:
    reason = source.limits.too_many_cells(matrix.cells, len(source.data))
    reason = reason or source.limits.too_many_bytes(matrix.size, f"`{matrix.name}`, once it is unpacked,")
    if reason:
        raise InputError(f"{source.path}: `{matrix.name}` is {' x '.join(map(str, matrix.shape[:4]))}, and {reason}")


def _refuse_damaged(source: Source, error: DamagedError) -> NoReturn:
    source.refuse(
        f"the MATLAB file is truncated or damaged ({error})", "Get it again, or save it in MATLAB with save(name, '-v7')."
    )
