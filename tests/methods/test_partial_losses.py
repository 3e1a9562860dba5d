"""RC, CC, PRODEN, LWS, and PRODEN on pruned sets (CLSP): numbers worked by hand, what tells them apart, what must hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from test_pals_method import Linear
from torch import Tensor

from _toy import run_all, toy_candidates, toy_data, toy_method, toy_trainer
from pals.data.dataset import Dataset
from pals.labels.candidates import CandidateSets
from pals.methods import Batch, Method, Problem, find_method, method_options
from pals.methods.parts.losses import soft_cross_entropy
from pals.pseudo_labels.prune_sets import prune
from pals.pseudo_labels.simplex import masked_softmax, uniform_on
from pals.training.engine import Engine, EngineConfig

NAMES = ("rc", "cc", "proden", "lws")
P = torch.tensor([[0.5, 0.3, 0.2]])
LOGITS = P.log()
SECOND = [0.7142857, 0.0, 0.2857143]  # P cut to classes 0 and 2
each = pytest.mark.parametrize("name", NAMES)


def sets_of(*rows: Sequence[int]) -> CandidateSets:
    return CandidateSets.from_matrix(list(rows))


def method_on(name: str, sets: CandidateSets, matrix_DC: Tensor | None = None, **options: Any) -> Any:
    """Scores are the inputs times the matrix; without one, the inputs themselves."""
    matrix_DC = torch.eye(sets.num_classes) if matrix_DC is None else matrix_DC
    return find_method(name)(method_options(name, options), Problem(sets, lambda: Linear(matrix_DC.clone()))).train()


def batch_of(inputs: Tensor, index: Sequence[int] | None = None) -> Batch:
    return Batch(torch.arange(len(inputs)) if index is None else torch.tensor(index), (inputs,), None)


def step(method: Method, batch: Batch, lr: float) -> float:
    """One step of the real engine: loss, optimiser, what follows."""
    take = Engine(EngineConfig(device="cpu")).step(method, torch.optim.SGD(method.parameters(), lr=lr))
    return float(take(batch))


def loss_and_gradient(method: Method, logits: Tensor) -> tuple[float, Tensor]:
    """The gradient is that of the logits (of a network that passes its inputs on)."""
    inputs = logits.clone().requires_grad_()
    loss = method.loss(batch_of(inputs))
    loss.backward()
    assert inputs.grad is not None
    return loss.item(), inputs.grad


def close(actual: Tensor, expected: Sequence[float] | Sequence[Sequence[float]], atol: float = 1e-6) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected), atol=atol, rtol=0)


def slow_masked_softmax(logits: list[float], allowed: list[bool]) -> list[float]:
    top = max((z for z, inside in zip(logits, allowed, strict=True) if inside), default=0.0)
    weight = [math.exp(z - top) if inside else 0.0 for z, inside in zip(logits, allowed, strict=True)]
    return [w / (sum(weight) or 1.0) for w in weight]


@given(st.lists(st.tuples(st.floats(-1e4, 1e4, width=32), st.booleans()), min_size=2, max_size=6))
def test_masked_softmax_against_a_slow_loop(row: list[tuple[float, bool]]) -> None:
    logits, allowed = ([pair[i] for pair in row] for i in (0, 1))
    found = masked_softmax(torch.tensor([logits]), torch.tensor([allowed]))
    close(found, [slow_masked_softmax(logits, allowed)], atol=1e-5)
    assert (found >= 0).all() and (found[~torch.tensor([allowed])] == 0).all()
    assert abs(float(found.sum()) - any(allowed)) < 1e-6


def test_masked_softmax_where_the_candidates_underflow() -> None:
    """Where probabilities would give 0/0. A row that allows nothing is zero, its gradient too; half precision goes in."""
    allowed = torch.tensor([[False, True, True], [False, False, False]])
    close(masked_softmax(torch.tensor([[300.0, 0.0, 0.0], [1.0, 2.0, 3.0]]), allowed), [[0, 0.5, 0.5], [0, 0, 0]])
    assert masked_softmax(torch.randn(2, 3).bfloat16(), allowed).dtype == torch.float32
    logits = torch.randn(2, 3, requires_grad=True)
    masked_softmax(logits, allowed).square().sum().backward()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("name", ["rc", "proden"])
def test_first_and_second_visit(name: str) -> None:
    """p = (.5, .3, .2), candidates 0 and 2. The loss is sum_c w_c (-log p_c), its gradient p - w."""
    method = method_on(name, sets_of([1, 0, 1]))
    loss, gradient = loss_and_gradient(method, LOGITS)
    assert loss == pytest.approx(1.1512925, abs=1e-6)
    close(gradient, [[0.0, 0.3, -0.3]])
    close(method.posterior(), [[0.5, 0.0, 0.5]])
    assert step(method, batch_of(LOGITS), lr=0.0) == pytest.approx(1.1512925, abs=1e-6)
    close(method.posterior(), [SECOND])
    loss, gradient = loss_and_gradient(method, LOGITS)
    assert loss == pytest.approx(0.9549445, abs=1e-6)
    close(gradient, [[-0.2142857, 0.3, -0.0857143]])


def test_cc_by_hand() -> None:
    method = method_on("cc", sets_of([1, 0, 1]))
    loss, gradient = loss_and_gradient(method, LOGITS)
    assert loss == pytest.approx(0.3566749, abs=1e-6)
    close(gradient, [[-0.2142857, 0.3, -0.0857143]])
    step(method, batch_of(LOGITS), lr=0.0)
    close(method.posterior(), [SECOND])


SCORES = torch.tensor([[1.0, -0.5, 0.0, 2.0]])


@pytest.mark.parametrize(
    ("kind", "visit", "inside", "outside"),
    [
        ("sigmoid", 1, 0.1922354, 0.3145844),
        ("sigmoid", 2, 0.3310826, 0.8426210),
        ("cross-entropy", 1, 0.9803867, 0.2623931),
        ("cross-entropy", 2, 1.7297149, 0.9248524),
    ],
)
def test_lws_by_hand(kind: str, visit: int, inside: float, outside: float) -> None:
    """g = (1, -.5, 0, 2), candidates 0 and 2: the two sums, told apart by beta."""
    for beta in (0.0, 1.0, 2.0):
        method = method_on("lws", sets_of([1, 0, 1, 0]), loss=kind, beta=beta)
        for _ in range(visit - 1):
            step(method, batch_of(SCORES), lr=0.0)
        assert method.loss(batch_of(SCORES)).item() == pytest.approx(inside + beta * outside, abs=1e-6)


def test_lws_weights_and_scores_by_hand() -> None:
    method = method_on("lws", sets_of([1, 0, 1, 0]))
    assert method.confidence_NC.tolist() == [[0.25] * 4]
    close(method.posterior(), [[0.5, 0.0, 0.5, 0.0]])
    step(method, batch_of(SCORES), lr=0.0)
    close(method.confidence_NC, [[0.7310586, 0.0758582, 0.2689414, 0.9241418]])
    close(method.posterior(), [[0.7310586, 0.0, 0.2689414, 0.0]])
    # it sees the level of the scores, unlike losses on the softmax
    lws, rc = (method_on(name, sets_of([1, 0, 1, 0])) for name in ("lws", "rc"))
    assert abs(lws.loss(batch_of(SCORES)) - lws.loss(batch_of(SCORES + 1))) > 1e-3
    assert rc.loss(batch_of(SCORES)).item() == pytest.approx(rc.loss(batch_of(SCORES + 1)).item(), abs=1e-6)


def test_which_network_the_confidences_come_from() -> None:
    """After a large step, PRODEN and CC hold what the network predicted before it; RC and LWS what it predicts after it."""
    generator, losses = torch.Generator().manual_seed(0), {}
    matrix, inputs = torch.randn(4, 3, generator=generator), torch.randn(6, 4, generator=generator)
    sets = sets_of(*[[1, 0, 1], [1, 1, 0], [0, 1, 1]] * 2)
    for name in NAMES:
        method = method_on(name, sets, matrix)
        before = masked_softmax(inputs @ matrix, sets.allowed_NC)
        losses[name] = [step(method, batch_of(inputs), lr=5.0)]
        after = masked_softmax(method.network(inputs).logits.detach(), sets.allowed_NC)
        assert (before - after).abs().max() > 0.1
        torch.testing.assert_close(method.posterior(), before if name in ("proden", "cc") else after)
        losses[name].append(step(method, batch_of(inputs), lr=0.0))
    assert losses["rc"][0] == losses["proden"][0] and abs(losses["rc"][1] - losses["proden"][1]) > 1e-2


def test_cc_is_proden_without_delay(noisy: CandidateSets) -> None:
    logits = 3 * torch.randn(len(noisy), 3, generator=torch.Generator().manual_seed(2))
    _, gradient = loss_and_gradient(method_on("cc", noisy), logits)
    proden = method_on("proden", noisy)
    proden.confidence_NC.copy_(masked_softmax(logits, noisy.allowed_NC))
    torch.testing.assert_close(gradient, loss_and_gradient(proden, logits)[1])


def test_mode_of_the_second_pass(noisy: CandidateSets) -> None:
    """In train mode batch norm counts each batch twice, as the authors' does; in eval mode once."""
    inputs = torch.randn(9, 6, generator=torch.Generator().manual_seed(3))
    for name, options, counted in (("rc", {}, 2), ("rc", {"refresh_mode": "eval"}, 1), ("lws", {}, 2), ("proden", {}, 1)):
        method = toy_method(name, noisy, options).train()
        step(method, batch_of(inputs), lr=0.1)
        norms = {key: int(value) for key, value in method.state_dict().items() if key.endswith("num_batches_tracked")}
        assert norms and set(norms.values()) == {counted} and all(module.training for module in method.modules())
        mode = options.get("refresh_mode", "train")
        if name == "rc":
            method.network.train(mode == "train")
            expected = masked_softmax(method.network(inputs).logits, noisy.allowed_NC[:9])
            torch.testing.assert_close(method.posterior()[:9], expected.detach())


