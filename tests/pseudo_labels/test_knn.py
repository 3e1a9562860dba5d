from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from _allocations import Allocations
from _slow import rest_slow
from _toy import run_all, toy_candidates, toy_data, toy_trainer
from pals.pseudo_labels import knn
from pals.pseudo_labels.knn import (
    MIN_SCREENED_ITEMS,
    Backend,
    Metric,
    Neighbors,
    _half_products,
    _largest,
    _likely,
    _own_rows,
    _search_screened,
    _split,
    _without_self,
    nearest,
    nearest_to,
)
from pals.pseudo_labels.knn_recall import recall_of
from pals.util.display import note
from pals.util.errors import InputError
from pals.util.process_group import shared_by


def clustered(items: int, width: int, clusters: int = 20, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    center_CD = torch.randn(clusters, width, generator=generator)
    which_N = torch.randint(0, clusters, (items,), generator=generator)
    return center_CD[which_N] + 0.5 * torch.randn(items, width, generator=generator)


def similarities(a_ND: Tensor, b_MD: Tensor, metric: Metric = "cosine") -> Tensor:
    """Cosines, or distances below zero from differences; in float64."""
    a_ND, b_MD = a_ND.double(), b_MD.double()
    if metric == "euclidean":
        return -torch.stack([(b_MD - a_D).square().sum(dim=1).sqrt() for a_D in a_ND])
    length_NM = a_ND.norm(dim=1)[:, None] * b_MD.norm(dim=1)
    return torch.where(length_NM > 0, a_ND @ b_MD.T / length_NM, 0.0)


def assert_exact(found: Neighbors, similarity_MN: Tensor, k: int, atol: float = 1e-6, rtol: float = 0.0) -> None:
    """The k largest of each row in falling order, each item once; which of several equal ones is free."""
    expected_MK = similarity_MN.sort(dim=1, descending=True).values[:, :k]
    assert found.index_NK.dtype == torch.int64 and found.similarity_NK.dtype == torch.float32
    torch.testing.assert_close(found.similarity_NK.double(), expected_MK, atol=atol, rtol=rtol)
    torch.testing.assert_close(similarity_MN.gather(1, found.index_NK), expected_MK, atol=atol, rtol=rtol)
    assert (found.index_NK.sort(dim=1).values.diff(dim=1) > 0).all()


def assert_neighbours(found: Neighbors, features_ND: Tensor, k: int, metric: Metric, include_self: bool = True) -> None:
    """Each item's neighbours in its own set, relative to the size of distances."""
    similarity_NN = similarities(features_ND, features_ND, metric)
    if not include_self:
        similarity_NN.fill_diagonal_(-torch.inf)
        assert (found.index_NK != torch.arange(len(features_ND))[:, None]).all()
    tolerance = {"atol": 1e-6} if metric == "cosine" else {"atol": 1e-30, "rtol": 1e-6}
    assert_exact(found, similarity_NN, k, **tolerance)


def recall(found: Neighbors, exact: Neighbors) -> float:
    return float((found.index_NK[:, :, None] == exact.index_NK[:, None, :]).any(dim=2).float().mean())


both_metrics = pytest.mark.parametrize("metric", get_args(Metric))


@both_metrics
@pytest.mark.parametrize("backend", ["torch", "faiss-flat"])
@pytest.mark.parametrize("include_self", [True, False])
def test_exact_backends_find_what_brute_force_finds(backend: Backend, include_self: bool, metric: Metric) -> None:
    features_ND = clustered(300, 12)
    if metric == "euclidean":
        features_ND = features_ND * torch.linspace(0.1, 10, 12) + 3
    features_ND.requires_grad_()
    before_ND = features_ND.detach().clone()
    options: dict[str, Any] = {"include_self": include_self, "metric": metric, "backend": backend}
    found = nearest(features_ND, 7, **options, block_bytes=40_000)
    assert torch.equal(features_ND.detach(), before_ND) and not found.similarity_NK.requires_grad
    assert_neighbours(found, before_ND, 7 + include_self, metric, include_self)
    assert not include_self or found.index_NK[:, 0].tolist() == list(range(300))


@both_metrics
@settings(max_examples=40, deadline=None)
@given(st.integers(2, 40), st.integers(1, 5), st.integers(1, 400), st.booleans(), st.data())
def test_exact_on_any_small_problem_with_ties_and_zero_rows(
    metric: Metric, items: int, width: int, block_bytes: int, include_self: bool, data: st.DataObject
) -> None:
    values = data.draw(st.lists(st.integers(-2, 2), min_size=items * width, max_size=items * width))
    features_ND = torch.tensor(values).reshape(items, width)
    k = data.draw(st.integers(1, items - 1))
    found = nearest(features_ND, k, include_self=include_self, metric=metric, block_bytes=block_bytes)
    assert_neighbours(found, features_ND, k + include_self, metric, include_self)


@both_metrics
@pytest.mark.parametrize(("backend", "bound"), [("faiss-hnsw", 0.99), ("faiss-ivf", 0.95)])
def test_approximate_backends_find_most(backend: Backend, bound: float, metric: Metric) -> None:
    features_ND = clustered(1500, 16)
    found, exact = (nearest(features_ND, 15, metric=metric, backend=b) for b in (backend, "torch"))
    assert recall(found, exact) >= bound and (found.similarity_NK.diff(dim=1) <= 0).all()
    own_NK = similarities(features_ND, features_ND, metric).gather(1, found.index_NK)
    torch.testing.assert_close(found.similarity_NK.double(), own_NK, atol=1e-5, rtol=1e-6)
    others = nearest(features_ND, 15, include_self=False, metric=metric, backend=backend)
    assert others.index_NK.shape == (1500, 15) and (others.index_NK != torch.arange(1500)[:, None]).all()
    short = nearest(features_ND[:400], 300, metric=metric, backend="faiss-ivf")  # 8 of 20 cells cannot hold 301 items
    assert_neighbours(short, features_ND[:400], 301, metric)


@pytest.mark.parametrize("include_self", [True, False])
def test_recall_of_an_approximate_search(include_self: bool) -> None:
    features_ND = clustered(200, 8)
    features_ND[1] = features_ND[0]  # of duplicates any will do
    index_NK = nearest(features_ND, 10, include_self=include_self).index_NK
    assert recall_of(index_NK, features_ND, "torch") is None and recall_of(index_NK, features_ND, "faiss-ivf") == 1.0
    cosine_NN = similarities(features_ND, features_ND)
    far_N = cosine_NN.argmin(dim=1)
    index_NK[:, -3:] = far_N[:, None]
    assert recall_of(index_NK, features_ND, "faiss-ivf") == pytest.approx(0.7)


@pytest.mark.parametrize("method", ["pals", "srse"])
def test_methods_log_the_recall_of_an_approximate_search(method: str) -> None:
    data = toy_data(items=90)
    options = {"neighbors": 5, "neighbor_backend": "faiss-hnsw"}
    record = run_all(toy_trainer(method, data, toy_candidates(data), train={"epochs": 1}, options=options))[0]
    assert 0.9 <= record["recall"] <= 1 and "neighbours found" in note(record)
    record = run_all(toy_trainer(method, data, toy_candidates(data), train={"epochs": 1}))[0]
    assert "recall" not in record and "neighbours" not in note(record)


@both_metrics
@pytest.mark.parametrize("backend", ["torch", "faiss-flat", "faiss-hnsw", "faiss-ivf"])
def test_queries_search_the_set(backend: Backend, metric: Metric) -> None:
    features_ND, queries_MD = clustered(200, 6), clustered(30, 6, seed=1)
    found, exact = (nearest_to(queries_MD, features_ND, 5, backend=b, metric=metric) for b in (backend, "torch"))
    assert_exact(exact, similarities(queries_MD, features_ND, metric), 5)
    assert found.index_NK.shape == (30, 5) and recall(found, exact) >= 0.9
    all_items = nearest_to(queries_MD[:2], features_ND, 200, backend=backend, metric=metric)
    assert all_items.index_NK.sort(dim=1).values.tolist() == [list(range(200))] * 2
    assert nearest_to(queries_MD[:0], features_ND, 5, backend=backend, metric=metric).index_NK.shape == (0, 5)


@pytest.mark.parametrize(("metric", "blocks"), [("cosine", 1), ("euclidean", 2)])
def test_memory_stays_within_the_block(metric: Metric, blocks: int) -> None:
    items, width, k, block_bytes = 2000, 4, 5, blocks * 4 * 2000 * 8
    features_ND = clustered(items, width)
    with Allocations() as seen:
        nearest(features_ND, k, metric=metric, block_bytes=block_bytes)
    if metric == "cosine":
        answer, copies, rows = items * (k + 1) * 12, 4 * items * width, 4 * 10 * items
        assert block_bytes < seen.total <= block_bytes + answer + copies + rows
    assert seen.largest < 4 * items * items / 100 and (metric == "cosine" or seen.largest <= block_bytes)


def test_an_item_is_never_its_own_neighbour_even_among_duplicates() -> None:
    features_ND = torch.cat([torch.ones(7, 3), torch.eye(3)])
    index_NK = nearest(features_ND, 3, include_self=False).index_NK
    assert (index_NK != torch.arange(10)[:, None]).all() and (index_NK[:7] < 7).all()
    assert (index_NK.sort(dim=1).values.diff(dim=1) > 0).all()
    found = Neighbors(torch.tensor([[2, 1, 3], [0, 1, 2]]), torch.tensor([[0.9, 0.8, 0.7], [0.6, 0.5, 0.4]]))
    index_NK, similarity_NK = _without_self(found)
    assert index_NK.tolist() == [[2, 1], [0, 2]]
    torch.testing.assert_close(similarity_NK, torch.tensor([[0.9, 0.8], [0.6, 0.4]]))


def test_length_does_not_matter_and_zero_rows_stay_zero() -> None:
    features_ND = clustered(60, 5)
    expected = nearest(features_ND, 4)
    for scale in (1e30, 1e-30):
        found = nearest(features_ND * scale, 4)
        assert torch.equal(found.index_NK, expected.index_NK)
        torch.testing.assert_close(found.similarity_NK, expected.similarity_NK, atol=1e-6, rtol=0)
    features_ND[3] = 0
    found = nearest(features_ND, 4)
    assert found.similarity_NK[3].tolist() == [0.0] * 5 and torch.isfinite(found.similarity_NK).all()


@both_metrics
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32])
def test_any_number_type_is_searched(dtype: torch.dtype, metric: Metric) -> None:
    features_ND = (clustered(50, 8) * 10).to(dtype)
    before_ND = features_ND.clone()
    assert_neighbours(nearest(features_ND, 4, metric=metric), before_ND, 5, metric)
    assert torch.equal(features_ND, before_ND)


