"""The toy grid: digits, two methods, two cells, two seeds, two epochs, the smallest network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from _toy import assert_same, logged_epochs
from pals.bench import Outcome, Stop, launch, plan, read_grid, work_of
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
