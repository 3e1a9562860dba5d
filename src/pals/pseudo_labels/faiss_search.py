"""Nearest neighbours through faiss, an optional package: flat (exact), HNSW and inverted-file indexes, on the CPU."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from pals.util.errors import InputError
from pals.util.words import pip_install

Backend = Literal["torch", "faiss-flat", "faiss-hnsw", "faiss-ivf"]


def check_backend(backend: Backend) -> None:
    """Check that the package of a backend is installed.

    Args:
        backend: neighbour search.

    Raises:
        InputError: for a faiss backend without faiss; the message has the command that installs it.

    >>> check_backend("torch")
    """
    if backend == "torch":
        return
    try:
        import faiss  # noqa: F401
    except ImportError:
        raise InputError(f"The search {backend!r} needs faiss: {pip_install('faiss')}, or use 'torch'.") from None


def search_faiss(data_ND: Tensor, query_MD: Tensor, k: int, metric: str, backend: Backend) -> tuple[Tensor, Tensor]:
    """Search the neighbours of each query.

    Args:
        data_ND: features of the items, at unit length for the cosine.
        query_MD: features of the queries.
        k: number of neighbours K.
        metric: "cosine" or "euclidean".
        backend: one of the three faiss indexes.

    Returns:
        Indices and scores, M x K, on the device of the data. An approximate index may find fewer than K; the others are -1.
    """
    check_backend(backend)
    index = _index(backend, len(data_ND), data_ND.shape[1], k, metric)
    data = data_ND.float().cpu().numpy()
    index.train(data)
    index.add(data)
    score, found = index.search(query_MD.float().cpu().numpy(), k)
    return torch.from_numpy(found).to(data_ND.device), torch.from_numpy(score).to(data_ND)


def _index(backend: Backend, items: int, width: int, k: int, metric: str) -> Any:
    import faiss

    measure = faiss.METRIC_INNER_PRODUCT if metric == "cosine" else faiss.METRIC_L2
    if backend == "faiss-flat":
        return faiss.IndexFlat(width, measure)
    if backend == "faiss-hnsw":
        graph = faiss.IndexHNSWFlat(width, 32, measure)
        graph.hnsw.efConstruction = 80
        graph.hnsw.efSearch = max(128, 2 * k)
        return graph
    cells = max(1, int(items**0.5))
    inverted = faiss.IndexIVFFlat(faiss.IndexFlat(width, measure), width, cells, measure)
    inverted.cp.min_points_per_centroid = 1  # otherwise faiss prints a warning for small sets
    inverted.nprobe = max(8, cells // 4)
    return inverted
