"""`pals bench` on the toy grid: end to end, killed, interrupted, with failures, in several processes and on clusters."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from _bench import FOLDERS, GRID, assert_same_runs, finished

from _kills import until
from _locks import held_by_another
from _toy import Answer, logged_epochs
from pals.bench import launchers, work
from pals.bench.grid import read_grid
from pals.bench.jobs import plan
from pals.bench.launchers import _begin_worker, launch
from pals.bench.run_records import read_result
from pals.bench.work import Outcome, Stop, Work, work_of
from pals.cli.bench import _at_a_time
from pals.runs.run import Run
from pals.training.checkpoint import load_checkpoint
from pals.util.files import read_json
from pals.util.locks import OWNER

Pals = Callable[..., Answer]
Process = Callable[..., subprocess.Popen[str]]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be sent signals")


def some_of(whole: Path, base: Path, names: list[str]) -> None:
    """As if only these runs had been made so far."""
    for name in names:
        shutil.copytree(whole / name, base / name)


@pytest.mark.slow
def test_end_to_end(pals: Pals, grid: Path, whole: Path) -> None:
    answer = pals("bench", "--grid", grid, "--seeds", "2", "--out", "bench").ok()
    assert "8 runs: 0 done, 8 to do" in answer.out
    assert re.search(r"8/8 toy/many/average seed 2: done, accuracy \d+\.\d\d", answer.out)
    assert re.search(r"PALS +│ ours +│ +\d+\.\d\d ± \d+\.\d\d \(2\)", answer.out)  # the table
    assert_same_runs(Path("bench"), whole)
    records = [json.loads(line) for line in Path("bench/results.jsonl").read_text().splitlines()]
    assert [one["run"] for one in records] == FOLDERS
    before = {path: path.stat().st_mtime_ns for path in Path("bench").rglob("*.pt")}
    again = pals("bench", "--grid", grid, "--seeds", "1,2", "--out", "bench")
    assert again.code == 0 and "8 runs: 8 done, 0 to do" in again.out
    assert before == {path: path.stat().st_mtime_ns for path in Path("bench").rglob("*.pt")}


def test_dry_run_runs_nothing(pals: Pals, grid: Path, whole: Path) -> None:
    some_of(whole, Path("bench"), FOLDERS[:4])
    (Path("bench") / FOLDERS[3] / "summary.json").unlink()
    files = sorted(Path("bench").rglob("*"))
    answer = pals("bench", "--grid", grid, "--seeds", "2", "--out", "bench", "--dry-run")
    assert answer.code == 0 and "8 runs: 3 done, 5 to do" in answer.out and answer.out.count("missing") == 4
    assert "cut off at epoch 2 of 2" in answer.out
    assert "There is no time estimate for 4 runs" in answer.out  # those of experiments of which no epoch was measured
    assert re.search(r"The remaining runs take about \d s by the epochs measured so far", answer.out)
    assert sorted(Path("bench").rglob("*")) == files


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Which runs?"),
        (("table1/cifar10-q0.1-eta0.1/pal",), "did you mean 'table1/cifar10-q0.1-eta0.1/pals'"),
        (("--table", "8"), "Unknown table '8'"),
        (("--table", "1", "--grid", "toy.yaml"), "cannot be combined"),
        (("--grid", "none.yaml"), "Cannot read the settings file none.yaml"),
        (("--grid", "toy.yaml", "--methods", "PALZ"), "Unknown method 'PALZ'"),
        (("--grid", "toy.yaml", "--cells", "all"), "These are there: few, many"),
        (("--grid", "toy.yaml", "--seeds", "x"), "--seeds 'x'"),
        (("--grid", "toy.yaml", "--seeds", "0"), "At least 1"),
        (("--grid", "toy.yaml", "--seeds", "1,1"), "names a seed twice"),
        (("--grid", "toy.yaml", "--launcher", "cloud"), "Known: local, ray, slurm"),
        (("--grid", "toy.yaml", "--cluster", "a=1"), "The local launcher has no options"),
        (("--grid", "toy.yaml", "--set", "train.lrr=1"), "did you mean 'train.lr'"),
        (("--grid", "toy.yaml", "--set", "method.delta=0.5"), "toy/few/average: Unknown setting 'method.delta'"),
    ],
)
def test_bad_requests(arguments: tuple[str, ...], said: str, pals: Pals, grid: Path) -> None:
    answer = pals("bench", *arguments)
    assert answer.code == 2 and said in " ".join(answer.err.split()) and not list(Path().rglob("config.yaml"))


def test_seeds_names_and_rows(pals: Pals, grid: Path) -> None:
    pals("bench", "*/pals", "--grid", grid, "--seed", "5", "--cells", "few", "--out", "bench", "--drop-checkpoints").ok()
    assert finished(Path("bench")) == ["few/pals/full/seed-5"] and not list(Path("bench").rglob("checkpoint.pt"))
    again = pals("bench", "*/pals", "--grid", grid, "--seed", "5", "--cells", "few", "--out", "bench")
    assert "1 run: 1 done, 0 to do" in again.out


@pytest.mark.slow
def test_killed_half_way_and_continued(pals: Pals, process: Process, grid: Path, whole: Path, tmp_path: Path) -> None:
    base = tmp_path / "bench"
    some_of(whole, base, FOLDERS[4:7])
    command = ("bench", "--grid", "toy.yaml", "--seeds", "2", "--out", "bench")
    running = process(*command)
    begun = lambda: [path for path in base.rglob("checkpoint.pt") if not (path.parent / "summary.json").exists()]  # noqa: E731
    until(begun, running)
    running.kill()
    assert running.wait() == -signal.SIGKILL and finished(base) != FOLDERS
    assert list(base.rglob(OWNER))  # nobody was there to take it away
    answer = pals(*command).ok()
    assert re.search("continuing after epoch [12]", answer.out)
    assert_same_runs(base, whole)


LONG = GRID.replace("epochs: 2,", "epochs: 300, checkpoint_every: 300,")


@pytest.mark.slow
def test_ctrl_c_loses_nothing(process: Process, grid: Path, tmp_path: Path) -> None:
    """Checkpoints are far apart here: without the one made on stopping, all would be lost. A terminal sends the signal to the
    workers too."""
    grid.write_text(LONG)
    base = tmp_path / "bench"
    command = ("bench", "--grid", "toy.yaml", "--methods", "Average", "--out", "bench", "--jobs", "2")
    running = process(*command)
    folders = [base / f"{column}/average/full/seed-1" for column in ("few", "many")]
    until(lambda: all(len(logged_epochs(folder)) >= 2 for folder in folders), running)
    for folder in folders:
        os.kill(read_json(folder / OWNER)["pid"], signal.SIGINT)
    running.send_signal(signal.SIGINT)
    said = running.communicate()[0]
    assert running.returncode == 130, said
    assert "Stopping after this epoch" in said and "Stopped with 2 runs left. Run the same command to continue." in said
    for folder in folders:
        progress = load_checkpoint(folder / "checkpoint.pt")["progress"]
        assert 2 <= progress["total"] == len(logged_epochs(folder)) < 300
    assert finished(base) == []
    assert not [path for path in base.rglob("*") if path.name.startswith(".stop") or path.name == OWNER]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_and_continued_is_the_same_as_not(
    number: int, code: int, pals: Pals, grid: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked to stop in the first epoch of the third run."""
    seen: list[str] = []

    def epochs(self: Run, **options: Any) -> Any:
        for record in original(self, **options):
            seen.append(str(self.folder))
            if len(seen) == 5:
                os.kill(os.getpid(), number)
            yield record

    original = Run.epochs
    command = ("bench", "--grid", grid, "--seeds", "2", "--out", "bench")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "epochs", epochs)
        answer = pals(*command)
    assert answer.code == code and "Stopped with 6 runs left." in answer.err and len(finished(Path("bench"))) == 2
    answer = pals(*command).ok()
    assert "continuing after epoch 1" in answer.out
    assert_same_runs(Path("bench"), whole)


