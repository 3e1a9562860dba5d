"""Planned runs and their progress; the user's own grids."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest
import torch
from _bench import FOLDERS, GRID

from pals.bench.grid import read_grid, slug
from pals.bench.jobs import State, plan, state
from pals.bench.work import Stop
from pals.runs.run_config import RunConfig
from pals.training.engine import free_devices
from pals.util.config import read_yaml
from pals.util.errors import InputError
from pals.util.files import write_text

ROOT = Path(__file__).parents[2]


def test_a_grid_is_every_row_in_every_column_and_rows_win(grid: Path, tmp_path: Path) -> None:
    experiments = read_grid(grid)
    names = [(one.row, one.column) for one in experiments]
    assert names == [(row, column) for column in ("few", "many") for row in ("PALS", "Average")]
    first = experiments[0]
    assert (first.name, first.table, first.group, first.published) == ("toy/few/pals", "grid", "Toy", None)
    config = first.config(seed=7)
    assert (config.seed, config.data.partial_rate, config.data.noise_rate) == (7, 0.1, 0.2)  # type: ignore[union-attr]
    assert (config.method_name, config.method.neighbors, config.train.epochs) == ("pals", 5, 2)
    path = tmp_path / "mine.yaml"
    text = "base: {train: {lr: 0.1, epochs: 9, momentum: 0.5}}\n"
    text += "rows: {a: {train: {lr: 0.3}}}\ncolumns: {b: {train: {lr: 0.2, epochs: 8}}, c:}\n"
    path.write_text(text)
    with_column, without = read_grid(path)
    train = with_column.config(1).train
    assert (train.lr, train.epochs, train.momentum) == (0.3, 8, 0.5) and without.config(1).train.epochs == 9
    assert without.name == "mine/c/a"  # without a title it is called as the file
    assert without.config(1).method_name == "pals"
    assert slug("PALS, q = 0.5 (ours)") == "pals-q-0.5-ours" and slug("../..") == "x" and slug("ELR+") == "elr+"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GRID.replace("rows:", "row:"), r"bad.yaml: .*did you mean 'rows'"),
        (GRID.replace("neighbors", "neighbours"), r"bad.yaml, row 'PALS', column 'few': .*neighbours"),
        (GRID.replace("name: average", "name: averege"), r"row 'Average', column 'few': .*did you mean 'average'"),
        ("rows: {a: {}}", "`columns` should name at least one"),
        ("rows: []\ncolumns: {a: {}}", "`rows` should name at least one"),
        ("rows: {a: 5}\ncolumns: {b: {}}", "`rows.a` should hold settings"),
        ("base: 3\nrows: {a: {}}\ncolumns: {b: {}}", "`base` should hold settings"),
        ("rows: {q=1: {}, q-1: {}}\ncolumns: {b: {}}", "would share the folder 'q-1'"),
        ("rows: {a\n", "Cannot read"),
    ],
)
def test_bad_grids(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_grid(path)


def test_a_plan_has_each_run_once_with_equal_kinds_together(grid: Path, tmp_path: Path) -> None:
    experiments = read_grid(grid)
    jobs = plan([*experiments, *experiments], [1, 2], None, tmp_path)
    assert sorted(job.folder.relative_to(tmp_path).as_posix() for job in jobs) == FOLDERS
    methods = [job.config.method_name for job in jobs]
    assert methods == ["pals"] * 4 + ["average"] * 4 and [job.seed for job in jobs[:4]] == [1, 1, 2, 2]
    job = plan(read_grid(grid), [1], None, tmp_path, {"train": {"lr": 0.7}, "engine": {"device": "auto"}})[0]
    assert (job.config.train.lr, job.config.train.batch_size, job.changed) == (0.7, 512, ("train.lr",))
    full, short, same = (plan(read_grid(grid), [1], epochs, tmp_path)[0] for epochs in (None, 1, 2))
    assert (short.folder.parent.name, short.config.train.epochs) == ("epochs-1", 1) and full.folder == same.folder


def test_states(whole: Path, tmp_path: Path) -> None:
    name = "few/pals/full/seed-1"
    assert state(tmp_path / "nothing") == State("missing") and str(state(whole / name)) == "done"
    folder = tmp_path / "run"
    shutil.copytree(whole / name, folder)
    (folder / "summary.json").unlink()
    lines = (folder / "log.jsonl").read_text().splitlines()
    write_text(folder / "log.jsonl", "\n".join(lines[:2]) + "\n")
    assert str(state(folder)) == "cut off at epoch 1 of 2"
    other = json.dumps({"event": "epoch", "phase": "warm-up", "epoch": 3, "epochs": 9, "total_epoch": 7})
    write_text(folder / "log.jsonl", "\n".join([*lines, other]) + "\n")
    assert str(state(folder)) == "cut off at warm-up epoch 3 of 9" and state(folder).total_epoch == 7
    (folder / "checkpoint.pt").unlink()
    assert state(folder).kind == "missing"
    # But a finished run may have been made on another machine.
    folder = whole / "few/pals/full/seed-1"
    values = read_yaml(folder / "config.yaml")
    with pytest.raises(InputError, match=r"seed-1/config.yaml belongs to a run with other settings: train.lr is 0.1 there"):
        state(folder, RunConfig.of({**values, "train": {**values["train"], "lr": 0.123}}))
    elsewhere = RunConfig.of({**values, "engine": {**values["engine"], "device": "auto", "compile": True}})
    assert state(folder, elsewhere).kind == "done"


@pytest.mark.parametrize(
    ("count", "visible", "name", "expected"),
    [(0, None, "auto", ()), (2, None, "auto", ("0", "1")), (2, None, "cuda", ("0", "1")), (2, None, "cpu", ()),
     (2, None, "cuda:1", ()), (2, "4, 6", "auto", ("4", "6")), (1, "GPU-aa", "auto", ("GPU-aa",))],
)  # fmt: skip
def test_gpus_to_spread_over(
    count: int, visible: str | None, name: str, expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert free_devices(name) == expected


@pytest.mark.parametrize(
    ("name", "network", "size"), [("crowd_comparison", "resnet18", 256), ("crowd_comparison_small", "small-cnn", 64)]
)
def test_the_comparison_on_real_answers_compares_like_with_like(name: str, network: str, size: int) -> None:
    found = {recipe.row: recipe.config(1, 30) for recipe in read_grid(ROOT / "benchmarks" / f"{name}.yaml")}
    for config in found.values():
        assert (config.data.name, config.network.name) == ("cifar10n", network)
        assert (config.train.batch_size, config.train.epochs) == (size, 30)
    labels = {row: getattr(config.method, "labels", None) for row, config in found.items()}
    assert Counter(labels.values()) == {"majority": 2, "votes": 2, None: 2}
    assert found["DivideMix on the majority"].method.warm_up == 5


def test_one_signal_stops_after_the_epoch_two_at_once(tmp_path: Path) -> None:
    before, shown = signal.getsignal(signal.SIGINT), []
    stop = Stop(tmp_path / "bench")
    with stop.on_signal(lambda: shown.append("stopping")):
        assert not stop.requested
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested and shown == ["stopping"]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before and not stop.file.exists()
    assert Stop(tmp_path).file != Stop(tmp_path).file