def test_updates_of_proden() -> None:
    """By step not at all, to the likeliest candidate at once, or keeping a share."""
    for update in ("naive", "iterative"):
        method = method_on("proden", sets_of([1, 0, 1]), update=update)
        for _ in range(2):
            assert step(method, batch_of(LOGITS), lr=0.0) == pytest.approx(1.1512925, abs=1e-6)
        assert method.posterior().tolist() == [[0.5, 0.0, 0.5]]
    method = method_on("proden", sets_of([0, 1, 1], [1, 0, 1]), update="sudden")
    step(method, batch_of(LOGITS.repeat(2, 1)), lr=0.0)
    assert method.posterior().tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    method = method_on("proden", sets_of([1, 0, 1]), momentum=0.25)
    step(method, batch_of(LOGITS), lr=0.0)
    close(method.posterior(), [[0.25 * 0.5 + 0.75 * SECOND[0], 0.0, 0.25 * 0.5 + 0.75 * SECOND[2]]])


@pytest.mark.parametrize("momentum", [0.0, 0.25])
def test_iterative_update_of_all_items_now_and_then(momentum: float, toy: Dataset, noisy: CandidateSets) -> None:
    options = {"update": "iterative", "update_every": 2, "momentum": momentum}
    trainer = toy_trainer("proden", toy, noisy, options=options)
    start = held = uniform_on(noisy.allowed_NC)
    for record in trainer.epochs():
        if record["epoch"] % 2 == 0:
            logits = trainer.infer(trainer.method.predictor, toy.train.inputs).logits
            held = torch.lerp(masked_softmax(logits, noisy.allowed_NC), held, momentum)
        torch.testing.assert_close(trainer.method.posterior(), held)
    assert (held - start).abs().max() > 0.1


