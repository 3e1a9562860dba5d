from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _bench import GRID, run_grid

from _kills import started_processes


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(GRID, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy grid, run once without trouble."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "toy.yaml").write_text(GRID, encoding="utf-8")
    assert {outcome.kind for outcome in run_grid(folder / "toy.yaml", folder / "bench")} == {"done"}
    return folder / "bench"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    yield from started_processes(tmp_path)
