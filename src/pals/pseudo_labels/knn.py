"""The k nearest neighbours by cosine similarity or Euclidean distance: exact and blocked in torch, or through faiss.

Every backend keeps one contract: neighbours come in order of falling similarity, and the answer lies on the device of the
features. For the cosine the features are scaled to unit length here; a row of zeros stays zero and is equally far from
everything. Euclidean distances come from float64 and from the difference of two rows, never from their lengths and
product alone: near-duplicates have the distance they have, and duplicates have none. Rows are first centred on the mean of
the features: the nearer to zero they are, the less their products lose.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from pals.util.errors import InputError, unknown
from pals.util.process_group import group_for
from pals.util.words import pip_install

Backend = Literal["torch", "faiss-flat", "faiss-hnsw", "faiss-ivf"]
Metric = Literal["cosine", "euclidean"]

CPU_BLOCK, DEVICE_BLOCK, SMALLEST_BLOCK = 2**28, 2**31, 2**23
"""Bytes of similarities held at once: a GPU wants large products, a laptop wants its memory back. Where a device has less to
give it is tried with less."""


GROUP = 32
"""Columns whose maximum is taken first when the largest of a row are sought."""

SCREENED_FROM = 2**14
"""Items from which a GPU screens by products of half-precision numbers; below it the exact search takes next to no time."""


class Neighbors(NamedTuple):
    """For each item its neighbours, nearest first."""

    index_NK: Tensor  # int64
    similarity_NK: Tensor  # float32: the cosine, or minus the Euclidean distance


def nearest(
    features_ND: Tensor,
    k: int,
    *,
    include_self: bool = True,
    metric: Metric = "cosine",
    backend: Backend = "torch",
    block_bytes: int | None = None,
) -> Neighbors:
    """The neighbours of every item among all items.

    With `include_self`, the K+1 most similar items, nothing removed: normally the item itself and K others, as PALS needs
    them. Without it, the K most similar other items. Equally similar items come in no fixed order.

    `torch` is exact, on the device of the features. Besides the result and one copy of the features (unit-length float32
    for the cosine, float64 for the Euclidean distance), it holds one block of similarities of `block_bytes` (by default
    256 MiB on a CPU, 2 GiB on a GPU), at least one row of N numbers and at most all of them, plus up to a fifth of that for
    finding the largest. Euclidean distances need a second such block for the differences; a GPU that screens in half
    precision needs 24 bytes for each of the K neighbours.
    `faiss-flat` is exact up to float32, `faiss-hnsw` and `faiss-ivf` are approximate; all three search on the CPU.
    """
    data_ND = _own_rows(features_ND, "features", metric)
    _check_count(k, available=len(data_ND) - 1, what=f"{len(data_ND)} items have {max(len(data_ND) - 1, 0)} others each")
    if metric == "euclidean":  # about the mean, once: the rows of each process below are a view of the same memory
        data_ND -= data_ND.mean(dim=0)
    group = group_for(data_ND) if backend == "torch" else None  # processes of one run, each of which searches for its rows
    found = _search(data_ND, data_ND if group is None else group.rows(data_ND), k + 1, metric, backend, block_bytes)
    if group is not None:
        found = Neighbors(*(group.gathered(table_MK, len(data_ND)) for table_MK in found))
    return found if include_self else _without_self(found)


def nearest_to(
    queries_MD: Tensor,
    features_ND: Tensor,
    k: int,
    *,
    metric: Metric = "cosine",
    backend: Backend = "torch",
    block_bytes: int | None = None,
) -> Neighbors:
    """For every query the K most similar items; backends and memory as in `nearest`, one row of the answer per query."""
    data_ND = _own_rows(features_ND, "features", metric)
    query_MD = _own_rows(queries_MD, "queries", metric).to(data_ND.device)
    if query_MD.shape[1] != data_ND.shape[1]:
        raise InputError(
            f"The queries are {query_MD.shape[1]} numbers wide, the features {data_ND.shape[1]}; "
            "take both from the same network or table."
        )
    _check_count(k, available=len(data_ND), what=f"there are {len(data_ND)} items to search")
    if metric == "euclidean":
        mean_D = data_ND.mean(dim=0)
        data_ND -= mean_D
        query_MD -= mean_D
    return _search(data_ND, query_MD, k, metric, backend, block_bytes)


def check_backend(backend: Backend) -> None:
    """Refuse a search whose package is not here."""
    if backend == "torch":
        return
    try:
        import faiss  # noqa: F401
    except ImportError:
        raise InputError(
            f"The neighbour search {backend!r} needs faiss: {pip_install('faiss')}, or use 'torch' instead."
        ) from None


def _own_rows(rows_ND: Tensor, name: str, metric: Metric) -> Tensor:
    """A checked copy of the rows, as the metric wants them."""
    if rows_ND.ndim != 2 or rows_ND.shape[1] == 0:
        raise InputError(f"The {name} have shape {tuple(rows_ND.shape)}; expected one row of numbers per item.")
    if metric not in get_args(Metric):
        raise unknown("metric", metric, get_args(Metric))
    rows_ND = rows_ND.detach().to(torch.float32) if metric == "cosine" else _float64(rows_ND.detach())
    # Largest entry first, then length: the squares of a row of very large or very small numbers leave the float32 range.
    largest_N1 = torch.linalg.vector_norm(rows_ND, ord=float("inf"), dim=1, keepdim=True)
    bad_N = ~torch.isfinite(largest_N1.flatten())
    if bad_N.any():
        raise InputError(
            f"Row {int(bad_N.nonzero()[0])} of the {name} holds NaN or infinity, one of {int(bad_N.sum())} such rows. "
            "Clean the input, or lower the learning rate if a network made them."
        )
    if metric == "euclidean":
        return rows_ND
    smallest = torch.finfo(torch.float32).tiny
    unit_ND: Tensor = rows_ND / largest_N1.clamp_min(smallest)
    unit_ND /= torch.linalg.vector_norm(unit_ND, dim=1, keepdim=True).clamp_min(smallest)
    return unit_ND


def _float64(rows_ND: Tensor) -> Tensor:
    try:
        return rows_ND.to(torch.float64, copy=True)
    except TypeError:  # some kinds of GPU have no such numbers
        raise InputError(
            f"Euclidean distances are measured in float64, which {rows_ND.device.type!r} does not support. Use --device cpu."
        ) from None


def _check_count(k: int, *, available: int, what: str) -> None:
    if k < 1:
        raise InputError(f"{k} neighbours were asked for; ask for at least 1.")
    if k > available:
        raise InputError(f"{k} neighbours were asked for, but {what}. Lower the number of neighbours or add items.")


def _search(data_ND: Tensor, query_MD: Tensor, k: int, metric: Metric, backend: Backend, block_bytes: int | None) -> Neighbors:
    if backend not in get_args(Backend):
        raise unknown("neighbour search", backend, get_args(Backend))
    if block_bytes is None:
        block_bytes = CPU_BLOCK if data_ND.device.type == "cpu" else DEVICE_BLOCK
    while True:
        try:
            return _found(data_ND, query_MD, k, metric, backend, block_bytes)
        except torch.OutOfMemoryError:
            if block_bytes <= SMALLEST_BLOCK:
                raise
        block_bytes //= 4


def _found(data_ND: Tensor, query_MD: Tensor, k: int, metric: Metric, backend: Backend, block_bytes: int) -> Neighbors:
    if backend == "torch" and metric == "cosine" and _is_screened(data_ND):
        return _search_screened(data_ND, query_MD, k, block_bytes)
    if backend == "torch":
        found = _search_torch(data_ND, query_MD, k, metric, block_bytes)
    else:
        found = _search_faiss(data_ND, query_MD, k, metric, backend, block_bytes)
    return found if metric == "cosine" else _measured(data_ND, query_MD, found.index_NK, block_bytes)


def _search_torch(data_ND: Tensor, query_MD: Tensor, k: int, metric: Metric, block_bytes: int) -> Neighbors:
    rows = _rows(block_bytes, data_ND.element_size() * len(data_ND), len(query_MD))
    block_RN = data_ND.new_empty(rows, len(data_ND))
    similarity_MK = data_ND.new_empty(len(query_MD), k)
    index_MK = torch.empty(similarity_MK.shape, dtype=torch.int64, device=data_ND.device)
    # |x - y|^2 = |x|^2 - 2 (xy - |y|^2 / 2): the nearest has the largest bracket.
    half_N = None if metric == "cosine" else torch.linalg.vector_norm(data_ND, dim=1).square_().div_(2)
    with torch.no_grad(), _full_float32(data_ND.device):
        for start in range(0, len(query_MD), rows):
            stop = min(start + rows, len(query_MD))
            # Writing into the one block also keeps autocast out: it leaves products with `out` alone.
            torch.mm(query_MD[start:stop], data_ND.T, out=block_RN[: stop - start])
            if half_N is not None:
                block_RN[: stop - start] -= half_N
            _largest(block_RN[: stop - start], similarity_MK[start:stop], index_MK[start:stop])
    return Neighbors(index_MK, similarity_MK)


def _search_screened(data_ND: Tensor, query_MD: Tensor, k: int, block_bytes: int) -> Neighbors:
    """The neighbours of `_search_torch`, found at the speed of a GPU's matrix units: twice as many as are wanted by rough
    similarities, and the best of these by exact ones.

    A row is split into a half-precision number and the half-precision rest, and of the four products of two such rows the
    smallest is left out. `margin` is far more than that and the rounding of the sums make in practice (the worst case, all
    errors of one sign, would be some times more). So nothing was missed where the last one taken is better than the last one
    looked at by more than the margin; the other rows, which may have many neighbours as near as the last, are searched anew. To
    know whether there are any is one read of the host. Beside the block, the likely neighbours of all queries are held; rows
    that are searched anew are copied.
    """
    likely, width = min(2 * k, len(data_ND)), data_ND.shape[1]
    margin = 8 * (3 * width) ** 0.5 * 2**-24
    similarity_MK = data_ND.new_empty(len(query_MD), k)
    index_MK = torch.empty(similarity_MK.shape, dtype=torch.int64, device=data_ND.device)
    unsure_M = torch.zeros(len(query_MD), dtype=torch.bool, device=data_ND.device)
    with torch.no_grad(), torch.autocast(data_ND.device.type, enabled=False), _full_float32(data_ND.device):
        value_ML, index_ML = _likely(data_ND, query_MD, likely, block_bytes)
        rows = _rows(block_bytes, 4 * likely * width, len(query_MD))
        for start in range(0, len(query_MD), rows):
            part = slice(start, start + rows)
            exact_PL = torch.bmm(data_ND[index_ML[part]], query_MD[part, :, None]).squeeze(2)
            similarity_MK[part], place_PK = exact_PL.topk(k, dim=1)
            index_MK[part] = index_ML[part].gather(1, place_PK)
            if likely < len(data_ND):
                unsure_M[part] = similarity_MK[part, -1] < value_ML[part, -1] + margin
    del value_ML, index_ML  # their room is wanted
    return _searched_anew(Neighbors(index_MK, similarity_MK), unsure_M, data_ND, query_MD, "cosine", block_bytes)


def _likely(data_ND: Tensor, query_MD: Tensor, count: int, block_bytes: int) -> tuple[Tensor, Tensor]:
    """The `count` largest rough similarities of each query, and whose they are. Up to half of the block is for copies of the
    items in half precision, of as many at a time as fit; the rest for the similarities to them."""
    row_bytes = 6 * data_ND.shape[1]
    page = min(max(block_bytes // 2 // row_bytes, count), len(data_ND))
    rows = _rows(block_bytes - page * row_bytes, 4 * page, len(query_MD))
    value_ML = data_ND.new_empty(len(query_MD), count)
    index_ML = torch.empty(value_ML.shape, dtype=torch.int64, device=data_ND.device)
    for first in range(0, len(data_ND), page):
        rough_GW = _split(data_ND[first : first + page], (0, 1, 0))
        for start in range(0, len(query_MD), rows):
            value_PL, index_PL = (each_ML[start : start + rows] for each_ML in (value_ML, index_ML))
            score_PG = _half_products(_split(query_MD[start : start + rows], (0, 0, 1)), rough_GW)
            if first == 0:
                _largest(score_PG, value_PL, index_PL)
            else:
                _replace_smaller(score_PG, first, value_PL, index_PL)
        del rough_GW  # before the next is made
    return value_ML, index_ML


def _replace_smaller(score_PG: Tensor, first: int, value_PL: Tensor, index_PL: Tensor) -> None:
    """Put the largest of further columns, of which the first is number `first`, in the place of smaller ones found before."""
    best = min(value_PL.shape[1], score_PG.shape[1])
    new_PB, place_PB = value_PL.new_empty(len(value_PL), best), index_PL.new_empty(len(index_PL), best)
    _largest(score_PG, new_PB, place_PB)
    both_PX, index_PX = torch.cat([value_PL, new_PB], dim=1), torch.cat([index_PL, place_PB + first], dim=1)
    value, place_PL = both_PX.topk(value_PL.shape[1], dim=1)
    value_PL.copy_(value)
    index_PL.copy_(index_PX.gather(1, place_PL))


def _searched_anew(
    found: Neighbors, doubtful_M: Tensor, data_ND: Tensor, query_MD: Tensor, metric: Metric, block_bytes: int
) -> Neighbors:
    """The same with exact neighbours in the rows that are in doubt."""
    row_S = doubtful_M.nonzero().flatten()
    if len(row_S):
        exact = _search_torch(data_ND, query_MD[row_S], found.index_NK.shape[1], metric, block_bytes)
        found.index_NK[row_S], found.similarity_NK[row_S] = exact.index_NK, exact.similarity_NK
    return found


def _split(rows_ND: Tensor, order: tuple[int, ...]) -> Tensor:
    """Half-precision numbers (0) and what they lack (1), side by side in this order."""
    half_ND = rows_ND.half()
    parts = half_ND, (rows_ND - half_ND).half()
    return torch.cat([parts[which] for which in order], dim=1)


def _is_screened(data_ND: Tensor) -> bool:
    """Where it pays and products of half-precision numbers can be had in float32."""
    return len(data_ND) >= SCREENED_FROM and _offers_half_products(data_ND.device)


@cache
def _offers_half_products(device: torch.device) -> bool:
    """It takes torch 2.8 and, so far, a device of one maker: tried rather than asked for by name."""
    if device.type == "cpu":  # it could, but would gain nothing
        return False
    try:
        _half_products(*torch.ones(2, 16, 16, dtype=torch.half, device=device))
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError):  # among them: not implemented
        return False
    return True


def _half_products(query_RW: Tensor, data_NW: Tensor) -> Tensor:
    """In float32; on a CPU the same numbers by way of float32, for checks."""
    if query_RW.device.type == "cpu":
        return query_RW.float() @ data_NW.float().T
    return torch.mm(query_RW, data_NW.T, out_dtype=torch.float32)


def _largest(score_RN: Tensor, value_RK: Tensor, index_RK: Tensor) -> None:
    """`topk` into two tensors, quicker on long rows of a GPU: only in the K groups of columns with the largest maxima."""
    k, groups = value_RK.shape[1], score_RN.shape[1] // GROUP
    if groups <= 16 * k:  # then it would not pay, and take much memory beside the row
        torch.topk(score_RN, k, dim=1, out=(value_RK, index_RK))
        return
    column_N = torch.arange(score_RN.shape[1], device=score_RN.device)
    maximum_RG = score_RN[:, : groups * GROUP].reshape(len(score_RN), GROUP, groups).amax(dim=1)
    group_RK1 = maximum_RG.topk(k, dim=1, sorted=False).indices[:, :, None]
    rest_RM = column_N[groups * GROUP :].expand(len(score_RN), -1)
    likely_RM = torch.cat([(group_RK1 + column_N[:GROUP] * groups).flatten(1), rest_RM], dim=1)
    place_RK = torch.topk(score_RN.gather(1, likely_RM), k, dim=1, out=(value_RK, index_RK)).indices
    index_RK.copy_(likely_RM.gather(1, place_RK))


def _rows(block_bytes: int, row_bytes: int, rows: int) -> int:
    """How many rows of a block fit into its bytes: at least one, and no more than there are."""
    return min(max(1, block_bytes // row_bytes), max(1, rows))


def _measured(data_ND: Tensor, query_MD: Tensor, index_MK: Tensor, block_bytes: int) -> Neighbors:
    """The neighbours found, in order of their distances as taken from the differences."""
    distance_MK = data_ND.new_empty(index_MK.shape)
    rows = _rows(block_bytes, data_ND.element_size() * index_MK.shape[1] * data_ND.shape[1], len(query_MD))
    for start in range(0, len(query_MD), rows):
        difference_RKD = data_ND[index_MK[start : start + rows]]
        difference_RKD -= query_MD[start : start + rows, None]
        distance_MK[start : start + rows] = torch.linalg.vector_norm(difference_RKD, dim=2)
    distance_MK, order_MK = distance_MK.sort(dim=1, stable=True)
    return Neighbors(index_MK.gather(1, order_MK), distance_MK.neg_().to(torch.float32))


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


def _search_faiss(data_ND: Tensor, query_MD: Tensor, k: int, metric: Metric, backend: Backend, block_bytes: int) -> Neighbors:
    index = _faiss_index(backend, len(data_ND), data_ND.shape[1], k, metric)
    data = data_ND.float().cpu().numpy()
    index.train(data)
    index.add(data)
    similarity, found = index.search(query_MD.float().cpu().numpy(), k)
    index_MK = torch.from_numpy(found).to(data_ND.device)
    similarity_MK = torch.from_numpy(similarity).to(data_ND)
    short_M = (index_MK < 0).any(dim=1)  # an approximate index may find fewer than K and says -1 for the rest
    return _searched_anew(Neighbors(index_MK, similarity_MK), short_M, data_ND, query_MD, metric, block_bytes)


def _faiss_index(backend: Backend, items: int, width: int, k: int, metric: Metric) -> Any:
    check_backend(backend)
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
    inverted.cp.min_points_per_centroid = 1  # else faiss writes a warning to the terminal for small sets
    inverted.nprobe = max(8, cells // 4)
    return inverted
