"""PL-KNN and IPAL: hand-worked values, slow loops, and what must hold on any data."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from torch import Tensor, nn

from _toy import assert_same, assert_same_state, run_all, small_network, toy_candidates, toy_data, toy_trainer
from pals.data.dataset import Dataset
from pals.labels.candidates import CandidateSets
from pals.methods import Problem, ipal
from pals.methods.bases.feature_based import FeatureMethod, Inputs
from pals.methods.ipal import IPAL, correct_mass, propagate, reconstruct, residuals
from pals.methods.plknn import PLKNN, linear_weight, on_candidates
from pals.pseudo_labels import neighbor_weight, vote
from pals.pseudo_labels.knn import nearest, nearest_to
from pals.pseudo_labels.simplex import normalize_rows, uniform_on
from pals.training.engine import Engine, EngineConfig
from pals.vision.networks import Network

BOTH = pytest.mark.parametrize("cls", [PLKNN, IPAL], ids=lambda cls: cls.__name__)


def sets(*candidates: set[int], classes: int) -> Tensor:
    return torch.tensor([[c in labels for c in range(classes)] for labels in candidates])


def fitted(cls: type[FeatureMethod], features_ND: Tensor, allowed_NC: Tensor, **options: Any) -> Any:
    """The method after it has seen these features, and the labels it gave the training items."""
    problem = Problem(CandidateSets.from_matrix(allowed_NC), small_network(allowed_NC.shape[1]))
    method = cls(cls.Config(**options), problem)
    method.features_ND = features_ND
    method.label_found_N = method.fit()
    return method


def cloud(items: int, width: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Points around the corners of a simplex, and sets that mostly hold their class."""
    generator = torch.Generator().manual_seed(seed)
    label_N = torch.arange(items) % classes
    features_ND = torch.randn(items, width, generator=generator) + 2 * torch.eye(width)[label_N]
    allowed_NC = torch.rand(items, classes, generator=generator) < 0.4
    allowed_NC[torch.arange(items), label_N] |= torch.rand(items, generator=generator) < 0.9
    allowed_NC[~allowed_NC.any(dim=1), 0] = True
    return features_ND, allowed_NC


def rotation(width: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64)).Q.float()


THREE_ND = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0], [100.0, 100.0]])
THREE_NC = sets({0, 1}, {1, 2}, {2}, {0}, classes=3)


def test_weights_by_hand() -> None:
    weight_NK = linear_weight(torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [0.0, 1.0, 1.0]]))
    torch.testing.assert_close(weight_NK, torch.tensor([[5 / 6, 2 / 3, 0.5], [1.0, 1.0, 1.0], [1.0, 0.5, 0.5]]))
    assert linear_weight(torch.tensor([[7.0], [0.0]])).tolist() == [[1.0], [1.0]]
    assert linear_weight(torch.tensor([[4e-7, 1e-7]])).tolist() == [[1.0, 1.0]]
    score_NC = torch.tensor([[0.0, 2.0, 0.0], [1.0, 3.0, 5.0]])
    share_NC = on_candidates(score_NC, sets({0, 2}, {0, 1}, classes=3))
    assert share_NC.tolist() == [[0.5, 0.0, 0.5], [0.25, 0.75, 0.0]]
    features_ND = torch.cat([torch.ones(6, 3), 2 * torch.eye(3)])
    allowed_NC = sets(*[{0, 1}] * 3, *[{0}] * 3, {2}, {2}, {2}, classes=3)
    method = fitted(PLKNN, features_ND, allowed_NC, neighbors=6)
    share_C = method.log_scores(torch.ones(1, 3)).exp()[0]
    torch.testing.assert_close(share_C, torch.tensor([6 / 9, 3 / 9, 0.0]), atol=1e-6, rtol=0)
    method = fitted(PLKNN, torch.tensor([[0.0], [3.0], [4.0]]), sets({0}, {1}, {2}, classes=3), neighbors=2)
    torch.testing.assert_close(method.log_scores(torch.zeros(1, 1)).exp(), torch.tensor([[1.0, 0.0, 0.0]]), atol=1e-6, rtol=0)
    features_ND, _ = cloud(40, 6, 4)
    method = fitted(PLKNN, features_ND, torch.ones(40, 4, dtype=torch.bool))
    assert (method.log_scores(features_ND).argmax(dim=1) == 0).all()
    torch.testing.assert_close(method.posterior(), torch.full((40, 4), 0.25))


