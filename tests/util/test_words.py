from __future__ import annotations

from pals.util.words import duration, how_many


def test_durations_and_numbers_of_things() -> None:
    for exact, words in (
        (False, {None: "unknown", 0.2: "1 s", 40: "40 s", 119: "119 s", 119.6: "2 min", 3600: "60 min", 7169: "119 min"}),
        (False, {9000: "2.5 h", 40_000: "11 h"}),
        (True, {0.4: "0 s", 59.4: "59 s", 59.6: "1 min 00 s", 794: "13 min 14 s", 3599.7: "1 h 00 min", 7500: "2 h 05 min"}),
    ):
        assert {seconds: duration(seconds, exact=exact) for seconds in words} == words
    assert [how_many(count, "tie") for count in (0, 1, 2, 1234)] == ["no ties", "1 tie", "2 ties", "1,234 ties"]
    assert how_many(1, "person", "people") == "1 person"
