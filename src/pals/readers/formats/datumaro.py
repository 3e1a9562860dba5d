"""Datumaro JSON, one of CVAT's exports: labels of whole images."""

from __future__ import annotations

from pals.readers.columns import Columns
from pals.readers.reader_table import Records, Table
from pals.readers.source import Source
from pals.readers.unsure_answers import attributes_sure
from pals.util.words import quoted

REMEDY = "Export the project as Datumaro JSON again."


def read_datumaro(source: Source, columns: Columns) -> Table:
    """Annotations of type "label"; those of one item are one answer, and an attribute `unsure` marks one. The annotator is
    called like the file."""
    source.no_columns(columns)
    content = source.as_dict(source.json, "the file", REMEDY)
    categories = source.as_dict(content.get("categories"), "`categories`", REMEDY)
    declared = source.as_list(source.as_dict(categories.get("label"), "`label`", REMEDY).get("labels"), "`labels`", REMEDY)
    names = [
        source.as_name(source.as_dict(entry, "a label", REMEDY).get("name"), "a label", REMEDY) or "" for entry in declared
    ]
    records = Records(source.path, "item")
    for number, item in enumerate(source.as_list(content.get("items"), "`items`", REMEDY), start=1):
        where = f"item {number}"
        entry = source.as_dict(item, where, REMEDY)
        labels: list[str | None] = []
        sure: list[bool] = []
        for annotation in source.as_list(entry.get("annotations", []), f"`annotations` of {where}", REMEDY):
            found = source.as_dict(annotation, f"an annotation of {where}", REMEDY)
            if found.get("type") == "label":
                index = found.get("label_id")
                if type(index) is not int or not 0 <= index < len(names):
                    source.refuse(f"{where} has the label {quoted(index)}, but there are {len(names)} labels", REMEDY)
                labels.append(names[index])
                attributes = source.as_dict(found.get("attributes") or {}, f"`attributes` of {where}", REMEDY)
                sure.append(attributes_sure(attributes))
        records.add(source.as_name(entry.get("id"), where, REMEDY) or "", source.path.stem, labels, number, sure=sure or True)
    return records.table(classes=list(dict.fromkeys(names)))
