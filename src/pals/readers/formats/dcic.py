"""DCIC's `annotations.json`: a list of annotation sets. Names are blanked in the public files, so a set is an annotator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pals.readers.columns import Columns
from pals.readers.reader_table import Records, Table
from pals.readers.source import Source

DCIC_HINT = "A DCIC file is a list of sets, each with a list `annotations` of {image_path, class_label}."


def read_dcic(source: Source, columns: Columns) -> Table:
    """Every set; a `class_label` of null is no answer."""
    source.no_columns(columns)
    records = Records(source.path, "set")
    for number, value in enumerate(sets_in(source), start=1):
        for place, item, label in answers_in(source, number, value):
            records.add(item or "", f"set {number}", [label], place)
    return records.table()


def sets_in(source: Source) -> list[Any]:
    return source.as_list(source.json, "the file", DCIC_HINT)


def answers_in(source: Source, number: int, value: Any) -> Iterator[tuple[str, str | None, str | None]]:
    """(place in the file, image, label) of each annotation in a set."""
    entry = source.as_dict(value, f"set {number}", DCIC_HINT)
    answers = source.as_list(entry.get("annotations"), f"`annotations` of set {number}", DCIC_HINT)
    for row, part in enumerate(answers, start=1):
        place = f"{number}, annotation {row}"
        answer = source.as_dict(part, f"set {place}", DCIC_HINT)
        if "image_path" not in answer or "class_label" not in answer:
            source.refuse(f"set {place} lacks image_path or class_label", DCIC_HINT)
        item, label = (source.as_name(answer[key], f"set {place}", DCIC_HINT) for key in ("image_path", "class_label"))
        yield place, item, label
