"""COCO annotations: one category per class, and one annotation per image, whose box is the whole image.

Boxes and sizes are left out where the run has no images. `score` is the label's probability; `attributes` have the rest.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pals.label_formats.run_labels import RunLabels
from pals.pipeline.item_answers import in_words
from pals.vision.images.decoding import read_header


def write(labels: RunLabels, target: Path) -> list[str]:
    """Write the file `target`."""
    number = {name: place for place, name in enumerate(labels.classes, start=1)}
    images, annotations = list[dict[str, Any]](), list[dict[str, Any]]()
    if labels.images is not None:
        labels.refuse_missing_images("write --to csv")
    for place, item in enumerate(labels.items, start=1):
        size = None if labels.images is None else read_header(labels.image(item.item))
        width, height = size or (0, 0)
        sides = {} if size is None else {"width": width, "height": height}
        box = {} if size is None else {"bbox": [0, 0, width, height], "area": width * height}
        attributes = {"status": item.row["status"], "second": item.row["second"], "answers": in_words(item.answers)}
        images.append({"id": place, "file_name": item.item, **sides})
        annotations.append(
            {
                "id": place,
                "image_id": place,
                "category_id": number[item.label],
                **box,
                "iscrowd": 0,
                "score": round(item.confidence, 6),
                "attributes": attributes,
            }
        )
    content = {
        "info": {"description": f"Labels of the run {labels.folder.resolve().name}"},
        "images": images,
        "annotations": annotations,
        "categories": [{"id": place, "name": name} for name, place in number.items()],
    }
    target.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return []