@pytest.mark.parametrize(
    ("options", "score_C"),
    [
        ({}, (5 / 6, 1.5, 7 / 6)),
        ({"weighting": "uniform"}, (1.0, 2.0, 2.0)),
        ({"vote": "split"}, (5 / 12, 5 / 12 + 1 / 3, 1 / 3 + 1 / 2)),
        ({"neighbors": 1}, (1.0, 1.0, 0.0)),
        ({"neighbors": 2}, (2 / 3, 1.0, 1 / 3)),
    ],
)
def test_the_vote_by_hand(options: dict[str, Any], score_C: tuple[float, ...]) -> None:
    """A query at the origin, its neighbours at the distances 1, 2 and 3."""
    method = fitted(PLKNN, THREE_ND, THREE_NC, **{"neighbors": 3, **options})
    logits_C = method.log_scores(torch.zeros(1, 2)).squeeze(0)
    expected_C = torch.tensor(score_C) / sum(score_C)
    torch.testing.assert_close(logits_C.exp(), expected_C, atol=1e-6, rtol=0)
    assert int(logits_C.argmax()) == int(torch.tensor(score_C).argmax())  # of equals the first
    assert torch.isfinite(logits_C).all()


def slow_votes(query_MD: Tensor, features_ND: Tensor, allowed_NC: Tensor, k: int, own: bool) -> np.ndarray:
    """Linear weights, whole votes. `own`: the queries are the items, which have no vote on themselves."""
    score_MC = np.zeros((len(query_MD), allowed_NC.shape[1]))
    for i, query_D in enumerate(query_MD.double().numpy()):
        distance_N = np.sqrt(((features_ND.double().numpy() - query_D) ** 2).sum(axis=1))
        order = [n for n in np.argsort(distance_N) if not (own and n == i)][:k]
        for n in order:
            score_MC[i] += (1 - distance_N[n] / distance_N[order].sum()) * allowed_NC[n].numpy()
    return score_MC


def test_votes_are_those_of_a_slow_loop_on_a_thousand_points() -> None:
    features_ND, allowed_NC = cloud(1000, 8, 5)
    query_MD = cloud(100, 8, 5, seed=1)[0]
    method = fitted(PLKNN, features_ND, allowed_NC)
    score_MC = slow_votes(query_MD, features_ND, allowed_NC, 10, own=False)
    expected_MC = torch.from_numpy(score_MC / score_MC.sum(axis=1, keepdims=True)).float()
    torch.testing.assert_close(method.log_scores(query_MD).exp(), expected_MC, atol=1e-6, rtol=0)

    own_NC = slow_votes(features_ND, features_ND, allowed_NC, 10, own=True) * allowed_NC.numpy()
    total_N1 = own_NC.sum(axis=1, keepdims=True)
    expected_NC = torch.from_numpy(own_NC / np.where(total_N1 > 0, total_N1, 1)).float()
    silent_N = torch.from_numpy(total_N1 == 0).flatten()
    expected_NC[silent_N] = uniform_on(allowed_NC[silent_N])
    torch.testing.assert_close(method.posterior(), expected_NC, atol=1e-6, rtol=0)


