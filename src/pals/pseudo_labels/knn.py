"""The K nearest neighbours by cosine similarity or Euclidean distance: exact and blocked in torch, or through faiss.

    cosine     s(x, y) = xy / (|x| |y|)        a row of zeros has the similarity 0 to every row
    euclidean  s(x, y) = -|x - y|              in float64, from the difference of two rows

Every backend returns neighbours in order of falling similarity, on the device of the features. Euclidean rows are centred on
the mean of the features before products are computed, which then lose less precision.

Shapes: L more columns than K, P rows of a part, G columns of a page, W widened rows, S rows searched again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from pals.pseudo_labels.faiss_search import Backend, search_faiss
from pals.util.errors import InputError, unknown
from pals.util.process_group import group_for

Metric = Literal["cosine", "euclidean"]

CPU_BLOCK_BYTES, DEVICE_BLOCK_BYTES, MIN_BLOCK_BYTES = 2**28, 2**31, 2**23
"""Size of a block of similarities: on a CPU, on another device, and the smallest that is tried after an out-of-memory error."""
GROUP_COLUMNS = 32
"""Columns of a group whose maximum is computed first to find the largest entries of a row."""
MIN_SCREENED_ITEMS = 2**14
"""Number of items from which a GPU screens in half precision; for fewer items the exact search takes next to no time."""


class Neighbors(NamedTuple):
    """The neighbours of each item, nearest first.

    Args:
        index_NK: rows of the features, int64.
        similarity_NK: the cosine, or minus the Euclidean distance; float32.
    """

    index_NK: Tensor
    similarity_NK: Tensor


def nearest(
    features_ND: Tensor,
    k: int,
    *,
    include_self: bool = True,
    metric: Metric = "cosine",
    backend: Backend = "torch",
    block_bytes: int | None = None,
) -> Neighbors:
    """Find the neighbours of every item among all items.

    Memory beyond the result: one copy of the features, and one block of similarities (two for Euclidean distances).

    Args:
        features_ND: one row of numbers per item.
        k: number of neighbours K.
        include_self: return the K+1 most similar items: the item itself and K others, except among duplicates. Otherwise the K
            most similar other items. Equally similar items come in no fixed order.
        metric: "cosine" or "euclidean".
        backend: "torch" is exact, on the device of the features; "faiss-flat" is exact up to float32; "faiss-hnsw" and
            "faiss-ivf" are approximate. faiss searches on the CPU.
        block_bytes: size of a block of similarities; by default 256 MiB on a CPU and 2 GiB on a GPU.

    Returns:
        Indices and similarities, N x K, or N x (K+1) with `include_self`.

    Raises:
        InputError: for NaN or infinite features (the message names the row), too few items, or a missing package.

    >>> import torch
    >>> pals.nearest(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]), 1).index_NK.tolist()
    [[0, 1], [1, 0], [2, 1]]
    """
    data_ND = _own_rows(features_ND, "features", metric)
    _check_count(k, available=len(data_ND) - 1, what=f"{len(data_ND)} items have {max(len(data_ND) - 1, 0)} others each")
    if metric == "euclidean":  # once: the rows of each process below are a view of the same memory
        data_ND -= data_ND.mean(dim=0)
    group = group_for(data_ND) if backend == "torch" else None  # the processes of a distributed run
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
    """Find the items most similar to each query.

    Args:
        queries_MD: one row of numbers per query.
        features_ND: one row of numbers per item.
        k: number of neighbours K.
        metric: see `nearest`, as the next two.
        backend: neighbour search.
        block_bytes: size of a block of similarities.

    Returns:
        Indices of items and similarities, M x K.

    Raises:
        InputError: as `nearest`, and for queries and features of different widths.

    >>> nearest_to(torch.tensor([[0.0, 2.0]]), torch.eye(2), 1).index_NK.tolist()
    [[1]]
    """
    data_ND = _own_rows(features_ND, "features", metric)
    query_MD = _own_rows(queries_MD, "queries", metric).to(data_ND.device)
    if query_MD.shape[1] != data_ND.shape[1]:
        raise InputError(f"Queries have {query_MD.shape[1]} columns, features {data_ND.shape[1]}; take both from one network.")
    _check_count(k, available=len(data_ND), what=f"there are {len(data_ND)} items to search")
    if metric == "euclidean":
        mean_D = data_ND.mean(dim=0)
        data_ND -= mean_D
        query_MD -= mean_D
    return _search(data_ND, query_MD, k, metric, backend, block_bytes)


def _own_rows(rows_ND: Tensor, name: str, metric: Metric) -> Tensor:
    """A checked copy of the rows: unit length for the cosine, float64 for the Euclidean distance."""
    if rows_ND.ndim != 2 or rows_ND.shape[1] == 0:
        raise InputError(f"The {name} have shape {tuple(rows_ND.shape)}; expected one row of numbers per item.")
    if metric not in get_args(Metric):
        raise unknown("metric", metric, get_args(Metric))
    try:
        rows_ND = rows_ND.detach().to(torch.float32 if metric == "cosine" else torch.float64, copy=metric == "euclidean")
    except TypeError:  # some kinds of GPU have no float64
        raise InputError(f"Euclidean search needs float64, which {rows_ND.device.type!r} lacks. Use --device cpu.") from None
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


def _check_count(k: int, *, available: int, what: str) -> None:
    if k < 1:
        raise InputError(f"{k} neighbours were asked for; ask for at least 1.")
    if k > available:
        raise InputError(f"{k} neighbours were asked for, but {what}. Lower the number of neighbours or add items.")


def _search(data_ND: Tensor, query_MD: Tensor, k: int, metric: Metric, backend: Backend, block_bytes: int | None) -> Neighbors:
    if backend not in get_args(Backend):
        raise unknown("neighbour search", backend, get_args(Backend))
    if block_bytes is None:
        block_bytes = CPU_BLOCK_BYTES if data_ND.device.type == "cpu" else DEVICE_BLOCK_BYTES
    while True:
        try:
            return _search_once(data_ND, query_MD, k, metric, backend, block_bytes)
        except torch.OutOfMemoryError:
            if block_bytes <= MIN_BLOCK_BYTES:
                raise
        block_bytes //= 4


def _search_once(data_ND: Tensor, query_MD: Tensor, k: int, metric: Metric, backend: Backend, block_bytes: int) -> Neighbors:
    if backend == "torch" and metric == "cosine" and _is_screened(data_ND):
        return _search_screened(data_ND, query_MD, k, block_bytes)
    if backend == "torch":
        found = _search_torch(data_ND, query_MD, k, metric, block_bytes)
    else:
        found = Neighbors(*search_faiss(data_ND, query_MD, k, metric, backend))
        found = _search_again(found, (found.index_NK < 0).any(dim=1), data_ND, query_MD, metric, block_bytes)
    return found if metric == "cosine" else _with_distances(data_ND, query_MD, found.index_NK, block_bytes)


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
            # Products with `out` are also exempt from autocast.
            torch.mm(query_MD[start:stop], data_ND.T, out=block_RN[: stop - start])
            if half_N is not None:
                block_RN[: stop - start] -= half_N
            _largest(block_RN[: stop - start], similarity_MK[start:stop], index_MK[start:stop])
    return Neighbors(index_MK, similarity_MK)


def _search_screened(data_ND: Tensor, query_MD: Tensor, k: int, block_bytes: int) -> Neighbors:
    """The result of `_search_torch` at the speed of half-precision matrix units: 2K candidates by approximate similarities, and
    the best K of these by exact ones.

    A row is split into its half-precision value and the half-precision remainder; the product of two remainders is omitted.
    `margin` far exceeds this error and the rounding of sums in practice. A row is exact if its K-th exact similarity exceeds
    its last approximate one by the margin; the other rows are searched again in float32.
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
    del value_ML, index_ML  # frees memory for the next search
    return _search_again(Neighbors(index_MK, similarity_MK), unsure_M, data_ND, query_MD, "cosine", block_bytes)


