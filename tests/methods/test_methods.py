"""One suite over every method in the table; a new method is covered by being in it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from _ranks import EPOCHS, by_several, first_losses
from _slow import rest_slow
from _toy import (
    assert_same,
    assert_same_state,
    logged_epochs,
    run_all,
    small_network,
    toy_candidates,
    toy_data,
    toy_method,
    toy_options,
    toy_trainer,
    without_seconds,
)
from pals.data.dataset import Dataset
from pals.labels.candidates import CandidateSets, Truth
from pals.methods import METHODS, Batch, Method, Problem, describe_options, find_method, method_options
from pals.util.errors import InputError
from pals.vision.networks import Network

pytestmark = pytest.mark.filterwarnings("error")
each_method = pytest.mark.parametrize("name", METHODS)


CONFIDENCES = ("rc", "proden", "crdpll", "papi", "pico", "pico+")
"""Methods with a table of confidences that never leaves the candidates."""
VIEWS: dict[str, list[tuple[dict[str, Any], tuple[str, ...]]]] = {
    "crdpll": [({}, ("weak", *2 * ("crdpll_strong",))), ({"view": "eval", "strong_views": 1}, ("eval", "crdpll_strong"))],
    "fredis": [({}, ("eval", *2 * ("crdpll_strong",))), ({"view": "weak"}, ("weak", *2 * ("crdpll_strong",)))],
    "pals": [({}, ("weak", "strong")), ({"consistency": False}, ("strong",)),
             *((options | {"consistency": False}, ("weak",)) for options in ({"single_view": "weak"}, {"preset": "paper"}))],
    "irnet": [
        ({"correct_from": 2, "tau": 0.0, "extra_weak": w, "extra_strong": s},
         ("pico_weak", "pico_strong", *["pico_weak"] * w, *["pico_strong"] * s))  # the key's is the second
        for w, s in ((0, 0), (1, 0), (0, 1), (0, 2), (1, 1), (2, 0))
    ],
    **{name: [({}, ("weak",)), ({"view": "eval"}, ("eval",))] for name in ("rc", "cc", "proden", "lws")},
}  # fmt: skip
BELIEVING = [("pico+", {"neighbors_from": 4, "neighbors": 5, "queue": 40, "delta": delta}) for delta in (0.0, 0.3, 1.0)]
BELIEVING += [("pico", {"prototypes_from": 1})]
BELIEVING += [(name, {"noise_rate": 0.0, "adjust_from": 1}) for name in ("alim-scale", "alim-onehot")]


def is_trained(method: Method) -> bool:
    """Whether it has anything that an optimiser could change; if not, it makes no steps."""
    return any(parameter.requires_grad for parameter in method.parameters())


@each_method
def test_learns_from_noisy_candidates(name: str) -> None:
    """A random candidate is right for 58% of the items, and 12% of the sets lack the true label. The bar: 85% on new items."""
    data = toy_data(items=180)
    candidates = toy_candidates(data)
    right_N = candidates.allowed_NC.gather(1, data.truth.label_N[:, None]).squeeze(1)
    assert float((right_N / candidates.size_N).mean()) < 0.6 and float(right_N.float().mean()) < 0.9
    records = run_all(toy_trainer(name, data, candidates, train={"epochs": 12}))
    assert records[-1]["test_accuracy"] >= 0.85


@each_method
@pytest.mark.parametrize("stop", rest_slow(1, [2, 1, 3]))
def test_resuming_changes_nothing(name: str, stop: int, toy: Dataset, tmp_path: Path) -> None:
    straight = toy_trainer(name, toy, folder=tmp_path / "straight")
    records = run_all(straight)

    first = toy_trainer(name, toy, folder=tmp_path / "stopped")
    assert not first.resume()
    early = run_all(first, stop_after=stop)
    torch.manual_seed(12345)  # another process has another past
    second = toy_trainer(name, toy, folder=tmp_path / "stopped")
    torch.rand(7)
    assert second.resume()
    late = run_all(second)

    assert_same_state(straight, second)
    assert straight.progress.done and without_seconds(early + late) == without_seconds(records)
    assert logged_epochs(tmp_path / "stopped") == logged_epochs(tmp_path / "straight") == without_seconds(records)


@each_method
def test_training_is_the_same_each_time_and_differs_between_seeds(name: str, toy: Dataset) -> None:
    first, again, other = (toy_trainer(name, toy, seed=seed) for seed in (1, 1, 2))
    for trainer in (first, other, again):
        run_all(trainer)
    assert_same_state(first, again)
    if is_trained(first.method):
        assert not torch.equal(*(torch.cat([p.flatten() for p in t.method.parameters()]) for t in (first, other)))


@pytest.mark.slow
def test_two_processes_learn_what_one_does() -> None:
    """The losses of the first epochs, and what is remembered at their end. One test for all methods: processes start slowly."""
    alone, (first, second) = first_losses(), by_several(2, first_losses)
    own = first.pop("average, own norms")
    assert own[EPOCHS:] == second.pop("average, own norms")[EPOCHS:]
    assert first == second  # bit for bit
    assert own != pytest.approx(alone.pop("average, own norms"), rel=1e-4)  # it can fail: statistics of half a batch are others
    assert first == {title: pytest.approx(found, abs=1e-5, rel=1e-5) for title, found in alone.items()}


@each_method
def test_never_sees_the_truth(name: str, toy: Dataset, noisy: CandidateSets) -> None:
    """With the true labels of training and test items shuffled, training is the same bit for bit."""
    honest = toy_trainer(name, toy, noisy)
    records = run_all(honest)

    def shuffled(truth: Truth) -> Truth:
        return replace(truth, label_N=truth.label_N.flip(0).roll(1))

    lied_to = replace(toy, truth=shuffled(toy.truth), test_truth=shuffled(toy.test_truth))
    assert not torch.equal(lied_to.truth.label_N, toy.truth.label_N)
    blind = toy_trainer(name, lied_to, noisy)
    graded = run_all(blind)
    assert_same_state(honest, blind)
    assert [r["loss"] for r in records] == [r["loss"] for r in graded]
    assert [r["test_accuracy"] for r in records] != [r["test_accuracy"] for r in graded]


def permuted_trainer(name: str, data: Dataset, order_C: Tensor, epochs: int) -> tuple[Any, Tensor]:
    """A trainer that calls class `order_C[c]` by the number c, in sets, truth and classifier, and its test logits."""
    number_C = order_C.argsort()
    names = tuple(data.class_names[c] for c in order_C.tolist())
    truth, test_truth = (Truth(number_C[t.label_N], names) for t in (data.truth, data.test_truth))
    noisy = toy_candidates(data)
    weight_NC = noisy.allowed_NC * torch.rand(noisy.allowed_NC.shape, generator=torch.Generator().manual_seed(3))
    share_NC = weight_NC / weight_NC.sum(dim=1, keepdim=True)  # with counted votes no two classes are level
    candidates = replace(noisy, allowed_NC=noisy.allowed_NC[:, order_C], frequency_NC=share_NC[:, order_C], class_names=names)
    make = small_network(len(names), seed=1)

    def network(kind: str | None = None) -> Network:
        made = make(kind)
        with torch.no_grad():
            made.classifier.weight.copy_(made.classifier.weight[order_C])
            made.classifier.bias.copy_(made.classifier.bias[order_C])
        return made

    options = method_options(name, toy_options(name))
    method = find_method(name)(options, Problem(candidates, network))
    renamed = replace(data, truth=truth, test_truth=test_truth)
    trainer = toy_trainer(method, renamed, candidates, train={"epochs": epochs, "lr": 0.05})
    run_all(trainer)
    return trainer, trainer.infer(method.predictor, data.test.inputs).logits[:, number_C]


@each_method
def test_the_numbers_of_the_classes_mean_nothing(name: str, toy: Dataset) -> None:
    """The same data with its classes numbered otherwise, from the same network, gives the same answers."""
    _, logits = permuted_trainer(name, toy, torch.tensor([0, 1, 2]), epochs=6)
    _, other = permuted_trainer(name, toy, torch.tensor([2, 0, 1]), epochs=6)
    same = float((logits.argmax(dim=1) == other.argmax(dim=1)).float().mean())
    assert same >= 0.9
    if name in ("average", "pals"):  # nothing but the order of sums differs
        torch.testing.assert_close(logits, other, atol=2e-3, rtol=1e-3)


def everything(data: Dataset) -> CandidateSets:
    return CandidateSets.from_matrix(torch.ones(len(data.train), 3, dtype=torch.bool), class_names=data.class_names)


def only_the_truth(data: Dataset) -> CandidateSets:
    return CandidateSets.from_truth(data.truth)


def one_class_never(data: Dataset) -> CandidateSets:
    """Nobody ever names the last class."""
    noisy = toy_candidates(data)
    allowed_NC = noisy.allowed_NC.clone()
    allowed_NC[:, 2] = False
    allowed_NC[~allowed_NC.any(dim=1), 0] = True
    return replace(noisy, allowed_NC=allowed_NC)


ODD: dict[str, tuple[int, int, Callable[[Dataset], CandidateSets]]] = {
    "last batch of one": (33, 32, toy_candidates),
    "classes missing from every batch": (34, 2, toy_candidates),
    "every set is full": (40, 32, everything),
    "every set is a singleton": (40, 32, only_the_truth),
    "a class that is no candidate": (40, 32, one_class_never),
    "one batch larger than the data": (20, 512, toy_candidates),
}


@each_method
@pytest.mark.parametrize("case", ODD)
def test_survives(name: str, case: str) -> None:
    items, batch_size, sets = ODD[case]
    data = toy_data(items=items)
    trainer = toy_trainer(name, data, sets(data), train={"epochs": 3, "batch_size": batch_size})
    records = run_all(trainer)
    for value in trainer.method.state_dict().values():
        assert torch.isfinite(value.float()).all()
    assert all(r["loss"] is None or np.isfinite(r["loss"]) for r in records)
    assert trainer.infer(trainer.method.predictor, data.test.inputs).logits.shape == (60, 3)


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in METHODS), *BELIEVING], ids=str)
def test_belief_is_a_distribution(name: str, options: Mapping[str, Any], toy: Dataset) -> None:
    """Confidences lie on the candidates, wholly where there is one alone, and move where there are several."""
    trainer = toy_trainer(name, toy, options=options)
    method: Any = trainer.method
    keeps = name in CONFIDENCES or options.get("noise_rate") == 0.0
    first_NC = getattr(method, "confidence_NC", torch.zeros(0)).clone()
    for record in trainer.epochs():
        posterior_NC = method.posterior()
        if posterior_NC is None:
            assert "posterior" not in record
            continue
        assert posterior_NC.shape == (90, 3) and (posterior_NC >= 0).all()
        torch.testing.assert_close(posterior_NC.sum(dim=1), torch.ones(90), atol=1e-5, rtol=0)
        assert sum(sum(counts) for counts in record["posterior"].values()) == 90
        assert options.get("noise_rate") != 0.0 or record["lambda"] == 0.0
        if name in ("cc", "lws", "pl-knn", "ipal"):
            assert (posterior_NC[~method.allowed_NC] == 0).all()
        if keeps:
            assert (method.confidence_NC[~method.allowed_NC] == 0).all()
            torch.testing.assert_close(method.confidence_NC.sum(dim=1), torch.ones(90))
    if keeps:
        one_N = method.allowed_NC.sum(dim=1) == 1
        assert one_N.any() and torch.equal(method.confidence_NC[one_N], first_NC[one_N])
        assert float((method.confidence_NC != first_NC)[~one_N].any(dim=1).float().mean()) > 0.8  # or in no full batch


def steps_of(name: str, data: Dataset, wanted: int = 2) -> list[tuple[Method, Batch]]:
    """Some steps of a real run, spread over its epochs: the method as it was before the step, and the batch."""
    trainer = toy_trainer(name, data)
    method, seen = trainer.method, []
    original = method.loss

    def spy(batch: Batch) -> Tensor:
        seen.append((copy.deepcopy({k: v for k, v in vars(method).items() if k != "loss"}), batch))
        return original(batch)

    method.loss = spy  # type: ignore[method-assign]
    run_all(trainer)
    assert bool(seen) == is_trained(method)
    if not seen:
        pytest.skip("nothing is trained")
    result = []
    for values, batch in seen[:: max(1, len(seen) // wanted)]:
        then = type(method).__new__(type(method))
        vars(then).update(values)
        result.append((then, batch))
    return result


@each_method
def test_loss_is_a_pure_function(name: str, toy: Dataset) -> None:
    """The same method and batch give the same loss whatever the global generators are at; batch and buffers stay as they are
    (but for the running statistics of the norms)."""
    for method, batch in steps_of(name, toy):
        before = [tensor.clone() for tensor in batch.tensors()]
        state = {key: value.clone() for key, value in method.state_dict().items()}
        twin = copy.deepcopy(method)
        torch.manual_seed(1)
        np.random.seed(1)
        loss = method.loss(batch)
        torch.manual_seed(2)
        np.random.seed(2)
        again = twin.loss(batch)
        assert loss.shape == () and loss.dtype == torch.float32 and torch.equal(loss, again)
        assert_same(batch.tensors(), before)
        after = method.state_dict()
        norms = ("running_mean", "running_var", "num_batches_tracked")
        assert_same(*({k: v for k, v in s.items() if not k.endswith(norms)} for s in (after, state)))


class NoHostReads(TorchDispatchMode):
    """Refuses what makes the host wait for the device, and shapes that depend on values."""

    FORBIDDEN = ("aten._local_scalar_dense", "aten.nonzero", "aten.masked_select", "aten.equal", "aten._unique2")

    def __torch_dispatch__(
        self, function: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = str(function)
        masks = [i for i in args[1] if isinstance(i, Tensor) and i.dtype == torch.bool] if "aten.index" in name else []
        assert not name.startswith(self.FORBIDDEN), name
        assert not masks, f"{name} with a mask"
        return function(*args, **(kwargs or {}))


@each_method
def test_a_step_reads_nothing_back(name: str, toy: Dataset) -> None:
    for method, batch in steps_of(name, toy):
        if method.capturable:
            with NoHostReads():
                method.loss(batch)
                with torch.no_grad():
                    method.after_step(batch)


def test_the_guard_against_host_reads_can_fail() -> None:
    x = torch.arange(3.0)
    for forbidden in (lambda: float(x.sum()), lambda: x[x > 1], lambda: x.nonzero(), lambda: x.masked_select(x > 1)):
        with pytest.raises(AssertionError), NoHostReads():
            forbidden()
    with NoHostReads():
        x[torch.tensor([0, 2])] + x.where(x > 1, 0.0)[:2]


@each_method
def test_state_is_complete(name: str, toy: Dataset) -> None:
    """A fresh object with the state of a trained one answers alike and says the same of itself."""
    trained = toy_trainer(name, toy)
    run_all(trained)
    fresh = toy_trainer(name, toy, seed=7)
    state = copy.deepcopy(trained.state())
    fresh._restore(state, None)
    assert_same_state(trained, fresh)
    assert_same(*(dict(t.infer(t.method.predictor, toy.test.inputs)._asdict()) for t in (trained, fresh)))


@each_method
def test_options_are_described_checked_and_frozen(name: str, noisy: CandidateSets) -> None:
    method = find_method(name)
    assert method.reference and method.__doc__
    assert (method.networks > 0) == (method.cost >= 1) == is_trained(toy_method(name, noisy))
    for option, _, meaning in describe_options(method):
        assert meaning and "\n" not in meaning, f"{name}.{option} has no description of one line"
    options = method_options(name, {})
    for preset in method.PRESETS:
        assert method_options(name, {"preset": preset}).preset == preset
    for field in fields(options)[:1]:
        with pytest.raises(AttributeError):
            setattr(options, field.name, None)
    with pytest.raises(InputError, match=r"Unknown setting 'method\.nonsense'"):
        method_options(name, {"nonsense": 1})


@each_method
def test_views_asked_for_exist(name: str, toy: Dataset, noisy: CandidateSets) -> None:
    method = toy_method(name, noisy)
    assert set(method.views) | set(find_method(name).views) <= set(toy.views.including(method.own_views).names)
    assert method.allowed_NC.dtype == torch.bool and method.allowed_NC.data_ptr() != noisy.allowed_NC.data_ptr()
    for options, views in VIEWS.get(name, ()):
        chosen = toy_method(name, noisy, options)
        assert chosen.views == views and (name != "irnet" or np.isfinite(run_all(toy_trainer(chosen, toy))[-1]["loss"]))