def test_the_item_itself_may_vote_with_the_weights_of_pals() -> None:
    features_ND, allowed_NC = cloud(60, 6, 4)
    method = fitted(PLKNN, features_ND, allowed_NC, neighbors=5, include_self=True)
    index_NK, similarity_NK = nearest(features_ND, 5, include_self=True, metric="euclidean")
    assert torch.equal(index_NK[:, 0], torch.arange(60))
    score_NC = vote(index_NK, linear_weight(-similarity_NK), allowed_NC)
    torch.testing.assert_close(method.posterior(), on_candidates(score_NC, allowed_NC))
    assert (linear_weight(-similarity_NK)[:, 0] == 1).all()
    features_ND, allowed_NC = cloud(60, 6, 4)
    query_MD = cloud(20, 6, 4, seed=1)[0]
    method = fitted(PLKNN, features_ND, allowed_NC, neighbors=5, weighting="exp", temperature=0.2)
    index_MK, cosine_MK = nearest_to(query_MD, features_ND, 5)
    score_MC = vote(index_MK, neighbor_weight(cosine_MK, "exp", 0.2), allowed_NC)
    torch.testing.assert_close(method.log_scores(query_MD).softmax(dim=1), score_MC / score_MC.sum(dim=1, keepdim=True))


def test_unit_length_gives_the_order_of_the_cosine() -> None:
    features_ND, allowed_NC = cloud(60, 6, 4)
    scale_N1 = torch.linspace(0.1, 10, 60)[:, None]
    plain, scaled = (fitted(PLKNN, x, allowed_NC, unit_norm=True) for x in (features_ND, features_ND * scale_N1))
    torch.testing.assert_close(plain.posterior(), scaled.posterior())
    assert not torch.allclose(fitted(PLKNN, features_ND * scale_N1, allowed_NC).posterior(), plain.posterior())
    found = nearest(features_ND, 10, include_self=False)
    by_length = nearest(plain._scaled(plain.features_ND), 10, include_self=False, metric="euclidean")
    assert torch.equal(found.index_NK, by_length.index_NK)


ANGLE_N = torch.tensor([0.0, 0.2, 0.5, 1.2, math.pi / 2], dtype=torch.float64)
FIVE_NC = sets({0, 1}, {0}, {0, 1}, {0, 1}, {1}, classes=2)


def on_circle(angle_N: Tensor) -> Tensor:
    return torch.stack([angle_N.cos(), angle_N.sin()], dim=1)


def five() -> tuple[Tensor, Tensor]:
    """Neighbours of the five points of the worked example, and the weights that reconstruct them."""
    features_ND = on_circle(ANGLE_N)
    index_NK = nearest(features_ND, 2, include_self=False, metric="euclidean").index_NK
    return index_NK, reconstruct(features_ND, features_ND[index_NK])


