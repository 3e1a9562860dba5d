"""`pals train --launcher slurm|ray`: one run, several processes of a cluster."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest

from _ranks import variables
from _toy import Answer
from pals.bench import on_ray, on_slurm
from pals.bench.launchers import launch
from pals.bench.work import Outcome, Stop, Work, outcome_of_all, work_for
from pals.runs.run_config import RunConfig
from pals.training.distributed import PeerLostError
from pals.training.run_log import read_epochs

Pals = Callable[..., Answer]
DIGITS = ("train", "digits", "--method", "average", "--device", "cpu", "--epochs", "2", "--set", "engine.sync_norms=true")
needs_submitit = pytest.mark.skipif(importlib.util.find_spec("submitit") is None, reason="needs the extra slurm")
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra ray")


def failed(message: str) -> Outcome:
    return Outcome("run", "folder", "failed", message)


def four_processes(tmp_path: Path, device: str = "cpu") -> Work:
    config = RunConfig.of({"data": {"name": "digits"}, "method": {"name": "average"}, "engine": {"device": device}})
    return work_for(config, tmp_path / "run", tmp_path / "run.cluster", processes=4)


class FakeExecutor:
    """Takes one job, whose tasks end at once with what `given` holds."""

    settings: ClassVar[dict[str, Any]] = {}
    given: ClassVar[list[Outcome | Exception]] = []

    def __init__(self, folder: Path, cluster: str) -> None:
        assert folder.parent.name == "run.cluster"

    def update_parameters(self, **settings: Any) -> None:
        FakeExecutor.settings = settings

    def map_array(self, function: Any, works: list[Work]) -> list[Any]:
        return [Mock(job_id="7", num_tasks=len(self.given), task=self.task)]  # whose `done()` is true

    def task(self, number: int) -> Any:
        given, paths = self.given[number], SimpleNamespace(stderr=f"{number}.err")
        error = given if isinstance(given, Exception) else None
        return SimpleNamespace(task_id=number, paths=paths, exception=lambda: error, result=lambda: given)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """The outcome of a run whose processes end like this."""

    def run(given: Sequence[Outcome | Exception], device: str = "cpu", **options: Any) -> Outcome:
        monkeypatch.setattr("submitit.AutoExecutor", FakeExecutor)
        monkeypatch.setattr(on_slurm, "SLURM_POLL_SECONDS", 0)
        monkeypatch.setattr(FakeExecutor, "given", given)
        (outcome,) = launch([four_processes(tmp_path, device)], "slurm", stop=Stop(tmp_path), options=options)
        return outcome

    return run


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((Outcome("run", "folder", "done"), Outcome("run", "folder", "done")), ""),
        ((failed(str(PeerLostError())), failed("Process 1 of 4: Disk full.")), "Process 1 of 4: Disk full."),
        ((failed("No data."), failed("No data.")), "No data."),
    ],
)
@needs_submitit
def test_tasks_of_a_slurm_job(given: Sequence[Outcome], said: str, slurm: Callable[..., Outcome]) -> None:
    """As many as there are processes, each with a GPU; the process that knows the reason names it."""
    assert slurm(given, "auto", nodes=2).message == said
    assert (FakeExecutor.settings["tasks_per_node"], FakeExecutor.settings["gpus_per_node"]) == (2, 2)


@needs_submitit
def test_a_task_that_was_killed_is_named(slurm: Callable[..., Outcome]) -> None:
    from submitit.core.utils import UncompletedJobError

    outcome = slurm([failed(str(PeerLostError())), UncompletedJobError("log\nof many lines")])
    again = "Run the same command to continue from the last checkpoint."
    assert outcome.message == f"Job 7: process 1 of 4 ended without an error message (see 1.err). {again}"


def test_the_process_that_knows_the_reason_names_it(tmp_path: Path) -> None:
    lost, first, second = failed(str(PeerLostError())), failed("one"), failed("two")
    assert outcome_of_all([lost, second]) is second and outcome_of_all([first, second]) is first
    assert outcome_of_all([lost, lost]) is lost
    work = four_processes(tmp_path)
    error = RuntimeError("Training failed")
    assert on_ray._failure(error, work).message.startswith("RuntimeError: Training failed. Run the same command")
    lost = on_ray._FailedError(failed(str(PeerLostError())))
    error.worker_failures = {0: lost, 2: on_ray._FailedError(failed("Disk full."))}  # type: ignore[attr-defined]
    assert on_ray._failure(error, work).message == "Disk full."
    error.worker_failures = {0: lost, 2: OSError("gone.\nmore")}  # type: ignore[attr-defined]
    assert on_ray._failure(error, work).message.startswith("Process 2 of 4: OSError: gone. Run the same command")
    on_ray._refuse_few({"CPU": 2}, "CPU", 2)
    with pytest.raises(Exception, match="2 processes need one GPU each; Ray has 0"):
        on_ray._refuse_few({"CPU": 2}, "GPU", 2)


@pytest.mark.parametrize(("launcher", "module"), [("ray", "ray"), ("slurm", "submitit")])
def test_a_missing_extra_is_a_sentence(launcher: str, module: str, pals: Pals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    bench = ("bench", "--table", "figure2", "--out", "run")
    for command in ((*DIGITS, "--processes", "2", "--out", "run"), bench):
        answer = pals(*command, "--launcher", launcher)
        assert answer.code == 2 and f"pip install 'pals-learn[{launcher}]'" in answer.err and not list(Path().iterdir())


@pytest.mark.parametrize(
    ("arguments", "torchrun", "said"),
    [
        (("--launcher", "cloud"), False, "Known: local, ray, slurm"),
        (("--cluster", "a=1"), False, "The local launcher has no options"),
        (("--launcher", "slurm", "--processes", "3", "--cluster", "nodes=2"), False, "cannot be divided evenly among 2 nodes"),
        (("--launcher", "slurm"), True, "--launcher slurm, but torchrun has started 2 processes."),
    ],
)
@needs_submitit
def test_wrong_options_are_a_sentence(
    arguments: tuple[str, ...], torchrun: bool, said: str, pals: Pals, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables(0, 2, 29500).items() if torchrun else ():
        monkeypatch.setenv(name, value)
    answer = pals(*DIGITS, *arguments, "--out", "run")
    assert answer.code == 2 and said in answer.err


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run as one process makes it."""
    folder = tmp_path_factory.mktemp("one") / "run"
    subprocess.run([sys.executable, "-m", "pals", *DIGITS, "--out", str(folder)], check=True, capture_output=True)
    return folder


