"""An answer in one cell of a table: several labels, "newt|frog" (a separator within a label has a backslash before it,
"red\\|black"), or that somebody does not know."""

from __future__ import annotations

import re
from collections.abc import Sequence

DONT_KNOW = "don't know"
"""How an answer of somebody who does not know is written."""

MISSING = frozenset({"", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "<NA>", "#N/A"})
"""How programs write an empty cell; as it stands, so that "na" or "none" can be a class."""

UNSURE_WEIGHT = 0.5
"""What an unsure label counts where labels are only counted; what people's unsure answers are worth is learned in `crowd`."""


def split_labels(cell: str, separator: str) -> list[str]:
    """The labels in a cell. Backslashes count only right before a separator: two stand for one of the label's own, an odd one
    makes the separator part of the label."""
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
    """One cell that `split_labels` takes apart into these labels."""
    if not any(separator in label or label.endswith("\\") for label in labels) or "\\" in separator:
        return separator.join(labels)
    marked = [_marked(separator).sub(lambda found: "\\" * (2 * len(found[1]) + 1) + separator, label) for label in labels]
    return separator.join([*(_doubled(label) for label in marked[:-1]), *marked[-1:]])


def _marked(separator: str) -> re.Pattern[str]:
    return re.compile(rf"(\\*){re.escape(separator)}")


def _doubled(label: str) -> str:
    """With twice as many backslashes at its end, where a separator follows."""
    return label + "\\" * (len(label) - len(label.rstrip("\\")))
