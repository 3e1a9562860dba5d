"""The k nearest neighbours by cosine similarity: exact and blocked in torch, or through faiss.

Every backend keeps one contract: the features are scaled to unit length here (a row of zeros stays zero and is equally
far from everything), neighbours come in order of falling similarity, and the answer lies on the device of the features.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from pals.errors import InputError, unknown

Backend = Literal["torch", "faiss-flat", "faiss-hnsw", "faiss-ivf"]

CPU_BLOCK, DEVICE_BLOCK = 2**28, 2**31
"""Bytes of similarities held at once: a GPU wants large products, a laptop wants its memory back."""


class Neighbors(NamedTuple):
    """For each item its neighbours, nearest first."""

    index_NK: Tensor  # int64
    similarity_NK: Tensor  # float32, cosine


def nearest(
    features_ND: Tensor,
    k: int,
    *,
    include_self: bool = True,
    backend: Backend = "torch",
    block_bytes: int | None = None,
) -> Neighbors:
    """The neighbours of every item among all items.

    With `include_self` the K+1 most similar items, nothing removed: normally the item itself and K others, as PALS wants
    them. Without it the K most similar other items. Equally similar items come in no fixed order.

    `torch` is exact, on the device of the features. Beside the answer and one unit-length float32 copy of the features
    it holds one block of similarities: `block_bytes` (256 MiB on a CPU, 2 GiB on a GPU if not told otherwise), or a
    single row of N floats where that is more, and never more than all of them.
    `faiss-flat` is exact, `faiss-hnsw` and `faiss-ivf` are approximate; all three search on the CPU.
    """
    unit_ND = _unit_rows(features_ND, "features")
    _check_count(k, available=len(unit_ND) - 1, what=f"{len(unit_ND)} items have {max(len(unit_ND) - 1, 0)} others each")
    found = _search(unit_ND, unit_ND, k + 1, backend, block_bytes)
    return found if include_self else _without_self(found)


def nearest_to(
    queries_MD: Tensor,
    features_ND: Tensor,
    k: int,
    *,
    backend: Backend = "torch",
    block_bytes: int | None = None,
) -> Neighbors:
    """For every query the K most similar items; backends and memory as in `nearest`, one row of the answer per query."""
    unit_ND = _unit_rows(features_ND, "features")
    query_MD = _unit_rows(queries_MD, "queries").to(unit_ND.device)
    if query_MD.shape[1] != unit_ND.shape[1]:
        raise InputError(
            f"The queries are {query_MD.shape[1]} numbers wide, the features {unit_ND.shape[1]}; "
            "take both from the same network or table."
        )
    _check_count(k, available=len(unit_ND), what=f"there are {len(unit_ND)} items to search")
    return _search(unit_ND, query_MD, k, backend, block_bytes)


def _unit_rows(rows_ND: Tensor, name: str) -> Tensor:
    if rows_ND.ndim != 2 or rows_ND.shape[1] == 0:
        raise InputError(f"The {name} have shape {tuple(rows_ND.shape)}; expected one row of numbers per item.")
    rows_ND = rows_ND.detach().to(torch.float32)
    # Largest entry first, then length: the squares of a row of very large or very small numbers leave the float32 range.
    largest_N1 = torch.linalg.vector_norm(rows_ND, ord=float("inf"), dim=1, keepdim=True)
    bad_N = ~torch.isfinite(largest_N1.flatten())
    if bad_N.any():
        raise InputError(
            f"Row {int(bad_N.nonzero()[0])} of the {name} holds NaN or infinity, one of {int(bad_N.sum())} such rows. "
            "Clean the input, or lower the learning rate if a network made them."
        )
    smallest = torch.finfo(torch.float32).tiny
    unit_ND: Tensor = rows_ND / largest_N1.clamp_min(smallest)
    unit_ND /= torch.linalg.vector_norm(unit_ND, dim=1, keepdim=True).clamp_min(smallest)
    return unit_ND


def _check_count(k: int, *, available: int, what: str) -> None:
    if k < 1:
        raise InputError(f"{k} neighbours were asked for; ask for at least 1.")
    if k > available:
        raise InputError(f"{k} neighbours were asked for, but {what}. Lower the number of neighbours or add items.")


def _search(unit_ND: Tensor, query_MD: Tensor, k: int, backend: Backend, block_bytes: int | None) -> Neighbors:
    if backend == "torch":
        return _search_torch(unit_ND, query_MD, k, block_bytes)
    if backend in get_args(Backend):
        return _search_faiss(unit_ND, query_MD, k, backend, block_bytes)
    raise unknown("neighbour search", backend, get_args(Backend))


def _search_torch(unit_ND: Tensor, query_MD: Tensor, k: int, block_bytes: int | None) -> Neighbors:
    if block_bytes is None:
        block_bytes = CPU_BLOCK if unit_ND.device.type == "cpu" else DEVICE_BLOCK
    rows = min(max(1, block_bytes // (4 * len(unit_ND))), max(1, len(query_MD)))
    block_RN = unit_ND.new_empty(rows, len(unit_ND))
    similarity_MK = unit_ND.new_empty(len(query_MD), k)
    index_MK = torch.empty(similarity_MK.shape, dtype=torch.int64, device=unit_ND.device)
    with torch.no_grad(), _full_float32(unit_ND.device):
        for start in range(0, len(query_MD), rows):
            stop = min(start + rows, len(query_MD))
            # Writing into the one block also keeps autocast out: it leaves products with `out` alone.
            torch.mm(query_MD[start:stop], unit_ND.T, out=block_RN[: stop - start])
            torch.topk(block_RN[: stop - start], k, dim=1, out=(similarity_MK[start:stop], index_MK[start:stop]))
    return Neighbors(index_MK, similarity_MK)


@contextmanager
def _full_float32(device: torch.device) -> Iterator[None]:
    """Matrix products in full float32, whatever the program has allowed: TF32 and bfloat16 lose neighbours.

    The switch belongs to the whole process; it is put back on leaving.
    """
    backend = getattr(torch.backends, "mkldnn" if device.type == "cpu" else device.type, None)
    switch: Any = getattr(backend, "matmul", None)
    if hasattr(switch, "fp32_precision"):  # torch >= 2.9
        before = switch.fp32_precision
        switch.fp32_precision = "ieee"
        try:
            yield
        finally:
            switch.fp32_precision = before
    else:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)


def _without_self(found: Neighbors) -> Neighbors:
    """K of the K+1 found: without the item itself or, where duplicates or a rough search kept it out, without the last."""
    index_NL = found.index_NK
    last = index_NL.shape[1] - 1
    row_N1 = torch.arange(len(index_NL), device=index_NL.device)[:, None]
    is_self_NL = index_NL == row_N1
    place_N1 = torch.where(is_self_NL.any(dim=1, keepdim=True), is_self_NL.int().argmax(dim=1, keepdim=True), last)
    column_K = torch.arange(last, device=index_NL.device)
    keep_NK = column_K + (column_K >= place_N1)
    return Neighbors(index_NL.gather(1, keep_NK), found.similarity_NK.gather(1, keep_NK))


def _search_faiss(unit_ND: Tensor, query_MD: Tensor, k: int, backend: Backend, block_bytes: int | None) -> Neighbors:
    index = _faiss_index(backend, len(unit_ND), unit_ND.shape[1], k)
    data_ND = unit_ND.cpu().numpy()
    index.train(data_ND)
    index.add(data_ND)
    similarity, found = index.search(query_MD.cpu().numpy(), k)
    index_MK = torch.from_numpy(found).to(unit_ND.device)
    similarity_MK = torch.from_numpy(similarity).to(unit_ND.device)
    # An approximate index may find fewer than K and says -1 for the rest: such rows are searched exactly.
    short_S = (index_MK < 0).any(dim=1).nonzero().flatten()
    if len(short_S):
        exact = _search_torch(unit_ND, query_MD[short_S], k, block_bytes)
        index_MK[short_S], similarity_MK[short_S] = exact.index_NK, exact.similarity_NK
    return Neighbors(index_MK, similarity_MK)


def _faiss_index(backend: Backend, items: int, width: int, k: int) -> Any:
    try:
        import faiss
    except ImportError:
        raise InputError(f"{backend!r} needs faiss: pip install pals-learn[faiss], or use backend='torch'.") from None
    if backend == "faiss-flat":
        return faiss.IndexFlatIP(width)
    if backend == "faiss-hnsw":
        graph = faiss.IndexHNSWFlat(width, 32, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = 80
        graph.hnsw.efSearch = max(128, 2 * k)
        return graph
    cells = max(1, int(items**0.5))
    inverted = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, cells, faiss.METRIC_INNER_PRODUCT)
    inverted.cp.min_points_per_centroid = 1  # else faiss writes a warning to the terminal for small sets
    inverted.nprobe = max(8, cells // 4)
    return inverted
