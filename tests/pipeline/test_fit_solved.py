"""`pals fit` without training: on vectors and frozen features the labels and the classifier are solved for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from _crowd import answered_digits
from _refused import refused
from pals.crowd.dawid_skene.annotator_model import SKILL_STRENGTH
from pals.model import Model, expected_calibration_error, export_onnx
from pals.pipeline import Findings, fit, update
from pals.pipeline.stages.fit_defaults import Facts, choose
from pals.pipeline.stages.learn import NO_HELP
from pals.runs.run_config import RunConfig
from pals.util.config import read_yaml

ITEMS = 1000


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, np.ndarray, pd.DataFrame]:
    """A folder, vectors, true labels, and answers about the first `ITEMS`."""
    x_ND, y_N, answers = answered_digits(ITEMS)
    folder = tmp_path_factory.mktemp("digits")
    np.save(folder / "x.npy", x_ND[:ITEMS])
    pd.DataFrame({"item": range(ITEMS), "label": [f"d{y}" for y in y_N[:ITEMS]]}).to_csv(folder / "truth.csv", index=False)
    return folder, x_ND, y_N, answers


@pytest.fixture(scope="module")
def found(digits: tuple[Path, np.ndarray, np.ndarray, pd.DataFrame]) -> Findings:
    folder, *_, votes = digits
    return fit(None, votes, features=folder / "x.npy", out=folder / "run", truth=folder / "truth.csv")


def test_it_is_what_vectors_get_by_default_and_where_it_cannot_be_had(found: Findings) -> None:
    assert found.numbers["training"]["method"] == "closed-form" and found.numbers["training"]["epochs"] == 0
    assert found.numbers["grades"]["labels"] > found.numbers["grades"]["majority"] + 0.05
    settings = read_yaml(found.folder / "config.yaml")
    assert settings["method"] == {"name": "closed-form", "strength": SKILL_STRENGTH}
    assert settings["network"]["name"] == "linear" and not (found.folder / "checkpoint.pt").exists()
    assert set(found.numbers["held_out"]) == {"covering", "approximate"}
    closed = {"method": {"name": "closed-form"}}
    small = {**closed, "network": {"name": "small-cnn"}}
    for facts, given in ((Facts(100, 3, 32, False), small), (Facts(5000, 3, None, False, 5000), closed)):
        refused(r"Method closed-form .*: leave out --method", choose, given, facts)
    refused("use `pals fit`", RunConfig.of, closed)


@pytest.mark.slow
def test_new_items_are_predicted_as_surely_as_rightly(
    found: Findings, digits: tuple[Path, np.ndarray, np.ndarray, pd.DataFrame]
) -> None:
    x_ND, y_N = digits[1:3]
    probability_NC = found.model.probabilities(torch.from_numpy(x_ND[ITEMS:]))
    label_N = torch.tensor([found.model.class_names.index(f"d{label}") for label in y_N[ITEMS:]])
    assert (probability_NC.argmax(dim=1) == label_N).double().mean() > 0.9
    assert expected_calibration_error(probability_NC, label_N) <= 0.04


def test_what_the_classifier_says_of_an_item_is_by_all_others(
    found: Findings, digits: tuple[Path, np.ndarray, np.ndarray, pd.DataFrame], tmp_path: Path
) -> None:
    """Its own answers, all changed to another label, leave the opinion nearly as it was; what is fitted to it would follow."""
    folder, *_, votes = digits
    row = 7
    before = int(found.trained.predicted_NC[row].argmax())
    other = found.model.class_names[(before + 5) % 10]
    changed = votes.assign(label=votes["label"].where(votes["item"] != row, other))
    after = fit(None, changed, features=folder / "x.npy", out=tmp_path / "run").trained.predicted_NC[row]
    assert abs(after - found.trained.predicted_NC[row]).max() < 0.05


def test_resuming_and_updating_solve_again(
    found: Findings, digits: tuple[Path, np.ndarray, np.ndarray, pd.DataFrame], tmp_path: Path
) -> None:
    folder, _, y_N, votes = digits
    labels = (found.folder / "labels.csv").read_bytes()
    lines: list[str] = []
    fit(None, votes, features=folder / "x.npy", out=folder / "run", truth=folder / "truth.csv", progress=lines.append)
    assert (found.folder / "labels.csv").read_bytes() == labels
    assert any(line.startswith("Closed form on the feature vectors") for line in lines)
    more = pd.DataFrame({"item": range(20), "annotator": "eve", "label": [f"d{y}" for y in y_N[:20]]})
    more.to_csv(tmp_path / "more.csv", index=False)
    updated = update(found.folder, tmp_path / "more.csv", out=tmp_path / "updated")
    assert updated.numbers["answers"] == found.numbers["answers"] + 20
    assert updated.numbers["training"]["method"] == "closed-form"
    before, after = (read_yaml(run.folder / "config.yaml") for run in (found, updated))
    assert before["network"] == after["network"] and before["train"] == after["train"]


@pytest.mark.slow
def test_the_saved_classifier_is_one_file_and_exports(found: Findings, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = Model.load(found.folder, "cpu")
    assert model.about.classifier.network == "linear" and model.encoder is None
    report = export_onnx(found.folder, tmp_path / "digits.onnx")
    assert report.largest_difference is not None and report.largest_difference < 1e-5


def noise(items: int, tmp_path: Path, **options: Any) -> Findings:
    """Vectors that tell nothing."""
    rng = np.random.default_rng(1)
    truth_N = rng.integers(3, size=items)
    np.save(tmp_path / "x.npy", rng.normal(size=(items, 8)))
    rows = [(i, w, "abc"[t if rng.random() < 0.8 else rng.integers(3)]) for i, t in enumerate(truth_N) for w in "uvw"]
    votes = pd.DataFrame(rows, columns=["item", "annotator", "label"])
    return fit(None, votes, features=tmp_path / "x.npy", out=tmp_path / "run", **options)


def test_vectors_that_tell_nothing_have_no_weight_and_it_is_said(tmp_path: Path) -> None:
    found = noise(120, tmp_path)
    assert found.trained.fusion.consensus is found.trained.fusion.alone and NO_HELP in found.summary
    probability_NC = found.model.probabilities(torch.randn(5, 8))
    assert torch.allclose(probability_NC, probability_NC[:1].expand(5, -1))


def test_training_says_which_predicts_answers_better(
    digits: tuple[Path, np.ndarray, np.ndarray, pd.DataFrame], tmp_path: Path
) -> None:
    folder, *_, votes = digits
    settings = {"train": {"epochs": 1}, "engine": {"device": "cpu"}}
    trained = fit(None, votes, features=folder / "x.npy", out=tmp_path / "run", method="pals", settings=settings)
    assert any("the closed form" in line.lower() and "a typical probability of" in line.lower() for line in trained.summary)
    assert trained.numbers["training"]["method"] == "pals"
