"""What a run leaves behind at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pals.runs import Run, RunConfig
from pals.training.trainer import Trainer
from pals.util.files import read_json

VALUES: dict[str, Any] = {
    "data": {"name": "digits"},
    "method": {"name": "average"},
    "train": {"epochs": 2, "batch_size": 500},
    "engine": {"device": "cpu"},
}


def test_each_epoch_is_graded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The summary takes the scores of the last epoch; one that was finished before is graded when it is asked for."""
    graded: list[dict[str, float]] = []
    evaluate = Trainer.evaluate

    def counted(trainer: Trainer) -> dict[str, float]:
        graded.append(evaluate(trainer))
        return graded[-1]

    monkeypatch.setattr(Trainer, "evaluate", counted)
    records = list(Run(RunConfig.of(VALUES), tmp_path / "run").epochs())
    summary = read_json(tmp_path / "run" / "summary.json")
    assert len(graded) == 2
    assert summary["test_accuracy"] == records[-1]["test_accuracy"] == graded[-1]["accuracy"]
    assert summary["test_loss"] == records[-1]["test_loss"]
    again = Run(RunConfig.of(VALUES), tmp_path / "run")
    assert list(again.epochs()) == []
    assert again.summary() == summary
    assert len(graded) == 4  # once for summary.json, which is written again, and once here
