from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

# One thread here and in all processes that tests start: with toy tensors more only wait for each other, and sums that are split
# among threads differ in their last bits. It must be known before torch and numpy are loaded.
os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import pytest
import torch
from hypothesis import settings

from _toy import Answer, toy_candidates, toy_data
from pals import cli
from pals.cli import base
from pals.data import DATASETS
from pals.data.dataset import Dataset
from pals.labels.candidates import CandidateSets

settings.register_profile("quick", deadline=None, max_examples=25, derandomize=True)  # a test fails always or never
settings.load_profile("quick")
torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`-m gpu` where there is none."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(scope="session", autouse=True)
def _no_trace_at_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Pictures and features that are kept lie in a folder of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PALS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def toy() -> Dataset:
    return toy_data()


@pytest.fixture(scope="session")
def noisy(toy: Dataset) -> CandidateSets:
    return toy_candidates(toy)


@pytest.fixture
def pals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """`pals("train", "digits", code=0)` is the command line, in this process and in an empty folder. It knows one more
    data set, "toy", for which `TINY` are settings that take a moment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(DATASETS, "toy", lambda **_: toy_data())
    monkeypatch.setattr(base.console, "width", 160)

    def run(*arguments: str | Path, code: int | None = None) -> Answer:
        monkeypatch.setattr(sys, "argv", ["pals", *map(str, arguments)])
        capsys.readouterr()
        try:
            cli.main()
            found = 0
        except SystemExit as end:
            found = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        answer = Answer(found, *capsys.readouterr())
        assert code is None or answer.code == code, answer
        return answer

    return run
