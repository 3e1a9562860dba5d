"""Numbers worked out by hand, and what must hold for all."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pals.bench import Summary, paired, summarise, verdict

ACCURACY = st.floats(0, 100)


def test_mean_and_deviation_of_a_sample() -> None:
    assert summarise([]) is None
    assert summarise([91.5]) == Summary(91.5, None, 1)
    found = summarise([90.0, 92.0, 94.0])
    assert found == Summary(92.0, 2.0, 3)  # (4 + 0 + 4) / 2 = 4


def test_paired_difference_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, deviation 1, t with 2 degrees of freedom 4.302653, half width 4.302653 / sqrt(3)."""
    found = paired({1: 91.0, 2: 93.0, 3: 95.0, 9: 0.0}, {1: 90.0, 2: 91.0, 3: 92.0, 8: 50.0})
    assert found is not None
    assert (found.mean, found.n) == (2.0, 3)
    assert found.low == pytest.approx(2 - 4.302653 / math.sqrt(3), abs=1e-5)
    assert found.high == pytest.approx(2 + 4.302653 / math.sqrt(3), abs=1e-5)


def test_paired_with_few_seeds() -> None:
    assert paired({1: 90.0}, {2: 90.0}) is None
    one = paired({1: 91.0, 2: 80.0}, {1: 90.0})
    assert one is not None
    assert (one.mean, one.low, one.high, one.n) == (1.0, None, None, 1)


def test_what_seeds_share_cancels_out() -> None:
    """Rows that differ by the same in every seed: the interval is a point, however much the seeds differ."""
    found = paired({1: 10.0, 2: 50.0, 3: 90.0}, {1: 9.0, 2: 49.0, 3: 89.0})
    assert found is not None
    assert (found.low, found.mean, found.high) == (1.0, 1.0, 1.0)


@given(st.dictionaries(st.integers(1, 9), ACCURACY, min_size=2), st.dictionaries(st.integers(1, 9), ACCURACY, min_size=2))
def test_turning_a_pair_round_turns_the_interval_round(a: dict[int, float], b: dict[int, float]) -> None:
    there, back = paired(a, b), paired(b, a)
    if there is None or back is None or there.low is None or there.high is None:
        assert len(a.keys() & b.keys()) < 2
        return
    assert back.low is not None
    assert there.low <= there.mean <= there.high
    assert back.mean == pytest.approx(-there.mean, abs=1e-9)
    assert back.low == pytest.approx(-there.high, abs=1e-9)


@pytest.mark.parametrize(
    ("ours", "published", "expected"),
    [
        (None, (97.0, 0.2), "not run"),
        (Summary(97.2, 0.5, 3), (97.0, 0.2), "within"),
        (Summary(96.8, 0.5, 3), (97.0, 0.2), "within"),
        (Summary(97.21, 0.5, 3), (97.0, 0.2), "better"),
        (Summary(96.79, 0.5, 3), (97.0, 0.2), "worse"),
        (Summary(97.204, None, 1), (97.0, 0.2), "within"),  # 97.20 when rounded as the paper's numbers are
        (Summary(97.4, 0.5, 3), (97.0, None), "within"),  # no deviation published: ours
        (Summary(97.6, 0.5, 3), (97.0, None), "better"),
        (Summary(97.0, None, 1), (97.0, None), "within"),
        (Summary(96.9, None, 1), (97.0, None), "worse"),
    ],
)
def test_verdicts(ours: Summary | None, published: tuple[float, float | None], expected: str) -> None:
    assert verdict(ours, published) == expected
