"""What is the same question for several methods: refused options, runs cut off, variants that learn, published settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from _slow import rest_slow
from _toy import assert_same, assert_same_state, run_all, small_network, toy_candidates, toy_data, toy_trainer, without_seconds
from pals.labels.candidates import CandidateSets
from pals.methods import Problem, find_method, method_options
from pals.methods.apl import APL
from pals.runs.published_settings import published_settings
from pals.runs.run_config import RunConfig, shortened, unreachable_options
from pals.training.optim import learning_rate
from pals.util.errors import InputError


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        *((name, {"smothing": 0.5}, "did you mean 'method.smoothing'") for name in ("pals", "srse")),
        ("pals", {"preset": "papr"}, "did you mean 'paper'?"),
        ("pals", {"neighbors": "auto", "neighbors_start": 9}, "leave it out"),
        *(
            (name, {option: value}, f"Setting method.{option} = {value!r}")
            for name, option, value in [
                ("pals", "delta", 1.5),
                ("pals", "neighbors", 0),
                ("pals", "zeta", 0.0),
                ("pals", "smoothing", float("nan")),
                ("pals", "temperature", float("inf")),
                ("pals", "view_loss", "max"),
                ("srse", "kernel", "gauss"),
                ("srse", "reliability", 1.5),
                ("srse", "temperature", 0.001),  # the exponential would leave float32
                ("srse", "delta", 1.5),
                ("clsp", "tau", 1.5),
                *((name, "view", "strong") for name in ("rc", "cc", "proden", "lws")),
                ("rc", "refresh_mode", "both"),
                ("proden", "momentum", 1.0),
                ("proden", "update_every", 0),
                ("proden", "update", "slow"),
                ("lws", "beta", -1.0),
                ("lws", "loss", "hinge"),
            ]
        ),
        ("clsp", {"neighbors": 90, "class_share": None}, "neighbours are to vote"),
        ("pals", {"neighbors_start": 90}, "90 neighbours are to vote"),
        *((name, {"features": "patches"}, "the items are vectors") for name in ("clsp", "plrc")),
        ("pals", {"start": "patches"}, "the items are vectors"),
    ],
)
def test_options_that_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        run_all(toy_trainer(name, options={**options, **({"warm_up": 1} if name == "plrc" else {})}))
    assert message in str(error.value)


@pytest.mark.parametrize(("name", "most"), [("pals", 5), ("srse", 5), ("plrc", 6), ("pl-knn", 5), ("ipal", 5)])
def test_more_neighbours_than_items_are_refused_at_once(name: str, most: int) -> None:
    """PLRC counts the item itself."""
    few = CandidateSets.from_matrix(torch.ones(6, 3, dtype=torch.bool))
    problem = Problem(few, small_network(3, seed=1))
    find_method(name)(method_options(name, {"neighbors": most}), problem)
    with pytest.raises(InputError, match=r"6 neighbours are to vote, but an item has only 5"):
        find_method(name)(method_options(name, {"neighbors": most + 1}), problem)


@pytest.mark.parametrize(("name", "folds"), [("pals", True), ("srse", False)])
def test_mixup_draws(name: str, folds: bool, noisy: CandidateSets) -> None:
    """One weight and one permutation per step and view; folded weights are the larger halves of the same draws."""

    def draws(steps: int = 50, **options: Any) -> Any:
        method = find_method(name)(method_options(name, options), Problem(noisy, small_network(3, seed=1)))
        trainer = toy_trainer(method, train={"epochs": 1})
        ctx: Any = type("Context", (), {"batch_size": 8, "rng": trainer.rng, "generator": torch.Generator()})
        return method.random_inputs(ctx, steps)

    folded, plain = draws(fold_mixup=True), draws(fold_mixup=False)
    assert plain["weight"].shape == (50, 2) and plain["uniform"].shape == (50, 2, 8)
    assert plain["weight"].min() < 0.5 <= folded["weight"].min() and plain["weight"].unique().numel() == 100
    torch.testing.assert_close(folded["weight"], torch.maximum(plain["weight"], 1 - plain["weight"]))
    assert torch.equal(draws()["weight"], (folded if folds else plain)["weight"]) and draws(mixup=False) == {}
    assert (draws(zeta=100.0)["weight"] - 0.5).abs().max() < 0.2 < (plain["weight"] - 0.5).abs().max()
    if name == "pals":
        assert draws(3, consistency=False)["weight"].shape == (3, 1)


RUNS: list[tuple[str, dict[str, Any], int, list[int]]] = [  # method, options, epochs, epochs after which it is cut off
    ("dividemix", {"warm_up": 1, "history": 3}, 5, [1, 2, 4]),
    ("dividemix", {"warm_up": 1, "train_on": "labeled"}, 5, [1, 2, 4]),
    ("elr+", {"memory_ramp": 9, "reweight": True, "slow_rule": "mean"}, 4, [1, 3]),
    ("fredis", {"warm_up": 3, "update_every": 2, "held_out": 0.2}, 4, [1, 2, 3, 4, 5, 6]),
    ("upllrs", {"separation_epochs": 2, "max_steps": 3, "exclude": 0.1}, 3, rest_slow(3, (5, 2, 8, 1, 3, 4, 6, 7))),
    *(("plrc", {"features": features, "warm_up": 1, "ramp": 2}, 5, [3]) for features in ("input", "network", "own")),
    ("srse", {}, 12, [4, 5, 9]),  # long enough to salvage items
]
CUTS = [pytest.param(n, o, e, getattr(s, "values", (s,))[0], marks=getattr(s, "marks", ())) for n, o, e, t in RUNS for s in t]


@pytest.mark.parametrize(("name", "options", "epochs", "stop"), CUTS)
def test_resumes_anywhere(name: str, options: dict[str, Any], epochs: int, stop: int, tmp_path: Path) -> None:
    data = toy_data(items=120 if name == "srse" else 90)
    noisy = toy_candidates(data, eta=0.4 if name == "srse" else 0.2)
    make: dict[str, Any] = {"options": options, "train": {"epochs": epochs}}
    straight = toy_trainer(name, data, noisy, **make)
    records = run_all(straight)
    early = run_all(toy_trainer(name, data, noisy, folder=tmp_path, **make), stop_after=stop)
    torch.manual_seed(stop)
    second = toy_trainer(name, data, noisy, folder=tmp_path, **make)
    assert second.resume() and without_seconds(early + run_all(second)) == without_seconds(records)
    assert_same_state(straight, second)
    assert name != "srse" or records[-1]["salvaged"] > 0
    assert name != "upllrs" or len(records) == 9


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("elr+", {"reweight": True, "memory_ramp": 40}),
        ("elr+", {"slow_rule": "mean", "labels": "candidates"}),
        *(("proden", options) for options in ({"update": "sudden"}, {"update": "iterative", "update_every": 3})),
        *(("proden", {"momentum": 0.5}), ("lws", {"loss": "cross-entropy", "beta": 2.0})),
        ("crdpll", {"strong_views": 3}),
        *(("apl", {"loss": loss}) for loss in ("mae", "mse", "gce", "huber", "ce", "focal")),
        *(("upllrs", options) for options in ({"solution": "general"}, {"exclude": 0.0}, {"strong_views": 1})),
    ],
    ids=str,
)
def test_variants_learn(name: str, options: dict[str, Any]) -> None:
    data = toy_data(items=180)
    trainer = toy_trainer(name, data, toy_candidates(data), options=options, train={"epochs": 12})
    assert run_all(trainer)[-1]["test_accuracy"] >= 0.85


HOLDOUT = {"index_M": "held_M", "others_M": "trained_M", "best": "best", "misses": "missed"}


@pytest.mark.parametrize(
    ("name", "holdout", "others"),
    [
        ("plrc", "noise.apart", {"holdout.rate": "noise.rate", "holdout.released": None}),
        ("fredis", "held_out", {"holdout.rate": None, "holdout.released": None}),
        ("upllrs", "held_out", {"holdout.rate": None, "holdout.released": None, "ema.": "slow."}),
        ("alim-scale", "held_out", {"holdout.rate": "rate", "holdout.released": "released", "queue_start": "place"}),
        ("irnet", "held_out", {"holdout.rate": "rate", "holdout.released": "released", "queue_start": "place"}),
        ("pico+", "", {"queue_start": "place"}),
        ("elr+", "", {"ema.": "slow."}),
    ],
)
def test_states_of_version_0_2_are_read(name: str, holdout: str, others: dict[str, str | None]) -> None:
    """Buffers have other names there, and some holdouts have neither a noise rate nor a mark of their release."""
    trained, fresh = toy_trainer(name, train={"epochs": 1}), toy_trainer(name, seed=3)
    run_all(trained)
    state, old = trained.method.state_dict(), {}
    names = {**{f"holdout.{new}": f"{holdout}.{was}" for new, was in HOLDOUT.items()}, **others}
    for key, value in state.items():
        new = next((new for new in names if key.startswith(new)), None)
        if new is None or names[new] is not None:
            old[key if new is None else f"{names[new]}{key.removeprefix(new)}"] = value
    assert old.keys() != state.keys()
    fresh.method.load_state_dict(old)
    assert_same(dict(fresh.method.state_dict()), dict(state))


PUBLISHED = (Path(__file__).parent / "published_settings.txt").read_text(encoding="utf-8").splitlines()
"""Lines of method, data set, settings, and after a bar learning rates after so many epochs."""


def config_of(method: str, data: str, **options: Any) -> RunConfig:
    return RunConfig.of({"data": {"name": data}, "method": {"name": method, **options}})


@pytest.mark.parametrize("line", PUBLISHED)
def test_settings_are_those_published(line: str) -> None:
    settings, _, rates = line.partition(" | ")
    method, data, *pairs = settings.split()
    preset = {"preset": data.removeprefix("preset=")} if data.startswith("preset=") else {}
    config = config_of(method, "digits" if preset else data, **preset)
    for name, value in (pair.split("=") for pair in pairs):
        part: Any = config.train if hasattr(config.train, name) else config.method
        found = config.network.name if name == "network" else getattr(part, name)
        if isinstance(found, str | bool) or found is None:
            assert str(found) == value, name
        else:
            assert found == pytest.approx(float(value)), name
    for done, rate in (pair.split("=") for pair in rates.split()):
        assert learning_rate(config.train, float(done), config.train.epochs) == pytest.approx(float(rate), rel=1e-4)


@pytest.mark.parametrize(
    ("method", "data", "epochs", "options"),
    [
        ("srse", "cifar100", 100, {"model_ramp": 2}),
        ("papi", "cifar10", 100, {"ramp_up": 2}),
        ("plrc", "cifar100", 50, {"warm_up": 20, "ramp": 10, "ramp_up": 1}),
        ("promix", "cifar10n", 60, {"warm_up": 1, "rho_ramp": 5, "ramp": 5, "unlabeled_epochs": 10, "guess_last": 25}),
    ],
)
def test_schedules_shrink_with_the_epochs(method: str, data: str, epochs: int, options: dict[str, int]) -> None:
    short = shortened(config_of(method, data).to_dict(), epochs)["method"]
    assert {name: short[name] for name in options} == options


def test_presets() -> None:
    """The first is the default, and an option wins over it."""
    assert method_options("pals", {}) == method_options("pals", {"preset": "official"})
    paper = method_options("pals", {"preset": "paper"})
    assert method_options("pals", {"preset": "paper", "view_loss": "mean"}) == replace(paper, view_loss="mean")


def test_single_settings() -> None:
    """A warm-up that never ends is named; UPLLRS trains for 2^20 steps; CLSP trains as PRODEN, and APL has its defaults."""
    for method, epochs in (("plrc", 40), ("promix", 5)):
        digits = {"data": {"name": "digits"}, "method": {"name": method, "warm_up": 60}, "train": {"epochs": epochs}}
        assert unreachable_options(RunConfig.of(digits)) == ["warm_up"]
    upllrs = config_of("upllrs", "cifar10")
    steps = (50_000 - int(upllrs.method.held_out * 50_000)) // 256
    assert abs(upllrs.train.epochs * steps - 2**20) < steps == 156
    clsp, proden = config_of("clsp", "cifar10"), config_of("proden", "cifar10")
    assert (clsp.network, clsp.train, clsp.method.view) == (proden.network, proden.train, proden.method.view)
    assert config_of("apl", "cifar10").method == config_of("apl", "cifar100").method == APL.Config()
    crowd = ("cifar10", "cifar100", "cifar100h", "cifar10n", "cub200", "benthic")
    assert all("srse" in published_settings()["methods"][name] for name in crowd)
