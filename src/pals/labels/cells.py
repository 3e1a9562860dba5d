"""An answer in one cell of a table: one or more labels, "newt|frog", or "don't know".

A separator that belongs to a label has a backslash before it: "red\\|black".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

DONT_KNOW = "don't know"
"""The answer of an annotator who does not know the label."""

MISSING = frozenset({"", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "<NA>", "#N/A"})
"""Spellings of an empty cell by other programs; exact, so that "na" or "none" can be a class."""

UNSURE_WEIGHT = 0.5
"""Weight of an unsure label in counts. `crowd` learns the weight of each annotator's unsure answers."""


def split_labels(cell: str, separator: str) -> list[str]:
    """The labels in a cell.

    Backslashes count only right before a separator: two of them are one of the label's own, and an odd one makes the separator
    part of the label.

    Args:
        cell: as written.
        separator: between labels.
    """
    if "\\" not in cell or "\\" in separator:
        return cell.split(separator)
    labels, rest = [""], 0
    for found in _marked(separator).finditer(cell):
        marks = len(found[1])
        labels[-1] += cell[rest : found.start()] + "\\" * (marks // 2)
        if marks % 2:
            labels[-1] += separator
        else:
            labels.append("")
        rest = found.end()
    labels[-1] += cell[rest:]
    return labels


def join_labels(labels: Sequence[str], separator: str) -> str:
    """One cell with these labels; the inverse of `split_labels`."""
    if not any(separator in label or label.endswith("\\") for label in labels) or "\\" in separator:
        return separator.join(labels)
    marked = [_marked(separator).sub(lambda found: "\\" * (2 * len(found[1]) + 1) + separator, label) for label in labels]
    # Backslashes at the end of a label are doubled, since a separator follows; not those of the last label.
    ends = [label[len(label.rstrip("\\")) :] for label in marked[:-1]]
    return separator.join([*(label + end for label, end in zip(marked[:-1], ends, strict=True)), *marked[-1:]])


def _marked(separator: str) -> re.Pattern[str]:
    return re.compile(rf"(\\*){re.escape(separator)}")
