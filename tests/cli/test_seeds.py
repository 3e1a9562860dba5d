"""One meaning of --seeds in all commands."""

from __future__ import annotations

import inspect

import pytest

from pals.cli.bench import bench
from pals.cli.seeds import MAX_SEEDS, Seed, Seeds, chosen_seeds
from pals.cli.train import demo, train


@pytest.mark.parametrize(
    ("seeds", "seed", "expected"),
    [(None, None, [7]), ("1", None, [1]), ("3", None, [1, 2, 3]), ("1,4", None, [1, 4]), (" 4, 1 ", None, [4, 1]),
     (str(MAX_SEEDS), None, list(range(1, MAX_SEEDS + 1))), (None, 0, [0]), (None, 2024, [2024])],
)  # fmt: skip
def test_how_many_or_which(seeds: str | None, seed: int | None, expected: list[int]) -> None:
    assert chosen_seeds(seeds, seed, [7]) == expected


def test_every_command_with_seeds_has_both_options() -> None:
    for command in (train, bench, demo):
        kinds = {name: one.annotation for name, one in inspect.signature(command, eval_str=True).parameters.items()}
        assert (kinds["seeds"], kinds["seed"]) == (Seeds, Seed)
