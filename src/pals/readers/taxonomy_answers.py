"""Answers that name a node of a taxonomy: those whose labels are exactly the leaves below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pals.labels.taxonomy import NO_NODE, Taxonomy

if TYPE_CHECKING:
    from pals.readers.votes import Votes


def node_of_groups(taxonomy: Taxonomy | None, label_R: np.ndarray, group_R: np.ndarray, groups: int) -> np.ndarray:
    """The inner node whose leaves are the labels of each group of rows.

    Args:
        taxonomy: The tree over the classes.
        label_R: Label of each row.
        group_R: Group of each row.
        groups: Number of groups.

    Returns:
        A node per group; `NO_NODE` for a single label and for any other set.
    """
    node_G = np.full(groups, NO_NODE)
    if taxonomy is None or not len(label_R):
        return node_G
    classes = len(taxonomy.leaves)
    code_X = np.unique(group_R * classes + label_R)  # a label that stands twice counts once
    group_X, label_X = code_X // classes, code_X % classes
    first_Y = np.flatnonzero(np.diff(group_X, prepend=-1))
    size_Y = np.diff(np.append(first_Y, len(group_X)))
    low_Y, high_Y = label_X[first_Y], label_X[first_Y + size_Y - 1] + 1
    whole_Y = (size_Y > 1) & (high_Y - low_Y == size_Y)
    node_G[group_X[first_Y]] = np.where(whole_Y, taxonomy.node_of_spans(low_Y, high_Y), NO_NODE)
    return node_G


def spoken(votes: Votes, row_X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What to show of some rows.

    Args:
        votes: The votes.
        row_X: Rows of whole answers.

    Returns:
        The rows to show, and the text of each: its label, or once for the whole answer the node that it names.
    """
    answer_X = np.unique(votes.answer_R[row_X], return_inverse=True)[1]
    node_X = node_of_groups(votes.taxonomy, votes.label_R[row_X], answer_X, int(answer_X.max(initial=-1)) + 1)[answer_X]
    again_X = np.ones(len(row_X), dtype=bool)
    again_X[np.unique(answer_X, return_index=True)[1]] = False
    shown = (node_X < 0) | ~again_X
    names = np.array(votes.class_names, dtype=object)[votes.label_R[row_X]]
    if votes.taxonomy is not None:
        names = np.where(node_X < 0, names, votes.taxonomy.names_of(node_X))
    return row_X[shown], names[shown]
