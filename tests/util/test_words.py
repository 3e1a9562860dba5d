from __future__ import annotations

import pytest

from pals.util.words import duration, how_many


@pytest.mark.parametrize(
    ("exact", "seconds", "words"),
    [(False, None, "unknown"), (False, 0.2, "1 s"), (False, 40, "40 s"), (False, 119, "119 s"), (False, 119.6, "2 min"),
     (False, 3600, "60 min"), (False, 7169, "119 min"), (False, 9000, "2.5 h"), (False, 40_000, "11 h"),
     (True, 0.4, "0 s"), (True, 59.4, "59 s"), (True, 59.6, "1 min 00 s"), (True, 794, "13 min 14 s"),
     (True, 3599.7, "1 h 00 min"), (True, 7500, "2 h 05 min")],
)  # fmt: skip
def test_durations(exact: bool, seconds: float | None, words: str) -> None:
    assert duration(seconds, exact=exact) == words


def test_numbers_of_things() -> None:
    assert [how_many(count, "tie") for count in (0, 1, 2, 1234)] == ["no ties", "1 tie", "2 ties", "1,234 ties"]
    assert how_many(1, "person", "people") == "1 person"
