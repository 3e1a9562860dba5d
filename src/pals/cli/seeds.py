"""Which seeds to run: `--seeds` and `--seed`, with one meaning in every command."""

from __future__ import annotations

from typing import Annotated

import typer

from pals.util.config import SEEDS
from pals.util.errors import InputError

MAX_SEEDS = 100
"""Largest number of seeds; a larger number, such as 2024, is meant as a seed."""

Seeds = Annotated[str | None, typer.Option(help="Number of seeds (3 means 1, 2 and 3), or a list of seeds (1,4).")]
Seed = Annotated[int | None, typer.Option(help="A single seed, e.g. --seed 5.")]


def chosen_seeds(seeds: str | None, seed: int | None, default: list[int]) -> list[int]:
    """The seeds of the two options.

    Args:
        seeds: A number of seeds ("3"), or a list ("1,4").
        seed: One seed.
        default: The seeds if neither is given.

    Raises:
        InputError: Both are given, or one is no seed.

    >>> chosen_seeds("3", None, [1]), chosen_seeds("1,4", None, [1])
    ([1, 2, 3], [1, 4])
    """
    if seeds is not None and seed is not None:
        raise InputError("--seeds and --seed cannot be combined; write all seeds as --seeds 1,4,5.")
    if seeds is None:
        return default if seed is None else _in_range("--seed", [seed])
    try:
        numbers = [int(part) for part in seeds.split(",")]
    except ValueError:
        raise InputError(f"--seeds {seeds!r}: write how many (3: seeds 1, 2, 3) or which (1,4), or --seed 5.") from None
    if "," in seeds:
        if len(set(numbers)) < len(numbers):
            raise InputError(f"--seeds {seeds!r} names a seed twice.")
        return _in_range("--seeds", numbers)
    (count,) = numbers
    if count < 1:
        raise InputError(f"--seeds {seeds}: how many seeds? At least 1; seed {max(count, 0)} alone is --seed {max(count, 0)}.")
    if count > MAX_SEEDS:
        raise InputError(f"--seeds {seeds} would be {count:,} runs. For the one seed {count} write --seed {count}.")
    return list(range(1, count + 1))


def _in_range(option: str, numbers: list[int]) -> list[int]:
    for number in numbers:
        if not 0 <= number < SEEDS:
            raise InputError(f"{option} {number}: a seed is a whole number from 0 to {SEEDS - 1}.")
    return numbers
