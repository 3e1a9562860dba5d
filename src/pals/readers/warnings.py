"""Warnings about answers that were read: what may be wrong, and what to check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pals.readers.joined_rows import JoinedRows
from pals.readers.read_summary import some, unanswered
from pals.readers.suspicious_names import suspicious_names
from pals.util.words import how_many

MIN_FREE_TEXT_CLASSES = 100
"""With more classes than this, of which most are named once, the label column may hold free text."""
MAX_UNSHARED_ANSWERS = 10
"""With more answers than this, no two of them to one item, the item column may be the wrong one."""


def input_warnings(
    rows: JoinedRows,
    items: Sequence[str],
    annotators: Sequence[str],
    classes: Sequence[str],
    gold_I: np.ndarray,
) -> Iterator[str]:
    """One sentence per warning.

    Args:
        rows: The answers.
        items: Names of the items.
        annotators: Names of the annotators.
        classes: Names of the classes.
        gold_I: Right label of each item, -1 where it is not known.
    """
    empty = ((np.bincount(rows.item_R, minlength=len(items)) == 0) & (gold_I < 0)).nonzero()[0]
    if len(empty):
        yield unanswered([items[i] for i in empty], "item has", "items have")
    several = rows.items_with_several_answers()
    if len(several):
        names = some((items[i] for i in several), len(several))
        with_several = how_many(len(several), "item has", "items have")
        yield f"{with_several} different answers by one person, all of them kept ({names})"
    if len(annotators) == 1 and (rows.annotator_R >= 0).all():
        yield f"Only one annotator: {annotators[0]}"
    chosen = np.bincount(rows.label_R, minlength=len(classes)) + np.bincount(gold_I[gold_I >= 0], minlength=len(classes))
    if (chosen == 0).any():
        unused = [classes[c] for c in (chosen == 0).nonzero()[0]]
        yield f"{how_many(len(unused), 'class', 'classes')} that nobody chose ({some(unused, len(unused))})"
    yield from suspicious_names(items, classes, annotators)
    answers = int(np.count_nonzero(np.bincount(rows.answer_R)))
    if len(annotators) > 1 and answers > MAX_UNSHARED_ANSWERS and answers == len(np.unique(rows.item_R)):
        yield "No item has two answers, so no two annotators can be compared: check which column names the item"
    if len(classes) > MIN_FREE_TEXT_CLASSES and 2 * len(classes) > answers:
        yield f"{len(classes):,} classes for {answers:,} answers: check which column holds the label"
