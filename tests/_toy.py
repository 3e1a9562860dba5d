"""A toy problem that trains in a moment: clouds of points in a few dimensions, with noisy candidate sets."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pals.data.dataset import Dataset, Items
from pals.labels.candidates import CandidateSets, Truth
from pals.labels.noise import make_candidates
from pals.methods import Batch, Method, Problem, find_method, method_options
from pals.training.distributed import ALONE, Ranks
from pals.training.engine import Engine, EngineConfig
from pals.training.optim import TrainConfig
from pals.training.trainer import Trainer
from pals.util.config import build
from pals.util.files import read_json_lines
from pals.vision.augment import vector_views
from pals.vision.networks import MLP, Network

WIDTH = 6
TINY = ("--set", "network.name=mlp", "--set", "method.neighbors=5", "--set", "train.batch_size=32", "--device", "cpu")
"""Flags for the command line with which the toy data set takes a moment."""
SMALLER: Mapping[str, Any] = {
    "neighbors": 5,
    "prototypes_from": 2,
    "neighbors_from": 3,
    "adjust_from": 2,
    "window": 2,
    "warm_up": 2,
    "separation_epochs": 2,
    "max_steps": 1,
    "slow_momentum": 0.8,
}
"""Options, of whichever method has them, whose default is too large for a toy."""


class Answer(NamedTuple):
    """What a command gave back."""

    code: int
    out: str
    err: str

    def ok(self) -> Answer:
        assert self.code == 0, self.err
        return self


def toy_data(items: int = 90, classes: int = 3, seed: int = 0, apart: float = 6.0) -> Dataset:
    """`items` points to learn from and 60 to test on, `classes` clouds around the corners of a simplex."""
    generator = torch.Generator().manual_seed(seed)
    names = tuple(f"class-{c}" for c in range(classes))

    def cloud(count: int, prefix: str) -> tuple[Items, Truth]:
        label_N = (torch.arange(count) % classes)[torch.randperm(count, generator=generator)]
        inputs = torch.randn(count, WIDTH, generator=generator) + apart * torch.eye(WIDTH)[label_N]
        return Items(inputs, tuple(f"{prefix}-{i}" for i in range(count))), Truth(label_N, names)

    train, truth = cloud(items, "train")
    test, test_truth = cloud(60, "test")
    mean_D, std_D = train.inputs.mean(dim=0), train.inputs.std(dim=0)
    return Dataset("toy", names, train, truth, test, test_truth, vector_views(mean_D, std_D))


def toy_candidates(data: Dataset, q: float = 0.4, eta: float = 0.2, seed: int = 0) -> CandidateSets:
    generator = torch.Generator().manual_seed(seed)
    return make_candidates(data.truth, partial_rate=q, noise_rate=eta, generator=generator, ids=data.train.ids).candidates


def small_network(classes: int, seed: int | None = None) -> Callable[..., Network]:
    """A factory as `Problem` wants it; one network whatever the name asked for."""

    def network(name: str | None = None) -> Network:
        return MLP(WIDTH, classes, width=16)

    if seed is not None:
        torch.manual_seed(seed)
    return network


def toy_method(
    method: str | type[Method], candidates: CandidateSets, options: Mapping[str, Any] | None = None, seed: int = 1
) -> Method:
    problem = Problem(candidates, small_network(candidates.num_classes, seed))
    if isinstance(method, str):
        return find_method(method)(method_options(method, toy_options(method, options)), problem)
    return method(method.Config(**(options or {})), problem)


def toy_options(name: str, given: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """What was given, and for the rest values that fit a toy: methods are made for more items than it has."""
    has = getattr(find_method(name).Config, "__dataclass_fields__", {})
    smaller = {option: value for option, value in SMALLER.items() if option in has}
    return {**smaller, **(given or {})}


def toy_trainer(
    method: str | type[Method] | Method,
    data: Dataset | None = None,
    candidates: CandidateSets | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    train: Mapping[str, Any] | None = None,
    seed: int = 1,
    folder: Path | None = None,
    truth: Truth | None = None,
    engine: EngineConfig | None = None,
    ranks: Ranks = ALONE,
) -> Trainer:
    """Like a new process: same seeds, new objects."""
    data = data if data is not None else toy_data()
    candidates = candidates if candidates is not None else toy_candidates(data)
    config = build(TrainConfig, {"epochs": 4, "batch_size": 32, "lr": 0.1, **(train or {})})
    return Trainer(
        method if isinstance(method, Method) else toy_method(method, candidates, options, seed),
        data.train,
        data.views,
        config,
        Engine(engine or EngineConfig(device="cpu"), ranks),
        seed=seed,
        truth=truth if truth is not None else data.truth,
        test=(data.test, data.test_truth),
        folder=folder,
        settings={"seed": seed},
    )


def run_all(trainer: Trainer, stop_after: int | None = None) -> list[dict[str, Any]]:
    return list(trainer.epochs(stop_after))


def watched_steps(
    name: str, data: Dataset, look: Callable[[Any, Batch, Tensor], Callable[[], None]], **more: Any
) -> list[dict[str, Any]]:
    """Train; at each step `look(method, batch, loss)` before the optimiser and what it gives back after `after_step`."""
    trainer = toy_trainer(name, data, **more)
    method: Any = trainer.method
    loss, after_step, later = method.loss, method.after_step, []

    def spy_loss(batch: Batch) -> Tensor:
        value: Tensor = loss(batch)
        later.append(look(method, batch, value))
        return value

    def spy_after(batch: Batch) -> None:
        after_step(batch)
        later.pop()()

    method.loss, method.after_step = spy_loss, spy_after
    return run_all(trainer)


def recorded(owner: Any, name: str, note: Callable[..., Any] | None = None) -> list[Any]:
    """Of each call from now on `note(result, *arguments)`, or the result itself."""
    original, seen = getattr(owner, name), list[Any]()

    def spy(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        seen.append(note(result, *arguments, **named) if note else result)
        return result

    setattr(owner, name, spy)
    return seen


def steps_of(trainer: Trainer) -> list[tuple[Any, Batch]]:
    """Train; of each step the method as it was before it, and the batch."""
    method: Any = trainer.method
    original, seen = method.loss, list[tuple[Any, Batch]]()

    def spy(batch: Batch) -> Tensor:
        then = type(method).__new__(type(method))
        vars(then).update(copy.deepcopy({key: value for key, value in vars(method).items() if key != "loss"}))
        seen.append((then, batch))
        value: Tensor = original(batch)
        return value

    method.loss = spy
    run_all(trainer)
    return seen


def without_seconds(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def logged_epochs(folder: Path) -> list[dict[str, Any]]:
    """The records of a log, as the trainer gave them out."""
    records = [dict(event) for event in read_json_lines(folder / "log.jsonl")]
    return without_seconds([record for record in records if record.pop("event") == "epoch"])


def assert_same(a: Any, b: Any, where: str = "") -> None:
    """Bit for bit, through dicts and lists."""
    if isinstance(a, Tensor):
        assert a.dtype == b.dtype, where
        assert torch.equal(a, b), f"{where} differs"
    elif isinstance(a, Mapping):
        assert list(a) == list(b), where
        for key in a:
            assert_same(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for number, (left, right) in enumerate(zip(a, b, strict=True)):
            assert_same(left, right, f"{where}[{number}]")
    else:
        assert a == b, f"{where}: {a!r} and {b!r}"


def assert_same_state(a: Trainer, b: Trainer) -> None:
    """Weights, optimiser, own generators and progress, bit for bit. (torch's global generator is shared by both.)"""
    left, right = a.state(), b.state()
    assert set(left) == {"method", "optimizer", "generator", "rng", "torch", "scaler", "progress"}
    assert_same(left, right)
