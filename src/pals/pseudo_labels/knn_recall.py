"""Recall of an approximate neighbour search, estimated on a sample of the items.

    recall = mean over sampled items of |found neighbours that are true ones| / |found neighbours|

True neighbours are the K most similar other items by the cosine; duplicates of the last one count as true.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pals.pseudo_labels.faiss_search import Backend
from pals.pseudo_labels.knn import nearest_to
from pals.util.even_sample import evenly_spaced

APPROXIMATE_BACKENDS: tuple[Backend, ...] = ("faiss-hnsw", "faiss-ivf")
MAX_RECALL_ITEMS = 256
"""Number of sampled items, which are searched exactly."""
COSINE_TOLERANCE = 1e-6
"""Cosines that differ by less are equal: either of two duplicates is a true neighbour."""


def recall_of(index_NK: Tensor, features_ND: Tensor, backend: Backend) -> float | None:
    """Estimate the recall of a neighbour search.

    Args:
        index_NK: neighbours found, int64; an item among its own neighbours does not count.
        features_ND: features searched.
        backend: neighbour search that found them.

    Returns:
        Between 0 and 1; None for an exact search.

    >>> features_ND = torch.eye(3)[[0, 0, 1, 1]]
    >>> recall_of(torch.tensor([[1], [0], [3], [0]]), features_ND, "faiss-ivf")
    0.75
    """
    if backend not in APPROXIMATE_BACKENDS:
        return None
    row_S = evenly_spaced(len(index_NK), MAX_RECALL_ITEMS).to(index_NK.device)
    found_SK = index_NK[row_S]
    other_SK = found_SK != row_S[:, None]
    wanted_S1 = other_SK.sum(dim=1, keepdim=True).clamp_min(1)
    exact = nearest_to(features_ND[row_S], features_ND, min(index_NK.shape[1] + 1, len(features_ND)))
    true_SL = exact.similarity_NK.masked_fill(exact.index_NK == row_S[:, None], -torch.inf).sort(descending=True).values
    last_S1 = true_SL.gather(1, wanted_S1 - 1)
    unit_SD = torch.nn.functional.normalize(features_ND[row_S].float(), dim=1)
    near_SKD = torch.nn.functional.normalize(features_ND[found_SK].float(), dim=2)
    right_SK = other_SK & (torch.einsum("sd,skd->sk", unit_SD, near_SKD) >= last_S1 - COSINE_TOLERANCE)
    return float((right_SK.sum(dim=1) / wanted_S1.squeeze(1)).mean())
