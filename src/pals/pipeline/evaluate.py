"""Evaluation against known labels: reading them, and the accuracy of the result."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from pals.crowd import Consensus, Result, majority_vote, named_labels
from pals.labels.candidates import Truth
from pals.labels.metrics import accuracy_of, share_covered
from pals.pipeline.stages.read_answers import answered
from pals.readers import Votes, read_votes
from pals.util.errors import InputError
from pals.util.words import quoted

MAX_GRADED_ANSWERS = 100  # doubtful answers that are graded, the surest first


class Graded(NamedTuple):
    """The G items whose truth is known, without gold items, whose label was given.

    Args:
        row_G: Their rows.
        truth: Their true labels.
        whole: Whether they are all items that have answers and are not gold.
    """

    row_G: np.ndarray
    truth: Truth
    whole: bool


def read_truth(path: Path, votes: Votes) -> Graded:
    """The true labels of some or all items with answers.

    Args:
        path: A table with an item and a label column.
        votes: The answers.

    Raises:
        InputError: The file cannot be read, has two labels for an item, or none for an item that can be graded.
    """
    found = read_votes(path, format="long", class_names=votes.class_names, taxonomy=votes.taxonomy)
    matched, _ = found.take(np.flatnonzero(found.sure_R)).match(votes.items)  # an unsure label is no truth
    if matched.taxonomy is not None and len(matched.answer_R):  # an inner node grades no class
        matched = matched.take(np.flatnonzero(np.bincount(matched.answer_R)[matched.answer_R] == 1))
    _refuse_two_truths(path, matched)
    label_N = np.full(len(votes.items), -1)
    label_N[matched.item_R] = matched.label_R
    label_N = np.where(matched.gold_I >= 0, matched.gold_I, label_N)
    answered_N = answered(votes)
    if not (answered_N & (label_N >= 0)).any():
        raise InputError(f"{path} has no label for any item with answers (the first of those is {quoted(votes.items[0])}).")
    open_N = answered_N & (votes.gold_I < 0)
    row_G = np.flatnonzero(open_N & (label_N >= 0))
    if not len(row_G):
        raise InputError(
            f"{path} has labels only for items whose right label the answers give as gold, which are never graded. Leave out "
            f"--truth, or name others."
        )
    return Graded(row_G, Truth.of(label_N[row_G], votes.class_names), len(row_G) == int(open_N.sum()))


def _refuse_two_truths(path: Path, truth: Votes) -> None:
    pairs = np.unique(np.stack([truth.item_R, truth.label_R]), axis=1)
    twice = np.flatnonzero(pairs[0, 1:] == pairs[0, :-1])
    if len(twice):
        one, two = (quoted(truth.class_names[label]) for label in pairs[1, twice[0] : twice[0] + 2])
        item = quoted(truth.items[pairs[0, twice[0]]])
        raise InputError(f"{path} has two true labels for {item}, {one} and {two}. Keep the right one.")


def grade(known: Graded, result: Result, answer_M: np.ndarray, consensus: Consensus) -> dict[str, float]:
    """Accuracy of the result, of the majority vote and of the annotator model, and precision of the doubtful answers.

    Args:
        known: Items with known labels.
        result: The result of the fit.
        answer_M: The doubtful answers, the surest first.
        consensus: The annotator model fitted to the answers alone.
    """
    votes, (row_G, truth, _) = result.votes, known
    place_N = np.full(len(votes.items), -1)
    place_N[row_G] = np.arange(len(row_G))
    first = answer_M[place_N[result.item_A[answer_M]] >= 0][:MAX_GRADED_ANSWERS]
    return {
        "labels": accuracy_of(result.posterior_NC[row_G], truth),
        "majority": accuracy_of(majority_vote(votes)[row_G], truth),
        "dawid_skene": accuracy_of(consensus.posterior_NC[row_G], truth),
        "first_100_doubtful": 1 - share_covered(place_N[result.item_A[first]], named_labels(result, first), truth),
        "items": len(row_G),
        "doubtful": len(first),
    }
