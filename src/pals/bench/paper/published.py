"""The numbers that the paper prints, read from `numbers.json` beside this file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

PAPER_RUNS = 3
"""Runs behind every printed mean."""


class Published(NamedTuple):
    """A test accuracy in percent, as printed."""

    mean: float
    std: float | None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.std is None else f"{self.mean:.2f} ± {self.std:.2f}"


@cache
def numbers() -> Mapping[str, Any]:
    """The content of `numbers.json`: `source`, `licence`, `notes`, `tables`, `figure2`, `timing`."""
    content: Mapping[str, Any] = json.loads(files("pals.bench.paper").joinpath("numbers.json").read_text(encoding="utf-8"))
    return content


def published(table: str, group: str, row: str, column: str) -> Published | None:
    """The number at one place of a table.

    Args:
        table: "1" to "7".
        group: heading above the columns, in table 7 above the rows.
        row: as printed.
        column: as printed.

    Returns:
        None where the paper has a dash or no such place.

    >>> str(published("1", "CIFAR-10", "PALS", "CIFAR-10, q=0.1, eta=0.1"))
    '96.28 ± 0.05'
    """
    groups: Mapping[str, Any] = numbers()["tables"].get(table, {}).get("groups", {})
    found = groups.get(group, {}).get(row, {}).get(column)
    return None if found is None else Published(*found)


def caption(table: str) -> str:
    """The heading of a table ("1" to "7"), of "figure2" or of "timing"; empty for any other name."""
    found = numbers()["tables"].get(table) or (numbers().get(table) if table in ("figure2", "timing") else None)
    return str(found["caption"]) if found else ""


def selected_pairs() -> Mapping[str, Mapping[str, int]]:
    """The points of figure 2 that the text gives: "first epoch" and "last epoch", each with "selected" and "right"."""
    return {when: numbers()["figure2"][when] for when in ("first epoch", "last epoch")}


def epoch_seconds(row: str, column: str) -> float | None:
    """Published seconds per epoch of "PALS" or "ALIM" with "ResNet-18" or "WideResNet", on an RTX 2080 Ti."""
    found = numbers()["timing"]["seconds"].get(row, {}).get(column)
    return None if found is None else float(found)
