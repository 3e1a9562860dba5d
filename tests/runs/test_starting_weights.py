"""A run starts from weights in the data folder, and needs them only to start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pals.runs.run import Run, evaluate
from pals.runs.run_config import RunConfig
from pals.util.errors import InputError
from pals.vision.networks import build_network

NAME = "resnet18-f37072fd.pth"


def values(**network: Any) -> dict[str, Any]:
    return {
        "data": {"name": "digits"},
        "network": {"name": "small-cnn", "weights": NAME, **network},
        "method": {"name": "average"},
        "train": {"epochs": 1, "batch_size": 500},
        "engine": {"device": "cpu"},
    }


def test_weights_from_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PALS_DATA", raising=False)
    with pytest.raises(InputError, match="Get it with `pals data fetch resnet18-weights --data-dir "):
        Run(RunConfig.of(values()), tmp_path / "run", tmp_path / "data")
    assert not (tmp_path / "run").exists()
    torch.manual_seed(5)
    saved = build_network("small-cnn", (1, 8, 8), 10).state_dict()
    (tmp_path / "data" / "weights").mkdir(parents=True)
    torch.save(saved, tmp_path / "data" / "weights" / NAME)
    run = Run(RunConfig.of(values()), tmp_path / "run", tmp_path / "data")
    state = run.trainer.method.predictor.state_dict()
    assert all(torch.equal(state[name], value) for name, value in saved.items() if not name.startswith("classifier."))
    assert run.config.to_dict()["network"]["weights"] == NAME  # the run is the same wherever the data lie
    accuracy = list(run.epochs())[-1]["test_accuracy"]
    assert evaluate(tmp_path / "run")["accuracy"] == accuracy  # without the data folder


def test_other_weights_are_found_as_before(tmp_path: Path) -> None:
    path = tmp_path / "mine.pt"
    torch.save(build_network("small-cnn", (1, 8, 8), 10).state_dict(), path)
    Run(RunConfig.of(values(weights=str(path))))
    with pytest.raises(InputError, match="There is no weights file"):
        Run(RunConfig.of(values(weights=str(tmp_path / "none.pt"))))