def test_graph_propagation_and_answer_by_hand() -> None:
    index_NK, weight_NK = five()
    assert index_NK.tolist() == [[1, 2], [0, 2], [1, 0], [4, 2], [3, 2]]
    expected = [[0.980067, 0], [0.616405, 0.414390], [0.955336, 0], [0.734082, 0.412904], [0.932039, 0]]
    torch.testing.assert_close(weight_NK, torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0)
    expected = [[1.0, 0], [0.597990, 0.402010], [1.0, 0], [0.640009, 0.359991], [1.0, 0]]
    torch.testing.assert_close(normalize_rows(weight_NK), torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0)
    index_NK, weight_NK = five()
    first_NC = normalize_rows(FIVE_NC.double())
    assert first_NC.tolist() == [[0.5, 0.5], [1, 0], [0.5, 0.5], [0.5, 0.5], [0, 1]]
    columns = ([0.975, 1, 0.975, 0.1959956, 0], [0.975, 1, 0.975, 0.3584413, 0], [0.975, 1, 0.975, 0.3584413, 0])
    for count, column in enumerate(columns, start=1):
        final_NC, rounds = propagate(index_NK, normalize_rows(weight_NK), first_NC, alpha=0.95, iterations=count, tolerance=0)
        torch.testing.assert_close(final_NC[:, 0], torch.tensor(column, dtype=torch.float64), atol=1e-6, rtol=0)
        torch.testing.assert_close(final_NC.sum(dim=1), torch.ones(5, dtype=torch.float64))
        assert rounds == count
    final_NC, rounds = propagate(index_NK, normalize_rows(weight_NK), first_NC, alpha=0.95, iterations=100, tolerance=1e-4)
    assert rounds == 3
    still_NC, rounds = propagate(index_NK, normalize_rows(weight_NK), first_NC, alpha=0.0, iterations=9, tolerance=1e-4)
    assert rounds == 1 and torch.equal(still_NC, first_NC)
    mass_C = torch.tensor([3.3084413, 1.6915587], dtype=torch.float64)
    torch.testing.assert_close(final_NC.sum(dim=0), mass_C, atol=1e-6, rtol=0)
    assert first_NC.sum(dim=0).tolist() == [2.5, 2.5]
    corrected_NC = correct_mass(final_NC, first_NC)
    torch.testing.assert_close(corrected_NC.sum(dim=0), torch.full((2,), 2.5, dtype=torch.float64))
    assert corrected_NC.argmax(dim=1).tolist() == [0, 0, 0, 1, 1]
    method = fitted(IPAL, on_circle(ANGLE_N).float(), FIVE_NC, neighbors=2)
    assert method.label_found_N.tolist() == method.label_N.tolist() == [0, 0, 0, 1, 1]
    assert method.statistics() == {"rounds": 3}
    query_MD = on_circle(torch.tensor([0.3, 1.4], dtype=torch.float64))
    near_MKD = on_circle(ANGLE_N)[torch.tensor([[1, 2], [4, 3]])]
    weight_MK = reconstruct(query_MD, near_MKD)
    expected = [[0.672270, 0.337823], [0.548268, 0.469059]]
    torch.testing.assert_close(weight_MK, torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0)
    residual_MC = residuals(query_MD, near_MKD, weight_MK, torch.tensor([[0, 0], [1, 1]]), 2)
    torch.testing.assert_close(residual_MC, torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64), atol=1e-9, rtol=0)
    for scale in (1.0, 7.0):  # length does not count
        logits_MC = method.log_scores(scale * query_MD.float())
        assert logits_MC.argmax(dim=1).tolist() == [0, 1] and torch.isfinite(logits_MC).all()


def slow_ipal(features_ND: np.ndarray, allowed_NC: np.ndarray, query_MD: np.ndarray, k: int) -> tuple[Any, Any, Any]:
    """Dense matrices, one item at a time, an exact solver from elsewhere: confidences, labels and residuals of queries."""

    def graph_row(x_D: np.ndarray, itself: int) -> tuple[np.ndarray, np.ndarray]:
        order = [n for n in np.argsort(((features_ND - x_D) ** 2).sum(axis=1)) if n != itself][:k]
        return np.array(order), nnls(features_ND[order].T, x_D)[0]

    items, classes = allowed_NC.shape
    graph_NN = np.zeros((items, items))
    for i in range(items):
        order, weight_K = graph_row(features_ND[i], i)
        graph_NN[i, order] = weight_K / weight_K.sum() if weight_K.sum() > 0 else 0
    first_NC = allowed_NC / allowed_NC.sum(axis=1, keepdims=True)
    now_NC = first_NC
    for _ in range(100):
        next_NC = (0.95 * graph_NN @ now_NC + 0.05 * first_NC) * allowed_NC
        next_NC /= next_NC.sum(axis=1, keepdims=True)
        change, now_NC = np.linalg.norm(next_NC - now_NC, 2), next_NC
        if change < 1e-4:
            break
    label_N = (now_NC * first_NC.sum(axis=0) / now_NC.sum(axis=0)).argmax(axis=1)
    residual_MC = np.zeros((len(query_MD), classes))
    for i, query_D in enumerate(query_MD):
        order, weight_K = graph_row(query_D, -1)
        for c in range(classes):
            mine = label_N[order] == c
            residual_MC[i, c] = np.linalg.norm(query_D - weight_K[mine] @ features_ND[order][mine])
    return now_NC, label_N, residual_MC