def test_one_failure_does_not_stop_the_others(pals: Pals, grid: Path) -> None:
    wild = GRID.replace("Average: {", "Wild: {train: {lr: 1.0e+30}, ")
    grid.write_text(wild.replace("PALS: {", "Average: {method: {name: average}}\n  PALS: {"))
    answer = pals("bench", "--grid", grid, "--cells", "few", "--out", "bench")
    assert answer.code == 1
    assert re.search(r"Failed: toy/few/wild seed 1: The loss is \S+ in epoch 1: training has diverged\.", answer.err)
    assert "Traceback" not in answer.out + answer.err
    assert finished(Path("bench")) == ["few/average/full/seed-1", "few/pals/full/seed-1"]


def test_a_reason_that_many_share_is_said_once(pals: Pals, tmp_path: Path) -> None:
    answer = pals("bench", "--table", "1", "--methods", "PALS", "--cells", "cifar10-q0.1-*", "--data-dir", tmp_path)
    assert answer.code == 1 and answer.err.count("pals data fetch cifar10") == 1
    assert all(f"table1/cifar10-q0.1-eta0.{eta}/pals seed 1" in answer.err for eta in (1, 2, 3))
    assert not list(Path("runs").rglob("config.yaml"))


def test_an_unforeseen_failure_is_kept_in_full(pals: Pals, grid: Path, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some_of(whole, Path("bench"), FOLDERS[1:])

    def breaks(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("all went wrong\nin detail")

    with monkeypatch.context() as patch:
        patch.setattr(work, "Run", breaks)
        answer = pals("bench", "--grid", grid, "--seeds", "2", "--out", "bench")
    kept = Path("bench") / f"{FOLDERS[0]}.error.txt"
    assert answer.code == 1 and "seed 1: ZeroDivisionError: all went wrong (all of it in" in answer.err
    assert "in detail" in kept.read_text()
    assert pals("bench", "--grid", grid, "--seeds", "2", "--out", "bench").code == 0 and not kept.exists()
    assert_same_runs(Path("bench"), whole)


def test_a_folder_that_another_works_on_is_left_alone(pals: Pals, grid: Path, whole: Path, tmp_path: Path) -> None:
    base = tmp_path / "bench"
    some_of(whole, base, FOLDERS[1:7])
    with held_by_another(base / FOLDERS[0]) as other:
        answer = pals("bench", "--grid", grid, "--seeds", "2", "--out", "bench")
    assert answer.code == 0 and f"Skipped: toy/few/average seed 1: process {other.pid} on" in answer.out
    assert finished(base) == FOLDERS[1:]
    assert pals("bench", "--grid", grid, "--seeds", "2", "--out", "bench").code == 0  # now the owner is dead
    assert_same_runs(base, whole)


@pytest.mark.slow
def test_two_worker_processes_of_which_one_is_killed(pals: Pals, grid: Path, whole: Path, tmp_path: Path) -> None:
    """It costs its run alone; the others are as they would be in one process."""
    base, killed = tmp_path / "bench", []
    some_of(whole, base, FOLDERS[4:])
    grid.write_text(GRID.replace("rows:", "rows:\n  Long: {method: {name: average}, train: {epochs: 20}}"))
    long = base / "few/long/full/seed-1"

    def kill_the_first() -> None:
        until(lambda: logged_epochs(long))
        killed.append(read_json(long / OWNER)["pid"])
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill_the_first)
    thread.start()
    answer = pals("bench", "--grid", grid, "--cells", "few", "--seeds", "2", "--out", "bench", "--jobs", "2")
    thread.join()
    assert killed[0] != os.getpid() and answer.code == 1
    assert "Failed: toy/few/long seed 1: Its process was killed" in answer.err
    assert "toy/few/pals seed 2: epoch 1/2, accuracy" in answer.out  # progress comes over from the workers
    assert not (long / "summary.json").exists() and (long.with_name("seed-2") / "summary.json").exists()
    shutil.rmtree(base / "few/long")
    assert_same_runs(base, whole)


def go_on_when_asked_to_end() -> None:
    """In a process of its own."""
    _begin_worker(None, 1)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), number)
    os._exit(7)


