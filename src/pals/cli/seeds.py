"""Which seeds to run: `--seeds` and `--seed`, with one meaning in every command."""

from __future__ import annotations

from typing import Annotated

import typer

from pals.util.config import SEEDS
from pals.util.errors import InputError

MOST = 100
"""Seeds that can be asked for by their number: whoever writes 2024 means a seed."""

Seeds = Annotated[str | None, typer.Option(help="Number of seeds (3 means 1, 2 and 3), or a list of seeds (1,4).")]
Seed = Annotated[int | None, typer.Option(help="A single seed, e.g. --seed 5.")]


def chosen_seeds(seeds: str | None, seed: int | None, default: list[int]) -> list[int]:
    """What the two options name together; `default` where neither is given."""
    if seeds is not None and seed is not None:
        raise InputError("--seeds and --seed cannot be combined; write all seeds as --seeds 1,4,5.")
    if seeds is None:
        return default if seed is None else _in_range("--seed", [seed])
    if "," not in seeds:
        return _counted(seeds)
    numbers = [_number(seeds, part) for part in seeds.split(",")]
    if len(set(numbers)) < len(numbers):
        raise InputError(f"--seeds {seeds!r} names a seed twice.")
    return _in_range("--seeds", numbers)


def _counted(text: str) -> list[int]:
    count = _number(text, text)
    if count < 1:
        raise InputError(f"--seeds {text}: how many seeds? At least 1; seed {max(count, 0)} alone is --seed {max(count, 0)}.")
    if count > MOST:
        raise InputError(
            f"--seeds {text} would be {count:,} runs, of seeds 1 to {count:,}. Seed {count} alone is --seed {count}."
        )
    return list(range(1, count + 1))


def _number(text: str, part: str) -> int:
    try:
        return int(part)
    except ValueError:
        raise InputError(
            f"--seeds {text!r}: write how many (3: seeds 1, 2 and 3) or which (1,4); one seed alone is --seed 5."
        ) from None


def _in_range(option: str, numbers: list[int]) -> list[int]:
    for number in numbers:
        if not 0 <= number < SEEDS:
            raise InputError(f"{option} {number}: a seed is a whole number from 0 to {SEEDS - 1}.")
    return numbers
