"""Two commands never work in one folder: from the first look at it until everything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from _crowd import write_vectors
from _locks import held_by_another
from _toy import Answer
from pals.pipeline import api
from pals.util.locks import BusyError, FolderLock, is_lock

Pals = Callable[..., Answer]
TRAINED = ("--method", "pals", "--epochs", "1", "--folds", "2", "--set", "method.neighbors=5", "--set", "data.fold_epochs=1")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_vectors(tmp_path, 30)


def fit(pals: Pals, data: Path, *more: str) -> Answer:
    pictures = () if "--no-images" in more else ("--features", data / "x.npy", "--device", "cpu")
    return pals("fit", data / "votes.csv", *pictures, "--out", "runs/run", *more)


def test_the_second_leaves_a_new_folder_to_the_first(data: Path, pals: Pals) -> None:
    """Before the first has written anything into it."""
    with held_by_another(Path("runs/run")):
        for more in ((), TRAINED, ("--no-images",)):
            second = fit(pals, data, *more)
            assert second.code == 2 and "is in use" in second.err and len(second.err.splitlines()) == 1
        assert all(is_lock(path) for path in Path("runs/run").iterdir())
    assert fit(pals, data).code == 0
    with held_by_another(Path("runs/run-2")):
        update = pals("update", "runs/run", "votes.csv", "--out", "runs/run-2")
        assert update.code == 2 and "is in use" in update.err
        assert all(is_lock(path) for path in Path("runs/run-2").iterdir())


@pytest.mark.parametrize("more", [(), TRAINED, ("--no-images",)])
def test_the_folder_is_locked_at_every_stage(
    more: tuple[str, ...], data: Path, pals: Pals, monkeypatch: pytest.MonkeyPatch
) -> None:
    def watched(stage: str) -> Callable[..., Any]:
        done = getattr(api, stage)

        def work(*given: Any, **named: Any) -> Any:
            found = done(*given, **named)
            with pytest.raises(BusyError):
                FolderLock(Path("runs/run")).acquire()
            seen.append(stage)
            return found

        return work

    stages, seen = ["plan", "load", "encode", "train", "find", "write"], list[str]()
    for stage in stages:
        monkeypatch.setattr(api, stage, watched(stage))
    answer = fit(pals, data, *more)
    assert answer.code == 0, answer.err
    assert seen == stages
    FolderLock(Path("runs/run")).acquire()
