"""A Hugging Face data set: Parquet files that hold the images, with their features in the schema, and a data set card.

`datasets.load_dataset(FOLDER)` reads it, and the folder can be uploaded to the Hub as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pals.label_formats.run_labels import LabelledItem, RunLabels
from pals.util.errors import InputError
from pals.util.words import pip_install

MAX_FILE_BYTES = 500 << 20
"""Bytes of images in one Parquet file."""
ROW_GROUP_ITEMS = 100
"""Items that are read together."""
TEXT, NUMBER = {"dtype": "string", "_type": "Value"}, {"dtype": "float32", "_type": "Value"}
ANSWER = {"annotator": TEXT, "labels": [TEXT], "weight": NUMBER, "sure": {"dtype": "bool", "_type": "Value"}}


def write(labels: RunLabels, target: Path) -> list[str]:
    """Fill the folder `target`."""
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter
    except ImportError:
        raise InputError(f"A Hugging Face data set needs the package pyarrow: {pip_install('parquet')}.") from None
    answer = pa.struct({"annotator": pa.string(), "labels": pa.list_(pa.string()), "weight": pa.float32(), "sure": pa.bool_()})
    columns: dict[str, tuple[Any, Any]] = {
        "image": (pa.struct({"bytes": pa.binary(), "path": pa.string()}), {"_type": "Image"}),
        "label": (pa.int64(), {"names": list(labels.classes), "_type": "ClassLabel"}),
        "confidence": (pa.float32(), NUMBER),
        "item": (pa.string(), TEXT),
        "status": (pa.string(), TEXT),
        "answers": (pa.list_(answer), [ANSWER]),
    }
    if labels.images is None:
        del columns["image"]
    features = {name: feature for name, (_, feature) in columns.items()}
    types = {name: kind for name, (kind, _) in columns.items()}
    schema = pa.schema(types, {"huggingface": json.dumps({"info": {"features": features}})})
    if labels.images is not None:
        labels.refuse_missing_images("write --to csv")
    (target / "data").mkdir()
    files, opened, size = list[Path](), None, 0
    for block in _blocks(labels):
        if opened is None or size > MAX_FILE_BYTES:
            if opened is not None:
                opened.close()
            files.append(target / "data" / f"{len(files)}.parquet")
            opened, size = ParquetWriter(files[-1], schema), 0
        opened.write_table(pa.Table.from_pylist(block, schema))
        size += sum(len(row["image"]["bytes"]) for row in block if "image" in row)
    if opened is not None:
        opened.close()
    for number, file in enumerate(files):
        file.rename(file.with_name(f"train-{number:05}-of-{len(files):05}.parquet"))
    (target / "README.md").write_text(_card(labels), encoding="utf-8")
    return []


def _blocks(labels: RunLabels) -> Iterator[list[dict[str, Any]]]:
    """Rows of `ROW_GROUP_ITEMS` items at a time."""
    number = {name: place for place, name in enumerate(labels.classes)}
    for start in range(0, len(labels.items), ROW_GROUP_ITEMS):
        block = labels.items[start : start + ROW_GROUP_ITEMS]
        yield [{**_image(labels, item), "label": number[item.label], **_row(item)} for item in block]


def _image(labels: RunLabels, item: LabelledItem) -> dict[str, Any]:
    if labels.images is None:
        return {}
    image = labels.image(item.item)
    return {"image": {"bytes": image if isinstance(image, bytes) else image.read_bytes(), "path": item.item}}


def _row(item: LabelledItem) -> dict[str, Any]:
    answers = [
        {"annotator": one.annotator, "labels": list(one.labels), "weight": one.weight, "sure": one.sure}
        for one in item.answers
        if not one.gold
    ]
    return {"confidence": item.confidence, "item": item.item, "status": item.row["status"], "answers": answers}


def _card(labels: RunLabels) -> str:
    """README.md of the data set: which files it has, and what its columns are."""
    return f"""---
task_categories:
- image-classification
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*
---
# {labels.folder.resolve().name}

{len(labels.items):,} labels estimated from several annotators' answers by PALS (`pals fit`).

| column | content |
|---|---|
| `label`, `confidence` | the label and its estimated probability |
| `item`, `status` | the name of the image, and how the label was decided |
| `answers` | all answers: annotator, labels, weight, whether sure |
"""
