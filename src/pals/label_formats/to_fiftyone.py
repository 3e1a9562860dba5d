"""FiftyOne's FiftyOneImageClassificationDataset: data/ with the images, and labels.json with a label for each.

{"classes": null, "labels": {NAME WITHOUT ENDING: {"label": ..., "confidence": ..., "attributes": {...}}}}
"""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

from pals.label_formats.export_target import flat_stems, place_image
from pals.label_formats.run_labels import RunLabels
from pals.pipeline.item_answers import in_words


def write(labels: RunLabels, target: Path, *, link: bool) -> list[str]:
    """Fill the folder `target`."""
    labels.refuse_missing_images("write --to csv")
    stem_of, content = flat_stems(item.item for item in labels.items), {}
    for item in labels.items:
        stem = stem_of[item.item]
        place_image(labels.image(item.item), target / "data" / f"{stem}{PurePosixPath(item.item).suffix}", link=link)
        more = {key: item.row[key] for key in ("status", "second") if item.row[key]}
        attributes = {"item": item.item, **more, "answers": in_words(item.answers)}
        content[stem] = {"label": item.label, "confidence": round(item.confidence, 6), "attributes": attributes}
    text = json.dumps({"classes": None, "labels": content}, ensure_ascii=False, indent=1)
    (target / "labels.json").write_text(text, encoding="utf-8")
    return []
