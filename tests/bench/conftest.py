from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _bench import GRID, run_grid

SOURCE = Path(__file__).parents[2] / "src"


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
    """`python -m pals ...` in a process of its own, which does not outlive the test."""
    started: list[subprocess.Popen[str]] = []
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "200"}
    environment["RAY_AUTH_MODE"] = "disabled"  # or it leaves a file in the home folder

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "pals", *arguments]
        started.append(
            subprocess.Popen(
                command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()
        if one.stdout is not None:
            one.stdout.close()
