from __future__ import annotations

import importlib
import io
import json
import os
import re
import signal
import statistics
import tomllib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import typer
import yaml
from matplotlib.image import imread
from rich.console import Console

from _toy import TINY, Answer, logged_epochs
from pals import cli
from pals.cli import diagnosis, train
from pals.cli.panels import PANELS
from pals.data import DATASETS
from pals.data.dataset import Dataset
from pals.labels.candidates import CandidateSets
from pals.methods import METHODS, describe_options, find_method
from pals.runs.run import Run
from pals.training.checkpoint import load_checkpoint
from pals.training.trainer import Trainer
from pals.util.config import read_yaml
from pals.util.display import Reporter, note, showing_bytes
from pals.util.errors import InputError
from pals.util.files import read_json_lines

Pals = Callable[..., Answer]
TRAIN = ("train", "toy", *TINY)


def commands_of(app: typer.Typer, prefix: str = "") -> Iterator[str]:
    """Every command, those of groups too: "train", "data fetch"."""
    for command in app.registered_commands:
        assert command.callback is not None
        yield prefix + (command.name or command.callback.__name__)
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from commands_of(group.typer_instance, f"{prefix}{group.name} ")


COMMANDS = list(commands_of(cli.app))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command: str, pals: Pals) -> None:
    answer = pals(*command.split(), "--help")
    assert answer.code == 0 and re.search(rf"Example:\s+pals {command}", answer.out)


@pytest.mark.filterwarnings("default:Features cannot be kept")
def test_warnings_name_no_code(monkeypatch: pytest.MonkeyPatch, pals: Pals) -> None:
    """A full disk was told with a line of the source."""
    said = "Features cannot be kept", UserWarning, str(cli.__file__), 1
    monkeypatch.setattr("pals.cli.base.app", lambda: warnings.warn_explicit(*said))
    assert pals("doctor").err.strip() == "Warning: Features cannot be kept"


def test_help_of_everything_groups_options_and_commands(pals: Pals) -> None:
    answer = pals("--help")
    assert answer.code == 0 and {"demo", "train", "evaluate", "methods", "doctor", "data fetch"} <= set(COMMANDS)
    assert all(command.split()[0] in answer.out for command in COMMANDS) and "Usage" in pals().out
    assert re.fullmatch(r"pals \S+\n", pals("--version").out)
    text = pals("fit", "--help").out
    shown = panels_of(text, r"│ (?:\* +)?--([\w-]+)")
    assert list(shown) == ["Options", "Answers", "Images", "Model", "Output", "Advanced"]
    assert len(shown["Options"]) == 11 and {"out", "label-column", "truth", "trust", "no-images", "help"} <= set(
        shown["Options"]
    )
    assert "Required: " in text and list(panels_of(pals("update", "--help").out, r"│ --([\w-]+)")) == list(shown)
    shown = panels_of(pals("--help").out, r"│ (\w+) ")
    assert list(shown) == list(PANELS)
    assert {panel: sorted(names) for panel, names in shown.items()} == {p: sorted(names) for p, names in PANELS.items()}
    assert next(iter(shown.values())) == ["fit", "review", "update", "predict", "export"]
    assert {command.split()[0] for command in COMMANDS} == {name for names in PANELS.values() for name in names}


def panels_of(help_text: str, entry: str) -> dict[str, list[str]]:
    """The entries of each panel of a help text, in its order."""
    shown, panel = dict[str, list[str]](), ""
    for line in help_text.splitlines():
        if title := re.match(r"╭─ (.+?) ─+╮", line):
            panel = title[1]
        elif found := re.match(entry, line):
            shown.setdefault(panel, []).append(found[1])
    return shown


