"""One small fit for all tests of the page; whoever changes the run has a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from _review import make_digits


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty-four digits of three classes, one of which has a hostile name, as have three files."""
    pytest.importorskip("starlette")
    from pals import fit

    folder = make_digits(tmp_path_factory.mktemp("digits"), 24, classes=3, hostile=True)
    with pytest.MonkeyPatch.context() as patch:  # for this fit alone
        patch.setattr("pals.crowd.uncertainty.MAX_REPLICATES", 3)
        fit(
            folder / "images",
            folder / "votes.csv",
            out=folder / "run",
            encoder="patches",
            settings={"data": {"mirror": False}, "engine": {"device": "cpu"}},
        )
    return folder / "run"


@pytest.fixture
def run(fitted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(fitted, tmp_path / "run"))
