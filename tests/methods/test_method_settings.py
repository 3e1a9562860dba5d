"""Settings of each method as its paper or code has them, per data set, against those that a run uses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pals.methods import method_options
from pals.methods.apl import APL
from pals.runs.published_settings import published_settings
from pals.runs.run_config import RunConfig, shortened, unreachable_options
from pals.training.optim import learning_rate

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
