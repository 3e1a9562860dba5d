"""What a run leaves behind at its end."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from _locks import held_by_another
from _toy import TINY, Answer
from pals.runs.run import Run, evaluate
from pals.runs.run_config import RunConfig
from pals.training.trainer import Trainer
from pals.util.errors import InputError
from pals.util.files import UNFINISHED, read_json
from pals.util.locks import BusyError, FolderLock
from pals.vision.networks import build_network

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
    assert list(again.epochs()) == [] and again.summary() == summary
    assert len(graded) == 4  # once for summary.json, which is written again, and once here


def test_two_at_once_the_second_is_told_who_is_there(tmp_path: Path) -> None:
    """It must not touch the folder either: it would cut off the log, and remove what is being written."""
    first = Run(RunConfig.of(VALUES), tmp_path / "run")
    running = first.epochs()
    next(running)
    half_written = tmp_path / "run" / f".log.jsonl.1{UNFINISHED}"
    half_written.write_text("")
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(BusyError, match=rf"run is in use: process {os.getpid()} on .* since .* choose another --out\."):
        Run(RunConfig.of(VALUES), tmp_path / "run")
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    assert len(list(running)) == 1 and list(Run(RunConfig.of(VALUES), tmp_path / "run").epochs()) == []


def test_a_run_that_cannot_go_on_lets_go_of_its_folder(tmp_path: Path) -> None:
    list(Run(RunConfig.of(VALUES), tmp_path / "run").epochs(stop_after=1))
    (tmp_path / "run" / "checkpoint.pt").write_bytes(b"broken")
    for _ in range(2):
        with pytest.raises(InputError, match="checkpoint"):
            Run(RunConfig.of(VALUES), tmp_path / "run")
    with FolderLock(tmp_path / "run"):
        pass


@pytest.mark.parametrize("seeds", [("--seeds", "1"), ("--seeds", "1,2")], ids=["one", "several"])
def test_train_names_the_process_that_is_there(seeds: tuple[str, str], pals: Callable[..., Answer], tmp_path: Path) -> None:
    folder = tmp_path / "run" if seeds[1] == "1" else tmp_path / "run" / "seed-1"
    with held_by_another(folder) as other:
        answer = pals("train", "toy", *TINY, "--epochs", "1", *seeds, "--out", "run")
        assert answer.code == 2
        assert f"process {other.pid} on {socket.gethostname()} has been working on it since" in answer.err
    assert pals("train", "toy", *TINY, "--epochs", "1", *seeds, "--out", "run").code == 0


NAME = "resnet18-f37072fd.pth"


def with_weights(weights: str) -> RunConfig:
    network = {"name": "small-cnn", "weights": weights}
    return RunConfig.of({**VALUES, "network": network, "train": {"epochs": 1, "batch_size": 500}})


def test_weights_from_the_data_folder_and_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PALS_DATA", raising=False)
    with pytest.raises(InputError, match="Get it with `pals data fetch resnet18-weights --data-dir "):
        Run(with_weights(NAME), tmp_path / "run", tmp_path / "data")
    assert not (tmp_path / "run").exists()
    torch.manual_seed(5)
    saved = build_network("small-cnn", (1, 8, 8), 10).state_dict()
    (tmp_path / "data" / "weights").mkdir(parents=True)
    torch.save(saved, tmp_path / "data" / "weights" / NAME)
    run = Run(with_weights(NAME), tmp_path / "run", tmp_path / "data")
    state = run.trainer.method.predictor.state_dict()
    assert all(torch.equal(state[name], value) for name, value in saved.items() if not name.startswith("classifier."))
    assert run.config.to_dict()["network"]["weights"] == NAME  # the run is the same wherever the data lie
    accuracy = list(run.epochs())[-1]["test_accuracy"]
    assert evaluate(tmp_path / "run")["accuracy"] == accuracy  # without the data folder
    path = tmp_path / "mine.pt"
    torch.save(build_network("small-cnn", (1, 8, 8), 10).state_dict(), path)
    Run(with_weights(str(path)))
    with pytest.raises(InputError, match="There is no weights file"):
        Run(with_weights(str(tmp_path / "none.pt")))
