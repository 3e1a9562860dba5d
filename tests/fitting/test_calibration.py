"""Is the saved classifier as sure as it is right? Digits as vectors, three simulated people, items that it has never seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from _crowd import answered_digits
from pals.fitting import fit
from pals.model import expected_calibration_error

ITEMS = 1000


@pytest.mark.slow
@pytest.mark.parametrize("folds", [0, 3])
def test_new_items_are_predicted_as_surely_as_rightly(folds: int, tmp_path: Path) -> None:
    """With the temperature of the fold networks, which have another scale, it was 45% off; against the answers alone 16%."""
    x_ND, y_N, votes = answered_digits(ITEMS)
    np.save(tmp_path / "x.npy", x_ND[:ITEMS])
    settings = {"data": {"fold_epochs": 10}}
    found = fit(None, votes, features=tmp_path / "x.npy", out=tmp_path / "run", folds=folds, epochs=20, device="cpu",
                settings=settings)  # fmt: skip
    probability_NC = found.model.probabilities(torch.from_numpy(x_ND[ITEMS:]))
    label_N = torch.tensor([found.model.class_names.index(f"d{label}") for label in y_N[ITEMS:]])
    assert (probability_NC.argmax(dim=1) == label_N).double().mean() > 0.95
    assert expected_calibration_error(probability_NC, label_N) <= 0.03
    assert (probability_NC.max(dim=1).values < 0.6).double().mean() < 0.1
