from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from test_inference import Doubling
from torch import Tensor, nn

from _toy import (
    Answer,
    assert_same,
    logged_epochs,
    recorded,
    run_all,
    small_network,
    toy_candidates,
    toy_data,
    toy_method,
    toy_trainer,
    without_seconds,
)
from pals.data.dataset import Dataset, Items
from pals.labels.candidates import CandidateSets
from pals.methods import Batch, Context, EpochPlan, Group, Phase
from pals.methods.average import Average
from pals.methods.pals import PALS
from pals.training import trainer as trainer_module
from pals.training.batches import BatchMaker
from pals.training.checkpoint import load_checkpoint, save_checkpoint
from pals.training.engine import Engine, EngineConfig, start_momentum
from pals.training.optim import TrainConfig, learning_rate, make_optimizer
from pals.training.trainer import Trainer
from pals.util.config import build
from pals.util.errors import InputError
from pals.util.files import read_json_lines
from pals.vision.networks import Output

CPU = Engine(EngineConfig(device="cpu"))


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ({"epochs": 4, "lr": 0.1, "floor": 1e-4}, [1e-4 + 0.0999 * (1 + math.cos(math.pi * s / 12)) / 2 for s in range(12)]),
        ({"epochs": 4, "schedule": "step", "milestones": [1, 3], "factor": 0.2}, [0.1] * 3 + [0.02] * 6 + [0.004] * 3),
        ({"epochs": 2, "schedule": "constant", "lr": 0.3}, [0.3] * 6),
    ],
    ids=["cosine", "step", "constant"],
)
def test_rates_of_a_run(train: dict[str, Any], expected: list[float]) -> None:
    """The cosine per iteration: lr = floor + (lr - floor)(1 + cos(pi s / S)) / 2 at step s of S."""
    trainer = toy_trainer("average", train=train)  # 90 items in batches of 32, three steps per epoch
    rates = recorded(trainer.method, "loss", lambda *_: float(trainer.optimizer.param_groups[0]["lr"]))
    run_all(trainer)
    assert rates == pytest.approx(expected, rel=1e-6)


WEIGHTS = {"layers.0.weight", "layers.3.weight"}
NORMS = {"layers.1.weight", "layers.1.bias", "layers.4.weight", "layers.4.bias"}


def test_a_parameter_whose_first_gradient_comes_later() -> None:
    """The fused kernel of SGD, which every GPU run takes, starts all momenta at once or none."""
    early, late = (nn.Parameter(torch.ones(3)) for _ in range(2))
    plain_early, plain_late = (nn.Parameter(torch.ones(3)) for _ in range(2))
    fused = torch.optim.SGD([early, late], lr=0.1, momentum=0.9, fused=True)
    plain = torch.optim.SGD([plain_early, plain_late], lr=0.1, momentum=0.9, foreach=False)
    for joined in (False, True, True):
        for optimizer, first, second in ((fused, early, late), (plain, plain_early, plain_late)):
            optimizer.zero_grad(set_to_none=True)
            (first.square().sum() + (second.square().sum() if joined else 0.0)).backward()
            start_momentum(optimizer)
            optimizer.step()
    assert torch.allclose(early, plain_early) and torch.allclose(late, plain_late)


HEAD = {"classifier.weight", "classifier.bias"}


@pytest.mark.parametrize(
    ("train", "groups"),
    [
        ({}, {(1.0, 0.01): WEIGHTS | NORMS | HEAD}),
        ({"decay": "weights"}, {(1.0, 0.01): WEIGHTS | {"classifier.weight"}, (1.0, 0.0): NORMS | {"classifier.bias"}}),
        (
            {"encoder_lr_scale": 0.01, "decay": "weights"},
            {(0.01, 0.01): WEIGHTS, (0.01, 0.0): NORMS, (1.0, 0.01): {"classifier.weight"}, (1.0, 0.0): {"classifier.bias"}},
        ),
    ],
    ids=["alike", "decay on weights", "slower encoder"],
)
def test_groups_of_parameters(train: dict[str, Any], groups: Any) -> None:
    """Names of the parameters by (scale of the rate, weight decay)."""
    method = toy_method("average", toy_candidates(toy_data()))
    optimizer = make_optimizer(CPU, method, Phase("main"), build(TrainConfig, {"weight_decay": 0.01, **train}))
    names = {parameter: name.removeprefix("network.") for name, parameter in method.named_parameters()}
    assert {(g["scale"], g["weight_decay"]): {names[p] for p in g["params"]} for g in optimizer.param_groups} == groups


