"""Datumaro JSON, one of CVAT's exports: labels of whole images."""

from __future__ import annotations

from pals.readers.columns import Columns
from pals.readers.reader_table import Records, Table
from pals.readers.source import Source
from pals.readers.unsure_answers import attributes_sure
from pals.util.words import quoted

DATUMARO_HINT = "Export the project as Datumaro JSON again."


def read_datumaro(source: Source, columns: Columns) -> Table:
    """Annotations of type "label"; those of one item are one answer, and an attribute `unsure` marks one. The annotator
    has the name of the file."""
    source.no_columns(columns)
    content = source.as_dict(source.json, "the file", DATUMARO_HINT)
    categories = source.as_dict(content.get("categories"), "`categories`", DATUMARO_HINT)
    declared = source.as_list(
        source.as_dict(categories.get("label"), "`label`", DATUMARO_HINT).get("labels"), "`labels`", DATUMARO_HINT
    )
    names = [
        source.as_name(source.as_dict(entry, "a label", DATUMARO_HINT).get("name"), "a label", DATUMARO_HINT) or ""
        for entry in declared
    ]
    records = Records(source.path, "item")
    for number, item in enumerate(source.as_list(content.get("items"), "`items`", DATUMARO_HINT), start=1):
        where = f"item {number}"
        entry = source.as_dict(item, where, DATUMARO_HINT)
        labels: list[str | None] = []
        sure: list[bool] = []
        for annotation in source.as_list(entry.get("annotations", []), f"`annotations` of {where}", DATUMARO_HINT):
            found = source.as_dict(annotation, f"an annotation of {where}", DATUMARO_HINT)
            if found.get("type") == "label":
                index = found.get("label_id")
                if type(index) is not int or not 0 <= index < len(names):
                    source.refuse(f"{where} has the label {quoted(index)}, but there are {len(names)} labels", DATUMARO_HINT)
                labels.append(names[index])
                attributes = source.as_dict(found.get("attributes") or {}, f"`attributes` of {where}", DATUMARO_HINT)
                sure.append(attributes_sure(attributes))
        records.add(
            source.as_name(entry.get("id"), where, DATUMARO_HINT) or "", source.path.stem, labels, number, sure=sure or True
        )
    return records.table(classes=list(dict.fromkeys(names)))
