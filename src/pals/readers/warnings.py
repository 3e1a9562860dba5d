"""What is not wrong with the answers that were read, but should be known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from pals.readers.read_summary import some, unanswered
from pals.readers.suspicious_names import odd_names
from pals.util.words import how_many

MANY = 100
"""Classes from which on it is strange that most of them are named but once."""
FEW = 10
"""Answers up to which it is not strange that no two are about the same item."""


class Joined(Protocol):
    """The answers of all files: rows with item, annotator (-1: not named), label and answer."""

    item_R: np.ndarray
    worker_R: np.ndarray
    label_R: np.ndarray
    answer_R: np.ndarray

    def several_answers(self) -> np.ndarray:
        """The items for which one person gave more than one, different answers."""
        ...


def silent_people(workers: Sequence[str]) -> Iterator[str]:
    """People who are named, say by a column, and never answer."""
    if workers:
        yield f"{how_many(len(workers), 'annotator')} without any answer, not counted ({some(workers, len(workers))})"


def remarks(
    joined: Joined, items: Sequence[str], workers: Sequence[str], classes: Sequence[str], gold_I: np.ndarray
) -> Iterator[str]:
    """What is not wrong but should be known."""
    empty = ((np.bincount(joined.item_R, minlength=len(items)) == 0) & (gold_I < 0)).nonzero()[0]
    if len(empty):
        yield unanswered([items[i] for i in empty], "item has", "items have")
    several = joined.several_answers()
    if len(several):
        names = some((items[i] for i in several), len(several))
        with_several = how_many(len(several), "item has", "items have")
        yield f"{with_several} different answers by one person, all of them kept ({names})"
    if len(workers) == 1 and (joined.worker_R >= 0).all():
        yield f"Only one annotator: {workers[0]}"
    chosen = np.bincount(joined.label_R, minlength=len(classes)) + np.bincount(gold_I[gold_I >= 0], minlength=len(classes))
    if (chosen == 0).any():
        unused = [classes[c] for c in (chosen == 0).nonzero()[0]]
        yield f"{how_many(len(unused), 'class', 'classes')} that nobody chose ({some(unused, len(unused))})"
    yield from odd_names(items, classes, workers)
    answers = int(np.count_nonzero(np.bincount(joined.answer_R)))
    if len(workers) > 1 and answers > FEW and answers == len(np.unique(joined.item_R)):
        yield "No item has two answers, so nobody's can be compared with another's: check which column names the item"
    if len(classes) > MANY and 2 * len(classes) > answers:
        yield f"{len(classes):,} classes for {answers:,} answers: check which column holds the label"