@pytest.mark.parametrize(("block", "unit_norm"), [(2**28, True), (8 * 10 * 8 * 7, True), (2**28, False)])
def test_ipal_is_what_a_slow_loop_gives(block: int, unit_norm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths count only where that is wanted."""
    monkeypatch.setattr(ipal, "NEAR_BLOCK_BYTES", block)
    features_ND, allowed_NC = cloud(150, 8, 5)
    query_MD = cloud(40, 8, 5, seed=1)[0]
    unit = partial(torch.nn.functional.normalize, dim=1) if unit_norm else torch.clone
    unit_ND, unit_MD = (unit(x.double()).numpy() for x in (features_ND, query_MD))
    final_NC, label_N, residual_MC = slow_ipal(unit_ND, allowed_NC.numpy(), unit_MD, 10)
    method = fitted(IPAL, features_ND, allowed_NC, unit_norm=unit_norm)
    assert method.label_N.tolist() == label_N.tolist()
    plain = fitted(IPAL, features_ND, allowed_NC, correct_mass=False, unit_norm=unit_norm)
    torch.testing.assert_close(plain.posterior(), torch.from_numpy(final_NC).float())
    logits_MC = method.log_scores(query_MD)
    torch.testing.assert_close(logits_MC, torch.from_numpy(-np.log(residual_MC)).float(), atol=1e-5, rtol=1e-5)
    score_MC = (1 / residual_MC) / (1 / residual_MC).sum(axis=1, keepdims=True)
    torch.testing.assert_close(logits_MC.softmax(dim=1), torch.from_numpy(score_MC).float(), atol=1e-5, rtol=1e-5)
    assert (residual_MC > 1 - 1e-12).any()  # a class that no neighbour has: |x|, which may be 1


def test_ipal_at_its_ends() -> None:
    features_ND, allowed_NC = cloud(80, 8, 4)
    rounds = [
        fitted(IPAL, features_ND, allowed_NC, tolerance=tolerance).statistics()["rounds"] for tolerance in (1e-1, 1e-3, 0.0)
    ]
    assert rounds[0] < rounds[1] < rounds[2] == 100
    torch.testing.assert_close(fitted(IPAL, features_ND, allowed_NC, iterations=0).posterior(), uniform_on(allowed_NC))
    first_NC = normalize_rows(sets({0}, {0, 1}, classes=3).double())
    assert correct_mass(first_NC, first_NC).tolist() == first_NC.tolist()
    # an item of zeros cannot be rebuilt, rebuilds nothing, keeps its confidences and, as a query, is as far from all classes.
    features_ND, allowed_NC = cloud(30, 6, 3)
    features_ND[4] = 0
    allowed_NC[4] = torch.tensor([True, True, False])
    method = fitted(IPAL, features_ND, allowed_NC, correct_mass=False)
    torch.testing.assert_close(method.posterior()[4], torch.tensor([0.5, 0.5, 0.0]))
    logits_C = method.log_scores(torch.zeros(1, 6)).squeeze(0)
    assert torch.isfinite(logits_C).all() and (logits_C == logits_C[0]).all()


@BOTH
def test_rotation_scale_and_order_of_the_items_do_not_matter(cls: type[FeatureMethod]) -> None:
    features_ND, allowed_NC = cloud(80, 6, 4)
    query_MD, turn_DD = cloud(20, 6, 4, seed=1)[0], 3.7 * rotation(6)
    order_N = torch.randperm(80, generator=torch.Generator().manual_seed(2))
    plain, turned = (fitted(cls, x, allowed_NC) for x in (features_ND, features_ND @ turn_DD))
    mixed = fitted(cls, features_ND[order_N], allowed_NC[order_N])
    torch.testing.assert_close(plain.posterior(), turned.posterior(), atol=1e-4, rtol=0)
    torch.testing.assert_close(mixed.posterior(), plain.posterior()[order_N], atol=1e-5, rtol=0)
    assert torch.equal(mixed.label_found_N, plain.label_found_N[order_N])
    for scores_MC in (turned.log_scores(query_MD @ turn_DD), mixed.log_scores(query_MD)):
        torch.testing.assert_close(plain.log_scores(query_MD), scores_MC, atol=1e-4, rtol=1e-4)


@BOTH
def test_one_epoch_without_a_step_and_without_a_graph(cls: type[FeatureMethod], toy: Dataset) -> None:
    trainer = toy_trainer(cls, toy, options={"neighbors": 5})
    assert trainer.method.posterior() is None
    (record,) = run_all(trainer)
    assert (record["phase"], record["steps"], record["loss"]) == ("fit", 0, None) and record["selected"] == 90
    assert record["correct"] > 60
    expected_ND = toy.views.make("eval", toy.train.inputs, trainer.generator)
    torch.testing.assert_close(trainer.method.features_ND, expected_ND)  # the inputs, standardised
    engine = Engine(EngineConfig(device="cpu"))
    engine.device, engine.compiled = torch.device("cuda"), True  # as if: nothing is run
    method = toy_trainer(cls, toy, options={"neighbors": 5}).method
    assert engine._forward(method) is method


@BOTH
def test_images_are_compared_pixel_by_pixel(cls: type[FeatureMethod]) -> None:
    output = Inputs()(torch.arange(24.0).reshape(2, 3, 2, 2))
    assert output.features.tolist() == torch.arange(24.0).reshape(2, 12).tolist()
    features_ND, allowed_NC = cloud(30, 12, 3)
    method = fitted(cls, features_ND, allowed_NC)
    output = method(features_ND.reshape(30, 3, 2, 2))
    assert torch.equal(output.features, features_ND)
    torch.testing.assert_close(output.logits, method.log_scores(features_ND))


@BOTH
def test_features_of_a_network_that_stays_as_it_is(cls: type[FeatureMethod], toy: Dataset, tmp_path: Path) -> None:
    options = {"neighbors": 5, "features": "network"}
    trainer = toy_trainer(cls, toy, options=options, folder=tmp_path)
    network = trainer.method.encoder
    assert isinstance(network, Network) and not [p for p in network.parameters() if p.requires_grad]
    before = {key: value.clone() for key, value in network.state_dict().items()}
    (record,) = run_all(trainer)
    assert record["test_accuracy"] > 0.6
    assert_same(dict(network.state_dict()), before)
    torch.testing.assert_close(trainer.method.features_ND, trainer.infer(network, toy.train.inputs).features)
    assert trainer.method.features_ND.shape == (90, 16)

    fresh = toy_trainer(cls, toy, options=options, folder=tmp_path)
    for parameter in fresh.method.encoder.parameters():
        nn.init.zeros_(parameter)
    assert fresh.resume()
    assert_same_state(trainer, fresh)
    assert_same(*(dict(t.infer(t.method.predictor, toy.test.inputs)._asdict()) for t in (trainer, fresh)))


def test_unit_length_is_for_networks_unless_told_otherwise() -> None:
    data = toy_data(items=20)
    problem = Problem(toy_candidates(data), small_network(3))
    for features, given_, expected in [("input", None, False), ("network", None, True), ("network", False, False)]:
        method = PLKNN(PLKNN.Config(features=features, unit_norm=given_), problem)  # type: ignore[arg-type]
        assert method.unit is expected


@pytest.mark.gpu
@BOTH
def test_a_gpu_gives_the_same(cls: type[FeatureMethod]) -> None:
    features_ND, allowed_NC = cloud(300, 8, 5)
    query_MD = cloud(40, 8, 5, seed=1)[0]
    here = fitted(cls, features_ND, allowed_NC)
    there = fitted(cls, features_ND, allowed_NC).to("cuda")
    assert torch.equal(there.fit().cpu(), here.label_found_N)
    torch.testing.assert_close(there.posterior().cpu(), here.posterior(), atol=1e-5, rtol=0)
    with torch.autocast("cuda", torch.bfloat16):  # as in a run
        logits_MC = there(query_MD.to("cuda")).logits
    torch.testing.assert_close(logits_MC.cpu(), here.log_scores(query_MD), atol=1e-4, rtol=1e-4)
