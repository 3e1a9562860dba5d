"""Evenly spaced rows, also of more items than float32 tells apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pals.pseudo_labels import knn_recall
from pals.pseudo_labels.knn import Neighbors
from pals.runs import extractor
from pals.util.even_sample import evenly_spaced
from pals.vision.networks import PatchNetwork

MANY = 20_000_004
"""The last row of these, 20,000,003, is 20,000,004 in float32: one that does not exist."""


@pytest.mark.parametrize("count", [0, 1, 2, 299, 300, 301, 50_000, MANY, 3 * 10**9])
def test_rows_rise_from_the_first_to_the_last(count: int) -> None:
    row_M = evenly_spaced(count, 300)
    assert len(row_M) == min(count, 300) and row_M.tolist()[:1] + row_M.tolist()[-1:] == [0, count - 1][: 2 * count]
    step_M = row_M.diff()
    assert not len(step_M) or int(step_M.min()) >= max(1, int(step_M.max()) - 1)


def test_samples_of_many_items(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of tensors that take no memory: one row, seen again and again."""
    pictures = torch.zeros(1, 3, 1, 1, dtype=torch.uint8).expand(MANY, 3, 1, 1)
    assert extractor._rows(pictures, evenly_spaced(MANY, 300)).shape == (300, 3, 1, 1)
    cut: list[Tensor] = []
    monkeypatch.setattr(extractor, "learn_patches", lambda network, images, generator: cut.append(images))
    extractor.cut_patches(PatchNetwork(3, 2), pictures, ((0.5,) * 3, (0.5,) * 3), seed=0)
    assert len(cut[0]) == extractor.PATCH_IMAGES

    def searched(query_MD: Tensor, features_ND: Tensor, k: int, **_: Any) -> Neighbors:
        assert len(query_MD) == knn_recall.MAX_RECALL_ITEMS
        return Neighbors(torch.ones(len(query_MD), k, dtype=torch.int64), torch.ones(len(query_MD), k))

    monkeypatch.setattr(knn_recall, "nearest_to", searched)
    index_NK = torch.ones(1, 2, dtype=torch.int64).expand(MANY, 2)
    assert knn_recall.recall_of(index_NK, torch.ones(1, 2).expand(MANY, 2), "faiss-hnsw") == 1.0
