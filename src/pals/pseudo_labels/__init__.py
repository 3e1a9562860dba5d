"""The labelling step of PALS: nearest neighbours, their votes, the posterior, and the selection of items worth training on.

Pure functions on tensors: no network, no training loop, no files, and never the truth. `pseudo_label` is the whole step.
In `prune_sets`, before all that, labels leave candidate sets.
"""

from __future__ import annotations

from pals.pseudo_labels.knn import Backend, Metric, Neighbors, nearest, nearest_to
from pals.pseudo_labels.knn_vote import (
    Auto,
    Labeling,
    VoteOn,
    Weighting,
    add_confident,
    agreeing_counts,
    likeliest_neighbors,
    neighbor_weight,
    pseudo_label,
    quota_of,
    select_reliable,
    share_,
    threshold_at,
    vote,
    vote_posterior,
)

__all__ = [
    "Auto",
    "Backend",
    "Labeling",
    "Metric",
    "Neighbors",
    "VoteOn",
    "Weighting",
    "add_confident",
    "agreeing_counts",
    "likeliest_neighbors",
    "nearest",
    "nearest_to",
    "neighbor_weight",
    "pseudo_label",
    "quota_of",
    "select_reliable",
    "share_",
    "threshold_at",
    "vote",
    "vote_posterior",
]