@pytest.mark.slow
def test_only_the_command_acts_on_requests_to_end() -> None:
    """A service manager asks all processes at once; the command then asks the workers to finish their epoch."""
    worker = multiprocessing.get_context("spawn").Process(target=go_on_when_asked_to_end)
    worker.start()
    worker.join(240)
    assert worker.exitcode == 7


def test_runs_that_share_a_device() -> None:
    assert [_at_a_time("local", 2, runs, {}) for runs in (5, 1)] == [2, 1]
    assert [_at_a_time("slurm", 16, 20, options) for options in ({}, {"cluster": "local"})] == [1, 20]


class FakePool:
    """Notes which GPU a process started now would see."""

    made: ClassVar[list[FakePool]] = []

    def __init__(self, *_: Any) -> None:
        self.devices: list[str] = []
        self._processes: dict[int, Any] = {}
        self.made.append(self)

    def submit(self, function: Any, of: Work) -> Future[Outcome]:
        self.devices.append(os.environ["CUDA_VISIBLE_DEVICES"])
        done: Future[Outcome] = Future()
        done.set_result(Outcome(of.name, of.folder, "done"))
        return done

    def shutdown(self, **_: Any) -> None:
        pass


def test_workers_are_spread_over_the_gpus_and_live_on(grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launchers, "ProcessPoolExecutor", FakePool)
    monkeypatch.setattr(launchers, "free_devices", lambda name: ("3", "5"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    works = [work_of(job, tmp_path) for job in plan(read_grid(grid), [1, 2], None, tmp_path)]
    for count in (1, 2):
        FakePool.made.clear()
        outcomes = list(launch(works, jobs=count, stop=Stop(tmp_path)))
        assert sorted(outcome.name for outcome in outcomes) == sorted(one.name for one in works)
        assert [set(pool.devices) for pool in FakePool.made] == [{"3"}, {"5"}] * count
        assert sum(len(pool.devices) for pool in FakePool.made) == 8
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3,5"


def test_compiled_networks_are_shared_by_runs_of_a_kind(grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[str] = []
    monkeypatch.setattr(work, "forget_compiled", lambda: forgotten.append("all"))
    monkeypatch.setattr(work, "_compiled", {})
    pals_run, other_method = (plan(read_grid(grid), [1], None, tmp_path)[number].config for number in (0, 2))
    work._share_compiled(pals_run)
    work._share_compiled(other_method)
    work._share_compiled(pals_run)
    assert len(forgotten) == 1
    larger = plan(read_grid(grid), [1], None, tmp_path, {"train": {"batch_size": 77}})[0].config
    work._share_compiled(larger)
    work._share_compiled(pals_run)
    assert len(forgotten) == 3
    for number in range(2 * work.MAX_COMPILED_METHODS):
        work._share_compiled(replace(pals_run, method_name=f"method-{number}"))
    assert len(forgotten) == 5


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra ray")
def test_on_a_real_ray(process: Process, grid: Path, whole: Path, tmp_path: Path) -> None:
    base = tmp_path / "bench"
    some_of(whole, base, FOLDERS[:6])
    command = ("bench", "--grid", "toy.yaml", "--seeds", "2", "--out", "bench", "--launcher", "ray")
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as short:  # names of sockets are limited
        running = process(*command, "--cluster", "num_cpus=1", "--cluster", f"_temp_dir={short}")
        said = running.communicate(timeout=300)[0]
    assert running.returncode == 0, said
    assert said.count(": done, accuracy") == 2
    assert_same_runs(base, whole)
    for name in FOLDERS[6:]:
        assert read_result(base / name).command.startswith("pals bench --grid toy.yaml --seeds 2")  # not Ray's own


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("submitit") is None, reason="needs the extra slurm")
def test_handed_over_by_submitit(pals: Pals, grid: Path, whole: Path) -> None:
    some_of(whole, Path("bench"), FOLDERS[:7])
    command = ("bench", "--grid", grid, "--seeds", "2", "--out", "bench", "--launcher", "slurm")
    pals(*command, "--cluster", "cluster=local", "--cluster", "slurm_partition=gpu").ok()
    assert_same_runs(Path("bench"), whole)
    assert read_json(Path("bench") / FOLDERS[7] / "run.json")["command"] == sys.argv  # not submitit's


@pytest.mark.skipif(importlib.util.find_spec("submitit") is None, reason="needs the extra slurm")
@pytest.mark.skipif(shutil.which("srun") is not None, reason="there is a Slurm here")
def test_without_a_slurm(pals: Pals, grid: Path) -> None:
    answer = pals("bench", "--grid", grid, "--launcher", "slurm")
    assert answer.code == 2 and "Slurm rejected the job" in answer.err


@pytest.mark.slow
def test_the_grid_of_the_documentation_runs(pals: Pals, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "bench.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n(.*?)^```", page, flags=re.M | re.S)
    (commands,) = re.findall(r"^<!-- run with the file above -->\n```shell\n(.*?)^```", page, flags=re.M | re.S)
    (tmp_path / "digits.yaml").write_text(block)
    for line in commands.splitlines():
        answer = pals(*shlex.split(line.replace("--jobs 2", ""))[1:])  # workers have their own test
        assert answer.code == 0, answer.err
    assert len(finished(Path("runs/digits"))) == 6