@pytest.fixture
def coarse_products() -> Iterator[None]:
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision("highest")


def precision() -> str:
    switch = torch.backends.mkldnn.matmul if hasattr(torch.backends.mkldnn, "matmul") else None
    return str(switch.fp32_precision) if switch is not None else torch.get_float32_matmul_precision()


@pytest.mark.usefixtures("coarse_products")
def test_products_are_full_float32_whatever_the_program_allows() -> None:
    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function.overloadpacket is torch.ops.aten.mm:
                seen.append(precision())
            return function(*args, **(kwargs or {}))

    outside = precision()
    features_ND = clustered(50, 8)
    with Watch(), torch.autocast("cpu", torch.bfloat16):
        found = nearest(features_ND, 4)
    assert set(seen) <= {"ieee", "highest"} and seen and precision() == outside
    assert torch.get_float32_matmul_precision() == "medium"
    assert_exact(found, similarities(features_ND, features_ND), 5)


def test_near_duplicates_far_from_the_centre_keep_their_distances() -> None:
    """Two clouds a million times smaller than the gap between them: in float32, squared lengths would drown the distances."""
    generator = torch.Generator().manual_seed(0)
    features_ND = 1e-3 * torch.randn(120, 8, generator=generator)
    features_ND[:60, 0] += 1000
    features_ND[60:, 1] -= 1000
    features_ND[1], features_ND[61] = features_ND[0], features_ND[60]
    found = nearest(features_ND, 6, include_self=False, metric="euclidean")
    assert_neighbours(found, features_ND, 6, "euclidean", include_self=False)
    assert (found.index_NK[0, 0], found.similarity_NK[0, 0]) == (1, 0) and -1e-2 < float(found.similarity_NK[5, 0]) < 0
    again = nearest_to(features_ND[[0, 60]], features_ND, 3, metric="euclidean").similarity_NK
    assert (again[:, :2] == 0).all() and (again[:, 2] < 0).all()
    rough = nearest(features_ND, 6, metric="euclidean", backend="faiss-flat")  # in float32 it cannot know the order
    own_NK = similarities(features_ND, features_ND, "euclidean").gather(1, rough.index_NK)
    assert (rough.similarity_NK.diff(dim=1) <= 0).all()
    torch.testing.assert_close(rough.similarity_NK.double(), own_NK)
    for backend in get_args(Backend)[:2]:  # where all items are does not matter
        far_ND = clustered(100, 6).double() + 1e8
        found = nearest(far_ND, 5, include_self=False, metric="euclidean", backend=backend)
        assert_neighbours(found, far_ND, 5, "euclidean", include_self=False)


