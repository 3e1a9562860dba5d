"""The toy grid (digits, two methods, cells, seeds and epochs, the smallest network), and tables built by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from _toy import assert_same, logged_epochs
from pals.bench.grid import read_grid
from pals.bench.jobs import plan
from pals.bench.launchers import launch
from pals.bench.report.result_table import ResultTable
from pals.bench.work import Outcome, Stop, work_of
from pals.training.checkpoint import load_checkpoint
from pals.util.locks import OWNER

GRID = """\
title: Toy
base:
  data: {name: digits, noise_rate: 0.2}
  network: {name: small-cnn}
  train: {epochs: 2, batch_size: 512}
  engine: {device: cpu}
rows:
  PALS: {method: {name: pals, neighbors: 5, consistency: false}}
  Average: {method: {name: average}}
columns:
  few: {data: {partial_rate: 0.1}}
  many: {data: {partial_rate: 0.4}}
"""
FOLDERS = [f"{column}/{row}/full/seed-{seed}" for column in ("few", "many") for row in ("average", "pals") for seed in (1, 2)]


def run_grid(grid: Path, base: Path, seeds: Sequence[int] = (1, 2), epochs: int | None = None) -> list[Outcome]:
    """In this process, without the command line."""
    stop = Stop(base)
    works = [work_of(job, base, stop=stop) for job in plan(read_grid(grid), seeds, epochs, base)]
    return list(launch(works, stop=stop))


def finished(base: Path) -> list[str]:
    return sorted(path.parent.relative_to(base).as_posix() for path in base.glob("*/*/*/*/summary.json"))


def assert_same_runs(base: Path, whole: Path) -> None:
    """The same runs as where nobody disturbed them, bit for bit, and nothing left lying about."""
    assert finished(base) == finished(whole)
    for name in finished(whole):
        assert_same(load_checkpoint(base / name / "checkpoint.pt"), load_checkpoint(whole / name / "checkpoint.pt"), name)
        assert logged_epochs(base / name) == logged_epochs(whole / name)
        assert (base / name / "summary.json").read_bytes() == (whole / name / "summary.json").read_bytes()
    assert not [path for path in base.rglob("*") if path.name == OWNER or path.name.endswith(".part")]
    assert not list(base.glob(".stop-*"))


NOTHING = dict.fromkeys(
    ("mean", "std", "paper_mean", "paper_std", "difference", "against", "against_mean", "against_low", "against_high",
     "epoch_seconds", "total_seconds", "times_supervised", "cost", "hardware")
)  # fmt: skip


def entry(
    row: str, column: str, mean: float | None = None, std: float | None = None, runs: int = 1, *, paper: Any = None, **more: Any
) -> dict[str, Any]:
    """A row of `ResultTable.entries`; its group is what stands before the comma of its column."""
    links = [
        {"seed": seed, "accuracy": (mean or 0.0) + 0.5 * (seed - 1), "epochs": 500, "shortened": False,
         "folder": f"runs/r/seed-{seed}", "href": f"../r/seed-{seed}", "commit": "abc1"}
        for seed in range(1, runs + 1)
    ]  # fmt: skip
    return {
        "group": column.partition(",")[0],
        "row": row,
        "column": column,
        **NOTHING,
        "mean": mean,
        "std": std,
        "n": runs if mean is not None else 0,
        "paper_mean": paper[0] if paper else None,
        "paper_std": paper[1] if paper else None,
        "difference": mean - paper[0] if mean is not None and paper else None,
        "mark": "" if mean is not None else "not run",
        "protocol": "g1",
        "nominal_noise": 0.3,
        "effective_noise": None,
        "note": "",
        "runs": links if mean is not None else [],
        **more,
    }


def timed(seconds: float, total: float, times: float | None = None, cost: float | None = None) -> dict[str, Any]:
    return {"epoch_seconds": seconds, "total_seconds": total, "times_supervised": times, "cost": cost, "hardware": "X1, bf16"}


def table(*entries: dict[str, Any], name: str = "9", title: str = "A & B: 100%", **more: Any) -> ResultTable:
    return ResultTable(name, title, pd.DataFrame(list(entries), dtype=object), **more)
