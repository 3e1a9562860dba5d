"""Long tables (CSV, TSV, Parquet): one answer per row, in columns for item, annotator and label. crowd-kit's form, too."""

from __future__ import annotations

from pals.readers.cells import add_gold, flags_in, names_in, places, weights_in
from pals.readers.columns import Columns, find, not_read, require
from pals.readers.source import Source
from pals.readers.tables import Table, nobody

UNNAMED = "No column names the annotators: every row counts as another person's answer"
ROLES = ("item", "worker", "label", "weight", "is_gold", "gold")


def read_long(source: Source, columns: Columns) -> Table:
    """Rows of the same item and annotator are one answer with several labels; so is a cell "newt|frog"."""
    names = source.frame.columns.tolist()
    found = find(names, columns, ROLES, source)
    require(found, ("item", "label"), names, source)
    rows = len(source.frame)
    table = Table(
        path=source.path,
        unit="row",
        place_R=places(source),
        item=names_in(source, found["item"]),
        worker=names_in(source, found["worker"]) if "worker" in found else nobody(rows),
        label=names_in(source, found["label"]),
        weight_R=weights_in(source, found["weight"]) if "weight" in found else None,
        gold_R=flags_in(source, found["is_gold"]) if "is_gold" in found else None,
        splits=True,
        notes=not_read(names, found.values()) + (() if "worker" in found else (UNNAMED,)),
    )
    return add_gold(table, table.item, names_in(source, found["gold"]), table.place_R) if "gold" in found else table
