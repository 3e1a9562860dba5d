"""`pals update` that is killed goes on with the same command, and ends as if nobody had disturbed it; so does one repeated."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from _crowd import write_vectors
from _kills import dying_at, in_a_child
from _slow import rest_slow
from _toy import Answer, assert_same
from pals.training.checkpoint import load_checkpoint

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked and killed")

Pals = Callable[..., Answer]
TIMES = {"run.json", "log.jsonl", "checkpoint.pt", "report.json", "report.html"}
"""Files that say when and for how long, or are compared by what they hold."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """With `more.csv`, the answers of a fourth person."""
    (tmp_path / "more.csv").write_text("photo,annotator,label\n" + "".join(f"{i},zoe,{'abc'[i % 3]}\n" for i in range(10)))
    return write_vectors(tmp_path, 60)


def fit(pals: Pals, data: Path, *more: str) -> None:
    pals("fit", data / "votes.csv", "--features", data / "x.npy", "--out", "run", "--device", "cpu", *more, code=0)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name not in TIMES}


def assert_as_whole(folder: Path, whole: Path) -> None:
    assert content(folder) == content(whole)
    if (whole / "checkpoint.pt").exists():
        assert_same(load_checkpoint(folder / "checkpoint.pt"), load_checkpoint(whole / "checkpoint.pt"))


def update(pals: Pals, out: str) -> Answer:
    return pals("update", "run", "more.csv", "--item-column", "photo", "--device", "cpu", "--out", out)


def killed(pals: Pals, out: str, point: str, count: int) -> bool:
    def work() -> None:
        with pytest.MonkeyPatch.context() as patch:
            dying_at(point, count, patch)
            update(pals, out)

    return in_a_child(work)


AT = [(point, count) for count in (5, 1, 2, 3, 9, 14) for point in ("file in place", "file written, not yet in place")]


@pytest.mark.parametrize(("point", "count"), rest_slow(1, AT))
def test_in_closed_form(point: str, count: int, data: Path, pals: Pals) -> None:
    fit(pals, data)
    assert update(pals, "whole").code == 0 and killed(pals, "run-2", point, count)
    assert not Path("run-2/summary.json").exists()
    done = update(pals, "run-2")
    assert done.code == 0, done.err
    assert_as_whole(Path("run-2"), Path("whole"))


@pytest.mark.parametrize(
    ("point", "count"), rest_slow(1, [("line logged", 3), ("half a line logged", 2), ("file in place", 6)])
)
def test_trained(point: str, count: int, data: Path, pals: Pals) -> None:
    """The epochs that are done are not lost."""
    fit(pals, data, "--method", "pals", "--epochs", "9", "--set", "method.neighbors=5", "--set", "train.checkpoint_every=1")
    assert update(pals, "whole").code == 0 and killed(pals, "run-2", point, count)
    assert not Path("run-2/summary.json").exists()
    done = update(pals, "run-2")
    assert done.code == 0, done.err
    assert_as_whole(Path("run-2"), Path("whole"))
    assert point != "line logged" or "Resuming" in done.out


@pytest.mark.parametrize("method", [(), ("--method", "pals", "--epochs", "2", "--set", "method.neighbors=5")])
def test_a_finished_one_repeated(method: tuple[str, ...], data: Path, pals: Pals) -> None:
    fit(pals, data, *method)
    assert update(pals, "run-2").code == 0
    before = content(Path("run-2"))
    again = update(pals, "run-2")
    assert again.code == 0, again.err
    assert "run-2 exists: keeping its settings" in again.out and content(Path("run-2")) == before
    with Path("more.csv").open("a") as file:
        file.write("11,zoe,a\n")
    other = update(pals, "run-2")
    assert other.code == 2 and "answers are not those that run-2 was started with" in other.err
    assert content(Path("run-2")) == before
