"""Pseudo-labels from nearest neighbours: the labelling steps of PALS, SRSE and CLSP.

`knn` finds neighbours, `knn_vote` sums their votes; `reliable_subset` is the step of PALS (`pseudo_label`), `soft_vote` that of
SRSE, `prune_sets` that of CLSP; `candidate_model` is a generative model of candidate sets and `simplex` the arithmetic of class
probabilities. All are pure functions of tensors: no network, no training loop, no files, and never the truth.

Shapes: N items, M queries or a part of the items, C classes, K neighbours, D feature width, 1 a column.
"""

from __future__ import annotations

from pals.pseudo_labels.knn import Neighbors, nearest, nearest_to
from pals.pseudo_labels.knn_vote import neighbor_weight, vote
from pals.pseudo_labels.reliable_subset import Labeling, pseudo_label

__all__ = ["Labeling", "Neighbors", "nearest", "nearest_to", "neighbor_weight", "pseudo_label", "vote"]