def test_a_device_without_float64_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Tensor.to

    def without_float64(self: Tensor, dtype: Any, *more: Any, **options: Any) -> Tensor:
        if dtype == torch.float64:
            raise TypeError("no float64 here")
        return original(self, dtype, *more, **options)

    monkeypatch.setattr(Tensor, "to", without_float64)
    with pytest.raises(InputError, match=r"float64, which 'cpu' lacks\. Use --device cpu"):
        nearest(torch.ones(5, 2), 1, metric="euclidean")


@pytest.mark.parametrize(
    ("features_ND", "k", "message"),
    [
        (torch.ones(5, 2), 5, "5 neighbours were asked for, but 5 items have 4 others each"),
        (torch.ones(0, 2), 1, "0 items have 0 others"),
        (torch.ones(5, 2), 0, "at least 1"),
        (torch.ones(5), 1, r"shape \(5,\)"),
        (torch.ones(5, 0), 1, r"shape \(5, 0\)"),
        (torch.tensor([[1.0], [float("nan")], [2.0]]), 1, "Row 1 of the features holds NaN or infinity"),
        (torch.tensor([[1.0, 1.0], [2.0, 2.0], [1.0, -float("inf")]]), 1, "Row 2 of the features"),
    ],
)
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_bad_features_are_refused(features_ND: Tensor, k: int, message: str, metric: Metric) -> None:
    with pytest.raises(InputError, match=message):
        nearest(features_ND, k, metric=metric)