def test_which_parameters_are_trained() -> None:
    """A phase of the classifier alone is not slowed; what takes no gradient is left out, what is reached twice trained once."""
    method = toy_method("average", toy_candidates(toy_data()))
    phase = Phase("head", modules=[method.network.classifier])
    (group,) = make_optimizer(CPU, method, phase, TrainConfig(encoder_lr_scale=0.01)).param_groups
    assert group["scale"] == 1.0 and set(group["params"]) == set(method.network.classifier.parameters())
    method = toy_method("average", toy_candidates(toy_data()))
    method.network.layers[0].requires_grad_(False)
    phase = Phase("all", modules=[method.network, method.network.classifier, method])
    trained = [p for g in make_optimizer(CPU, method, phase, TrainConfig()).param_groups for p in g["params"]]
    assert len(trained) == len(set(trained)) == len(list(method.parameters())) - 1
    assert method.network.layers[0].weight not in set(trained)


@pytest.mark.parametrize("view", ["eval", "weak"])
def test_a_pass_that_does_not_fit_is_made_in_smaller_batches(view: str, tmp_path: Path) -> None:
    plain, trainer = (toy_trainer("average", train={"feature_batch": size}, folder=tmp_path) for size in (20, 80))
    greedy = Doubling(limit=30)
    output = trainer.infer(greedy, trainer.inputs, view)
    assert greedy.batches == [20, 20, 20, 20, 10]
    assert_same(list(output), list(plain.infer(Doubling(90), plain.inputs, view)))  # the same draws, too
    events = list(read_json_lines(tmp_path / "log.jsonl"))
    assert events == [{"event": "memory", "feature_batch": 40}, {"event": "memory", "feature_batch": 20}]


