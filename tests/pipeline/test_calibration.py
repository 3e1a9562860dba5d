"""Is the saved classifier as sure as it is right? Digits as vectors, three simulated people, items that it has never seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from _crowd import answered_digits
from pals.model import expected_calibration_error, fit_temperature
from pals.pipeline import fit

ITEMS = 1000


@pytest.mark.slow
@pytest.mark.parametrize("folds", [0, 3])
def test_new_items_are_predicted_as_surely_as_rightly(folds: int, tmp_path: Path) -> None:
    """With the temperature of the fold networks, which have another scale, it was 45% off; against the answers alone 16%."""
    x_ND, y_N, votes = answered_digits(ITEMS)
    np.save(tmp_path / "x.npy", x_ND[:ITEMS])
    settings = {"data": {"folds": folds, "fold_epochs": 10}, "train": {"epochs": 20}, "engine": {"device": "cpu"}}
    found = fit(None, votes, features=tmp_path / "x.npy", out=tmp_path / "run", settings=settings)
    probability_NC = found.model.probabilities(torch.from_numpy(x_ND[ITEMS:]))
    label_N = torch.tensor([found.model.class_names.index(f"d{label}") for label in y_N[ITEMS:]])
    assert (probability_NC.argmax(dim=1) == label_N).double().mean() > 0.95
    assert expected_calibration_error(probability_NC, label_N) <= 0.03
    assert (probability_NC.max(dim=1).values < 0.6).double().mean() < 0.1


def test_people_who_share_mistakes_do_not_make_it_modest(tmp_path: Path) -> None:
    """The labels are as unsure as the correlation of people demands. The temperature is fitted to what they would be without:
    else new items are predicted far less surely than rightly."""
    x_ND, y_N, _ = answered_digits(ITEMS)
    rng = np.random.default_rng(0)
    truth_R = np.repeat(y_N[:ITEMS], 3)
    label_R = np.where(rng.random(3 * ITEMS) < 0.8, truth_R, rng.integers(10, size=3 * ITEMS))
    misled_R = np.repeat(rng.random(ITEMS) < 0.15, 3) & (rng.random(3 * ITEMS) < 0.7)
    label_R = np.where(misled_R, np.repeat((y_N[:ITEMS] + rng.integers(1, 10, ITEMS)) % 10, 3), label_R)
    rows = {"item": np.repeat(np.arange(ITEMS), 3), "annotator": np.tile(["ann", "bob", "cho"], ITEMS)}
    votes = pd.DataFrame(rows | {"label": [f"d{label}" for label in label_R]})
    np.save(tmp_path / "x.npy", x_ND[:ITEMS])
    settings = {"data": {"folds": 0}, "train": {"epochs": 8}, "engine": {"device": "cpu"}}
    found = fit(None, votes, features=tmp_path / "x.npy", out=tmp_path / "run", method="pals", settings=settings)
    fusion = found.trained.fusion
    assert (fusion.posterior_NC.max(axis=1) < fusion.mean_NC.max(axis=1)).mean() > 0.9 and found.model is not None

    def logits(rows_ND: np.ndarray) -> torch.Tensor:
        assert found.model is not None
        probability_NC = found.model.probabilities(torch.from_numpy(rows_ND)).double()
        return found.trained.temperature * probability_NC.clamp_min(1e-300).log()

    order_N = np.array([int(item) for item in found.result.votes.items])
    modest = fit_temperature(logits(x_ND[order_N]), torch.from_numpy(found.result.posterior_NC))
    new_NC = logits(x_ND[ITEMS:])
    label_N = torch.tensor([found.model.class_names.index(f"d{label}") for label in y_N[ITEMS:]])
    error, worse = (
        expected_calibration_error((new_NC / t).softmax(dim=1), label_N) for t in (found.trained.temperature, modest)
    )
    assert error < worse
