"""Settings of a run as a whole: schedules of another length."""

from __future__ import annotations

from typing import Any

import pytest

from pals.methods import METHODS, find_method
from pals.recipes import PUBLISHED
from pals.settings import RunConfig, shortened


def full(data: str, method: str, **sections: Any) -> dict[str, Any]:
    return RunConfig.of({"data": {"name": data}, "method": {"name": method}, **sections}).to_dict()


def test_a_schedule_of_the_same_length_is_the_same() -> None:
    for method in METHODS:
        values = full("cifar10", method)
        assert shortened(values, values["train"]["epochs"]) == values


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("data", ["digits", "cifar10", "cifar100"])
@pytest.mark.parametrize("epochs", [1, 2, 30])
def test_every_method_can_be_trained_for_few_epochs(data: str, method: str, epochs: int) -> None:
    short = shortened(full(data, method), epochs)
    assert RunConfig.of(short).to_dict() == short
    assert short["train"]["epochs"] == epochs
    assert all(milestone <= epochs for milestone in short["train"]["milestones"])


def test_what_counts_epochs_changes_in_proportion_and_nothing_else() -> None:
    values = full("cifar10", "elr+")  # 200 epochs, a milestone at 150, a ramp of 40,000 steps
    short = shortened(values, 50)
    assert (short["train"]["milestones"], short["method"]["slow_ramp"]) == ([38], 10_000)
    for section, changed in (("train", {"epochs", "milestones", "period"}), ("method", {"slow_ramp", "memory_ramp"})):
        same = {key for key in values[section] if values[section][key] == short[section][key]}
        assert set(values[section]) - same <= changed
    assert {key: short[key] for key in ("data", "network", "engine", "seed")} == {
        key: values[key] for key in ("data", "network", "engine", "seed")
    }


def test_a_first_epoch_stays_behind_the_first() -> None:
    """PiCO's prototypes vote from epoch 2 of 800 on: never at once; PiCO+'s neighbours from 101 on, an eighth of the way."""
    assert shortened(full("cifar10", "pico"), 8)["method"]["prototypes_from"] == 2
    assert shortened(full("cifar10", "pico+"), 80)["method"]["neighbors_from"] == 11


def test_only_options_that_exist_are_counted_in_epochs() -> None:
    for name in METHODS:
        options = full("digits", name)["method"]
        assert set(find_method(name).counted_in_epochs) <= set(options)
    assert any(find_method(name).counted_in_epochs for name in PUBLISHED["cifar10"])