@each
def test_only_rows_of_the_batch_change_and_stay_on_the_candidates(name: str, noisy: CandidateSets) -> None:
    method = toy_method(name, noisy)
    before = method.confidence_NC.clone()
    index = [i for i in range(90) if noisy.size_N[i] == 2][:5]
    step(method.train(), batch_of(torch.randn(5, 6, generator=torch.Generator().manual_seed(4)), index), lr=1.0)
    assert (method.confidence_NC != before).any(dim=1).nonzero().flatten().tolist() == index
    posterior_NC = method.posterior()
    close(posterior_NC.sum(dim=1), [1.0] * 90)
    assert (posterior_NC >= 0).all() and (posterior_NC[~noisy.allowed_NC] == 0).all()


@each
def test_an_item_twice_in_a_batch_keeps_one_of_its_rows(name: str) -> None:
    method = method_on(name, sets_of([1, 0, 1], [1, 1, 0]))
    inputs = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    step(method, batch_of(inputs, [1, 1]), lr=0.0)
    rows = masked_softmax(inputs, torch.tensor([[True, True, False]] * 2))
    assert any(torch.allclose(method.posterior()[1], row) for row in rows)
    assert method.posterior()[0].tolist() == [0.5, 0.0, 0.5]


@each
def test_no_gradient_goes_through_the_confidences(name: str, noisy: CandidateSets) -> None:
    """The gradient is that with the confidences as constants, on a later visit too, and no buffer asks for one."""
    logits = torch.randn(90, 3, generator=torch.Generator().manual_seed(5))
    method = method_on(name, noisy)
    step(method, batch_of(logits), lr=0.0)
    step(method, batch_of(logits), lr=0.0)
    assert not any(buffer.requires_grad for buffer in method.buffers())
    if name != "cc":
        kept = method.confidence_NC.clone()
        _, gradient = loss_and_gradient(method, logits)
        inputs = logits.clone().requires_grad_()
        if name == "lws":
            ((kept * torch.where(noisy.allowed_NC, torch.sigmoid(-inputs), torch.sigmoid(inputs))).sum() / 90).backward()
        else:
            soft_cross_entropy(inputs, kept).mean().backward()
        torch.testing.assert_close(gradient, inputs.grad)


