"""Sixty handwritten digits with the answers of five annotators, for trying `pals fit`.

README.md gives their source.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Example(NamedTuple):
    """Paths of the example."""

    images: Path
    answers: Path
    truth: Path


def example() -> Example:
    here = Path(__file__).parent
    return Example(here / "images", here / "answers.csv", here / "truth.csv")
