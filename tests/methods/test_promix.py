"""ProMix: the check values of its sheet, slow loops beside the tables, whole steps, every switch, and sets that are empty."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from _slow import rest_slow
from _toy import recorded, run_all, steps_of, toy_candidates, toy_data, toy_method, toy_trainer
from pals.data.dataset import Dataset
from pals.labels.candidates import CandidateSets
from pals.methods import Batch
from pals.methods.bases.two_networks import NetworkPair, vote_shares
from pals.methods.parts.losses import set_loss
from pals.methods.parts.mixup import FMIX_GRID, draw_clouds, fmix_mask
from pals.methods.parts.ramps import linear_ramp
from pals.methods.parts.selection import (
    Targets,
    agreement,
    class_quotas,
    log_class_shares,
    mean_over,
    most_confident,
    pairs_among,
    selected_loss,
    smallest_by_class,
    unselected_loss,
    update_class_shares,
)
from pals.methods.promix import Predictions
from pals.runs.run_config import RunConfig
from pals.training.optim import learning_rate

seeds = st.integers(0, 2**31)
PI, Z = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([[1.0, 0.5, 0.0]])
CHEAP = {"networks": 1, "auxiliary": False, "fmix": False}


def near(actual: Tensor, expected: Any) -> None:
    torch.testing.assert_close(actual.flatten(), torch.tensor(expected), atol=1.5e-6, rtol=0)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sides_of(method: Any, logits: Tensor, *, base: bool = False, guess: float = 0.0) -> Targets:
    """Of one network that says so of its items."""
    rows = len(logits)
    random = {"guess": torch.tensor(guess)}
    batch = Batch(torch.arange(rows), (logits,), torch.full((rows, 1), base), random)
    look = Predictions([[logits]], logits.softmax(dim=1))
    (side,) = method._targets([look], batch)
    return side


def test_shares_of_classes_shift_losses_and_guesses(noisy: CandidateSets) -> None:
    method: Any = toy_method("promix", noisy, CHEAP)
    method.share_Q2C.copy_(torch.stack([PI, PI])[None])
    near(Z + 0.8 * log_class_shares(PI), [0.445482, -0.463178, -1.287550])
    near((Z - 0.8 * log_class_shares(PI)).softmax(dim=1), [0.373356, 0.340765, 0.285878])
    near(Z.softmax(dim=1), [0.506480, 0.307196, 0.186324])
    near(sides_of(method, Z).guess_BC, [0.413338, 0.344325, 0.242337])
    level = log_class_shares(torch.full((3,), 1 / 3))
    torch.testing.assert_close((Z + 0.8 * level).softmax(dim=1), Z.softmax(dim=1))  # level classes change nothing
    shifted = F.cross_entropy(torch.tensor([[0.445482, -0.463178, -1.287550]]), torch.tensor([1]))
    ones = torch.ones(1, dtype=torch.bool)
    side = Targets(ones, ~ones, torch.tensor([[0.0, 1, 0]]), Z)
    near(selected_loss([Z, Z], side, [], 0.8 * log_class_shares(PI), torch.tensor(0.5)), [1.5 * float(shifted)])
    # a guess counts against frequent classes: the prediction is 0, but 0 has been predicted far too often
    method: Any = toy_method("promix", noisy, {**CHEAP, "tau": 0.5})
    method.label_N.fill_(2)
    method.share_Q2C[0, 0] = torch.tensor([0.9, 0.05, 0.05])
    side = sides_of(method, Z, guess=1.0)
    assert side.target_BC.tolist() == [[0, 1, 0]]
    assert sides_of(method, Z, base=True).target_BC.tolist() == [[0, 0, 1]]  # a label of its own stays


def test_running_shares_quotas_and_ramps() -> None:
    chosen = torch.tensor([True, False])
    seen = torch.tensor([[1.0, 0, 0], [0, 0, 1.0]])
    near(update_class_shares(PI, seen, chosen, 0.9999), [0.500050, 0.299970, 0.199980])
    assert torch.equal(update_class_shares(PI, seen, ~chosen & chosen, 0.9999), PI)
    count = torch.tensor([49_997 - 8 * 5000, 3, *[5000] * 8])
    assert class_quotas(count, 0.5, even=True).tolist() == [2500, 3, *[2500] * 8]
    assert class_quotas(count, 0.5, even=False).tolist() == [4999, 2, *[2500] * 8]
    for even in (True, False):
        assert class_quotas(torch.tensor([5000] * 10), 0.7, even=even).tolist() == [3500] * 10
        assert class_quotas(torch.tensor([100] * 2), 0.07, even=even).tolist() == [7] * 2  # 0.07 * 100 is a little more
    assert class_quotas(torch.tensor([4, 0, 4]), 0.0, even=True).tolist() == [1, 1, 1]
    assert class_quotas(torch.tensor([4, 0, 5]), 0.5, even=False).tolist() == [2, 1, 3]
    assert [linear_ramp(e, 50) for e in (0, 10, 25, 50, 599)] == [0, 0.2, 0.5, 1, 1]
    config = RunConfig.of({"data": {"name": "cifar10n"}, "method": {"name": "promix"}}).train
    assert learning_rate(config, 300.7, 600) == pytest.approx(0.025025)


def test_how_many_may_join() -> None:
    for trusted, more in ((200, 30), (229, 1), (230, 0), (231, 0), (256, 0), (0, 230)):
        trusted_B, everyone = torch.arange(256) < trusted, torch.ones(256, dtype=torch.bool)
        joined = most_confident(trusted_B, everyone, torch.rand(256, generator=seeded()), 230)
        assert int(joined.sum()) == more and not (joined & trusted_B).any()


@given(seeds, st.integers(1, 40), st.integers(1, 6), st.booleans())
def test_the_base_set_is_the_loop(seed: int, items: int, classes: int, ties: bool) -> None:
    loss = torch.rand(items, generator=seeded(seed)) if not ties else torch.zeros(items)
    label = torch.randint(classes, (items,), generator=seeded(seed))
    quota = torch.randint(1, 5, (classes,), generator=seeded(seed))
    chosen = smallest_by_class(loss, label, quota).tolist()
    for c in range(classes):
        own = [i for i in range(items) if label[i] == c]
        best = sorted(own, key=lambda i: (float(loss[i]), i))[: int(quota[c])]
        assert [i for i in own if chosen[i]] == sorted(best)


@given(seeds, st.integers(1, 30), st.floats(0.3, 0.8))
def test_joining_is_the_loop(seed: int, rows: int, threshold: float) -> None:
    share = torch.randn(2, rows, 3, generator=seeded(seed)).mul(2).softmax(dim=2)
    trusted = torch.rand(rows, generator=seeded(seed)) < 0.3
    most = int(0.9 * rows)
    eligible, sure = agreement(share, threshold)
    may = []
    for i in range(rows):
        one, two = share[0, i], share[1, i]
        if one.max() > threshold and two.max() > threshold and one.argmax() == two.argmax() and not trusted[i]:
            may.append((-float((one.max() + two.max()) / 2), i))
    room = most - int(trusted.sum()) if float(trusted.float().mean()) < 0.9 else 0
    expected = sorted(i for _, i in sorted(may)[: max(0, room)])
    assert most_confident(trusted, eligible, sure, most).nonzero().flatten().tolist() == expected


@given(seeds, st.integers(1, 20), st.floats(0, 1))
def test_pairs_are_among_the_trusted(seed: int, rows: int, share: float) -> None:
    trusted = torch.rand(rows, generator=seeded(seed)) < share
    uniform = torch.rand(rows, generator=seeded(seed + 1))
    own, partner, counts = pairs_among(trusted, uniform)
    inside = trusted.nonzero().flatten().tolist()
    count = len(inside)
    assert counts.tolist() == [i < count for i in range(rows)] and own[:count].tolist() == inside
    assert sorted(partner[:count].tolist()) == inside
    if count:  # the rest only repeats
        assert own.tolist() == [inside[i % count] for i in range(rows)]
        assert partner.tolist() == [int(partner[i % count]) for i in range(rows)]
        assert partner[:count].tolist() == sorted(inside, key=lambda i: float(uniform[i]))
    else:
        assert own.tolist() == list(range(rows)) and sorted(partner.tolist()) == list(range(rows))


def test_means_and_losses_of_sets_classes_and_nobody() -> None:
    value = torch.tensor([[1.0, 2], [3, 4], [50, 60]])
    assert mean_over(value, torch.tensor([True, True, False])).tolist() == [2, 3]
    assert mean_over(value[:, 0], torch.tensor([False, True, False])).tolist() == 3
    assert mean_over(value, torch.zeros(3, dtype=torch.bool)).tolist() == [0, 0]
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log().repeat(3, 1)
    allowed = torch.tensor([[1, 0, 0], [0, 1, 1], [1, 1, 1]]).bool()
    near(set_loss(logits, allowed), [-math.log(0.5), -math.log(0.5), 0.0])
    assert float(set_loss(torch.tensor([[400.0, 0.0]]), torch.tensor([[False, True]]))) == 400
    loss, label = torch.ones(6), torch.tensor([0, 0, 0, 2, 2, 0])
    chosen = smallest_by_class(loss, label, class_quotas(torch.tensor([4, 0, 2]), 0.5, even=True))
    assert chosen.tolist() == [True, False, False, True, False, False]
    assert log_class_shares(torch.tensor([1.0, 0.0])).isfinite().all()
    no = torch.zeros(1, dtype=torch.bool)
    side = Targets(no, no, torch.tensor([[1.0, 0]]), torch.tensor([[0.5, 0.5]]))
    loss = unselected_loss([torch.zeros(1, 2)] * 2, side, log_class_shares(torch.tensor([1.0, 0.0])), torch.tensor(1.0))
    assert loss.isfinite()


@given(seeds, st.floats(0, 1), st.sampled_from([(32, 32), (8, 8), (24, 40), (6,), (1,)]))
def test_a_mask_has_its_share_of_ones(seed: int, share: float, size: tuple[int, ...]) -> None:
    mask = fmix_mask(draw_clouds((), 3.0, seeded(seed)), torch.tensor(share), size)
    assert mask.shape == size and set(mask.unique().tolist()) <= {0.0, 1.0}
    assert abs(float(mask.mean()) - share) <= 0.5 / mask.numel() + 1e-6


def test_a_mask_is_the_highest_part_of_its_cloud() -> None:
    cloud = draw_clouds((2,), 3.0, seeded())[1]
    mask = fmix_mask(cloud, torch.tensor(0.3), (FMIX_GRID, FMIX_GRID)).bool()
    assert cloud[mask].min() > cloud[~mask].max()
    twice = fmix_mask(cloud, torch.tensor(0.3), (2 * FMIX_GRID, 2 * FMIX_GRID))
    same = (twice.view(FMIX_GRID, 2, FMIX_GRID, 2).mean(dim=(1, 3)).round() == mask).float().mean()
    assert same > 0.97


def test_clouds_are_waves_whose_height_falls_with_the_frequency() -> None:
    """A line in the logarithms, with the decay as slope."""
    power = torch.fft.fft2(draw_clouds((4000,), 3.0, seeded()), norm="backward").abs().square().mean(dim=0)
    for row, column in ((1, 0), (0, 1), (2, 0), (3, 4), (0, 8), (29, 4)):
        frequency = math.hypot(min(row, FMIX_GRID - row), column) / FMIX_GRID
        measured = float(power[row, column] / power[0, 1])
        assert measured == pytest.approx((FMIX_GRID * frequency) ** -6, rel=0.15), (row, column)
    flat = torch.fft.fft2(draw_clouds((4000,), 0.0, seeded())).abs().square().mean(dim=0)
    assert float(flat[0, 1] / flat[5, 9]) == pytest.approx(1, rel=0.15)


def steps_with(data: Dataset, options: dict[str, Any], candidates: CandidateSets | None = None) -> list[tuple[Any, Batch]]:
    """Method, as it was, and batch of the steps after the warm-up."""
    trainer = toy_trainer("promix", data, candidates, options={"warm_up": 1, **options}, train={"epochs": 4, "batch_size": 16})
    return [(then, batch) for then, batch in steps_of(trainer) if not then.in_warm_up]


def mean(values: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(values)).mean() if len(values) else torch.zeros(())


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return -(target * logits.softmax(dim=0).log()).sum()


def loss_by_hand(method: Any, batch: Batch) -> Any:
    """Item by item, set by set. Gives the loss, the new running shares, and who is trusted."""
    c, random, rows = method.config, batch.random, len(batch.index_B)
    classes = method.num_classes
    weak, strong = batch.views
    networks = [copy.deepcopy(network) for network in method.trained]
    heads = list(method.auxiliary["classifier"])
    seen = [[network(view) for view in (weak, strong)] for network in networks]
    share = [views[0].logits.detach().softmax(dim=1) for views in seen]
    w, total, shares, trusted_of = random["weight"], torch.zeros(()), [], []
    for k, network in enumerate(networks):
        pi, rest_pi = method.share_Q2C[k]
        keeps: dict[int, int] = {}
        for i, item in enumerate(batch.index_B.tolist()):
            label = int(method.label_N[item])
            given = [label]
            if c.labels == "candidates":
                given = method.allowed_NC[item].nonzero().flatten().tolist()
            if bool(batch.target[i, k]) or sum(float(share[k][i, j]) for j in given) > c.tau:
                best = max(given, key=lambda j: float(share[k][i, j]))
                keeps[i] = label if c.candidate_target == "majority" else best
        target = dict(keeps)
        if float(random["guess"]):
            able = [
                (-float(sum(s[i].max() for s in share) / len(share)), i)
                for i in range(rows)
                if i not in keeps and all(s[i].max() > c.tau and s[i].argmax() == share[0][i].argmax() for s in share)
            ]
            for _, i in sorted(able)[: max(0, math.floor(c.most_trusted * rows) - len(keeps))]:
                target[i] = int((seen[k][0].logits[i] - c.debias_guess * pi.log()).argmax())
        inside = sorted(target)
        outside = [i for i in range(rows) if i not in target]
        eye, shift = torch.eye(classes), c.debias_output * pi.log()
        blends = []
        for head in range(1 + c.auxiliary):
            for kind, name in enumerate(n for n in ("mixup", "fmix") if getattr(c, n)):
                uniform = random["uniform"][k, head, kind]
                order = sorted(inside, key=lambda i: float(uniform[i]))
                if name == "mixup":
                    take: Any = float(random["mixup_weight"][k, head])
                    share_of_first = take
                else:
                    take = fmix_mask(random["fmix_cloud"][k, head], random["fmix_share"][k, head], (weak.shape[1],))
                    share_of_first = float(take.mean())
                pairs = list(zip(inside, order, strict=True)) or [(0, 0)]
                x = torch.stack([take * weak[i] + (1 - take) * weak[j] for i, j in (pairs * rows)[:rows]])
                output = network(x)
                logits = heads[k](output.features) if head else output.logits
                soft = [share_of_first * eye[target[i]] + (1 - share_of_first) * eye[target[j]] for i, j in pairs if inside]
                blends.append((head, [cross_entropy(logits[r] + shift, t) for r, t in enumerate(soft)]))
        for head in range(1 + c.auxiliary):
            z, z2 = (heads[k](o.features) if head else o.logits for o in seen[k])
            total = total + mean([cross_entropy(z[i] + shift, eye[target[i]]) for i in inside])
            total = total + w * mean([cross_entropy(z2[i] + shift, eye[target[i]]) for i in inside])
            total = total + w * sum(mean(values) for h, values in blends if h == head)
            if head:
                rest_shift = c.debias_output * rest_pi.log()
                power = [(seen[k][0].logits[i].detach() - c.debias_guess * rest_pi.log()).softmax(dim=0) for i in range(rows)]
                sharp = [p ** (1 / c.temperature) / (p ** (1 / c.temperature)).sum() for p in power]
                rest = mean([cross_entropy(z[i] + rest_shift, sharp[i]) for i in outside])
                rest = rest + w * mean([cross_entropy(z2[i] + rest_shift, sharp[i]) for i in outside])
                total = total + random["unlabeled_weight"] * rest
        m = c.share_momentum
        for old, part in ((pi, inside), (rest_pi, outside)):
            shares.append(m * old + (1 - m) * share[k][part].mean(dim=0) if part else old)
        trusted_of.append((len(keeps), len(target) - len(keeps)))
    return total, torch.stack(shares).view(len(networks), 2, classes), trusted_of


STEPS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "sure soon": {"tau": 0.7, "share_momentum": 0.5, "ramp": 2, "unlabeled_epochs": 9, "unlabeled_weight": 2.0},
    "guessing never": {"tau": 0.7, "guess_last": 0},
    "guessing late": {"tau": 0.5, "guess_last": 1, "rho_end": 0.2, "rho_start": 0.2},
    "candidates": {"labels": "candidates", "tau": 0.8, "share_momentum": 0.5},
    "candidates, majority": {"labels": "candidates", "candidate_target": "majority", "tau": 0.8},
    "one network": {"networks": 1, "tau": 0.7},
    "no auxiliary head": {"auxiliary": False, "debias_output": 0.0},
    "mix-up alone": {"fmix": False, "debias_guess": 0.0},
    "FMix alone": {"mixup": False, "temperature": 1.0},
    "no blends": {"mixup": False, "fmix": False},
    "cheap": CHEAP,
}


@pytest.mark.parametrize("case", rest_slow(4, STEPS))
def test_a_step_is_the_loop(case: str, toy: Dataset) -> None:
    steps = steps_with(toy, STEPS[case])
    joined = 0
    for method, batch in (steps[0], steps[5], steps[-2], steps[-1]):  # the last is short
        expected, shares, counts = loss_by_hand(method, batch)
        method.tally_Q2.zero_()
        torch.testing.assert_close(method.loss(batch), expected, rtol=2e-5, atol=1e-5)
        with torch.no_grad():
            method.after_step(batch)
        torch.testing.assert_close(method.share_Q2C, shares)
        assert method.tally_Q2.tolist() == [list(pair) for pair in counts]
        joined += sum(pair[1] for pair in counts)
    if case in ("sure soon", "guessing late", "one network"):
        assert joined > 0
    if case == "guessing never":
        assert joined == 0


def test_guessing_is_for_the_last_epochs(toy: Dataset) -> None:
    options = {"warm_up": 1, "guess_last": 2, "ramp": 4, "unlabeled_epochs": 3}
    steps = steps_of(toy_trainer("promix", toy, options=options, train={"epochs": 5, "batch_size": 90}))
    draws = [batch.random for method, batch in steps if not method.in_warm_up]
    assert [float(random["guess"]) for random in draws] == [0, 0, 1, 1]
    assert [float(random["weight"]) for random in draws] == [0.25, 0.5, 0.75, 1]
    assert [float(random["unlabeled_weight"]) for random in draws] == pytest.approx([0.1 / 3, 0.2 / 3, 0, 0])


def test_draws_of_networks_and_heads_are_their_own(toy: Dataset) -> None:
    _, batch = steps_with(toy, {})[0]
    assert batch.random["uniform"].shape == (2, 2, 2, 16)
    assert batch.random["fmix_cloud"].shape == (2, 2, FMIX_GRID, FMIX_GRID)
    for name in ("uniform", "mixup_weight", "fmix_share", "fmix_cloud"):
        own = batch.random[name].flatten(0, 1).view(4, -1) if name != "uniform" else batch.random[name].flatten(0, 2)
        assert len(own.unique(dim=0)) == len(own) >= 4
    assert (batch.random["mixup_weight"] >= 0.5).all()


@pytest.mark.parametrize("trusted", [0.0, 1.0])
def test_a_batch_of_one_kind_alone(trusted: float, toy: Dataset) -> None:
    """All trusted, or none: a mean over nothing is 0 and has no gradient."""
    method, batch = steps_with(toy, {"guess_last": 0, "unlabeled_epochs": 9})[0]
    method.matched = lambda share_BC, index_B: torch.zeros(len(share_BC), dtype=torch.bool)
    assert batch.target is not None
    batch = Batch(batch.index_B, batch.views, torch.full_like(batch.target, bool(trusted)), batch.random)
    before = method.share_Q2C.clone()
    method.zero_grad(set_to_none=True)
    loss = method.loss(batch)
    loss.backward()
    method.after_step(batch)
    assert 0 < float(loss.detach()) < 100
    assert all(p.grad is not None and p.grad.isfinite().all() for p in method.parameters())
    moved = (method.share_Q2C != before).any(dim=2)
    assert moved.tolist() == [[bool(trusted), not trusted]] * 2
    main = [network.classifier.weight.grad for network in method.trained]
    assert all(bool(grad.any()) == bool(trusted) for grad in main)  # the rest never teaches the main head


def test_each_network_has_its_own_base_set(toy: Dataset, noisy: CandidateSets) -> None:
    trainer = toy_trainer("promix", toy, noisy, options={"warm_up": 1, "rho_start": 0.2, "rho_end": 0.6, "rho_ramp": 2})
    method: Any = trainer.method

    def note(plan: Any, ctx: Any) -> tuple[float, int] | None:
        """How many are in a base set, and in how many the two differ."""
        group, share = plan.groups["main"], 0.2 + 0.4 * min(1, (ctx.epoch - 1) / 2)
        assert sorted(group.order_M.tolist()) == list(range(90))
        if method.in_warm_up:
            return None if (group.target, group.views) == (None, ("weak",)) else (0.0, 0)
        for k, network in enumerate(method.trained):
            loss = F.cross_entropy(ctx.outputs(network).logits, method.label_N, reduction="none")
            for c in range(3):
                own = [i for i in range(90) if method.label_N[i] == c]
                best = sorted(own, key=lambda i: (float(loss[i]), i))[: min(math.ceil(share * 30 - 1e-9), len(own))]
                assert sorted(best) == [i for i in own if group.target[i, k]]
        return float(group.target.sum() / 2), int((group.target[:, 0] != group.target[:, 1]).sum())

    noted = recorded(method, "plan_epoch", note)
    first, *records = run_all(trainer)
    assert noted[0] is None and "base" not in first and sum(differ for _, differ in noted[1:]) > 0
    assert [record["base"] for record in records] == [size for size, _ in noted[1:]]
    assert all(record["trusted"] + record["guessed"] <= 90 and record["trusted"] >= record["base"] for record in records)


def test_warm_up_teaches_the_main_heads(toy: Dataset) -> None:
    trainer = toy_trainer("promix", toy, options={"warm_up": 2}, train={"epochs": 3})
    steps = [*(method for method, _ in steps_of(trainer)), trainer.method]
    assert len(steps) == 9 + 1
    for before, after in pairwise(steps):
        same = [torch.equal(*pair) for pair in zip(before.auxiliary.parameters(), after.auxiliary.parameters(), strict=True)]
        assert all(same) if before.in_warm_up else not any(same)
        assert bool((after.share_Q2C != 1 / 3).any()) == (not before.in_warm_up)


@pytest.mark.parametrize("labels", ["majority", "candidates"])
def test_warm_up_loss(labels: str, toy: Dataset, noisy: CandidateSets) -> None:
    method: Any = toy_method("promix", noisy, {"labels": labels, "warm_up_penalty": 0.5})
    batch = Batch(torch.arange(20), (toy.train.inputs[:20],), None)
    expected = 0.0
    for network in copy.deepcopy(method).trained:
        for row, index in zip(network(batch.views[0]).logits.double().softmax(dim=1), range(20), strict=True):
            own = noisy.allowed_NC[index].nonzero().flatten().tolist()
            used = own if labels == "candidates" else [int(method.label_N[index])]
            loss = -sum(row[c].log() for c in used) / len(used) + 0.5 * (row * row.log()).sum()
            expected += float(loss.detach()) / 20
    assert float(method.loss(batch).detach()) == pytest.approx(expected, rel=1e-5)


def test_several_votes(toy: Dataset) -> None:
    share = torch.tensor([[0.6, 0.4, 0.0], [0.0, 0.5, 0.5], [1.0, 0, 0]])
    said = CandidateSets(share > 0, ("0", "1", "2"), tuple("abc"), share)
    torch.testing.assert_close(vote_shares(said), share)
    p = torch.tensor([[0.3, 0.695, 0.005], [0.5, 0.2, 0.3], [0.2, 0.7, 0.1]])
    index = torch.arange(3)
    single: Any = toy_method("promix", said, {"labels": "majority"})
    both = ({"labels": "candidates", "candidate_target": how} for how in ("best", "majority"))
    several, stay = (toy_method("promix", said, options) for options in both)
    assert single.given(index)[0].tolist() == [True, False, False]
    assert several.given(index).tolist() == (share > 0).tolist()
    assert single.matched(p, index).tolist() == [False, False, False]
    assert several.matched(p, index).tolist() == [True, False, False]  # 0.995 for either
    assert several.own_labels(p, index).tolist() == [1, 2, 0]
    assert stay.own_labels(p, index)[[0, 2]].tolist() == single.own_labels(p, index)[[0, 2]].tolist() == [0, 0]
    assert single.vote_NC is None and torch.equal(several.vote_NC, vote_shares(said))


def test_candidates_are_more_than_one_label() -> None:
    """Fewer than half of the labels drawn from the sets are right; the sets themselves say more."""
    data, accuracy = toy_data(items=180), {}
    for labels in ("majority", "candidates"):
        trainer = toy_trainer("promix", data, toy_candidates(data, 0.6, 0.1), options={"labels": labels}, train={"epochs": 10})
        accuracy[labels] = run_all(trainer)[-1]["test_accuracy"]
    assert accuracy["candidates"] >= max(0.9, accuracy["majority"])


def test_main_heads_answer_and_those_switched_off_are_not_there(noisy: CandidateSets) -> None:
    x = torch.randn(5, 6, generator=seeded())
    for networks in (1, 2):
        method: Any = toy_method("promix", noisy, {"networks": networks}).eval()
        answers = [network(x).logits for network in method.trained]
        assert isinstance(method.predictor, NetworkPair) == (networks == 2) == (len(answers) == 2)
        torch.testing.assert_close(method.predictor(x).logits, sum(answers) / networks)
        features = torch.cat([network(x).features for network in method.trained], dim=1)
        assert torch.equal(method.predictor(x).features, features) and (networks == 1 or not torch.equal(*answers))
    assert not list(toy_method("promix", noisy, {"auxiliary": False}).auxiliary.parameters())
    names = [name for name, _ in toy_method("promix", noisy).named_parameters() if name.startswith("auxiliary")]
    assert len(names) == 4 and all("classifier" in name.split(".") for name in names)  # with the full learning rate