@pytest.mark.parametrize("name", ["rc", "cc", "proden"])
def test_singletons_are_ordinary_labels(name: str, toy: Dataset) -> None:
    sets = CandidateSets.from_truth(toy.truth)
    method = method_on(name, sets)
    logits = 5 * torch.randn(90, 3, generator=torch.Generator().manual_seed(6))
    for _ in range(2):
        torch.testing.assert_close(method.loss(batch_of(logits)), F.cross_entropy(logits, toy.truth.label_N))
        step(method, batch_of(logits), lr=0.0)
        assert torch.equal(method.posterior(), sets.allowed_NC.float())


@each
def test_full_sets_believe_the_softmax(name: str) -> None:
    """Nothing is cut off then. CC learns nothing from such a set, and the second sum of LWS is empty."""
    method = method_on(name, sets_of([1, 1, 1], [1, 1, 1]))
    logits = torch.randn(2, 3, generator=torch.Generator().manual_seed(7))
    step(method, batch_of(logits), lr=0.0)
    torch.testing.assert_close(method.posterior(), logits.softmax(dim=1))
    loss, gradient = loss_and_gradient(method, logits)
    if name == "cc":
        assert loss == 0 and gradient.abs().max() < 1e-6
    if name == "lws":
        assert loss == pytest.approx(float((logits.softmax(dim=1) * torch.sigmoid(-logits)).sum()) / 2)


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in NAMES), ("lws", {"loss": "cross-entropy"})], ids=str)
def test_huge_scores_are_finite(name: str, options: Mapping[str, Any]) -> None:
    sets = sets_of([1, 0, 1], [0, 1, 1], [0, 0, 1], [1, 1, 1])
    logits = 1e4 * torch.tensor([[-1.0, 1.0, -1.0], [1.0, -1.0, 0.0], [1.0, 1.0, -1.0], [1.0, -1.0, 1.0]])
    method = method_on(name, sets, **options)
    for _ in range(2):
        loss, gradient = loss_and_gradient(method, logits)
        assert torch.isfinite(gradient).all() and math.isfinite(loss)
        step(method, batch_of(logits), lr=0.0)
        close(method.posterior().sum(dim=1), [1.0] * 4)


ROWS = st.lists(st.tuples(st.floats(-20, 20, width=32), st.booleans()), min_size=3, max_size=5)


