"""How predictions agree with candidates, by hand."""

from __future__ import annotations

import pytest
import torch

from pals.labels.covering import approximate_accuracy, covering_rate, is_candidate

PROBABILITY_NC = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.2, 0.2, 0.6]], dtype=torch.float64)
ALLOWED_NC = torch.tensor([[1, 1, 0], [1, 0, 1], [0, 0, 1]], dtype=torch.bool)


def test_the_two_criteria_by_hand() -> None:
    assert is_candidate(ALLOWED_NC, torch.tensor([0, 1, 2])).tolist() == [True, False, True]
    assert float(covering_rate(PROBABILITY_NC, ALLOWED_NC)) == pytest.approx(2 / 3)
    assert float(covering_rate(PROBABILITY_NC.log(), ALLOWED_NC)) == pytest.approx(2 / 3)  # only the order matters
    assert float(approximate_accuracy(PROBABILITY_NC, ALLOWED_NC)) == pytest.approx((0.6 / 0.9 + 0 + 1) / 3)


def test_no_probability_on_any_candidate_is_nothing() -> None:
    probability_NC = torch.tensor([[1.0, 0.0, 0.0]])
    assert float(approximate_accuracy(probability_NC, torch.tensor([[False, True, True]]))) == 0.0
