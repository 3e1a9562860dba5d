"""The numbers that the paper prints, read from `numbers.json` beside this file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

PAPER_RUNS = 3
"""Behind every mean that it prints."""


class Published(NamedTuple):
    """A test accuracy in percent, as printed."""

    mean: float
    std: float | None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.std is None else f"{self.mean:.2f} ± {self.std:.2f}"


@cache
def numbers() -> Mapping[str, Any]:
    """All of the file: `source`, `licence`, `notes`, `tables`, `figure2`, `timing`."""
    content: Mapping[str, Any] = json.loads(files("pals.bench.paper").joinpath("numbers.json").read_text(encoding="utf-8"))
    return content


def published(table: str, group: str, row: str, column: str) -> Published | None:
    """What the paper has at this place; None where it has a dash, or no such place."""
    groups: Mapping[str, Any] = numbers()["tables"].get(table, {}).get("groups", {})
    found = groups.get(group, {}).get(row, {}).get(column)
    return None if found is None else Published(*found)


def caption(table: str) -> str:
    """The heading of a table ("1" to "7"), of "figure2" or of "timing"; empty for what is not in the paper."""
    found = numbers()["tables"].get(table) or (numbers().get(table) if table in ("figure2", "timing") else None)
    return str(found["caption"]) if found else ""


def selected_pairs() -> Mapping[str, Mapping[str, int]]:
    """The points of figure 2 that the text gives: "first epoch" and "last epoch", each with "selected" and "right"."""
    return {when: numbers()["figure2"][when] for when in ("first epoch", "last epoch")}


def epoch_seconds(row: str, column: str) -> float | None:
    """Published seconds per epoch of "PALS" or "ALIM" with "ResNet-18" or "WideResNet", on an RTX 2080 Ti."""
    found = numbers()["timing"]["seconds"].get(row, {}).get(column)
    return None if found is None else float(found)
