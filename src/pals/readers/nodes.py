"""Answers that name a node of a taxonomy: told by their labels, which are all those below it and no others."""

from __future__ import annotations

import numpy as np

from pals.labels.taxonomy import NO_NODE, Taxonomy


def node_of_groups(taxonomy: Taxonomy | None, label_R: np.ndarray, group_R: np.ndarray, groups: int) -> np.ndarray:
    """The inner node that the labels of each group of rows make up; `NO_NODE` for a single label and for any other set."""
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
