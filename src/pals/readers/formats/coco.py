"""COCO's labels without boxes, as Datumaro writes them."""

from __future__ import annotations

from typing import Any

from pals.readers.column_types import weight_of
from pals.readers.columns import Columns
from pals.readers.reader_table import Records, Table
from pals.readers.source import Source
from pals.readers.unsure_answers import attributes_sure
from pals.util.words import quoted

COCO_HINT = "A COCO file has `images` (id, file_name), `categories` (id, name) and `annotations` (image_id, category_id)."


def read_coco(source: Source, columns: Columns) -> Table:
    """Several annotations of an image are its candidates, weighted by their `score`; boxes and masks are ignored. An
    attribute `unsure` marks one."""
    source.no_columns(columns)
    content = source.as_dict(source.json, "the file", COCO_HINT)
    images, classes = _by_id(source, content, "images", "file_name"), _by_id(source, content, "categories", "name")
    labels: dict[str, dict[str, float]] = {name: {} for name in images.values()}
    unsure: set[tuple[str, str]] = set()
    for number, entry in enumerate(source.as_list(content.get("annotations"), "`annotations`", COCO_HINT), start=1):
        found = source.as_dict(entry, f"annotation {number}", COCO_HINT)
        image = _named(source, found, number, "image_id", images, "images")
        label = _named(source, found, number, "category_id", classes, "categories")
        score = weight_of(found.get("score", 1.0))
        if score != score:
            source.refuse(f"annotation {number} has the score {quoted(found['score'], 40)}, which is not a weight", COCO_HINT)
        labels[image][label] = max(score, labels[image].get(label, 0.0))
        if not attributes_sure(
            source.as_dict(found.get("attributes") or {}, f"`attributes` of annotation {number}", COCO_HINT)
        ):
            unsure.add((image, label))
    records = Records(source.path, "image")
    for number, (image, scores) in enumerate(labels.items(), start=1):
        sure = [(image, label) not in unsure for label in scores] or True
        records.add(image, None, list(scores), number, weights=list(scores.values()) or [1.0], sure=sure)
    return records.table(classes=list(dict.fromkeys(classes.values())))


def _named(source: Source, found: dict[str, Any], number: int, key: str, names: dict[str, str], section: str) -> str:
    """The name of the image or category that the annotation's `key` refers to."""
    wanted = source.as_name(found.get(key), f"annotation {number}", COCO_HINT)
    if wanted is None or wanted not in names:
        source.refuse(f"annotation {number} has the {key} {quoted(wanted, 40)}, which is not among `{section}`", COCO_HINT)
    return names[wanted]


def _by_id(source: Source, content: dict[str, Any], key: str, name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, entry in enumerate(source.as_list(content.get(key), f"`{key}`", COCO_HINT), start=1):
        where = f"entry {number} of `{key}`"
        values = [source.as_name(source.as_dict(entry, where, COCO_HINT).get(k), where, COCO_HINT) for k in ("id", name)]
        if values[0] is None or values[1] is None:
            source.refuse(f"{where} has no id or no {name}", COCO_HINT)
        if found.setdefault(values[0], values[1]) != values[1]:
            both = f"{quoted(found[values[0]], 40)} and {quoted(values[1], 40)}"
            again = f"{where} has the id {quoted(values[0], 20)} again, which would mean {both}"
            source.refuse(again, "Give every entry its own id.")
    return found