@both_metrics
@pytest.mark.parametrize(
    ("queries_MD", "k", "message"),
    [
        (torch.ones(4, 3), 1, "3 columns, features 2"),
        (torch.full((1, 2), float("nan")), 1, "Row 0 of the queries"),
        (torch.ones(1, 2), 6, "6 neighbours were asked for, but there are 5 items"),
    ],
)
def test_bad_queries_are_refused(queries_MD: Tensor, k: int, message: str, metric: Metric) -> None:
    with pytest.raises(InputError, match=message):
        nearest_to(queries_MD, torch.ones(5, 2), k, metric=metric)


def test_unknown_and_missing_backends_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    for options, message in (
        ({"backend": "faiss-flt"}, "did you mean 'faiss-flat'"),
        ({"metric": "euklidean"}, "did you mean 'euclidean'"),
        ({"backend": "faiss-hnsw"}, r"pip install 'pals-learn\[faiss\]'"),
    ):
        with pytest.raises(InputError, match=message):
            nearest(torch.ones(5, 2), 1, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [100, 5632, 5664, 6001])
def test_the_largest_of_long_rows(width: int) -> None:
    """Found in groups; the values are those of a plain search, whatever lies in the rest of the row and among equals."""
    generator = torch.Generator().manual_seed(width)
    for score_RN in (
        torch.randn(40, width, generator=generator),
        torch.randint(5, (40, width), generator=generator).float(),
        torch.arange(width).float().expand(3, -1).contiguous(),
        torch.full((3, width), -torch.inf),
    ):
        value_RK, index_RK = torch.empty(len(score_RN), 11), torch.empty(len(score_RN), 11, dtype=torch.int64)
        _largest(score_RN, value_RK, index_RK)
        assert torch.equal(value_RK, score_RN.topk(11, dim=1).values)
        assert torch.equal(score_RN.gather(1, index_RK), value_RK)
        assert all(len(set(row)) == 11 for row in index_RK.tolist())


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["highest", "high", "medium"])
def test_the_gpu_finds_the_same_with_and_without_tf32(mode: str) -> None:
    torch.set_float32_matmul_precision(mode)
    try:
        for metric, features_ND in (("cosine", clustered(3000, 64)), ("euclidean", clustered(3000, 64) + 100)):
            found = nearest(features_ND.to("cuda"), 15, metric=metric, block_bytes=2**20)
            assert found.index_NK.is_cuda
            here = Neighbors(found.index_NK.cpu(), found.similarity_NK.cpu())
            assert_neighbours(here, features_ND, 16, metric)
    finally:
        torch.set_float32_matmul_precision("highest")


