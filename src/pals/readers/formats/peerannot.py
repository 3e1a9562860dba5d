"""peerannot's `answers.json`: class numbers by item and annotator."""

from __future__ import annotations

import json

from pals.readers.columns import Columns
from pals.readers.reader_table import Records, Table
from pals.readers.source import Source
from pals.util.words import quoted

PEERANNOT_HINT = 'A peerannot file looks like {"0": {"12": 1, "40": 0}}: item, annotator, class number.'


def read_peerannot(source: Source, columns: Columns) -> Table:
    """Items are numbers, the images are called NAME-<number>.png. `n_classes` is taken from metadata.json beside the file."""
    source.no_columns(columns)
    records = Records(source.path, "item")
    for item, votes in source.as_dict(source.json, "the file", PEERANNOT_HINT).items():
        for annotator, label in source.as_dict(votes, f"item {quoted(item)}", PEERANNOT_HINT).items():
            records.add(item, annotator, [source.as_name(label, f"item {quoted(item)}", PEERANNOT_HINT)], item)
        if not votes:
            records.lone.append(item)
    return records.table(classes=_classes(source))


def _classes(source: Source) -> list[str] | None:
    path = source.path.parent / "metadata.json"
    try:
        if not path.is_file():  # a pipe of this name would never answer
            return None
        count = json.loads(path.read_text(encoding="utf-8"))["n_classes"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None  # it is optional
    return [str(c) for c in range(count)] if type(count) is int and 0 < count <= 100_000 else None
