"""Sixty handwritten digits that come along, with the answers of five people: something to try `pals fit` on.

README.md says where they come from. Nothing lives here but these files and where they lie.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Example(NamedTuple):
    """Where its parts lie."""

    images: Path
    answers: Path
    truth: Path


def example() -> Example:
    here = Path(__file__).parent
    return Example(here / "images", here / "answers.csv", here / "truth.csv")
