"""MATLAB files of partial label learning: `partial_target` (classes by items, maybe sparse, maybe transposed), `target`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from pals.readers.columns import Columns
from pals.readers.source import Source
from pals.readers.tables import Coded, Table, nobody
from pals.readers.votes import LARGEST_TABLE

REMEDY = "A file for partial label learning holds `partial_target` (classes x items) of 0 and 1, and `data` (items x features)."


def read_mat(source: Source, columns: Columns) -> Table:
    """One answer per item: its candidates. `target`, if there, is the gold label. Items and classes are numbered from 0."""
    source.no_columns(columns)
    shapes = _shapes(source)
    if "partial_target" not in shapes:
        source.refuse(f"there is no `partial_target`; found: {', '.join(sorted(shapes)) or 'nothing'}", REMEDY)
    for name, shape in shapes.items():
        if name.endswith("target") and np.prod(shape, dtype=float) > LARGEST_TABLE:
            source.refuse(f"`{name}` claims to have the shape {shape}", REMEDY)
    wanted = [name for name in ("partial_target", "target") if name in shapes]
    values = _load(source, wanted)
    allowed_IC = _items_by_classes(source, "partial_target", values["partial_target"], shapes)
    items, classes = allowed_IC.shape
    item_R, label_R = allowed_IC.nonzero()
    gold_R = np.zeros(len(item_R), dtype=bool)
    if "target" in values:
        right_IC = _items_by_classes(source, "target", values["target"], shapes)
        if right_IC.shape != allowed_IC.shape:
            source.refuse(f"`target` and `partial_target` differ in shape: {right_IC.shape}, {allowed_IC.shape}", REMEDY)
        gold_item, gold_label = right_IC.nonzero()
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


def _shapes(source: Source) -> dict[str, tuple[int, ...]]:
    from scipy.io import whosmat

    if source.data.startswith(b"\x89HDF") or b"MATLAB 7.3" in source.data[:128]:
        source.refuse("this is a MATLAB 7.3 file", "Save it in MATLAB with save(name, '-v7').")
    try:
        return {name: tuple(shape) for name, shape, _ in whosmat(io.BytesIO(source.data))}
    except Exception as error:  # a damaged file can raise anything
        source.refuse(f"the MATLAB file is truncated or damaged ({_reason(error)})", "Get the file again.")


def _load(source: Source, names: Sequence[str]) -> dict[str, Any]:
    from scipy.io import loadmat

    try:
        return dict(loadmat(io.BytesIO(source.data), variable_names=names))
    except Exception as error:  # as above
        source.refuse(f"the MATLAB file is truncated or damaged ({_reason(error)})", "Get the file again.")


def _items_by_classes(source: Source, name: str, value: Any, shapes: dict[str, tuple[int, ...]]) -> np.ndarray:
    if value.__class__.__module__.startswith("scipy.sparse"):
        value = value.toarray()
    if (
        not isinstance(value, np.ndarray)
        or value.ndim != 2
        or value.dtype.kind not in "biuf"
        or not np.isin(value, (0, 1)).all()
    ):
        source.refuse(f"`{name}` is not a matrix of 0 and 1", REMEDY)
    items = shapes["data"][0] if len(shapes.get("data", ())) == 2 else None
    transposed = items is not None and value.shape[1] != items
    if items is not None and items not in value.shape:
        source.refuse(f"`{name}` has shape {value.shape}, but `data` has {items} items", REMEDY)
    return np.ascontiguousarray(value if transposed else value.T).astype(bool)


def _reason(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
