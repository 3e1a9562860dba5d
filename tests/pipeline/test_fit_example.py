"""The sixty pictures that come along."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from _example import make_example
from _toy import Answer
from pals.data.example import example

Pals = Callable[..., Answer]


def test_it_is_what_its_script_makes(tmp_path: Path) -> None:
    make_example(tmp_path)
    for shipped, made in zip(example(), (tmp_path / "images", tmp_path / "answers.csv", tmp_path / "truth.csv"), strict=True):
        if shipped.is_file():
            assert shipped.read_text() == made.read_text()
            continue
        names = sorted(path.name for path in shipped.iterdir())
        assert names == sorted(path.name for path in made.iterdir()) and len(names) == 60
        for name in names:
            assert np.array_equal(np.asarray(Image.open(shipped / name)), np.asarray(Image.open(made / name)))


@pytest.mark.slow
def test_one_option_shows_the_whole_path(pals: Pals) -> None:
    said = pals("fit", "--example", "--device", "cpu")
    assert said.code == 0, said.err
    labels = pd.read_csv("runs/example/labels.csv", dtype=str).set_index("item")["label"]
    truth = pd.read_csv(example().truth, dtype=str).set_index("picture")["label"]
    assert (labels == truth.loc[labels.index]).mean() >= 0.95
    assert Path("runs/example/report.html").is_file() and "Against the truth" in said.out + said.err


@pytest.mark.parametrize("more", [("photos", "votes.csv"), ("--truth", "truth.csv"), ("--no-images",)])
def test_it_goes_with_nothing_of_ones_own(pals: Pals, more: tuple[str, ...]) -> None:
    said = pals("fit", "--example", *more)
    assert said.code != 0 and "--example brings its own" in said.err


def test_without_files_it_is_named(pals: Pals) -> None:
    said = pals("fit", "--out", "run")
    assert said.code != 0 and "--example" in said.err


def test_a_folder_for_the_results_is_asked_for(pals: Pals) -> None:
    said = pals("fit", "photos", "votes.csv")
    assert said.code != 0 and "--out" in said.err
