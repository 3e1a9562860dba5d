"""One finished run with images in folders, unsure, several and trusted answers, shared by all formats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from _pictures import picture
from _replicates import few_replicates as few_replicates
from _toy import Answer
from pals.pipeline import fit

Exporting = Callable[..., Path]
CLASSES = ("frog/toad", "newt", "none")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 images of three classes: two have one stem, one a comma and a letter beyond ASCII; cho is trusted."""
    folder, rng = tmp_path_factory.mktemp("handed"), np.random.default_rng(0)
    rows = []
    for number in range(30):
        name = {1: "a.png", 2: "a.jpg", 3: "pond, süd/3.png"}.get(number, f"pond/{number}.png")
        (folder / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(number % 3, 12, rng)[: 8 + number % 2]).save(folder / "photos" / name)
        label = CLASSES[number % 3]
        said = {"ann": label, "bob": "newt|none" if number == 4 else "don't know" if number == 5 else CLASSES[rng.integers(3)]}
        said |= {"cho": label} if number < 3 else {"dan": f"{label}?"}
        rows += [(name, who, answer) for who, answer in said.items()]
    answers = pd.DataFrame(rows, columns=["item", "annotator", "label"])
    settings: dict[str, Any] = {"data": {"size": 12, "trusted": ["cho"]}, "files": {"cache": folder / "cache"}}
    fit(folder / "photos", answers, out=folder / "ponds", encoder="patches", settings=settings)
    return folder / "ponds"


@pytest.fixture(scope="module")
def labels(run: Path) -> pd.DataFrame:
    return pd.read_csv(run / "labels.csv", dtype={"item": str}).set_index("item")


@pytest.fixture
def export(pals: Callable[..., Answer], run: Path, tmp_path: Path) -> Exporting:
    """`export("coco")` writes the run by the command line."""

    def exported(to: str, *more: str | Path) -> Path:
        answer = pals("export", run, "--to", to, "--out", tmp_path / "made", *more)
        assert answer.code == 0, answer.err
        assert f"Wrote {tmp_path / 'made'}: 30 labels as " in answer.out.replace("\n", "")
        return tmp_path / "made"

    return exported
