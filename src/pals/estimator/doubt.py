"""How much speaks against what was said of an item: what those most like it are held to be."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pals.estimator.targets import Target
from pals.pseudo_labels import neighbor_weight, vote
from pals.pseudo_labels.knn import nearest

NEIGHBORS = 15


def doubt_of(features_ND: Tensor, belief_NC: Tensor, target: Target) -> np.ndarray:
    """For each item 1 - sum_c p_c s_c. p is what its nearest others are believed to be; neither the item's own candidates nor
    a network that may know them by heart has a say in it. s_c says how far the label was given: 1 for a candidate; where votes
    were counted, its votes as a share of those for the label with most."""
    found = nearest(features_ND, min(NEIGHBORS, len(features_ND) - 1), include_self=False)
    p_NC = vote(found.index_NK, neighbor_weight(found.similarity_NK), belief_NC.float())
    given_NC = torch.from_numpy(_given(target)).to(p_NC)
    doubt_N: np.ndarray = (1 - (p_NC * given_NC).sum(dim=1)).clamp(0, 1).double().cpu().numpy()
    return doubt_N


def _given(target: Target) -> np.ndarray:
    if target.frequency_NC is None:
        return target.allowed_NC
    share_NC: np.ndarray = target.frequency_NC / target.frequency_NC.max(axis=1, keepdims=True)
    return share_NC
