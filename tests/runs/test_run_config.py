"""Settings of a run as a whole: what they import, and schedules of another length."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from _toy import Answer
from pals.methods import METHODS, find_method
from pals.runs.published_settings import published_settings
from pals.runs.run_config import CLOSED_FORM_STRENGTH, DAWID_SKENE, RunConfig, shortened, unreachable_options
from pals.util.files import write_text


def full(data: str, method: str, **sections: Any) -> dict[str, Any]:
    return RunConfig.of({"data": {"name": data}, "method": {"name": method}, **sections}).to_dict()


def test_settings_load_little_besides_torch() -> None:
    """No large library, and few modules: every worker of a benchmark imports them."""
    large = ("scipy", "pandas", "sklearn", "matplotlib", "pals.crowd", "pals.readers", "pals.model", "pals.bench")
    code = f"""
import sys, torch
before = set(sys.modules)
import pals.runs.run_config
print(len(set(sys.modules) - before), *[name for name in {large} if name in sys.modules])
"""
    count, *found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.split()
    assert not found
    assert int(count) <= 240  # 210 on Python 3.11


def test_settings_of_two_benchmark_runs_are_checked_few_times(pals: Callable[..., Answer], tmp_path: Path) -> None:
    """Once for the experiment and once where each run begins, which may be another process."""
    runs = "base: {data: {name: toy}, network: {name: mlp}, train: {epochs: 1}, engine: {device: cpu}}"
    write_text(tmp_path / "grid.yaml", f"{runs}\nrows: {{average: {{method: {{name: average}}}}}}\ncolumns: {{toy: {{}}}}\n")
    calls, of = list[Any](), RunConfig.of.__func__  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunConfig, "of", classmethod(lambda cls, *args, **more: calls.append(args) or of(cls, *args, **more)))
        answer = pals("bench", "--grid", "grid.yaml", "--seeds", "2", "--out", "bench")
    assert answer.code == 0, answer.err
    assert len(list(Path("bench").glob("*/*/*/*/summary.json"))) == 2 and len(calls) <= 4


def test_constants_that_are_repeated_to_load_less() -> None:
    from pals.crowd.closed_form import STRENGTH
    from pals.crowd.dawid_skene import em

    assert (STRENGTH, em.DAWID_SKENE) == (CLOSED_FORM_STRENGTH, DAWID_SKENE)


def test_a_schedule_of_the_same_length_is_the_same() -> None:
    for method in METHODS:
        values = full("cifar10", method)
        assert shortened(values, values["train"]["epochs"]) == values


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("data", ["digits", "cifar10", "cifar100"])
@pytest.mark.parametrize("epochs", [1, 2, 30])
def test_every_method_can_be_trained_for_few_epochs(data: str, method: str, epochs: int) -> None:
    short = shortened(full(data, method), epochs)
    assert RunConfig.of(short).to_dict() == short and short["train"]["epochs"] == epochs
    assert all(milestone <= epochs for milestone in short["train"]["milestones"])


def test_what_counts_epochs_changes_in_proportion_and_nothing_else() -> None:
    values = full("cifar10", "elr+")  # 200 epochs, a milestone at 150, a ramp of 40,000 steps
    values["train"]["warmup"] = 10.0
    short = shortened(values, 50)
    assert (short["train"]["milestones"], short["train"]["warmup"], short["method"]["slow_ramp"]) == ([38], 2.5, 10_000)
    changed = {key for section in ("train", "method") for key in values[section] if values[section][key] != short[section][key]}
    assert changed <= {"epochs", "milestones", "period", "warmup", "slow_ramp", "memory_ramp"}
    assert all(short[key] == values[key] for key in ("data", "network", "engine", "seed"))
    # PiCO's prototypes vote from epoch 2 of 800 on: never at once; PiCO+'s neighbours from 101 on, an eighth of the way
    assert shortened(full("cifar10", "pico"), 8)["method"]["prototypes_from"] == 2
    assert shortened(full("cifar10", "pico+"), 80)["method"]["neighbors_from"] == 11
    for name in METHODS:
        assert set(find_method(name).counted_in_epochs) <= set(full("digits", name)["method"])


@pytest.mark.parametrize(
    ("method", "options", "epochs", "late"),
    [
        ("pico+", {}, 20, ["prototypes_from", "neighbors_from"]),
        ("pico+", {}, 21, ["neighbors_from"]),
        ("pico+", {}, 41, []),
        ("alim-scale", {}, 20, ["adjust_from"]),  # what is set after the last epoch serves nobody
        ("alim-scale", {}, 21, []),
        ("irnet", {"correct_from": None}, 2, []),
        ("irnet", {"correct_from": 3}, 2, ["correct_from"]),
        ("dividemix", {"warm_up": 5}, 5, ["warm_up"]),
        ("dividemix", {"warm_up": 5}, 6, []),
        ("apl", {}, 1, []),
        ("pals", {}, 1, []),
    ],
)
def test_what_lies_behind_the_last_epoch(method: str, options: dict[str, Any], epochs: int, late: list[str]) -> None:
    values = {"data": {"name": "digits"}, "method": {"name": method, **options}, "train": {"epochs": epochs}}
    assert unreachable_options(RunConfig.of(values)) == late


@pytest.mark.parametrize("method", METHODS)
def test_a_shortened_schedule_still_has_all_its_stages(method: str) -> None:
    for data in ("digits", "cifar10", "cifar100"):
        assert unreachable_options(RunConfig.of(shortened(full(data, method), 30))) == []


def test_sets_alike_have_settings_alike() -> None:
    """Whatever was not published there; what authors choose by the rates is left open where the rates are not known."""
    for method in METHODS:
        hundred, by_class = full("cifar100", method), full("cifar100h", method)
        assert {**hundred, "data": 0} == {**by_class, "data": 0}
        ten, answers = full("cifar10", method), full("cifar10n", method)
        if method in published_settings()["methods"]["cifar10"]:
            assert (ten["network"], ten["train"]) == (answers["network"], answers["train"])
    assert full("cifar10n", "irnet")["method"]["tau"] is None
    assert full("cifar10n", "pico+")["method"]["delta"] is None


@pytest.mark.parametrize(
    ("data", "options", "train", "epochs"),
    [
        ("cifar10", {}, {}, 500),
        ("cifar10", {"preset": "official"}, {}, 500),
        ("cifar10", {"preset": "fast"}, {}, 125),
        ("cifar10", {"preset": "fast"}, {"epochs": 300}, 300),  # what is given wins
        ("digits", {"preset": "fast"}, {}, 60),  # never more than without it
    ],
)
def test_a_preset_has_epochs_of_its_own(data: str, options: dict[str, Any], train: dict[str, Any], epochs: int) -> None:
    config = RunConfig.of({"data": {"name": data}, "method": {"name": "srse", **options}, "train": train})
    assert config.train.epochs == epochs
    assert config.method.start == "patches" or options.get("preset") != "fast"
    assert RunConfig.of(config.to_dict()) == config
