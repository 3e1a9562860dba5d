"""What a run leaves behind at its end; settings of a run: what they import, and schedules of another length."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from _locks import held_by_another
from _toy import TINY, Answer
from pals.methods import METHODS, find_method
from pals.runs.published_settings import published_settings
from pals.runs.run import Run, evaluate
from pals.runs.run_config import CLOSED_FORM_STRENGTH, DAWID_SKENE, RunConfig, shortened, unreachable_options
from pals.training.trainer import Trainer
from pals.util.errors import InputError
from pals.util.files import UNFINISHED, read_json, write_text
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
    assert len(graded) == 2 and summary["test_accuracy"] == records[-1]["test_accuracy"] == graded[-1]["accuracy"]
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


def full(data: str, method: str, **sections: Any) -> dict[str, Any]:
    return RunConfig.of({"data": {"name": data}, "method": {"name": method}, **sections}).to_dict()


def test_settings_load_little_besides_torch() -> None:
    """No large library, and few modules: every worker of a benchmark imports them."""
    large = ("scipy", "pandas", "sklearn", "matplotlib", "pals.crowd", "pals.readers", "pals.model", "pals.bench")
    code = f"""
import sys, torch
before = set(sys.modules)
import pals.runs.run_config
print(len(set(sys.modules) - before), *[name for name in {large} if name in sys.modules])
"""
    count, *found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.split()
    assert not found
    assert int(count) <= 240  # 210 on Python 3.11
    code = f"import sys, pals.runs.run; print(*[name for name in {large[:-2]} if name in sys.modules])"  # a run saves a model
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout == "\n"


def test_settings_of_two_benchmark_runs_are_checked_few_times(pals: Callable[..., Answer], tmp_path: Path) -> None:
    """Once for the experiment and once where each run begins, which may be another process."""
    runs = "base: {data: {name: toy}, network: {name: mlp}, train: {epochs: 1}, engine: {device: cpu}}"
    write_text(tmp_path / "grid.yaml", f"{runs}\nrows: {{average: {{method: {{name: average}}}}}}\ncolumns: {{toy: {{}}}}\n")
    calls, of = list[Any](), RunConfig.of.__func__  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunConfig, "of", classmethod(lambda cls, *args, **more: calls.append(args) or of(cls, *args, **more)))
        pals("bench", "--grid", "grid.yaml", "--seeds", "2", "--out", "bench").ok()
    assert len(list(Path("bench").glob("*/*/*/*/summary.json"))) == 2 and len(calls) <= 4


def test_constants_that_are_repeated_to_load_less() -> None:
    from pals.crowd.dawid_skene import em
    from pals.crowd.dawid_skene.annotator_model import SKILL_STRENGTH

    assert (SKILL_STRENGTH, em.DAWID_SKENE) == (CLOSED_FORM_STRENGTH, DAWID_SKENE)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("data", ["digits", "cifar10", "cifar100"])
def test_every_method_can_be_trained_for_few_epochs(data: str, method: str) -> None:
    """With all its stages where they are not very few; a schedule of the same length is the same."""
    values = full(data, method)
    assert shortened(values, values["train"]["epochs"]) == values
    for epochs in (1, 2, 30):
        short = shortened(values, epochs)
        assert RunConfig.of(short).to_dict() == short and short["train"]["epochs"] == epochs
        assert all(milestone <= epochs for milestone in short["train"]["milestones"])
    assert unreachable_options(RunConfig.of(short)) == []


def test_what_counts_epochs_changes_in_proportion_and_nothing_else() -> None:
    values = full("cifar10", "elr+")  # 200 epochs, a milestone at 150, a ramp of 40,000 steps
    values["train"]["warmup"] = 10.0
    short = shortened(values, 50)
    assert (short["train"]["milestones"], short["train"]["warmup"], short["method"]["slow_ramp"]) == ([38], 2.5, 10_000)
    changed = {key for section in ("train", "method") for key in values[section] if values[section][key] != short[section][key]}
    assert changed <= {"epochs", "milestones", "period", "warmup", "slow_ramp", "memory_ramp"}
    assert all(short[key] == values[key] for key in ("data", "network", "engine", "seed"))
    # PiCO's prototypes vote from epoch 2 of 800 on: never at once; PiCO+'s neighbours from 101 on, an eighth of the way
    assert shortened(full("cifar10", "pico"), 8)["method"]["prototypes_from"] == 2
    assert shortened(full("cifar10", "pico+"), 80)["method"]["neighbors_from"] == 11
    for name in METHODS:
        assert set(find_method(name).counted_in_epochs) <= set(full("digits", name)["method"])


@pytest.mark.parametrize(
    ("method", "options", "epochs", "late"),
    [
        ("pico+", {}, 20, ["prototypes_from", "neighbors_from"]),
        ("pico+", {}, 21, ["neighbors_from"]),
        ("pico+", {}, 41, []),
        ("alim-scale", {}, 20, ["adjust_from"]),  # what is set after the last epoch serves nobody
        ("alim-scale", {}, 21, []),
        ("irnet", {"correct_from": None}, 2, []),
        ("irnet", {"correct_from": 3}, 2, ["correct_from"]),
        ("dividemix", {"warm_up": 5}, 5, ["warm_up"]),
        ("dividemix", {"warm_up": 5}, 6, []),
        ("apl", {}, 1, []),
        ("pals", {}, 1, []),
    ],
)
def test_what_lies_behind_the_last_epoch(method: str, options: dict[str, Any], epochs: int, late: list[str]) -> None:
    values = {"data": {"name": "digits"}, "method": {"name": method, **options}, "train": {"epochs": epochs}}
    assert unreachable_options(RunConfig.of(values)) == late


def test_sets_alike_have_settings_alike() -> None:
    """Whatever was not published there; what authors choose by the rates is left open where the rates are not known."""
    for method in METHODS:
        hundred, by_class = full("cifar100", method), full("cifar100h", method)
        assert {**hundred, "data": 0} == {**by_class, "data": 0}
        ten, answers = full("cifar10", method), full("cifar10n", method)
        if method in published_settings()["methods"]["cifar10"]:
            assert (ten["network"], ten["train"]) == (answers["network"], answers["train"])
    assert full("cifar10n", "irnet")["method"]["tau"] is None and full("cifar10n", "pico+")["method"]["delta"] is None


@pytest.mark.parametrize(
    ("data", "options", "train", "epochs"),
    [
        ("cifar10", {}, {}, 500),
        ("cifar10", {"preset": "official"}, {}, 500),
        ("cifar10", {"preset": "fast"}, {}, 125),
        ("cifar10", {"preset": "fast"}, {"epochs": 300}, 300),  # what is given wins
        ("digits", {"preset": "fast"}, {}, 60),  # never more than without it
    ],
)
def test_a_preset_has_epochs_of_its_own(data: str, options: dict[str, Any], train: dict[str, Any], epochs: int) -> None:
    config = RunConfig.of({"data": {"name": data}, "method": {"name": "srse", **options}, "train": train})
    assert config.train.epochs == epochs
    assert config.method.start == "patches" or options.get("preset") != "fast"
    assert RunConfig.of(config.to_dict()) == config
