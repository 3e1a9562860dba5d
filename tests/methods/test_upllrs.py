"""UPLLRS: worked examples of both stages, the separation as a process, and the phases in the real trainer."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_pals_method import Linear
from torch import Tensor, nn

from _toy import recorded, run_all, small_network, steps_of, toy_candidates, toy_data, toy_method, toy_trainer
from pals.data.dataset import Dataset
from pals.labels.candidates import CandidateSets
from pals.methods import Batch, Method, Problem, find_method, method_options
from pals.methods.upllrs import UPLLRS, confident_loss, ema_buffer_decay, exclude_largest, max_separation_steps
from pals.vision.networks import build_network

seeds = st.integers(0, 2**31)


def method_on(name: str, allowed: Any, **options: Any) -> Any:
    """Scores are the inputs themselves."""
    sets = CandidateSets.from_matrix(torch.as_tensor(allowed, dtype=torch.bool))
    problem = Problem(sets, lambda name=None: Linear(torch.eye(sets.num_classes)))
    return find_method(name)(method_options(name, options), problem).train()


def test_how_many_are_left() -> None:
    loss, reliable = torch.arange(40_000.0), torch.ones(40_000, dtype=torch.bool)
    left = []
    for _ in range(14):
        reliable = exclude_largest(loss, reliable, 0.03)
        left.append(int(reliable.sum()))
    assert left[:2] == [38_800, 37_636] and left[-1] == 26_118
    assert [max_separation_steps(share) for share in (0.03, 0.005, 0.01, 0.0)] == [34, 204, 102, 0]


def test_worked_example_of_the_ranking_loss() -> None:
    """p = (.2, .5, .3): candidates 0 and 2; one alone is the cross-entropy; all are the mean."""
    method = method_on("upllrs", [[1, 0, 1], [0, 1, 0], [1, 1, 1]], held_out=0.0)
    logits = torch.tensor([[0.2, 0.5, 0.3]]).log().repeat(3, 1)
    batch = Batch(torch.arange(3), (logits,), None)
    expected = [1.4067054, 0.6931472, (1.6094379 + 0.6931472 + 1.2039728) / 3]
    assert method.loss(batch).item() == pytest.approx(sum(expected) / 3, abs=1e-6)
    method.after_step(batch)
    assert method.loss_N.tolist() == pytest.approx(expected, abs=1e-6)


def watched(method: Any) -> list[dict[str, Any]]:
    """A note of each separation: the losses it ranks by, the sets before and after, the weights it began with."""
    separate, notes = method._separate, list[dict[str, Any]]()

    def spy(ctx: Any) -> None:
        notes.append({"before": method.reliable_N.clone(), "loss": method.loss_N.clone()})
        separate(ctx)
        notes[-1] |= {"after": method.reliable_N.clone(), "start": starts[-1]}

    starts = recorded(method, "begin_phase", lambda *_: copy.deepcopy(method.separator.state_dict()))
    method._separate = spy
    return notes


def test_phases(toy: Dataset) -> None:
    options = {"separation_epochs": 2, "max_steps": 3, "exclude": 0.1, "patience": 99}
    trainer = toy_trainer("upllrs", toy, options=options, train={"epochs": 3})
    method: Any = trainer.method
    first = copy.deepcopy(method.network.state_dict())
    notes = watched(method)
    learnt = method.network.classifier.weight.clone()
    records = []
    for record in trainer.epochs():
        records.append(record)
        if record["phase"] != "main":
            assert torch.equal(method.network.classifier.weight, learnt)  # the separation trains its own network
    assert [r["phase"] for r in records] == [f"separation-{n}" for n in (1, 1, 2, 2, 3, 3)] + ["main"] * 3
    assert [r["lr"] for r in records[:6]] == [0.1] * 6
    assert [r["reliable"] for r in records] == [72, 65, 65, 59, 59, 54, 54, 54, 54] and len(notes) == 3
    for note in notes:
        gone = note["before"] & ~note["after"]
        assert note["loss"][gone].min() >= note["loss"][note["after"]].max()
    starts = [note["start"]["classifier.weight"] for note in notes]
    assert not torch.equal(starts[0], starts[1]) and not torch.equal(starts[1], starts[2])
    assert not any(torch.equal(first["classifier.weight"], start) for start in starts)
    held = method.holdout.index_M
    assert not method.reliable_N[held].any() and records[-1]["selected"] == 54


def test_the_losses_that_rank_are_those_seen_in_the_last_epoch(toy: Dataset) -> None:
    trainer = toy_trainer("upllrs", toy, options={"separation_epochs": 3, "max_steps": 1}, train={"epochs": 1})
    method: Any = trainer.method
    notes, seen = watched(method), dict[int, float]()
    losses = recorded(method, "loss", lambda _, batch: (method.separating, batch, method.loss_B.tolist()))
    run_all(trainer)
    for _, batch, loss in [step for step in losses if step[0]]:
        assert torch.equal(batch.views[0], toy.views.make("eval", toy.train.inputs[batch.index_B], trainer.generator))
        seen.update(zip(batch.index_B.tolist(), loss, strict=True))
    trained = method.holdout.others_M.tolist()
    assert sorted(seen) == trained and notes[0]["loss"][trained].tolist() == [seen[i] for i in trained]


@pytest.mark.parametrize(
    ("rates", "steps"),
    [([0.10, 0.12, 0.11, 0.11, 0.11, 0.11, 0.11], 7), ([0.5] * 9, 9), ([0.1, 0.2, 0.1, 0.3, 0.2, 0.2, 0.2, 0.2, 0.2], 9)],
)
def test_when_the_separation_ends(rates: list[float], steps: int, toy: Dataset) -> None:
    """After five rates in a row below the best; level ones never end it, here nine steps do."""
    options = {"separation_epochs": 1, "max_steps": 9, "exclude": 0.02, "patience": 5}
    trainer = toy_trainer("upllrs", toy, options=options, train={"epochs": 1})
    rest = iter(rates)
    method: Any = trainer.method
    method.holdout.covering_rate = lambda *_: next(rest, 0.9)
    records = run_all(trainer)
    assert len(records) == steps + 1 and records[steps - 1]["covering_rate"] == rates[-1]


def test_the_separation_ends_when_nobody_is_left_and_may_have_its_own_network(toy: Dataset) -> None:
    data = toy_data(items=40)
    records = run_all(toy_trainer("upllrs", data, options={"max_steps": 9}, train={"epochs": 1}))
    assert [r["phase"] for r in records] == ["separation-1"] * 2 + ["main"]  # 0.03 of 32 items is less than one
    assert records[-1]["reliable"] == 32
    asked = []
    make = small_network(3, seed=1)

    def network(name: str | None = None) -> Any:
        asked.append(name)
        return make(name)

    options = method_options("upllrs", {"separator": "tiny", "separation_epochs": 1, "max_steps": 2})
    method: Method = UPLLRS(options, Problem(toy_candidates(toy), network))
    run_all(toy_trainer(method, toy, train={"epochs": 1}))
    assert asked == [None, "tiny", "tiny", "tiny"]


def test_separation_finds_noisy_sets() -> None:
    """What is taken out is noisy far more often than what is left."""
    data = toy_data(items=400)
    candidates = toy_candidates(data, q=0.2, eta=0.2)
    noisy = ~candidates.allowed_NC.gather(1, data.truth.label_N[:, None]).squeeze(1)
    options = {"separation_epochs": 5, "max_steps": 6, "exclude": 0.03, "held_out": 0.1}
    trainer = toy_trainer("upllrs", data, candidates, options=options, train={"epochs": 1})
    run_all(trainer)
    method: Any = trainer.method
    trained = method.holdout.others_M
    out = trained[~method.reliable_N[trained]]
    assert float(noisy[out].float().mean()) > 0.3 and float(noisy[method.reliable_N].float().mean()) < 0.02


def test_worked_examples_of_the_learning() -> None:
    """Pseudo-label loss, confidence, ramp; and no gradient goes through the guess."""
    sure = torch.tensor([[0.99, 0.01], [0.5, 0.5], [0.6, 0.4], [0.3, 0.7]])
    strong = torch.tensor([[0.449329, 0.550671]]).log().repeat(4, 1)  # -log of the first is 0.8
    assert float(confident_loss(sure, strong, 0.95).mean()) == pytest.approx(0.2, abs=1e-6)
    assert float(confident_loss(sure[1:], strong[1:], 0.95).sum()) == 0
    assert float(confident_loss(torch.tensor([[0.95, 0.05]]), strong[:1], 0.95)) == pytest.approx(0.8, abs=1e-6)
    method = method_on("upllrs", [[1, 1, 0]], held_out=0.0)
    method.separating = False
    views = tuple(torch.tensor([p]).log() for p in ([0.5, 0.3, 0.2], [0.4, 0.4, 0.2], [0.6, 0.2, 0.2]))
    method.loss(batch := Batch(torch.tensor([0]), views, None))
    method.after_step(batch)
    assert method.confidence_NC[0].tolist() == pytest.approx([0.63099, 0.36901, 0], abs=1e-5)
    method = method_on("upllrs", [[1, 1, 0]] * 2, held_out=0.0)
    method.separating = False
    weak, strong = (torch.randn(1, 3) + torch.tensor([9.0, 0, 0])).requires_grad_(), torch.randn(1, 3, requires_grad=True)
    other = Batch(torch.tensor([1]), (weak, strong), None)
    views = tuple(torch.randn(1, 3) for _ in range(3))
    method.loss(Batch(torch.tensor([0]), views, None, groups={"unreliable": other})).backward()
    assert weak.grad is None or not weak.grad.any()
    assert strong.grad is not None and strong.grad.any()

    class At:
        def __init__(self, epoch: int) -> None:
            self.phase, self.epoch, self.batch_size, self.generator = "main", epoch, 32, torch.Generator()

    method: Any = toy_method("upllrs", toy_candidates(toy_data()))
    weights = []
    for epoch in (1, 51, 101, 300):
        method.plan_epoch(At(epoch))
        weights.append(float(method.weight))
    assert weights == pytest.approx([0, 0.5, 1, 1])


def three_views(seed: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(2 * torch.randn(4, 3, generator=generator) for _ in range(3))


SETS = [[1, 1, 0], [1, 0, 1], [0, 1, 0], [1, 1, 1]]


@given(seeds)
def test_without_unreliable_items_it_is_crdpll(seed: int) -> None:
    """The same loss, gradient and confidences."""
    batch = Batch(torch.arange(4), three_views(seed), None)
    one, other = method_on("upllrs", SETS, exclude=0.0, held_out=0.0), method_on("crdpll", SETS)
    assert one.phase(0).name == "main" and one.phase(1) is None
    one.separating = False
    for method in (one, other):
        method.weight.fill_(0.7)
    for _ in range(2):
        results = []
        for method in (one, other):
            loss = method.loss(batch)
            results.append((loss, *torch.autograd.grad(loss, [p for p in method.network.parameters() if p.requires_grad])))
            method.after_step(batch)
        torch.testing.assert_close(results[0], results[1])
        torch.testing.assert_close(one.confidence_NC, other.confidence_NC)


@pytest.mark.parametrize("solution", ["augmented", "general"])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_loss_is_the_sum_of_two(solution: str, temperature: float) -> None:
    options: dict[str, Any] = {"unreliable_weight": 0.3, "temperature": temperature, "held_out": 0.0}
    method = method_on("upllrs", [*SETS, [1, 0, 0], [0, 1, 1]], solution=solution, **options)
    method.separating = False
    method.weight.fill_(0.5)
    views = three_views(1)[: len(method.views)]
    weak, strong = torch.tensor([[9.0, 0, 0], [1.0, 0.5, 0]]), torch.tensor([[0.3, 0.1, 0.0], [2.0, 0.0, 0.0]])
    other = Batch(torch.tensor([4, 5]), (weak, strong), None)
    batch = Batch(torch.arange(4), views, None, groups={"unreliable": other})
    loss = method.loss(batch)
    alone = method.loss(Batch(torch.arange(4), views, None))
    expected = -strong[0].log_softmax(dim=0)[0] / 2  # of the two, the first alone is sure
    assert (loss - alone).item() == pytest.approx(0.3 * float(expected), abs=1e-6)
    if solution == "general":
        share = views[0].log_softmax(dim=1)
        by_hand = torch.stack([-row[torch.tensor(s) == 1].mean() for row, s in zip(share, SETS, strict=True)]).mean()
        assert alone.item() == pytest.approx(float(by_hand), abs=1e-6)
    method.loss(batch)
    method.after_step(batch)
    torch.testing.assert_close(method.confidence_NC[4:], (weak / temperature).softmax(dim=1))


def test_groups_of_a_step(toy: Dataset) -> None:
    options = {"separation_epochs": 1, "max_steps": 1, "exclude": 0.3}
    trainer = toy_trainer("upllrs", toy, options=options, train={"epochs": 2, "batch_size": 16})
    method: Any = trainer.method
    main = [batch for then, batch in steps_of(trainer) if then.graph_key == "main"]
    trained = set(method.holdout.others_M.tolist())
    reliable = set(method.reliable_N.nonzero().flatten().tolist())
    assert len(trained) == 72 and len(reliable) == 51
    assert len(main) == 2 * 4  # 72 items in steps of 16, the short one left out
    for batch in main:
        other = batch.groups["unreliable"]
        assert (len(batch.index_B), len(other.index_B)) == (16, 48)
        assert (len(batch.views), len(other.views)) == (3, 2) and set(batch.index_B.tolist()) <= reliable
        assert set(other.index_B.tolist()) <= trained - reliable
    assert set(torch.cat([batch.index_B for batch in main[:4]]).tolist()) == reliable
    assert set(torch.cat([batch.groups["unreliable"].index_B for batch in main[:1]]).tolist()) == trained - reliable


@pytest.mark.parametrize(("momentum", "share"), [(0.9, 1.0), (0.95, 0.05)])
def test_the_slow_network_answers(momentum: float, share: float, toy: Dataset) -> None:
    """Its norms' statistics are those of the network, or, where these would be much newer than its weights, averaged alike."""
    trainer = toy_trainer("upllrs", toy, options={"slow_momentum": momentum}, train={"epochs": 2})
    method: Any = trainer.method
    assert method.predictor is method.separator
    mine, statistics = ([t.clone().float() for t in ts] for ts in (method.ema.parameters(), method.ema.buffers()))
    original = method.after_step

    def spy(batch: Batch) -> None:
        original(batch)
        if not method.separating:
            for slow, fast in zip(mine, method.network.parameters(), strict=True):
                slow.mul_(momentum).add_((1 - momentum) * fast)
            for slow, fast in zip(statistics, method.network.buffers(), strict=True):
                slow.mul_(1 - share).add_(share * fast) if fast.is_floating_point() else slow.copy_(fast)

    method.after_step = spy
    run_all(trainer)
    assert method.predictor is method.ema
    torch.testing.assert_close(list(method.ema.parameters()), mine)
    torch.testing.assert_close([buffer.float() for buffer in method.ema.buffers()], statistics)
    same = [torch.equal(slow, fast) for slow, fast in zip(method.ema.buffers(), method.network.buffers(), strict=True)]
    assert len(same) > 0 and all(same) == (share == 1)
    assert not any(isinstance(p, nn.Parameter) and p.requires_grad for p in method.ema.parameters())