@given(ROWS)
def test_cc_is_the_logarithm_of_the_candidates_share(row: list[tuple[float, bool]]) -> None:
    """A constant added to all logits changes nothing."""
    logits, allowed = torch.tensor([[pair[0] for pair in row]]), [pair[1] for pair in row[:-1]] + [True]
    method = method_on("cc", sets_of(list(map(int, allowed))))
    expected = -float(logits.double().log_softmax(dim=1)[0, torch.tensor(allowed)].logsumexp(dim=0))
    for shift in (0.0, 7.0):
        assert method.loss(batch_of(logits + shift)).item() == pytest.approx(expected, abs=1e-4)


def standardized(data: Dataset) -> torch.Tensor:
    inputs_ND = data.train.inputs
    return (inputs_ND - inputs_ND.mean(dim=0)) / inputs_ND.std(dim=0)


def test_sets_are_pruned_once_and_trained_on(toy: Dataset, noisy: CandidateSets) -> None:
    trainer = toy_trainer("clsp", toy, noisy, options={"tau": 0.6})
    method: Any = trainer.method
    expected_NC = prune(noisy.allowed_NC, standardized(toy), tau=0.6, neighbors=5)
    assert not torch.equal(expected_NC, noisy.allowed_NC)
    for record in trainer.epochs():
        assert torch.equal(method.allowed_NC, expected_NC)
        assert record["pruned"] == int((noisy.allowed_NC & ~expected_NC).sum())
        assert not method.posterior()[~expected_NC].any()
    assert noisy.allowed_NC.sum() > expected_NC.sum()


def test_the_first_target_is_uniform_on_what_is_left(toy: Dataset, noisy: CandidateSets) -> None:
    trainer = toy_trainer("clsp", toy, noisy, options={"tau": 0.6, "update": "naive"})
    run_all(trainer)
    left_NC = trainer.method.allowed_NC.float()
    torch.testing.assert_close(trainer.method.posterior(), left_NC / left_NC.sum(dim=1, keepdim=True))


@pytest.mark.parametrize(
    "options", [{"neighbors": 1}, {"tau": 0.0}, {"spare": False}, {"class_share": 0.9}, {"features": "network"}], ids=str
)
def test_every_option_changes_the_sets(options: dict[str, Any]) -> None:
    data = toy_data(items=120, classes=5, apart=2.0)
    noisy = toy_candidates(data, eta=0.4)
    common = {"tau": 0.6, "neighbors": 20}
    plain, changed = (toy_trainer("clsp", data, noisy, train={"epochs": 1}, options=o) for o in (common, common | options))
    run_all(plain)
    run_all(changed)
    assert not torch.equal(plain.method.allowed_NC, changed.method.allowed_NC)


def test_without_pruning_it_is_proden(toy: Dataset, noisy: CandidateSets) -> None:
    pruned, plain = toy_trainer("clsp", toy, noisy, options={"tau": 0.0}), toy_trainer("proden", toy, noisy)
    losses = [[record["loss"] for record in run_all(trainer)] for trainer in (pruned, plain)]
    assert losses[0] == losses[1]


def test_features_of_the_network_are_those_before_training(toy: Dataset, noisy: CandidateSets) -> None:
    trainer = toy_trainer("clsp", toy, noisy, options={"features": "network", "tau": 0.6})
    before_ND = trainer.infer(trainer.method.predictor, toy.train.inputs).features
    run_all(trainer)
    assert torch.equal(trainer.method.allowed_NC, prune(noisy.allowed_NC, before_ND, tau=0.6, neighbors=5))


def test_pruning_helps_where_sets_hold_the_label() -> None:
    """On clouds that lie apart nearly every wrong candidate goes, and nearly no right one."""
    data = toy_data(items=180)
    sets = toy_candidates(data, q=0.5, eta=0.0)
    trainer = toy_trainer("clsp", data, sets, train={"epochs": 1}, options={"tau": 1.0, "neighbors": 15})
    run_all(trainer)
    left_NC = trainer.method.allowed_NC
    assert float(left_NC.gather(1, data.truth.label_N[:, None]).float().mean()) > 0.95
    assert int(left_NC.sum()) < 1.3 * 180 < int(sets.allowed_NC.sum())
