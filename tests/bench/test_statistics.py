"""Numbers worked out by hand, and what must hold for all."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from pals.bench import Summary, paired, summarise, verdict

ACCURACY = st.floats(0, 100)


def test_paired_difference_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, deviation 1, t with 2 degrees of freedom 4.302653, half width 4.302653 / sqrt(3)."""
    assert summarise([]) is None and summarise([91.5]) == Summary(91.5, None, 1)
    found = summarise([90.0, 92.0, 94.0])
    assert found == Summary(92.0, 2.0, 3)  # (4 + 0 + 4) / 2 = 4
    found = paired({1: 91.0, 2: 93.0, 3: 95.0, 9: 0.0}, {1: 90.0, 2: 91.0, 3: 92.0, 8: 50.0})
    assert found is not None and (found.mean, found.n) == (2.0, 3)
    assert found.low == pytest.approx(2 - 4.302653 / math.sqrt(3), abs=1e-5)
    assert found.high == pytest.approx(2 + 4.302653 / math.sqrt(3), abs=1e-5)
    assert paired({1: 90.0}, {2: 90.0}) is None
    one = paired({1: 91.0, 2: 80.0}, {1: 90.0})
    assert one is not None and (one.mean, one.low, one.high, one.n) == (1.0, None, None, 1)
    # rows that differ by the same in every seed: the interval is a point, however much the seeds differ
    even = paired({1: 10.0, 2: 50.0, 3: 90.0}, {1: 9.0, 2: 49.0, 3: 89.0})
    assert even is not None and (even.low, even.mean, even.high) == (1.0, 1.0, 1.0)


@given(st.dictionaries(st.integers(1, 9), ACCURACY, min_size=2), st.dictionaries(st.integers(1, 9), ACCURACY, min_size=2))
def test_turning_a_pair_round_turns_the_interval_round(a: dict[int, float], b: dict[int, float]) -> None:
    there, back = paired(a, b), paired(b, a)
    if there is None or back is None or there.low is None or there.high is None:
        assert len(a.keys() & b.keys()) < 2
        return
    assert back.low is not None and there.low <= there.mean <= there.high
    assert back.mean == pytest.approx(-there.mean, abs=1e-9)
    assert back.low == pytest.approx(-there.high, abs=1e-9)


@pytest.mark.parametrize(
    ("ours", "published", "expected"),
    [
        (None, (97.0, 0.2), "not run"),
        (Summary(94.39, None, 1), (94.18, 0.10), "within"),  # one run: 0.21 / (0.10 sqrt(1 + 1/3)) = 1.8, of 4.30
        (Summary(77.55, None, 1), (77.87, 0.29), "within"),  # 0.32 / (0.29 sqrt(1 + 1/3)) = 0.96
        (Summary(97.49, None, 1), (97.0, 0.1), "within"),  # 4.3027 x 0.1 x 1.1547 = 0.4968
        (Summary(97.51, None, 1), (97.0, 0.1), "better"),
        (Summary(96.49, None, 1), (97.0, 0.1), "worse"),
        (Summary(97.45, 0.2, 3), (97.0, 0.2), "within"),  # 2.7764 x 0.2 sqrt(2/3) = 0.4534
        (Summary(97.46, 0.2, 3), (97.0, 0.2), "better"),
        (Summary(96.54, 0.2, 3), (97.0, 0.2), "worse"),
        (Summary(97.30, 0.2, 30), (97.0, 0.2), "within"),  # Welch: 2.42 degrees of freedom, 3.66 x 0.1211 = 0.443
        (Summary(97.45, 0.2, 30), (97.0, 0.2), "better"),
        (Summary(97.45, 0.5, 3), (97.0, None), "within"),  # no deviation published: ours, 4.3027 x 0.5 sqrt(2/3) = 1.7566
        (Summary(98.77, 0.5, 3), (97.0, None), "better"),
        (Summary(97.004, 0.0, 3), (97.0, 0.0), "within"),  # 97.00 when rounded as the paper's numbers are
        (Summary(97.01, 0.0, 3), (97.0, 0.0), "better"),
        (Summary(96.9, None, 1), (97.0, None), ""),
    ],
)
def test_verdicts(ours: Summary | None, published: tuple[float, float | None], expected: str) -> None:
    assert verdict(ours, published) == expected


@given(st.lists(ACCURACY, min_size=3, max_size=3), st.lists(ACCURACY, min_size=2, max_size=9))
def test_the_verdict_is_that_of_the_usual_test(theirs: list[float], ours: list[float]) -> None:
    """From the numbers themselves, by scipy's own Welch test."""
    published, found = summarise(theirs), summarise(ours)
    assert published is not None and found is not None and published.std is not None and found.std is not None
    assume(published.std + found.std > 0.1 and abs(found.mean - published.mean) > 0.01)
    chance = stats.ttest_ind(ours, theirs, equal_var=False).pvalue
    assume(abs(chance - 0.05) > 0.01)
    expected = "within" if chance > 0.05 else "better" if found.mean > published.mean else "worse"
    assert verdict(found, (published.mean, published.std)) == expected