def test_methods_options_and_presets_are_listed(pals: Pals) -> None:
    lines = pals("methods", code=0).out.splitlines()
    for name, method in METHODS.items():
        (row,) = [line for line in lines if re.match(rf"\W*{re.escape(name)}\s", line)]
        assert method.kind in row and ", ".join(method.views) in row
        out = pals("methods", name, code=0).out
        assert f"{name}: use with --set method.OPTION=VALUE" in " ".join(out.split())
        for option, default, meaning in describe_options(find_method(name)):
            assert option in out and default in out and meaning.split()[0] in out
    rows = {cells[1]: cells[3:6] for cells in (re.split(r"\s*[│┃]\s*", line) for line in lines) if cells[5:]}
    assert rows["pals"] == ["weak, strong", "1", "2.33"] and rows["average"] == ["weak", "1", "1"]
    assert rows["pl-knn"] == rows["ipal"] == ["none", "0", "0"]
    lines = " ".join(pals("methods", "pals").out.split())
    assert "--preset official: the defaults above" in lines
    assert "--preset small: neighbors=auto, weighting=local, self_weight=auto, " in lines
    assert "--preset" not in pals("methods", "average").out
    pals("train", "toy", "--preset", "small", *TINY, "--set", "method.smoothing=0.3", "--out", "run", code=0)
    method = read_yaml(Path("run/config.yaml"))["method"]
    assert (method["preset"], method["vote_on"], method["smoothing"]) == ("small", "posterior", 0.3)