def test_less_memory_than_a_block_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    features_ND, original, tried = clustered(157, 8), knn._search_once, []

    def found(*args: Any) -> Neighbors:
        tried.append(args[-1])
        if args[-1] > 2**25:
            raise torch.OutOfMemoryError("too much")
        return original(*args)

    expected = nearest(features_ND, 6), nearest(features_ND, 6, metric="euclidean")
    monkeypatch.setattr(knn, "_search_once", found)
    assert torch.equal(nearest(features_ND, 6).index_NK, expected[0].index_NK) and tried == [2**28, 2**26, 2**24]
    assert torch.equal(nearest(features_ND, 6, metric="euclidean").index_NK, expected[1].index_NK)
    with monkeypatch.context() as patch:
        patch.setattr(knn, "MIN_BLOCK_BYTES", 2**26)
        with pytest.raises(torch.OutOfMemoryError):
            nearest(features_ND, 6)


@dataclass(frozen=True)
class RowsOf:
    """One of several processes in which a search is shared: instead of the rows of all it gives back its own."""

    rank: int
    size: int = 3
    sync_norms: bool = False

    def rows(self, x_B: Tensor) -> Tensor:
        return x_B[self.rank * len(x_B) // self.size : (self.rank + 1) * len(x_B) // self.size]

    def gathered(self, own_M: Tensor, rows: int) -> Tensor:
        return own_M

    def stacked(self, own: Tensor) -> Tensor:
        raise AssertionError


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("metric", get_args(Metric))
def test_several_processes_find_the_neighbours_of_one(metric: Metric, dtype: torch.dtype) -> None:
    features_ND = clustered(200, 6).to(dtype) + 3
    before_ND, parts = features_ND.clone(), []
    for rank in range(3):
        with shared_by(RowsOf(rank)):
            parts.append(nearest(features_ND, 7, metric=metric))
            assert torch.equal(features_ND, before_ND)
    expected = nearest(features_ND, 7, metric=metric)
    assert torch.equal(torch.cat([part.index_NK for part in parts]), expected.index_NK)
    torch.testing.assert_close(torch.cat([part.similarity_NK for part in parts]), expected.similarity_NK)


def unit_rows(features_ND: Tensor) -> Tensor:
    return _own_rows(features_ND, "features", "cosine")


def rough_products(a_ND: Tensor, b_MD: Tensor) -> Tensor:
    return _half_products(_split(a_ND, (0, 0, 1)), _split(b_MD, (0, 1, 0)))


@pytest.mark.parametrize("spread", [1.0, 0.1, 1e-3])
@pytest.mark.parametrize("block_bytes", rest_slow(2, [150_000, 2**28, 1]))
def test_screening_finds_what_brute_force_finds(spread: float, block_bytes: int) -> None:
    """Also where items of a cloud lie so near to one another that half precision cannot tell them apart."""
    generator = torch.Generator().manual_seed(0)
    features_ND = clustered(400, 24, clusters=5) + 3
    features_ND = features_ND[torch.randint(5, (400,), generator=generator)]
    features_ND = features_ND + spread * torch.randn(400, 24, generator=generator)
    unit_ND = unit_rows(features_ND)
    assert_exact(_search_screened(unit_ND, unit_ND, 7, block_bytes), similarities(unit_ND, unit_ND), 7)
    query_MD = unit_rows(clustered(50, 24, seed=1))
    assert_exact(_search_screened(unit_ND, query_MD, 7, block_bytes), similarities(query_MD, unit_ND), 7)
    assert_exact(_search_screened(unit_ND, query_MD[:2], 400, block_bytes), similarities(query_MD[:2], unit_ND), 400)
    assert _search_screened(unit_ND, query_MD[:0], 7, block_bytes).index_NK.shape == (0, 7)


def test_screening_is_not_taken_in_by_duplicates_and_stays_within_a_block() -> None:
    """More of them than are looked at: whichever are taken, the rest of the row is searched too."""
    unit_ND = unit_rows(torch.cat([torch.ones(90, 3), torch.eye(3), torch.zeros(2, 3), clustered(60, 3)]))
    assert_exact(_search_screened(unit_ND, unit_ND, 10, 2**20), similarities(unit_ND, unit_ND), 10)
    # No tensor is larger than the block, though all items in half precision would be.
    unit_ND, block = unit_rows(clustered(3000, 64)), 2**18
    with Allocations() as seen:
        _likely(unit_ND, unit_ND, 8, block)
    assert 6 * unit_ND.numel() > block >= seen.largest


@pytest.mark.parametrize("block_bytes", [2_000, 30_000, 2**28])
def test_screening_stays_on_however_large_the_set(block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its copies in half precision, 6 x 500 x 24 bytes, are many times the block, or a small part of it."""
    calls: list[int] = []

    def spy(data_ND: Tensor, query_MD: Tensor, k: int, block_bytes: int) -> Neighbors:
        calls.append(block_bytes)
        return _search_screened(data_ND, query_MD, k, block_bytes)

    monkeypatch.setattr(knn, "MIN_SCREENED_ITEMS", 400)
    monkeypatch.setattr(knn, "_offers_half_products", lambda device: True)
    monkeypatch.setattr(knn, "_search_screened", spy)
    features_ND = clustered(500, 24) + 1
    unit_ND = unit_rows(features_ND)
    assert_exact(nearest(features_ND, 9, block_bytes=block_bytes), similarities(unit_ND, unit_ND), 10)
    assert calls == [block_bytes]
    nearest(features_ND[:300], 9, block_bytes=block_bytes)
    assert calls == [block_bytes]  # of few items it would not pay


def test_what_screening_is_wrong_by_is_far_within_its_margin() -> None:
    unit_ND = unit_rows(clustered(500, 512) + 2)
    error = float((rough_products(unit_ND, unit_ND).double() - similarities(unit_ND, unit_ND)).abs().max())
    assert error < 8 * (3 * 512) ** 0.5 * 2**-24 / 10
    alone = float((_half_products(unit_ND.half(), unit_ND.half()).double() - similarities(unit_ND, unit_ND)).abs().max())
    assert alone > 10 * error  # so the rests are worth their products


@pytest.mark.gpu
@pytest.mark.parametrize("spread", [1.0, 0.3, 0.02])
def test_the_gpu_screens_without_loss(spread: float) -> None:
    """As large as screening takes; in the last case most rows have too many near neighbours and are searched twice."""
    generator = torch.Generator().manual_seed(0)
    features_ND = torch.randn(10, 512, generator=generator).abs()[torch.randint(10, (MIN_SCREENED_ITEMS,), generator=generator)]
    features_ND = features_ND + spread * torch.randn(features_ND.shape, generator=generator)
    with torch.autocast("cuda", torch.bfloat16):
        found = nearest(features_ND.to("cuda"), 15)
    unit_ND = unit_rows(features_ND.to("cuda")).double()
    cosine_NN = unit_ND @ unit_ND.T
    assert_exact(found, cosine_NN, 16, atol=3e-6)  # float32 sums of 512 products; also a plain float32 search has such errors
    error = (rough_products(unit_ND.float(), unit_ND.float()).double() - cosine_NN).abs().max()
    assert float(error) < 8 * (3 * 512) ** 0.5 * 2**-24