def test_statistics_are_copied_where_the_network_averages_them_slowly() -> None:
    """As the network of the recipes does, and the others do not."""
    for name, share in (("wrn-28-2", 0.0), ("resnet20", 0.999)):
        assert ema_buffer_decay(build_network(name, (3, 32, 32), 10), 0.999) == pytest.approx(share)
    assert ema_buffer_decay(nn.Linear(2, 2), 0.999) == 0


def test_the_covering_rate_ends_the_run_and_held_out_items_have_a_belief(toy: Dataset) -> None:
    options = {"stop_after": 2, "held_out": 0.3}
    short = run_all(toy_trainer("upllrs", toy, options=options, train={"epochs": 40}))
    assert len(short) < 40
    rates = [r["covering_rate"] for r in short if r["phase"] == "main"]
    assert max(rates[-2:]) <= max(rates[:-2])
    full = run_all(toy_trainer("upllrs", toy, options={**options, "held_out": 0.0}, train={"epochs": 8}))
    assert len(full) == 2 + 8 and "covering_rate" not in full[-1]
    trainer = toy_trainer("upllrs", toy, train={"epochs": 2})
    run_all(trainer)
    method: Any = trainer.method
    held = method.holdout.index_M
    share = trainer.infer(method.ema, trainer.inputs).logits.softmax(dim=1)[held] * method.allowed_NC[held]
    torch.testing.assert_close(method.posterior()[held], share / share.sum(dim=1, keepdim=True))
