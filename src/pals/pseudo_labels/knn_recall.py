"""How much an approximate neighbour search misses, on a sample of the items."""

from __future__ import annotations

import torch
from torch import Tensor

from pals.pseudo_labels.knn import Backend, nearest_to
from pals.util.even_sample import evenly_spaced

APPROXIMATE: tuple[Backend, ...] = ("faiss-hnsw", "faiss-ivf")
SAMPLE = 256
"""Items that are searched exactly: N x D products each, next to nothing beside a search for all of them."""
NEAR = 1e-6
"""Cosines that differ by less are alike: of duplicates any will do."""


def recall_of(index_NK: Tensor, features_ND: Tensor, backend: Backend) -> float | None:
    """The share of true neighbours (by the cosine; an item itself does not count) among those found, on items at even
    distances; None for a search that is exact anyhow."""
    if backend not in APPROXIMATE:
        return None
    row_S = evenly_spaced(len(index_NK), SAMPLE).to(index_NK.device)
    found_SK = index_NK[row_S]
    other_SK = found_SK != row_S[:, None]
    wanted_S1 = other_SK.sum(dim=1, keepdim=True).clamp_min(1)
    exact = nearest_to(features_ND[row_S], features_ND, min(index_NK.shape[1] + 1, len(features_ND)))
    true_SL = exact.similarity_NK.masked_fill(exact.index_NK == row_S[:, None], -torch.inf).sort(descending=True).values
    last_S1 = true_SL.gather(1, wanted_S1 - 1)
    unit_SD = torch.nn.functional.normalize(features_ND[row_S].float(), dim=1)
    near_SKD = torch.nn.functional.normalize(features_ND[found_SK].float(), dim=2)
    right_SK = other_SK & (torch.einsum("sd,skd->sk", unit_SD, near_SKD) >= last_S1 - NEAR)
    return float((right_SK.sum(dim=1) / wanted_S1.squeeze(1)).mean())