def _likely(data_ND: Tensor, query_MD: Tensor, count: int, block_bytes: int) -> tuple[Tensor, Tensor]:
    """The `count` largest approximate similarities of each query, and their items. Up to half of the block is used for
    half-precision copies of a page of items, the rest for similarities to them."""
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
    """Merge the largest entries of further columns, numbered from `first`, into the largest found before, in place."""
    best = min(value_PL.shape[1], score_PG.shape[1])
    new_PB, place_PB = value_PL.new_empty(len(value_PL), best), index_PL.new_empty(len(index_PL), best)
    _largest(score_PG, new_PB, place_PB)
    both_PX, index_PX = torch.cat([value_PL, new_PB], dim=1), torch.cat([index_PL, place_PB + first], dim=1)
    value, place_PL = both_PX.topk(value_PL.shape[1], dim=1)
    value_PL.copy_(value)
    index_PL.copy_(index_PX.gather(1, place_PL))


def _search_again(
    found: Neighbors, unsure_M: Tensor, data_ND: Tensor, query_MD: Tensor, metric: Metric, block_bytes: int
) -> Neighbors:
    """Replace the neighbours of unsure rows by exact ones, in place."""
    row_S = unsure_M.nonzero().flatten()
    if len(row_S):
        exact = _search_torch(data_ND, query_MD[row_S], found.index_NK.shape[1], metric, block_bytes)
        found.index_NK[row_S], found.similarity_NK[row_S] = exact.index_NK, exact.similarity_NK
    return found


