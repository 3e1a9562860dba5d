"""What came of runs, read from folders and from records; statistics worked out by hand, and what must hold for all."""

from __future__ import annotations

import json
import math
import shutil
import statistics
import subprocess
from pathlib import Path

import pytest
from _bench import FOLDERS, GRID, run_grid
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

import pals as package
from pals.bench.grid import read_grid
from pals.bench.report.statistics import Summary, paired, summarise, verdict
from pals.bench.run_records import collect, read_records, read_result, record, write_records
from pals.runs import run_folder
from pals.util.errors import InputError
from pals.util.files import read_json, read_json_lines, write_json


def test_a_result_has_all_that_a_table_needs(whole: Path) -> None:
    folder = whole / "many/pals/full/seed-2"
    result = read_result(folder)
    summary = read_json(folder / "summary.json")
    epochs = [event for event in read_json_lines(folder / "log.jsonl") if event["event"] == "epoch"]
    assert result.accuracy == 100 * summary["test_accuracy"] == 100 * epochs[-1]["test_accuracy"]  # of the last epoch
    assert (result.recipe, result.run) == ("toy/many/pals", "many/pals/full/seed-2")
    assert (result.seed, result.epochs, result.method, result.network, result.data) == (2, 2, "pals", "small-cnn", "digits")
    assert (result.protocol, result.nominal_noise) == ("g1", 0.2)
    assert result.effective_noise == summary["effective_noise"]
    assert result.seconds == pytest.approx(sum(event["seconds"] for event in epochs), abs=0.01)
    assert result.epoch_seconds == pytest.approx(statistics.median(event["seconds"] for event in epochs), abs=1e-4)
    assert (result.hardware, result.warmup_seconds, result.changed) == ("cpu, fp32", 0.0, ())
    assert result.commit == run_folder.commit() and set(result.versions) == {"pals", "torch", "python"}


