"""How long is left, said once the first steps are timed."""

from __future__ import annotations

import pytest

from pals.pipeline.progress import reporting_time_left, seconds_left


def test_the_rest_of_the_training_and_of_a_long_pass_by_hand() -> None:
    """Three folds of 40 epochs, each a third as dear as one on all items, then 100 on all items."""
    lengths = [(40, 1 / 3)] * 3 + [(100, 1.0)]
    first = {"seconds": 5.0, "warmup_seconds": 3.0}  # 2 seconds for an epoch of a fold, so 6 on all items
    assert seconds_left(first, lengths, place=0, done=1) == pytest.approx(39 * 2 + 2 * 40 * 2 + 100 * 6)
    assert seconds_left({"seconds": 6.0}, lengths, place=3, done=1) == pytest.approx(99 * 6)
    assert seconds_left({"seconds": 6.0}, lengths, place=3, done=100) == 0
    times, said, counted = iter([0.0, 1.0, 4.0, 6.0]), list[str](), list[tuple[int, int]]()
    count = reporting_time_left(lambda done, total: counted.append((done, total)), said.append, "features", lambda: next(times))
    for done in (400, 410, 440, 460):
        count(done, 1000)
    assert counted == [(400, 1000), (410, 1000), (440, 1000), (460, 1000)]
    assert said == ["features: about 56 s left."]  # 4 seconds for 40, 560 to go: the first 400 may have been known before
    times = iter([0.0, 3.0])
    count = reporting_time_left(lambda done, total: None, said.append, "features", lambda: next(times))
    count(800, 1000)
    count(900, 1000)
    assert len(said) == 1
