"""Whether the interface keeps its promises: throw-away methods, each with one need, through the real trainer."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from _toy import WIDTH, assert_same, assert_same_state, logged_epochs, recorded, run_all, toy_trainer, without_seconds
from pals.data.dataset import Dataset
from pals.methods import Batch, Context, EpochPlan, Group, Method, Phase, Problem
from pals.methods.parts.losses import soft_cross_entropy
from pals.methods.parts.sampling import shuffled
from pals.pseudo_labels.simplex import uniform_on
from pals.vision.networks import MLP


class Plain(Method):
    """The least that a method can be."""

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__(config, problem)
        self.network = problem.network()

    @property
    def predictor(self) -> nn.Module:
        return self.network

    def loss(self, batch: Batch) -> Tensor:
        return soft_cross_entropy(self.network(batch.views[0]).logits, uniform_on(self.allowed_NC[batch.index_B])).mean()


class TwoStages(Plain):
    """Warms up the classifier, then may decide to train a network of another make from scratch."""

    @dataclass(frozen=True)
    class Config:
        second: bool = True

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__(config, problem)
        self.wanted: Tensor
        self.register_buffer("wanted", torch.tensor(False))
        self.begun: list[int] = []  # for the test

    @property
    def predictor(self) -> nn.Module:
        return self.other if "other" in self._modules else self.network

    def phase(self, number: int) -> Phase | None:
        if number == 0:
            return Phase("warm-up", epochs=2, modules=[self.network.classifier])
        if number == 1 and self.wanted:
            settings = {"lr": 0.02, "schedule": "constant", "momentum": 0.5, "weight_decay": 0.0, "batch_size": 16}
            return Phase("main", epochs=3, modules=[self.other] if "other" in self._modules else [], settings=settings)
        return None

    def begin_phase(self, number: int) -> None:
        self.begun.append(number)
        if number == 1:
            self.other = MLP(WIDTH, self.num_classes, width=24)

    def loss(self, batch: Batch) -> Tensor:
        logits_BC = self.predictor(batch.views[0]).logits
        return soft_cross_entropy(logits_BC, uniform_on(self.allowed_NC[batch.index_B])).mean()

    def end_epoch(self, ctx: Context) -> bool:
        self.wanted.fill_(self.config.second)
        return False


class SideGroups(Plain):
    """A second draw of the data as partners, and a small group with views and a batch size of its own."""

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__(config, problem)
        self.seen: list[Batch] = []  # for the test

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        everything = torch.arange(self.num_items)
        target_NC = uniform_on(self.allowed_NC)
        few_M = shuffled(everything, ctx.generator)[:7]
        return EpochPlan(
            {
                "main": Group(shuffled(everything, ctx.generator), target_NC),
                "partners": Group(shuffled(everything, ctx.generator), target_NC),
                "few": Group(few_M, batch_size=5, views=("strong", "eval")),
            }
        )

    def loss(self, batch: Batch) -> Tensor:
        self.seen.append(batch)
        partner, few = batch.groups["partners"], batch.groups["few"]
        assert batch.target is not None and partner.target is not None
        count = len(batch.index_B)
        mixed = 0.7 * batch.views[0] + 0.3 * partner.views[0][:count]
        supervised = soft_cross_entropy(self.network(mixed).logits, 0.7 * batch.target + 0.3 * partner.target[:count]).mean()
        strong, plain = (self.network(view).logits for view in few.views)
        return supervised + 0.1 * F.mse_loss(strong, plain.detach())


class ThreeViews(Plain):
    views = ("weak", "strong", "strong")

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__(config, problem)
        self.seen: list[Batch] = []

    def loss(self, batch: Batch) -> Tensor:
        self.seen.append(batch)
        target_BC = uniform_on(self.allowed_NC[batch.index_B])
        return torch.stack([soft_cross_entropy(self.network(x).logits, target_BC).mean() for x in batch.views]).sum()


class Still(Plain):
    """No phase at all: the network answers as it was made."""

    def phase(self, number: int) -> Phase | None:
        return None


ALL = [Plain, TwoStages, SideGroups, ThreeViews, Still]


@pytest.mark.parametrize("method", ALL, ids=lambda cls: cls.__name__)
def test_resuming_after_every_epoch_or_going_on_with_the_same_object_changes_nothing(
    method: type[Method], toy: Dataset, tmp_path: Path
) -> None:
    straight = toy_trainer(method, toy, folder=tmp_path / "straight")
    records = run_all(straight)
    for stop in range(1, len(records) + 1):
        folder = tmp_path / f"stop-{stop}"
        early = run_all(toy_trainer(method, toy, folder=folder), stop_after=stop)
        torch.manual_seed(1000 + stop)
        second = toy_trainer(method, toy, folder=folder)
        assert second.resume()
        late = run_all(second)
        assert_same_state(straight, second)
        assert logged_epochs(folder) == without_seconds(early + late) == without_seconds(records)
    stepwise, found = toy_trainer(method, toy), list[dict[str, Any]]()
    while not stepwise.progress.done:
        found += run_all(stepwise, stop_after=1)
    assert without_seconds(found) == without_seconds(records)
    assert_same(*({**trainer.state(), "torch": None} for trainer in (stepwise, straight)))


def test_phases_have_modules_and_settings_of_their_own(toy: Dataset) -> None:
    trainer = toy_trainer(TwoStages, toy, train={"encoder_lr_scale": 0.0})
    method = trainer.method
    encoder = {name: p.clone() for name, p in method.network.named_parameters() if "classifier" not in name}
    classifier = method.network.classifier.weight.clone()
    records, optimizers = [], []
    for record in trainer.epochs():
        records.append(record)
        optimizers.append(trainer.optimizer)
        if record["total_epoch"] == 3:
            warm = copy.deepcopy(method.network.state_dict())
            assert trainer.optimizer.param_groups[0]["momentum"] == 0.5
            assert trainer.optimizer.param_groups[0]["weight_decay"] == 0.0
            trained = {p for group in trainer.optimizer.param_groups for p in group["params"]}
            assert trained == set(method.other.parameters())
    found = [(r["phase"], r["epoch"], r["steps"]) for r in records]
    assert found == [*(("warm-up", number, 3) for number in (1, 2)), *(("main", number, 6) for number in (1, 2, 3))]
    assert [r["lr"] for r in records] == [0.1, pytest.approx((0.1 + 1e-4) / 2), 0.02, 0.02, 0.02]
    assert optimizers[2] is optimizers[3] is not optimizers[0]
    for name, value in encoder.items():
        assert torch.equal(method.network.get_parameter(name), value)
    assert not torch.equal(method.network.classifier.weight, classifier)  # the classifier's rate is not scaled
    assert_same(warm, dict(method.network.state_dict()))
    assert method.begun == [0, 1] and method.other.feature_width == 24


def test_a_phase_may_be_unnecessary_and_a_method_have_none(toy: Dataset, tmp_path: Path) -> None:
    trainer = toy_trainer(TwoStages, toy, options={"second": False})
    assert [r["phase"] for r in run_all(trainer)] == ["warm-up", "warm-up"] and trainer.progress.done
    assert trainer.method.begun == [0]
    trainer = toy_trainer(Still, toy, folder=tmp_path)
    before = copy.deepcopy(trainer.method.state_dict())
    assert run_all(trainer) == [] and trainer.progress.done
    assert_same(dict(trainer.method.state_dict()), dict(before))
    assert (tmp_path / "checkpoint.pt").exists() and 0 <= trainer.evaluate()["accuracy"] <= 1


def test_side_groups_keep_their_size_and_go_round(toy: Dataset) -> None:
    trainer = toy_trainer(SideGroups, toy, train={"epochs": 1})
    plans = recorded(trainer.method, "plan_epoch")
    run_all(trainer)
    groups, seen = plans[0].groups, trainer.method.seen
    assert [len(batch.index_B) for batch in seen] == [32, 32, 26]
    assert torch.equal(torch.cat([batch.index_B for batch in seen]), groups["main"].order_M)
    assert [len(batch.groups["few"].index_B) for batch in seen] == [5, 5, 5]
    round_M = torch.cat([batch.groups["few"].index_B for batch in seen]).tolist()
    order = groups["few"].order_M.tolist()
    assert round_M == (order * 3)[:15] and [len(batch.groups["partners"].index_B) for batch in seen] == [32, 32, 32]
    partner_M = torch.cat([batch.groups["partners"].index_B for batch in seen])
    assert torch.equal(partner_M, groups["partners"].order_M.repeat(2)[:96])
    for batch in seen:
        few = batch.groups["few"]
        assert few.target is None and len(few.views) == 2
        torch.testing.assert_close(few.views[1], toy.views.make("eval", toy.train.inputs[few.index_B], trainer.generator))
        assert torch.equal(batch.target, groups["main"].target[batch.index_B])


def test_three_views_two_of_one_kind_drawn_independently(toy: Dataset) -> None:
    trainer = toy_trainer(ThreeViews, toy, train={"epochs": 1})
    run_all(trainer)
    for batch in trainer.method.seen:
        clean = toy.views.make("eval", toy.train.inputs[batch.index_B], trainer.generator)
        weak, one, two = ((view - clean).abs() for view in batch.views)
        assert not torch.equal(batch.views[1], batch.views[2]) and 0 < weak.mean() < 0.5 * min(one.mean(), two.mean())
        zero_one, zero_two = batch.views[1] == 0, batch.views[2] == 0
        assert zero_one.any() and not torch.equal(zero_one, zero_two)


def test_passes_over_the_data_are_lazy_and_kept_for_the_epoch(toy: Dataset) -> None:
    class Curious(Plain):
        def plan_epoch(self, ctx: Context) -> None:
            assert ctx.features() is ctx.features()
            assert torch.equal(ctx.probabilities(), ctx.outputs().logits.softmax(dim=1))
            assert not torch.equal(ctx.probabilities("weak"), ctx.probabilities())
            self.first = ctx.features()
            self.first.mul_(1)  # an ordinary tensor, not one of inference mode

        def end_epoch(self, ctx: Context) -> bool:
            rows_M = torch.tensor([5, 80, 7])
            some = ctx.outputs(rows_M=rows_M)
            assert ctx.outputs(rows_M=rows_M) is some
            assert not torch.equal(ctx.features(), self.first)  # the network has changed
            torch.testing.assert_close(some.features, ctx.features()[rows_M])
            return False

    trainer = toy_trainer(Curious, toy, train={"epochs": 2})
    note = lambda _, network, inputs, view="eval": (len(inputs), view)  # noqa: E731
    passes = recorded(trainer, "infer", note)
    run_all(trainer)
    epoch = [(90, "eval"), (90, "weak"), (3, "eval"), (90, "eval"), (60, "eval")]  # plan, plan, end, end, test
    assert passes == epoch * 2
    plain = toy_trainer(Plain, toy, train={"epochs": 2})
    passes = recorded(plain, "infer", note)
    run_all(plain)
    assert passes == [(60, "eval")] * 2  # who never asks never pays
