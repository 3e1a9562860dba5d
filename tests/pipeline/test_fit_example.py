"""The photographs that come along."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from _toy import Answer
from pals.cli.fit import _default_folder
from pals.data.example import example

Pals = Callable[..., Answer]


def test_the_files_belong_together() -> None:
    """Each image has three answers and a label, and a licence lies beside it; all of it is small enough for the wheel."""
    images, answers, truth = example()
    given, right = pd.read_csv(answers), pd.read_csv(truth)
    names = sorted(path.name for path in images.iterdir())
    assert names == right["image"].tolist() and 40 <= len(names) <= 60
    assert given.groupby("image")["annotator"].nunique().to_dict() == dict.fromkeys(names, 3)
    assert set(given["label"]) == set(right["label"])
    assert {Image.open(io.BytesIO((images / name).read_bytes())).size for name in names} == {(160, 160)}
    assert sum((images / name).stat().st_size for name in names) < 400_000
    assert "creativecommons.org/licenses/by/4.0" in (images.parent / "LICENSE.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_one_option_shows_the_whole_path(pals: Pals) -> None:
    said = pals("fit", "--example", "--device", "cpu", code=0)
    labels = pd.read_csv("runs/example/labels.csv", dtype=str).set_index("item")["label"]
    truth = pd.read_csv(example().truth, dtype=str).set_index("image")["label"]
    assert (labels == truth.loc[labels.index]).mean() >= 0.9 and "Warning" not in said.out
    assert Path("runs/example/report.html").is_file() and "of the labels are right" in said.out


def test_it_goes_with_nothing_of_ones_own_and_is_named_without_files(pals: Pals) -> None:
    for more in (("photos", "votes.csv"), ("--truth", "truth.csv"), ("--no-images",)):
        said = pals("fit", "--example", *more)
        assert said.code != 0 and "--example brings its own" in said.err
    said = pals("fit", "--out", "run")
    assert said.code != 0 and "--example" in said.err


def write_answers(path: Path, labels: str) -> None:
    rows = [f"{item},{name},{labels[item % 2]}\n" for item in range(20) for name in ("ann", "bob", "cho")]
    path.write_text("".join(["item,annotator,label\n", *rows]))


def test_the_folder_of_the_results_has_a_default(pals: Pals, tmp_path: Path) -> None:
    """It is named after the answers, or after the images; the same command resumes, and other answers are refused."""
    write_answers(tmp_path / "spring.csv", "xy")
    command = ("fit", "--no-images", "spring.csv")
    assert pals(*command).code == 0 and Path("runs/spring/summary.json").is_file()
    assert "exists: keeping its settings" in pals(*command).out
    write_answers(tmp_path / "spring.csv", "yx")
    other = pals(*command)
    assert other.code == 2 and "runs/spring" in other.err and "--out" in other.err


@pytest.mark.parametrize(
    ("source", "name"),
    [("photos", "photos"), (".", "ponds"), ("photos/part-{000..009}.tar", "photos"), ("photos/part.tar", "part")],
)
def test_the_default_folder_is_named_after_the_images(
    source: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ponds" / "photos").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "ponds")
    assert _default_folder(Path(source)) == Path("runs", name)
