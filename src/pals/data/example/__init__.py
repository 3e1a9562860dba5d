"""Fifty-seven photographs of coasts, streets and buildings with the answers of fifteen people, for trying `pals fit`.

README.md says how they were chosen, LICENSE.md where they are from.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

EXAMPLE_ENCODER = "efficientnet-lite0"
"""The encoder of photographs: named, so that no time goes into a comparison."""


class Example(NamedTuple):
    """Paths of the example."""

    images: Path
    answers: Path
    truth: Path


def example() -> Example:
    here = Path(__file__).parent
    return Example(here / "images", here / "answers.csv", here / "truth.csv")
