"""Evidence against given labels, from nearest neighbours.

For item i, whose nearest other items j have weights w_ij and posteriors p_j:

    p'_i    = sum_j w_ij p_j / sum_j w_ij
    doubt_i = 1 - sum_c p'_ic s_ic

with s_ic = 1 for a candidate c; with votes s_ic = votes of c / votes of the label with most. The item's own candidates, and a
network that may have memorised them, are not used in p'.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pals.estimator.targets import Target
from pals.pseudo_labels import neighbor_weight, vote
from pals.pseudo_labels.knn import nearest

DOUBT_NEIGHBORS = 15


def doubt_of(features_ND: Tensor, posterior_NC: Tensor, target: Target) -> np.ndarray:
    """Evidence against the label of each item, see the head of this file.

    Args:
        features_ND: by which neighbours are found.
        posterior_NC: of the items.
        target: their candidates, and shares of votes where votes were counted.

    Returns:
        N numbers from 0 to 1.
    """
    found = nearest(features_ND, min(DOUBT_NEIGHBORS, len(features_ND) - 1), include_self=False)
    p_NC = vote(found.index_NK, neighbor_weight(found.similarity_NK), posterior_NC.float())
    share_NC = target.frequency_NC
    given_NC = target.allowed_NC if share_NC is None else share_NC / share_NC.max(axis=1, keepdims=True)
    doubt_N: np.ndarray = (1 - (p_NC * torch.from_numpy(given_NC).to(p_NC)).sum(dim=1)).clamp(0, 1).double().cpu().numpy()
    return doubt_N