def _split(rows_ND: Tensor, order: tuple[int, ...]) -> Tensor:
    """Half-precision values (0) and remainders (1), side by side in this order."""
    half_ND = rows_ND.half()
    parts = half_ND, (rows_ND - half_ND).half()
    return torch.cat([parts[which] for which in order], dim=1)


def _is_screened(data_ND: Tensor) -> bool:
    """Whether screening saves time and the device computes half-precision products in float32."""
    return len(data_ND) >= MIN_SCREENED_ITEMS and _offers_half_products(data_ND.device)


@cache
def _offers_half_products(device: torch.device) -> bool:
    """Whether `_half_products` works: tried, because the support depends on torch and on the device."""
    if device.type == "cpu":  # possible, but not faster
        return False
    try:
        _half_products(*torch.ones(2, 16, 16, dtype=torch.half, device=device))
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError):  # among them: not implemented
        return False
    return True


def _half_products(query_RW: Tensor, data_NW: Tensor) -> Tensor:
    """Products of half-precision rows in float32; on a CPU (in tests) the factors are converted first."""
    if query_RW.device.type == "cpu":
        return query_RW.float() @ data_NW.float().T
    return torch.mm(query_RW, data_NW.T, out_dtype=torch.float32)


def _largest(score_RN: Tensor, value_RK: Tensor, index_RK: Tensor) -> None:
    """`topk` into two tensors, on long rows restricted to the K groups of columns with the largest maxima: faster on a GPU."""
    k, groups = value_RK.shape[1], score_RN.shape[1] // GROUP_COLUMNS
    if groups <= 16 * k:  # groups would save no time and need much memory
        torch.topk(score_RN, k, dim=1, out=(value_RK, index_RK))
        return
    column_N = torch.arange(score_RN.shape[1], device=score_RN.device)
    maximum_RG = score_RN[:, : groups * GROUP_COLUMNS].reshape(len(score_RN), GROUP_COLUMNS, groups).amax(dim=1)
    group_RK1 = maximum_RG.topk(k, dim=1, sorted=False).indices[:, :, None]
    rest_RM = column_N[groups * GROUP_COLUMNS :].expand(len(score_RN), -1)
    likely_RM = torch.cat([(group_RK1 + column_N[:GROUP_COLUMNS] * groups).flatten(1), rest_RM], dim=1)
    place_RK = torch.topk(score_RN.gather(1, likely_RM), k, dim=1, out=(value_RK, index_RK)).indices
    index_RK.copy_(likely_RM.gather(1, place_RK))


def _rows(block_bytes: int, row_bytes: int, rows: int) -> int:
    """Number of rows that fit into a block: from 1 to `rows`."""
    return min(max(1, block_bytes // row_bytes), max(1, rows))


def _with_distances(data_ND: Tensor, query_MD: Tensor, index_MK: Tensor, block_bytes: int) -> Neighbors:
    """The neighbours in order of their distances, which are computed from differences."""
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
    """Compute matrix products in full float32, whatever the process-wide setting: TF32 and bfloat16 lose neighbours."""
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
    """K of the K+1 found: without the item itself, or without the last if duplicates or an approximate search displaced it."""
    index_NL = found.index_NK
    last = index_NL.shape[1] - 1
    row_N1 = torch.arange(len(index_NL), device=index_NL.device)[:, None]
    is_self_NL = index_NL == row_N1
    place_N1 = torch.where(is_self_NL.any(dim=1, keepdim=True), is_self_NL.int().argmax(dim=1, keepdim=True), last)
    column_K = torch.arange(last, device=index_NL.device)
    keep_NK = column_K + (column_K >= place_N1)
    return Neighbors(index_NL.gather(1, keep_NK), found.similarity_NK.gather(1, keep_NK))
