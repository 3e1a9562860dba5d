"""Is the saved classifier as sure as it is right? Digits as vectors, three simulated people, items that it has never seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits

from pals.fitting import fit
from pals.model import expected_calibration_error

ITEMS = 1000
PEOPLE = {"ann": 0.85, "bob": 0.75, "cho": 0.65}  # how often they look; otherwise they say anything


def digits() -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    """Vectors, true labels, and answers about the first `ITEMS`."""
    x_ND, y_N = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(x_ND))
    x_ND, y_N = x_ND[order].astype(np.float32), y_N[order]
    rows = [
        (item, worker, f"d{y_N[item] if rng.random() < right else rng.integers(10)}")
        for item in range(ITEMS)
        for worker, right in PEOPLE.items()
    ]
    return x_ND, y_N, pd.DataFrame(rows, columns=["item", "worker", "label"])


@pytest.mark.parametrize("folds", [pytest.param(0, marks=pytest.mark.slow), 3])
def test_new_items_are_predicted_as_surely_as_rightly(folds: int, tmp_path: Path) -> None:
    """With the temperature of the fold networks, which have another scale, it was 45% off; against the answers alone 16%."""
    x_ND, y_N, votes = digits()
    np.save(tmp_path / "x.npy", x_ND[:ITEMS])
    settings = {"data": {"fold_epochs": 10}}
    found = fit(None, votes, features=tmp_path / "x.npy", out=tmp_path / "run", folds=folds, epochs=20, device="cpu",
                settings=settings)  # fmt: skip
    probability_NC = found.model.probabilities(torch.from_numpy(x_ND[ITEMS:]))
    label_N = torch.tensor([found.model.class_names.index(f"d{label}") for label in y_N[ITEMS:]])
    assert (probability_NC.argmax(dim=1) == label_N).double().mean() > 0.95
    assert expected_calibration_error(probability_NC, label_N) <= 0.03
    assert (probability_NC.max(dim=1).values < 0.6).double().mean() < 0.1