def assert_as_one(folder: Path, one: Path) -> None:
    here, there = ([epoch["loss"] for epoch in read_epochs(at)] for at in (folder, one))
    assert here == pytest.approx(there, abs=1e-5) and "2 processes" in (folder / "log.jsonl").read_text()


@pytest.mark.slow
@needs_submitit
def test_tasks_of_submitit_train_one_run(pals: Pals, one: Path) -> None:
    command = (*DIGITS, "--processes", "2", "--launcher", "slurm", "--cluster", "cluster=local", "--out", "run")
    first = pals(*command, "--stop-after", "1")
    assert first.code == 0, first.err
    assert "Not finished yet" in first.out
    answer = pals(*command).ok()
    assert answer.out.count("Test accuracy") == 1
    assert_as_one(Path("run"), one)
    wrong = pals(*command, "--set", "train.batch_size=9")
    assert wrong.code == 2 and "train.batch_size is 64 there and 9 here" in wrong.err
    assert len(wrong.err.strip().splitlines()) == 1


@pytest.mark.slow
@needs_ray
def test_workers_of_ray_train_one_run(tmp_path: Path, one: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as short:  # names of sockets are limited
        wishes = ("--launcher", "ray", "--cluster", "num_cpus=2", "--cluster", f"_temp_dir={short}")
        command = [sys.executable, "-m", "pals", *DIGITS, "--processes", "2", *wishes, "--out", "run"]
        environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}  # or it leaves a file in the home folder
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert_as_one(tmp_path / "run", one)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
