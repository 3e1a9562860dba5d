from __future__ import annotations

import pytest

from pals.util.words import duration, how_many


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "unknown"), (0.2, "1 s"), (40, "40 s"), (119, "119 s"), (119.6, "2 min"), (3600, "60 min"), (7169, "119 min"),
     (9000, "2.5 h"), (40_000, "11 h")],
)  # fmt: skip
def test_durations(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (794, "13 min 14 s"), (3599.7, "1 h 00 min"), (7500, "2 h 05 min")],
)
def test_measured_durations(seconds: float, words: str) -> None:
    assert duration(seconds, exact=True) == words


def test_numbers_of_things() -> None:
    assert [how_many(count, "tie") for count in (0, 1, 2, 1234)] == ["no ties", "1 tie", "2 ties", "1,234 ties"]
    assert how_many(1, "person", "people") == "1 person"