def test_what_never_fits_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an epoch or at its very start a sentence, which says what to change."""

    def too_much(*args: Any) -> Any:
        raise torch.OutOfMemoryError("too much")

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**30, 8 * 2**30))
    trainer = toy_trainer("average")
    with pytest.raises(torch.OutOfMemoryError):
        trainer.infer(Doubling(limit=0), trainer.inputs)
    with monkeypatch.context() as patch:
        patch.setattr(BatchMaker, "_make", too_much)
        with pytest.raises(InputError, match=r"memory \(8 GiB, 1.0 free\) is full. Lower train.batch_size \(now 32\) or"):
            next(trainer.epochs())
    monkeypatch.setattr(Engine, "place_inputs", too_much)
    with pytest.raises(InputError, match=r"is full. Use a smaller network or --device cpu,"):
        toy_trainer("average")


@pytest.mark.gpu
def test_a_slower_encoder_on_a_gpu_too() -> None:
    """There the rates live in device memory, one for each group."""
    engine = Engine(EngineConfig(device="cuda", precision="fp32", compile=False))
    method = toy_method("average", toy_candidates(toy_data()))
    engine.place(method)
    optimizer = make_optimizer(engine, method, Phase("main"), TrainConfig(encoder_lr_scale=0.01))
    engine.set_learning_rate(optimizer, 0.1)
    assert sorted(float(group["lr"]) for group in optimizer.param_groups) == pytest.approx([0.001, 0.1])


def test_the_whole_run_against_a_plain_loop(toy: Dataset, noisy: CandidateSets) -> None:
    """The trainer adds nothing and leaves nothing out: the same numbers as torch's own optimiser in a loop by hand."""
    settings = {"epochs": 3, "lr": 0.2, "momentum": 0.8, "weight_decay": 0.02, "nesterov": True, "encoder_lr_scale": 0.5}
    trainer = toy_trainer("average", toy, noisy, train=settings)
    records = run_all(trainer)

    network = small_network(3, seed=1)().train()
    encoder = [p for name, p in network.named_parameters() if "classifier" not in name]
    optimizer = torch.optim.SGD(
        [{"params": encoder}, {"params": network.classifier.parameters()}],
        lr=0.2, momentum=0.8, weight_decay=0.02, nesterov=True,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(1)
    for epoch in range(3):
        order = torch.randperm(90, generator=generator)
        weak = toy.views.make("weak", toy.train.inputs[order], generator)
        losses = []
        for step in range(3):
            rate = 1e-4 + (0.2 - 1e-4) * (1 + math.cos(math.pi * (epoch + step / 3) / 3)) / 2
            for group, scale in zip(optimizer.param_groups, (0.5, 1.0), strict=True):
                group["lr"] = rate * scale
            index = order[32 * step : 32 * step + 32]
            logits = network(weak[32 * step : 32 * step + 32]).logits
            loss = -(logits.log_softmax(dim=1) * noisy.allowed_NC[index] / noisy.size_N[index, None]).sum(dim=1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        assert records[epoch]["loss"] == pytest.approx(sum(losses) / 3, rel=1e-5)
    for name, value in network.state_dict().items():
        torch.testing.assert_close(trainer.method.network.state_dict()[name], value, rtol=1e-4, atol=1e-6)


def plan(items: int, *, drop_last: bool = False, batch_size: int | None = None) -> EpochPlan:
    return EpochPlan({"main": Group(torch.arange(items), batch_size=batch_size)}, drop_last=drop_last)


@pytest.mark.parametrize(
    ("items", "drop", "steps"),
    [(0, False, 0), (1, False, 1), (8, False, 1), (9, False, 2), (16, False, 2), (0, True, 0), (5, True, 1), (8, True, 1),
     (15, True, 1), (16, True, 2)],
)  # fmt: skip
def test_steps_of_an_epoch(items: int, drop: bool, steps: int) -> None:
    """Dropping the last batch never drops the only one."""
    assert plan(items, drop_last=drop).steps(8) == steps
    assert plan(items, drop_last=drop, batch_size=8).steps(1000) == steps


class Recorder(Average):
    """Follows the plan it is given."""

    made: EpochPlan | None = None

    def plan_epoch(self, ctx: Context) -> EpochPlan | None:
        return self.made


def batches_of(toy: Dataset, made: EpochPlan | None, **train: Any) -> tuple[list[Batch], list[dict[str, Any]]]:
    trainer = toy_trainer(Recorder, toy, train={"epochs": 1, **train})
    trainer.method.made = made
    seen = recorded(trainer.method, "loss", lambda _, batch: batch)
    return seen, run_all(trainer)


FORWARD = torch.arange(90)


@pytest.mark.parametrize(
    ("made", "tail", "sizes", "order"),
    [
        (None, "keep", [32, 32, 26], None),
        (EpochPlan.of(FORWARD, drop_last=True), "keep", [32, 32], FORWARD[:64]),
        (EpochPlan.of(FORWARD.flip(0)), "fill", [32, 32, 32], torch.cat([FORWARD.flip(0), FORWARD.flip(0)[:6]])),
    ],
    ids=["kept", "dropped", "filled"],
)
def test_the_short_last_batch(made: EpochPlan | None, tail: str, sizes: list[int], order: Any, toy: Dataset) -> None:
    seen, records = batches_of(toy, made, tail=tail)
    found = torch.cat([batch.index_B for batch in seen])
    assert [len(batch.index_B) for batch in seen] == sizes
    assert found.tolist() == order.tolist() if order is not None else found.sort().values.tolist() == list(range(90))
    assert records[0]["steps"] == len(sizes)
    for items, filled in ((16, list(range(16))), (3, [0, 1, 2, 0, 1, 2, 0, 1]), (0, [])):
        assert plan(items).filled(8).groups["main"].order_M.tolist() == filled


def test_an_epoch_with_nothing_to_train_on(toy: Dataset) -> None:
    trainer = toy_trainer(Recorder, toy, train={"epochs": 2})
    trainer.method.made = EpochPlan.of(torch.zeros(0, dtype=torch.int64))
    before = {key: value.clone() for key, value in trainer.method.state_dict().items()}
    records = run_all(trainer)
    assert [(r["steps"], r["loss"]) for r in records] == [(0, None), (0, None)]
    assert_same(dict(trainer.method.state_dict()), before)


@pytest.mark.parametrize("chunk", [1, 64, 8192])
def test_the_size_of_the_chunks_changes_no_batch(chunk: int, toy: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views are made for many steps at once; which items meet in which step does not depend on how many."""
    monkeypatch.setattr(Engine, "chunk", chunk)
    target_N = torch.arange(90) * 10
    made = EpochPlan({"main": Group(torch.arange(90).flip(0), target_N), "side": Group(torch.arange(7), batch_size=4)})
    seen, _ = batches_of(toy, made, batch_size=16)
    assert [len(batch.index_B) for batch in seen] == [16] * 5 + [10]
    assert torch.cat([batch.index_B for batch in seen]).tolist() == list(range(89, -1, -1))
    side = torch.cat([batch.groups["side"].index_B for batch in seen])
    assert side.tolist() == [i % 7 for i in range(24)]
    for batch in seen:
        assert torch.equal(batch.target, batch.index_B * 10)
        clean = toy.views.make("eval", toy.train.inputs[batch.index_B], torch.Generator())
        assert (batch.views[0] - clean).abs().mean() < 0.15  # the view of these very items


def test_random_numbers_come_row_by_row(toy: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    class Drawn(Recorder):
        def random_inputs(self, ctx: Context, steps: int) -> Mapping[str, Tensor]:
            assert (ctx.batch_size, ctx.epoch, ctx.epochs, ctx.phase) == (32, 1, 1, "main")
            return {"number": torch.arange(steps * 2).view(steps, 2)}

    monkeypatch.setattr(Engine, "chunk", 1)
    trainer = toy_trainer(Drawn, toy, train={"epochs": 1})
    seen = recorded(trainer.method, "loss", lambda _, batch: batch.random["number"].tolist())
    run_all(trainer)
    assert seen == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("feature_batch", [1, 7, 60, 1000])
def test_inference_in_pieces(feature_batch: int, toy: Dataset) -> None:
    trainer = toy_trainer("average", toy, train={"feature_batch": feature_batch})
    network = trainer.method.network.train()
    found = trainer.infer(network, toy.test.inputs)
    assert network.training
    network.eval()
    expected = network(toy.views.make("eval", toy.test.inputs, torch.Generator()))
    torch.testing.assert_close(found.logits, expected.logits.detach())
    torch.testing.assert_close(found.features, expected.features.detach())
    assert not found.logits.requires_grad and not found.logits.is_inference()


def test_what_is_graded(toy: Dataset, noisy: CandidateSets) -> None:
    trainer = toy_trainer("average", toy)
    record = run_all(trainer)[-1]
    logits = trainer.infer(trainer.method.predictor, toy.test.inputs).logits
    label_N = toy.test_truth.label_N
    assert record["test_accuracy"] == pytest.approx(float((logits.argmax(dim=1) == label_N).float().mean()))
    assert record["test_loss"] == pytest.approx(float(nn.functional.cross_entropy(logits, label_N)), rel=1e-6)
    method = toy_method("pals", noisy)
    trainer = Trainer(method, toy.train, toy.views, TrainConfig(epochs=1, batch_size=32), CPU, seed=1)
    (record,) = run_all(trainer)
    assert trainer.evaluate() == {} and not any(key.startswith("test_") or key == "correct" for key in record)
    assert record["selected"] > 0 and sum(record["posterior"]["all"]) == 90 and not trainer.resume()


@pytest.mark.parametrize(
    ("name", "options"),
    [("pals", {}), ("average", {}), ("proden", {"update": "iterative", "update_every": 1})],
    ids=["looks before", "never looks", "looks after"],
)
def test_agreement_with_the_candidates_costs_no_pass(name: str, options: dict[str, Any], toy: Dataset) -> None:
    """It is computed by hand here from the very logits that the method saw; without such logits it is not logged."""
    sets = toy_candidates(toy)
    trainer = toy_trainer(name, toy, sets, options=options)

    def note(output: Output, network: nn.Module, inputs: Tensor, view: str = "eval") -> Tensor | None:
        own = inputs is trainer.inputs and network is trainer.method.predictor and view == "eval"
        return output.logits.double() if own else None

    passes = recorded(trainer, "infer", note)
    for record in trainer.epochs():
        seen = [logits_NC for logits_NC in passes if logits_NC is not None]
        assert len(seen) == (name != "average") and ("covering" in record) == ("approximate" in record) == bool(seen)
        for logits_NC in seen:
            pairs = [(z, z.softmax(dim=0), allowed) for z, allowed in zip(logits_NC, sets.allowed_NC, strict=True)]
            covered = [bool(allowed[z.argmax()]) for z, _, allowed in pairs]
            probable = [float(p[z.argmax()] / p[allowed].sum()) * bool(allowed[z.argmax()]) for z, p, allowed in pairs]
            assert record["covering"] == pytest.approx(sum(covered) / len(covered))
            assert record["approximate"] == pytest.approx(sum(probable) / len(probable), abs=1e-5)
        passes.clear()


@pytest.mark.parametrize(("stop_after", "epochs"), [(None, [3, 6, 7]), (4, [3, 4])], ids=["to the end", "stopped"])
def test_checkpoints_are_written_as_often_as_set(
    stop_after: int | None, epochs: list[int], toy: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []
    monkeypatch.setattr(trainer_module, "save_checkpoint", lambda *args: saved.append(args[2]["progress"]["total"]))
    run_all(toy_trainer("average", toy, train={"epochs": 7, "checkpoint_every": 3}, folder=tmp_path), stop_after=stop_after)
    assert saved == epochs


def test_epochs_after_the_last_checkpoint_are_done_again(toy: Dataset, tmp_path: Path) -> None:
    """Left in the middle, as by a crash: the log forgets what the checkpoint does not know."""
    train = {"epochs": 7, "checkpoint_every": 3}
    straight = toy_trainer("average", toy, train=train, folder=tmp_path / "straight")
    records = run_all(straight)
    state = straight.state()
    crashed = toy_trainer("average", toy, train=train, folder=tmp_path / "crashed")
    for record in crashed.epochs():
        if record["total_epoch"] == 5:
            break
    assert len(logged_epochs(tmp_path / "crashed")) == 5
    second = toy_trainer("average", toy, train=train, folder=tmp_path / "crashed")
    assert second.resume() and second.progress.total == 3 and len(logged_epochs(tmp_path / "crashed")) == 3
    run_all(second)
    assert_same(second.state(), state)
    assert logged_epochs(tmp_path / "crashed") == without_seconds(records)
    # a finished run does nothing more
    run_all(toy_trainer("average", toy, folder=tmp_path))
    log = (tmp_path / "log.jsonl").read_bytes()
    again = toy_trainer("average", toy, folder=tmp_path)
    assert again.resume() and run_all(again) == [] and (tmp_path / "log.jsonl").read_bytes() == log


def test_the_scale_of_half_precision_is_part_of_a_checkpoint(toy: Dataset, tmp_path: Path) -> None:
    first, second = (toy_trainer("average", toy, folder=tmp_path) for _ in range(2))
    for trainer in (first, second):
        trainer.engine.scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3)  # as on a GPU with fp16
    run_all(first, stop_after=2)
    assert second.resume() and second.engine.scaler.get_scale() == first.engine.scaler.get_scale() > 4.0


def test_a_checkpoint_that_does_not_fit_is_refused(toy: Dataset, tmp_path: Path) -> None:
    run_all(toy_trainer("average", toy, folder=tmp_path), stop_after=1)
    before = (tmp_path / "checkpoint.pt").read_bytes()
    larger = toy_trainer("average", toy_data(items=120), folder=tmp_path)
    with pytest.raises(InputError, match=r"checkpoint\.pt does not fit this data, device or version \(.*\)\. Go back"):
        larger.resume()
    other = toy_trainer("average", toy, seed=5, folder=tmp_path)
    with pytest.raises(InputError, match=r"other settings: seed is 1 there and 5 here"):
        other.resume()
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    # Generators of different devices do not understand each other's state.
    trained = toy_trainer("average", toy, folder=tmp_path)
    run_all(trained)
    foreign = {**trained.state(), "generator": torch.zeros(16, dtype=torch.uint8)}
    save_checkpoint(tmp_path / "checkpoint.pt", {"seed": 1}, foreign)
    fresh = toy_trainer("average", toy, folder=tmp_path)
    fresh.load(tmp_path / "checkpoint.pt", {"seed": 1}, weights_only=True)
    assert fresh.evaluate() == trained.evaluate()
    with pytest.raises(InputError, match=r"does not fit this data, device or version"):
        fresh.resume()


def test_what_the_trainer_refuses(toy: Dataset) -> None:
    inputs = toy.train.inputs.clone()
    inputs[7, 2] = math.nan
    inputs[9, 0] = math.inf
    broken = replace(toy, train=replace(toy.train, inputs=inputs))
    with pytest.raises(InputError, match=r"2 of 90 items hold NaN or infinity, first 'train-7'"):
        toy_trainer("average", broken, toy_candidates(toy))
    fewer = replace(toy, train=Items(toy.train.inputs[:80], toy.train.ids[:80]))
    with pytest.raises(InputError, match=r"80 inputs but candidate sets for 90 items"):
        toy_trainer("average", fewer, toy_candidates(toy))

    class Misspelt(Average):
        views = ("stong",)

    with pytest.raises(InputError, match=r"Unknown view 'stong': did you mean 'strong'\?"):
        run_all(toy_trainer(Misspelt, toy))


def test_a_diverging_run_says_so_and_keeps_its_last_checkpoint(toy: Dataset, tmp_path: Path) -> None:
    class Diverging(Average):
        def loss(self, batch: Batch) -> Tensor:
            return super().loss(batch) * self.blow_up

        def plan_epoch(self, ctx: Context) -> None:
            self.blow_up = float("inf") if ctx.epoch == 3 else 1.0

    trainer = toy_trainer(Diverging, toy, folder=tmp_path, train={"epochs": 5})
    with pytest.raises(InputError, match=r"The loss is (inf|nan) in epoch 3: training has diverged\. Lower train\.lr"):
        list(trainer.epochs())
    assert load_checkpoint(tmp_path / "checkpoint.pt")["progress"]["total"] == 2


def test_from_the_command_to_the_loss_in_eight_frames(pals: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens in a step can be read: main, its command, the run, the trainer, an epoch, a step, the loss."""
    frames: list[list[str]] = []
    loss = PALS.loss

    def spy(self: PALS, batch: Batch) -> Tensor:
        files = [frame.filename for frame in ([] if frames else inspect.stack())]
        frames.append([file for file in files if "/src/pals/" in file])
        return loss(self, batch)

    monkeypatch.setattr(PALS, "loss", spy)
    assert pals("train", "digits", "--method", "pals", "--epochs", "1", "--device", "cpu").code == 0
    assert 1 <= len(frames[0]) <= 7, frames[0]  # and the loss itself


def test_a_warm_up_begins_with_one_step() -> None:
    """Its first step had the rate 0."""
    config = TrainConfig(lr=0.8, schedule="constant", warmup=2.0)
    assert [learning_rate(config, done / 4, 3, 1 / 4) for done in (0, 1, 7, 8)] == [0.1, 0.2, 0.8, 0.8]
