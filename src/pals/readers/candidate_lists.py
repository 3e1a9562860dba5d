"""Candidate tables: one row per item with all its possible labels in one cell, "newt|frog"."""

from __future__ import annotations

import numpy as np

from pals.readers.cells import add_gold, names_in, places, weights_in
from pals.readers.columns import Columns, find, not_read, require
from pals.readers.source import Source
from pals.readers.tables import Table, nobody


def read_candidates(source: Source, columns: Columns) -> Table:
    """Every row is one answer; an item in two rows has two."""
    names = source.frame.columns.tolist()
    found = find(names, columns, ("item", "worker", "candidates", "weight", "gold"), source)
    require(found, ("item", "candidates"), names, source)
    rows = len(source.frame)
    table = Table(
        path=source.path,
        unit="row",
        place_R=places(source),
        item=names_in(source, found["item"]),
        worker=names_in(source, found["worker"]) if "worker" in found else nobody(rows),
        label=names_in(source, found["candidates"]),
        answer_R=np.arange(rows),
        weight_R=weights_in(source, found["weight"]) if "weight" in found else None,
        splits=True,
        notes=not_read(names, found.values()),
    )
    return add_gold(table, table.item, names_in(source, found["gold"]), table.place_R) if "gold" in found else table