def edited_log(whole: Path, folder: Path, *changes: dict[str, object]) -> Path:
    """A copy of a run of two epochs, with these changes of the epochs in its log."""
    shutil.copytree(whole / "few/average/full/seed-1", folder)
    start, *epochs = read_json_lines(folder / "log.jsonl")
    events = [start, *({**event, **change} for event, change in zip(epochs, changes, strict=False)), *epochs[len(changes) :]]
    (folder / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


@pytest.mark.parametrize(
    ("changes", "seconds", "epoch_seconds", "warmup"),
    [
        (({"seconds": 31.0, "warmup_seconds": 30.0}, {"seconds": 2.0}), 3.0, 1.5, 30.0),
        (({"phase": "separation-1", "seconds": 1.0}, {"seconds": 4.0}), 5.0, 4.0, 0.0),  # short epochs of earlier phases
    ],
)
def test_times_exclude_warm_up_and_an_epoch_is_one_of_the_last_phase(
    changes: tuple[dict[str, object], ...], seconds: float, epoch_seconds: float, warmup: float, whole: Path, tmp_path: Path
) -> None:
    result = read_result(edited_log(whole, tmp_path / "run", *changes))
    assert (result.seconds, result.epoch_seconds, result.warmup_seconds) == (seconds, epoch_seconds, warmup)


def test_records_come_back_as_results(whole: Path, tmp_path: Path) -> None:
    base = tmp_path / "bench"
    shutil.copytree(whole, base)
    path = write_records(base)
    results = read_records(path)
    assert [result.run for result in results] == FOLDERS
    for result in results:
        folder = base / result.run
        assert json.loads(json.dumps(record(folder))) == record(folder)
        assert str(tmp_path) not in json.dumps(record(folder))
        assert {**vars(read_result(folder)), "folder": ""} == vars(result)
    good = record(whole / FOLDERS[0])
    less = {key: value for key, value in good.items() if key != "accuracy"}
    for values, said in ((less, "lacks accuracy"), ({**good, "colour": "red"}, "unknown colour")):
        (tmp_path / "r.jsonl").write_text(json.dumps(good) + "\n" + json.dumps(values) + "\n")
        with pytest.raises(InputError, match=f"line 2 is not a record of a run: it .*{said}"):
            read_records(tmp_path / "r.jsonl")
    with pytest.raises(InputError, match="does not exist"):
        read_records(tmp_path / "none.jsonl")


def test_collecting_by_experiment(whole: Path, grid: Path, tmp_path: Path) -> None:
    experiments, base = read_grid(grid), tmp_path / "bench"
    shutil.copytree(whole, base)
    (base / "few/pals/full/seed-1/summary.json").unlink()  # not finished
    found = collect(experiments, base)
    assert list(found) == [experiment.name for experiment in experiments]
    for name, results in found.items():
        assert [result.seed for result in results] == ([2] if name == "toy/few/pals" else [1, 2])
    assert all(result.recipe == name for name, results in found.items() for result in results)
    assert collect(experiments, whole, epochs=1) == {experiment.name: [] for experiment in experiments}  # never mixed
    with pytest.raises(InputError, match="not finished"):
        read_result(base / "few/pals/full/seed-1")
    untested = base / FOLDERS[0] / "summary.json"
    write_json(untested, {key: value for key, value in read_json(untested).items() if not key.startswith("test_")})
    with pytest.raises(InputError, match="without test items"):
        read_result(untested.parent)


def test_runs_with_other_settings_are_refused(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(GRID.replace("batch_size: 512", "batch_size: 512, lr: 0.01"))
    with pytest.raises(InputError, match=r"was not run as toy/few/pals says: train.lr is 0.1 and not 0.01"):
        collect(read_grid(path), whole)
    path.write_text(GRID.replace("device: cpu", "device: auto"))
    assert len(collect(read_grid(path), whole)["toy/few/pals"]) == 2  # the device is no setting of the science


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e@x", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout in which the package is tracked."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    monkeypatch.delenv("PALS_COMMIT", raising=False)
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "__init__.py").write_text("x = 1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "src/__init__.py")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    monkeypatch.setattr(package, "__file__", str(folder / "__init__.py"))
    return folder


def commit_now() -> str | None:
    run_folder.commit.cache_clear()
    try:
        return run_folder.commit()
    finally:
        run_folder.commit.cache_clear()


def test_the_commit_of_the_code(checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = git(checkout, "rev-parse", "HEAD")
    assert len(first) == 40 and commit_now() == first
    (checkout.parent / "notes.txt").write_text("beside the code")
    assert commit_now() == first
    for changed in ("new.py", "__init__.py"):
        (checkout / changed).write_text("y = 2\n")
        assert commit_now() == f"{first}+changes"
        git(checkout, "clean", "--quiet", "-f", ".")
    monkeypatch.setenv("PALS_COMMIT", "abc")
    assert commit_now() == "abc"
    monkeypatch.delenv("PALS_COMMIT")
    installed = checkout / "venv"
    installed.mkdir()
    monkeypatch.setattr(package, "__file__", str(installed / "__init__.py"))  # in somebody's checkout, but not part of it
    assert commit_now() is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_now() is None


def test_the_commit_is_in_the_run_folder(grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the real one: somebody may commit while the tests run."""
    monkeypatch.setattr("pals.runs.run_folder.commit", lambda: "0123abc")
    grid.write_text("".join(line for line in GRID.splitlines(keepends=True) if not line.startswith(("  PALS:", "  many:"))))
    run_grid(grid, tmp_path / "bench", seeds=[1])
    about = read_json(tmp_path / "bench" / FOLDERS[0] / "run.json")
    assert about["commit"] == "0123abc" and about["recipe"] == "toy/few/average"


ACCURACY = st.floats(0, 100)


def test_paired_difference_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, deviation 1, t with 2 degrees of freedom 4.302653, half width 4.302653 / sqrt(3)."""
    assert summarise([]) is None and summarise([91.5]) == Summary(91.5, None, 1)
    found = summarise([90.0, 92.0, 94.0])
    assert found == Summary(92.0, 2.0, 3)  # (4 + 0 + 4) / 2 = 4
    found = paired({1: 91.0, 2: 93.0, 3: 95.0, 9: 0.0}, {1: 90.0, 2: 91.0, 3: 92.0, 8: 50.0})
    assert found is not None and (found.mean, found.n) == (2.0, 3)
    assert found.low == pytest.approx(2 - 4.302653 / math.sqrt(3), abs=1e-5)
    assert found.high == pytest.approx(2 + 4.302653 / math.sqrt(3), abs=1e-5) and paired({1: 90.0}, {2: 90.0}) is None
    one = paired({1: 91.0, 2: 80.0}, {1: 90.0})
    assert one is not None and (one.mean, one.low, one.high, one.n) == (1.0, None, None, 1)
    # rows that differ by the same in every seed: the interval is a point, however much the seeds differ
    even = paired({1: 10.0, 2: 50.0, 3: 90.0}, {1: 9.0, 2: 49.0, 3: 89.0})
    assert even is not None and (even.low, even.mean, even.high) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("ours", "published", "expected"),
    [
        (None, (97.0, 0.2), "not run"),
        (Summary(94.39, None, 1), (94.18, 0.10), "within"),  # one run: 0.21 / (0.10 sqrt(1 + 1/3)) = 1.8, of 4.30
        (Summary(77.55, None, 1), (77.87, 0.29), "within"),  # 0.32 / (0.29 sqrt(1 + 1/3)) = 0.96
        (Summary(97.49, None, 1), (97.0, 0.1), "within"),  # 4.3027 x 0.1 x 1.1547 = 0.4968
        (Summary(97.51, None, 1), (97.0, 0.1), "better"),
        (Summary(96.49, None, 1), (97.0, 0.1), "worse"),
        (Summary(97.45, 0.2, 3), (97.0, 0.2), "within"),  # 2.7764 x 0.2 sqrt(2/3) = 0.4534
        (Summary(97.46, 0.2, 3), (97.0, 0.2), "better"),
        (Summary(96.54, 0.2, 3), (97.0, 0.2), "worse"),
        (Summary(97.30, 0.2, 30), (97.0, 0.2), "within"),  # Welch: 2.42 degrees of freedom, 3.66 x 0.1211 = 0.443
        (Summary(97.45, 0.2, 30), (97.0, 0.2), "better"),
        (Summary(97.45, 0.5, 3), (97.0, None), "within"),  # no deviation published: ours, 4.3027 x 0.5 sqrt(2/3) = 1.7566
        (Summary(98.77, 0.5, 3), (97.0, None), "better"),
        (Summary(97.004, 0.0, 3), (97.0, 0.0), "within"),  # 97.00 when rounded as the paper's numbers are
        (Summary(97.01, 0.0, 3), (97.0, 0.0), "better"),
        (Summary(96.9, None, 1), (97.0, None), ""),
    ],
)
def test_verdicts(ours: Summary | None, published: tuple[float, float | None], expected: str) -> None:
    assert verdict(ours, published) == expected


@given(st.lists(ACCURACY, min_size=3, max_size=3), st.lists(ACCURACY, min_size=2, max_size=9))
def test_the_verdict_is_that_of_the_usual_test(theirs: list[float], ours: list[float]) -> None:
    """From the numbers themselves, by scipy's own Welch test."""
    published, found = summarise(theirs), summarise(ours)
    assert published is not None and found is not None and published.std is not None and found.std is not None
    assume(published.std + found.std > 0.1 and abs(found.mean - published.mean) > 0.01)
    chance = stats.ttest_ind(ours, theirs, equal_var=False).pvalue
    assume(abs(chance - 0.05) > 0.01)
    expected = "within" if chance > 0.05 else "better" if found.mean > published.mean else "worse"
    assert verdict(found, (published.mean, published.std)) == expected
