"""The drawings of the report and the words and numbers around them, against values worked out by hand."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pals.report import format, heatmap, sections
from pals.report.charts import Series, bar, line_chart, strip, ticks


def test_percentages_counts_and_days() -> None:
    shares = {None: "–", 0: "0.0%", 0.0004: "<0.1%", 0.0005: "0.1%", 0.123: "12.3%", 0.9994: "99.9%", 0.9996: ">99.9%"}
    assert {share: format.percent(share) for share in (*shares, 1)} == {**shares, 1: "100.0%"}
    assert [format.count(value) for value in (5000, 12.5, 3.0, None)] == ["5,000", "12.5", "3", "–"]
    assert format.day("2026-11-15T10:00:00+00:00") == "15 November 2026, 10:00 UTC"
    assert format.day("2026-11-15T00:30:00+02:00") == "14 November 2026, 22:30 UTC"


@pytest.mark.parametrize(
    ("low", "high", "marks"),
    [(0, 3.9, [0, 1, 2, 3, 4]), (0, 0, [0, 0.5, 1]), (0.42, 0.98, [0.4, 0.6, 0.8, 1.0]), (0, 4700, [0, 2000, 4000, 6000]),
     (5, 5, [4, 6, 8, 10])],
)  # fmt: skip
def test_axes_have_round_numbers(low: float, high: float, marks: list[float]) -> None:
    assert ticks(low, high) == marks


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_axes_hold_all_values(low: float, span: float) -> None:
    marks = ticks(low, low + span)
    assert 2 <= len(marks) <= 7 and marks[0] <= low + span * 1e-6 and marks[-1] >= low + span * (1 - 1e-6)


def test_lines_bars_and_scales() -> None:
    drawn = line_chart("Loss", [1, 2, 3, 4, 5], [Series("loss", [1.0, 2.0, None, 4.0, 3.0])], "{:g}".format)
    path = re.search(r' d="([^"]+)"', drawn)
    assert path and re.findall("[ML]", path[1]) == ["M", "L", "M", "L"]
    assert "Epoch 3: nothing known" in drawn and "Epoch 4: loss 4" in drawn
    assert 'aria-label="Loss by epoch; at the end: loss 3"' in drawn
    drawn = line_chart("Loss", [1, 2], [Series("loss", [0.0, 4.0])], "{:g}".format)
    assert 'd="M54.0 190.0h0L386.0 12.0"' in drawn
    epochs = [float(e) for e in range(1, 5001)]
    drawn = line_chart("Loss", epochs, [Series("loss", [1 / e for e in epochs])], "{:.5f}".format)
    assert len(drawn) < 60_000 and "loss 0.00020" in drawn
    assert "h0" in line_chart("Loss", [1], [Series("loss", [0.5])], "{:g}".format)
    assert bar(None, "x") == "" and 'width="25"' in bar(0.25, "x") and 'x="10"' in bar(0.25, "x", mark=0.1)
    assert 'width="100" height="6"></rect></svg>' not in bar(1.4, "x")  # cut to the rail, title after it
    drawn = strip([0.9, None, 0.2], ["a", "b", "c"])
    assert drawn.count('class="weak"') == 1 and "b: no items" in drawn and "c: 20.0% right" in drawn
    found = sections.error_estimate({"answers_wrong": 0.18, "labels_wrong": 0.06, "low": 0.05, "high": 0.08, "sentence": ""})
    assert found["scale"] == "20.0%"
    assert [line["words"] for line in found["lines"]] == ["18.0% wrong", "6.0% wrong, likely 5.0% to 8.0%"]
    assert 'cx="90.0%"' in found["lines"][0]["chart"] and 'x="25.0%" width="15.0%"' in found["lines"][1]["chart"]


def test_shades_cells_and_mix_ups_by_hand() -> None:
    for row, share, shade in (
        (0, 0.3, "a1"), (0, 0.5, "a2"), (0, 1.0, "a7"), (1, 0.001, "d1"), (1, 0.05, "d5"), (1, 0.9, "d7"),
    ):  # fmt: skip
        assert heatmap.HeatCell(row, 0, 1, share).shade == shade
    count_CC = np.array([[8.0, 2, 0], [1, 9, 0], [0, 0.5, 4.5]])
    order = heatmap.arrange(count_CC)
    assert order.tolist() == [0, 1, 2]
    found = [(one.row, one.column, one.count, one.share) for one in heatmap.cells(count_CC, order)]
    assert found == [(0, 0, 8, 0.8), (0, 1, 2, 0.2), (1, 0, 1, 0.1), (1, 1, 9, 0.9), (2, 1, 0.5, 0.1), (2, 2, 4.5, 0.9)]
    worst = heatmap.confused_pairs(count_CC, ["a", "b", "c"], 2)
    assert [(one.result, one.answer, one.count, one.total) for one in worst] == [("a", "b", 2, 10), ("b", "a", 1, 10)]
    assert len(heatmap.confused_pairs(count_CC, ["a", "b", "c"], 9)) == 3


def test_many_classes_are_put_beside_those_they_are_mixed_up_with_and_the_worst_drawn() -> None:
    """Class k is taken for k + 15 and the other way round: each pair must end up side by side."""
    count_CC = 50 * np.eye(30) + 9 * np.roll(np.eye(30), 15, axis=1)
    order = heatmap.arrange(count_CC).tolist()
    assert sorted(order) == list(range(30))
    assert all(abs(order.index(k) - order.index(k + 15)) == 1 for k in range(15))
    count_CC = 50 * np.eye(130)
    count_CC[range(20, 119), range(21, 120)] = 3
    order = heatmap.arrange(count_CC)
    assert len(order) == heatmap.MAX_DRAWN_CLASSES and set(range(20, 120)) == set(order.tolist())


@given(st.integers(2, 30), st.integers(0, 2**32 - 1))
def test_any_counts_can_be_drawn(classes: int, seed: int) -> None:
    count_CC = np.random.default_rng(seed).poisson(0.4, size=(classes, classes)).astype(float)
    order = heatmap.arrange(count_CC)
    found = heatmap.cells(count_CC, order)
    assert sorted(order.tolist()) == list(range(classes)) and sum(one.count for one in found) == count_CC.sum()
    assert all(one.count == count_CC[order[one.row], order[one.column]] for one in found)
    assert heatmap.grid(found, [f"c{k}" for k in range(classes)]).count("<rect") == len(found) + 1