def names_in(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=\[; ]", requirement)[0] for requirement in requirements}


def test_doctor_in_good_health_knows_every_dependency(pals: Pals, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = names_in(project["dependencies"])
    assert set(diagnosis.CORE_PACKAGES) == core
    extras = [names_in(found) for name, found in project["optional-dependencies"].items() if name not in ("dev", "docs")]
    assert set(diagnosis.EXTRA_PACKAGES) == set.union(*extras) - core
    monkeypatch.setattr(diagnosis, "torchvision_problem", lambda: None)
    out = pals("doctor", code=0).out
    assert torch.__version__ in out and "Everything that PALS needs is in order." in out
    assert all(name in out for name in (*diagnosis.CORE_PACKAGES, *diagnosis.EXTRA_PACKAGES, "precision on the CPU"))


@pytest.mark.parametrize(
    "error",
    [RuntimeError("operator torchvision::nms does not exist\nsecond line"), ImportError("undefined symbol [/x]"), OSError()],
)
def test_doctor_names_a_broken_pair(error: Exception, pals: Pals, monkeypatch: pytest.MonkeyPatch) -> None:
    original = importlib.import_module

    def fail(name: str, *more: Any) -> ModuleType:
        if name == "torchvision":
            raise error
        return original(name, *more)

    version = diagnosis.version
    monkeypatch.setattr(diagnosis, "version", lambda name: "0.0.1" if name == "torchvision" else version(name))
    monkeypatch.setattr(importlib, "import_module", fail)
    answer = pals("doctor")
    reason = (str(error) or type(error).__name__).splitlines()[0]
    assert f"torchvision 0.0.1 does not work with torch {torch.__version__} ({reason})." in answer.out
    assert "reinstall both from one index" in answer.out and "second line" not in answer.out
    assert "in order" not in answer.out


def test_doctor_names_what_is_missing(pals: Pals, monkeypatch: pytest.MonkeyPatch) -> None:
    version = diagnosis.version

    def gone(name: str) -> str:
        if name in ("rich", "torchvision"):
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(diagnosis, "version", gone)
    answer = pals("doctor")
    assert "Problem: rich is not installed; run `pip install rich`." in answer.out
    assert "torchvision is not installed" not in answer.out  # an extra may be missing
    assert diagnosis.torchvision_problem() is None


def test_who_wins_and_a_run_repeated_from_its_own_settings(pals: Pals, tmp_path: Path) -> None:
    assert pals(*TRAIN, "--epochs", "2", "--seed", "3", "--out", "one").code == 0
    assert pals("train", "--config", "one/config.yaml", "--out", "two").code == 0
    assert logged_epochs(tmp_path / "one") == logged_epochs(tmp_path / "two")
    assert (tmp_path / "one" / "summary.json").read_text() == (tmp_path / "two" / "summary.json").read_text()
    (tmp_path / "my.yaml").write_text(
        "data: {name: toy, noise_rate: 0.1, partial_rate: 0.2}\ntrain: {epochs: 9, lr: 1e-2}\nseed: 4\n"
    )
    flags = ("--noise-rate", "0.25", "--epochs", "3", *TINY, "--set", "train.epochs=1", "--set", "method.delta=0.5")
    assert pals("train", "--config", "my.yaml", *flags, "--out", "run").code == 0
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["data"]["name"] == "toy"
    assert (config["data"]["partial_rate"], config["data"]["noise_rate"]) == (0.2, 0.25)
    assert (config["train"]["epochs"], config["train"]["lr"], config["seed"]) == (1, 0.01, 4)
    assert config["method"]["delta"] == 0.5 and config["engine"]["device"] == "cpu"


def test_a_run_folder(pals: Pals, tmp_path: Path) -> None:
    answer = pals(*TRAIN, "--epochs", "2", "--out", "run")
    assert answer.code == 0 and answer.err == ""
    run = tmp_path / "run"
    files = {".lock", "config.yaml", "run.json", "log.jsonl", "checkpoint.pt", "summary.json"}
    assert {path.name for path in run.iterdir()} == files
    about = json.loads((run / "run.json").read_text())
    assert about["command"][1:3] == ["train", "toy"] and about["torch"] == torch.__version__ and about["seed"] == 1
    start, *epochs = read_json_lines(run / "log.jsonl")
    assert start["event"] == "start"
    assert (start["method"], start["data"], start["items"], start["nominal_noise"]) == ("pals", "toy", 90, 0.3)
    assert 0 < start["effective_noise"] < 0.4 and [e["total_epoch"] for e in epochs] == [1, 2]
    assert all(
        {"phase", "epoch", "steps", "lr", "loss", "test_accuracy", "selected", "correct", "seconds"} <= e.keys() for e in epochs
    )
    summary = json.loads((run / "summary.json").read_text())
    noise = f"the right one is missing for {100 * summary['effective_noise']:.1f}% of them (protocol {summary['protocol']})"
    assert noise in " ".join(answer.out.split()) and summary["test_accuracy"] == epochs[-1]["test_accuracy"]
    assert summary["epochs"] == 2
    assert f"Test accuracy, last epoch: {100 * summary['test_accuracy']:.2f} (one seed)." in answer.out


def test_several_seeds_and_the_default_folder(pals: Pals, tmp_path: Path) -> None:
    command = (*TRAIN, "--epochs", "2", "--seeds", "1,2", "--out", "runs")
    assert pals(*command).code == 0
    folders = [tmp_path / "runs" / f"seed-{seed}" for seed in (1, 2)]
    accuracies = [json.loads((folder / "summary.json").read_text())["test_accuracy"] for folder in folders]
    summary = json.loads((tmp_path / "runs" / "summary.json").read_text())
    assert summary["test_accuracy"]["mean"] == pytest.approx(statistics.mean(accuracies))
    assert summary["test_accuracy"]["std"] == pytest.approx(statistics.stdev(accuracies))
    assert summary["runs"] == ["runs/seed-1", "runs/seed-2"]
    assert logged_epochs(folders[0]) != logged_epochs(folders[1])
    assert pals(*TRAIN, "--epochs", "2", "--seed", "2", "--out", "alone").code == 0
    assert logged_epochs(tmp_path / "alone") == logged_epochs(folders[1])  # a seed means the same alone and in company
    before = {folder: (folder / "checkpoint.pt").read_bytes() for folder in folders}
    again = pals(*command)
    assert again.code == 0 and "(mean and deviation of 2 seeds)" in again.out
    assert all((folder / "checkpoint.pt").read_bytes() == data for folder, data in before.items())
    for seed in ("1", "2"):
        assert pals(*TRAIN, "--epochs", "1", "--partial-rate", "0.25", "--seed", seed).code == 0
        assert (tmp_path / "runs" / "toy-pals-q0.25-eta0.3" / f"seed-{seed}" / "summary.json").exists()


def test_stop_and_go_on(pals: Pals, tmp_path: Path) -> None:
    command = (*TRAIN, "--epochs", "5")
    assert pals(*command, "--out", "whole").code == 0
    first = pals(*command, "--out", "run", "--stop-after", "2")
    assert first.code == 0 and "Not finished yet: run the same command to continue." in first.out
    assert not (tmp_path / "run" / "summary.json").exists() and len(logged_epochs(tmp_path / "run")) == 2
    assert "run: continuing after epoch 2." in pals(*command, "--out", "run", "--stop-after", "2").out
    assert "run: continuing after epoch 4." in pals(*command, "--out", "run").out
    assert logged_epochs(tmp_path / "run") == logged_epochs(tmp_path / "whole")
    weights = [load_checkpoint(tmp_path / name / "checkpoint.pt")["method"] for name in ("run", "whole")]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def test_evaluate_says_what_the_summary_says(pals: Pals, tmp_path: Path) -> None:
    pals(*TRAIN, "--epochs", "4", "--out", "run", "--stop-after", "2")
    scores = json.loads(pals("evaluate", "run", "--json").out)  # in the middle of a run
    assert (scores["accuracy"], scores["epochs"]) == (logged_epochs(tmp_path / "run")[-1]["test_accuracy"], 2)
    pals(*TRAIN, "--epochs", "4", "--out", "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    scores = json.loads(pals("evaluate", "run", "--json", code=0).out)
    assert (scores["accuracy"], scores["loss"]) == (summary["test_accuracy"], summary["test_loss"])
    assert (scores["run"], scores["method"], scores["epochs"]) == ("run", "pals", 4)
    table = pals("evaluate", "run", "--device", "cpu").out
    assert f"{summary['test_accuracy']:.4f}" in table and "run after 4 epochs (pals)" in table
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_training_on_the_truth_and_candidate_sets_of_all_seeds(pals: Pals, tmp_path: Path) -> None:
    flags = ("--method", "average", "--set", "network.name=mlp", "--device", "cpu", "--epochs", "4", "--noise-rate", "0.8")
    for name in ("truth", "candidates"):
        assert pals("train", "toy", *flags, "--set", f"data.supervision={name}", "--out", name).code == 0
    summary = {name: json.loads((tmp_path / name / "summary.json").read_text()) for name in ("truth", "candidates")}
    assert summary["truth"]["test_accuracy"] > 0.9 > summary["candidates"]["test_accuracy"]
    assert summary["truth"]["mean_set_size"] == 1 and "effective_noise" not in summary["truth"]
    pals(*TRAIN, "--epochs", "1", "--seeds", "1,2", "--out", "runs")
    pals(*TRAIN, "--epochs", "1", "--set", "data.seed=7", "--out", "other")
    folders = ("runs/seed-1", "runs/seed-2", "other")
    one, two, other = (load_checkpoint(tmp_path / name / "checkpoint.pt")["method"]["allowed_NC"] for name in folders)
    assert torch.equal(one, two) and not torch.equal(one, other)


def test_answers_of_real_people_are_taken_as_they_are(
    pals: Pals, tmp_path: Path, toy: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a data set comes with votes no noise is made, and their shares weigh the vote."""
    votes = [(item, int(label)) for item, label in zip(toy.train.ids, toy.truth.label_N, strict=True)]
    votes += [(item, 1) for item in toy.train.ids[::2]]
    counted = CandidateSets.from_votes(votes, ids=toy.train.ids, class_names=toy.class_names)
    monkeypatch.setitem(DATASETS, "toy", lambda **_: replace(toy, votes=counted))
    assert pals(*TRAIN, "--epochs", "1", "--out", "run").code == 0
    state = load_checkpoint(tmp_path / "run" / "checkpoint.pt")["method"]
    assert torch.equal(state["allowed_NC"], counted.allowed_NC)
    assert torch.equal(state["prior_NC"], counted.frequency_NC)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert "effective_noise" not in summary
    assert summary["mean_set_size"] == pytest.approx(float(counted.size_N.float().mean()))


def test_downloads_and_bars_in_a_terminal() -> None:
    for terminal in (False, True):
        text = io.StringIO()
        with showing_bytes(Console(file=text, force_terminal=terminal, width=120, _environ={}), "cifar10") as tell:
            for there in range(0, 101, 4):
                tell(there * 2**20, 100 * 2**20)
        lines = text.getvalue().splitlines()
        if terminal:
            assert "104.9/104.9 MB" in text.getvalue()
        else:
            assert lines[:2] == ["cifar10: 0 MiB, 0%", "cifar10: 12 MiB, 10%"]
            assert lines[-1] == "cifar10: 100 MiB, 100%" and len(lines) == 11
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=140, _environ={})
    with Reporter(console).showing() as reporter:
        reporter.follow("pals seed 1", iter(RECORDS), total=17, done=0)
        reporter.follow("average", iter(RECORDS[8:]), total=17, done=8)
    shown = text.getvalue()
    assert "\x1b" in shown and "17/17" in shown and "accuracy 85.00, selected 1,017, right 900, loss 0.059" in shown
    assert "average" in shown


@pytest.mark.parametrize(("times", "kept"), [(1, 2), (2, 0)])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_a_request_of_the_system(
    times: int, kept: int, number: int, code: int, pals: Pals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pressed once, the epoch under way is finished and saved, however seldom that is done else; twice, it ends at once."""
    command = (*TRAIN, "--epochs", "4", "--out", "run", "--set", "train.checkpoint_every=3")
    before, plan_epoch = signal.getsignal(number), Trainer._plan_epoch

    def pressed_in_the_second(self: Trainer, *args: Any) -> Any:
        for _ in range(times if self.progress.total == 1 else 0):
            os.kill(os.getpid(), number)
        return plan_epoch(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_plan_epoch", pressed_in_the_second)
        answer = pals(*command)
    assert answer.code == code and "Stopping after this epoch. Press Ctrl-C again to stop at once." in answer.out
    assert answer.err == "Stopped. Run the same command to continue from the last checkpoint.\n"
    assert signal.getsignal(number) is before
    again = pals(*command)
    assert again.code == 0 and (f"continuing after epoch {kept}." in again.out) == (kept > 0)
    assert [record["total_epoch"] for record in logged_epochs(tmp_path / "run")] == [1, 2, 3, 4]


def epoch_record(phase: str, epoch: int, epochs: int, total_epoch: int) -> dict[str, Any]:
    return {"phase": phase, "epoch": epoch, "epochs": epochs, "total_epoch": total_epoch, "test_accuracy": epoch / 20,
            "selected": 1000 + epoch, "correct": 900, "loss": 1 / epoch}  # fmt: skip


RECORDS = [epoch_record("main", n, 17, n) for n in range(1, 18)]


def test_plain_lines_and_notes() -> None:
    """Where nobody watches: about eight lines and always the last one, without any control codes."""
    text = io.StringIO()
    with Reporter(Console(file=text, width=40)).showing() as reporter:
        last = reporter.follow("pals seed 1", iter(RECORDS), total=17)
    lines = text.getvalue().splitlines()
    assert last == RECORDS[-1]
    assert [re.match(r"pals seed 1: epoch (\d+)/17, ", line)[1] for line in lines] == [*map(str, range(2, 17, 2)), "17"]
    assert lines[-1] == "pals seed 1: epoch 17/17, accuracy 85.00, selected 1,017, right 900, loss 0.059"
    assert "\x1b" not in text.getvalue()
    records = [
        *(epoch_record("warm-up", n, 3, n) for n in range(1, 4)),
        *(epoch_record("main", n, 16, n + 3) for n in range(1, 17)),
    ]
    text = io.StringIO()
    with Reporter(Console(file=text)).showing() as reporter:
        reporter.follow("fredis", iter(records), total=16)
    lines = [line.partition(",")[0] for line in text.getvalue().splitlines()]
    assert lines[:3] == ["fredis: warm-up epoch 2/3", "fredis: warm-up epoch 3/3", "fredis: epoch 1/16"]
    assert lines[-1] == "fredis: epoch 16/16" and len(lines) == 11
    assert note({}) == "" and note({"loss": None, "test_accuracy": None}) == ""
    assert note({"selected": 5, "loss": 0.5}) == "selected 5, loss 0.500"
    assert note({"test_accuracy": 0.5}) == "accuracy 50.00"


@pytest.mark.slow
def test_demo(pals: Pals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs on the real digits, with a picture; again it only looks; fresh it forgets, but only what is its own."""
    command = ("demo", "--epochs", "2", "--seeds", "1", "--device", "cpu")
    said = pals(*command, code=0).out
    out = tmp_path / "runs" / "demo"
    summary = json.loads((out / "summary.json").read_text())
    for name in ("pals", "average", "truth"):
        files = {path.name for path in (out / name / "seed-1").iterdir()}
        assert files == {".lock", "config.yaml", "run.json", "log.jsonl", "checkpoint.pt", "summary.json"}
        epochs = logged_epochs(out / name / "seed-1")
        assert len(epochs) == 2 and summary[name]["runs"] == [pytest.approx(100 * epochs[-1]["test_accuracy"])]
        assert f"{summary[name]['mean']:.2f}" in said
    picture = imread(out / "curves.png")
    assert picture.shape[0] > 400 and picture.shape[1] > 1200 and float(np.std(picture)) > 0.05
    assert (summary["seeds"], summary["items"]) == ([1], 1437)
    assert summary["effective_noise"] == pytest.approx(0.3, abs=0.03)
    assert "1,437 handwritten digits to learn from" in said and "Items that PALS selected (seed 1)" in said

    monkeypatch.setattr(Run, "epochs", lambda self, *_: iter(()))  # nothing is left to train
    pals(*command, code=0)
    assert json.loads((out / "summary.json").read_text()) == summary
    (out / "notes.txt").write_text("mine")
    pals(*command, "--fresh", "--device", "cdua", code=2)
    assert (out / "summary.json").exists()
    (out / "pals" / "mine").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(train, "_print_demo", lambda *_: None)
        patch.setattr("pals.bench.demo.draw_curves", lambda *_, **__: None)
        pals(*command, "--fresh", code=0)
    files = {".lock", "config.yaml", "run.json", "notes.txt", "summary.json", "lock.json"}  # runs that train nothing keep it
    assert {path.name for path in out.rglob("*") if path.is_file()} == files and (out / "pals" / "mine").is_dir()


def test_the_quick_demo_is_a_smaller_one(pals: Pals, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of its own, so that neither is taken for the other; what is given counts."""
    asked: list[Any] = []

    def demo_runs(out: Path, numbers: list[int], values: dict[str, Any], *, fresh: bool) -> Iterator[Any]:
        asked.append((str(out), numbers, values.get("train", {}).get("epochs")))
        raise InputError("far enough")

    monkeypatch.setattr("pals.bench.demo.demo_runs", demo_runs)
    for options in ((), ("--quick",), ("--quick", "--seeds", "2", "--epochs", "4", "--out", "mine")):
        pals("demo", *options, code=2)
    assert asked == [("runs/demo", [1, 2, 3], None), ("runs/demo-quick", [1], 10), ("mine", [1, 2], 4)]


def test_a_stage_that_never_comes_is_mentioned(pals: Callable[..., Answer]) -> None:
    flags = ("--set", "network.name=mlp", "--device", "cpu", "--epochs", "2", "--out", "run")
    answer = pals("train", "toy", "--method", "dividemix", "--set", "method.warm_up=2", *flags, code=0)
    note = "Note: method.warm_up is 2, but training ends after epoch 2, so it never takes effect."
    assert " ".join(answer.out.split()).count(note) == 1
    assert "Note:" not in pals("train", "toy", "--method", "dividemix", "--set", "method.warm_up=1", *flags[:-1], "other").out
