"""`pals.fit` from Python: what the command does, without a word unless asked, and the findings in hand."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from _pictures import CLASSES, make_pictures
from _refused import refused
from _toy import Answer
from pals.model import Model
from pals.pipeline import Findings, fit, update
from pals.pipeline.short_summary import result_lines
from pals.readers import read_votes
from pals.report.data import command_text
from pals.runs.run_config import VotesConfig
from pals.training.engine import EngineConfig
from pals.util.config import merge, read_yaml
from pals.util.errors import InputError
from pals.util.files import read_json
from pals.vision.networks import build_network

COLUMNS = {"item": "picture", "annotator": "who", "label": "class"}
QUICK: dict[str, Any] = {
    "data": {"columns": COLUMNS, "folds": 2, "fold_epochs": 1}, "network": {"name": "small-cnn"},
    "train": {"epochs": 2}, "engine": {"device": "cpu"}, "method": {"neighbors": 5},
}  # fmt: skip
WORDS = ("--network", "small-cnn", "--folds", "2", "--epochs", "2", "--device", "cpu",
         "--set", "method.neighbors=5", "--set", "data.fold_epochs=1")  # fmt: skip


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALS_CACHE", str(tmp_path / "cache"))
    return make_pictures(tmp_path / "data", items=30)


def run(data: Path, votes: Any = None, **options: Any) -> Findings:
    votes = data / "votes.csv" if votes is None else votes
    settings = merge(QUICK, options.pop("settings", {}))
    return fit(data / "images", votes, **{"out": data.parent / "python", "settings": settings, **options})


def test_the_same_as_the_command_and_not_a_word(
    data: Path, pals: Callable[..., Answer], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    found = run(data, truth=data / "truth.csv")
    assert capsys.readouterr() == ("", "")
    columns = [word for name, column in COLUMNS.items() for word in (f"--{name}-column", column)]
    truth = ("--truth", data / "truth.csv")
    pals("fit", data / "images", data / "votes.csv", "--out", "command", *columns, *WORDS, *truth, code=0)
    for name in ("labels", "doubtful", "annotators", "classes", "confusion", "votes", "summary"):
        file = f"{name}.json" if name == "summary" else f"{name}.csv"
        assert (found.folder / file).read_bytes() == Path("command", file).read_bytes(), name
    assert read_yaml(found.folder / "config.yaml") == read_yaml(Path("command/config.yaml"))
    assert read_json(Path("command/summary.json"))["sentences"] == found.summary


def test_what_the_findings_hold_and_the_command_in_the_report(data: Path) -> None:
    found = run(data)
    assert found.folder == data.parent / "python"
    pd.testing.assert_frame_equal(found.labels, pd.read_csv(found.folder / "labels.csv"))
    assert len(found.doubtful) == found.numbers["doubtful_answers"]
    assert set(found.annotators["annotator"]) == {"ann", "bob", "cho"}
    assert list(found.classes["class"]) == list(CLASSES) and found.confusion["count"].sum() == 90
    assert found.numbers == read_json(found.folder / "summary.json")
    assert set(read_json(found.folder / "report.json")["summary"]) < set(found.summary)
    assert found.model.class_names == CLASSES
    for argv, text in (
        (("/usr/bin/pals", "fit", "my photos", "--out", "x"), "pals fit 'my photos' --out x"),
        (("/lib/pals/__main__.py", "fit", "a"), "pals fit a"),
        (("work/analyse.py", "-v"), "python work/analyse.py -v"),
        (("",), "python"),
    ):
        assert command_text(argv) == text


@pytest.mark.slow
def test_answers_in_memory(data: Path) -> None:
    """A frame or votes give what the file gives; the same call resumes; other answers are refused."""
    whole = run(data)
    frame, votes = pd.read_csv(data / "votes.csv"), read_votes(data / "votes.csv", columns=COLUMNS)
    for name, given in (("frame", frame), ("votes", votes)):
        lines: list[str] = []
        found = run(data, given, out=data.parent / name, progress=lines.append)
        pd.testing.assert_frame_equal(found.labels, whole.labels)
        assert any("90 answers by 3 annotators" in line for line in lines)
        assert any(line.startswith("classifier: epoch 2/2") for line in lines)
        run(data, given, out=data.parent / name)
    refused("not those that", run, data, frame.iloc[:-1], out=data.parent / "frame")
    more = pd.DataFrame({"item": [frame["picture"][0]], "annotator": ["eve"], "label": ["dark"]})
    more.to_csv(data / "more.csv", index=False)
    updated = update(data.parent / "frame", data / "more.csv", settings={"engine": {"device": "cpu"}})
    assert updated.folder == data.parent / "frame" / "rounds" / "1" and updated.numbers["answers"] == 91


def test_pictures_or_vectors(data: Path) -> None:
    for images, features in ((None, None), (data / "images", data / "x.npy")):
        given = {"out": data / "run", "features": features}
        refused("either a folder of images or feature vectors", fit, images, data / "votes.csv", **given)
    np.save(data / "x.npy", np.random.default_rng(0).normal(size=(30, 4)))
    votes = pd.DataFrame({"item": range(30), "annotator": "ann", "label": ["a", "b", "c"] * 10})
    settings = {"train": {"epochs": 1}, "engine": {"device": "cpu"}}
    found = fit(None, votes, features=data / "x.npy", out=data.parent / "run", settings=settings)
    assert found.labels["item"].tolist() == [str(row) for row in range(30)]


def test_weights_are_found_by_name(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the data folder, frozen or not; the command made a path of every name."""
    resnet = build_network("imagenet-resnet18", (3, 32, 32), 2)
    (tmp_path / "sets" / "weights").mkdir(parents=True)
    torch.save(resnet.state_dict(), tmp_path / "sets" / "weights" / "mine.pth")
    monkeypatch.setenv("PALS_DATA", str(tmp_path / "sets"))
    network = {"name": "imagenet-resnet18", "weights": "mine.pth"}
    settings = {"network": network, "data": {"folds": 0}, "train": {"epochs": 1}}
    found = run(data, settings=settings)
    assert found.trained.plan.config.network.weights == str(tmp_path / "sets" / "weights" / "mine.pth")
    encoder = Model.load(found.folder, "cpu").encoder
    assert encoder is not None and torch.equal(encoder.state_dict()["conv1.weight"], resnet.state_dict()["conv1.weight"])
    with pytest.raises(InputError, match=r"no weights file nowhere\.pth"):
        run(data, out=data.parent / "other", settings={"network": {**network, "weights": "nowhere.pth"}})


def test_in_a_notebook_with_images(tmp_path: Path) -> None:
    """Images of doubtful items, each once, with names that are no markup; the labels have the columns of the file."""
    folder, settings = make_pictures(tmp_path, 24), {"data": {"size": 12}}
    found = fit(folder / "images", folder / "votes.csv", out=tmp_path / "run", encoder="patches", settings=settings)
    page = found._repr_html_()
    assert 0 < page.count('<img src="data:image/png;base64,') == min(6, found.doubtful["item"].nunique())
    assert list(found.labels) == pd.read_csv(tmp_path / "run" / "labels.csv").columns.tolist()


def test_in_a_notebook(data: Path) -> None:
    """Short, whatever the number of items, and nothing in it is markup."""
    name = "<script>&" + "x" * 300
    rows = [(f"{name}{item}", who, f"<b>{item % 2}") for item in range(400) for who in ("ann", "bob", "<i>cho")]
    rows += [(f"{name}{item}", "dan", f"<b>{1 - item % 2}") for item in range(0, 400, 20)]
    votes = pd.DataFrame(rows, columns=["item", "annotator", "label"])
    found = fit(None, votes, no_images=True, out=data / "<run>")
    assert len(repr(found)) < 3000 and repr(found).splitlines()[1:] == result_lines(found) and len(found.doubtful) > 8
    assert all(len(repr(part)) < 3000 for part in (found.trained, found.result, found.asking))
    page = found._repr_html_()
    assert len(page) < 10_000
    for text in ("<script>", "<b>0", "<b>1", "<run>"):
        assert text not in page
    assert "&lt;run&gt;" in page and "&lt;script&gt;" in page and page.count("<tr") == 1 + 8
    agreed = fit(None, votes[votes["annotator"] == "ann"], no_images=True, out=data / "agreed")
    assert agreed.doubtful.empty and "&lt;b&gt;1" in agreed._repr_html_()
    read = read_votes(data / "<run>" / "votes.csv")
    assert len(repr(read)) < 3000 and len(repr(read.to_candidates())) < 1000


def test_old_keywords_work_and_warn(tmp_path: Path) -> None:
    """With the settings that replace them, and config objects for sections, the result and the stored settings are the same."""
    votes = pd.DataFrame({"item": list("aabbcc"), "annotator": list("xyxyxy"), "label": list("pqppqq")})
    with pytest.warns(DeprecationWarning, match=r"pals\.fit\(trust=\.\.\.\) is now settings=\{'data': \{'trusted'"):
        fit(None, votes, out=tmp_path / "old", no_images=True, trust="x", seed=None)
    given = {"data": VotesConfig(votes=(), trusted=("x",)), "engine": EngineConfig()}
    fit(None, votes, out=tmp_path / "new", no_images=True, settings=given)
    for name in ("labels.csv", "config.yaml"):
        assert (tmp_path / "old" / name).read_bytes() == (tmp_path / "new" / name).read_bytes()
    votes.assign(annotator="z").to_csv(tmp_path / "more.csv", index=False)
    with pytest.warns(DeprecationWarning, match=r"pals\.update\(device="):
        assert update(tmp_path / "new", tmp_path / "more.csv", device="cpu").folder == tmp_path / "new" / "rounds" / "1"
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        fit(None, votes, out=tmp_path / "other", colour="red")
    settings = {"network": {"name": "mlp"}}
    refused(r"keeps network\.name of the run", update, tmp_path / "new", tmp_path / "more.csv", settings=settings)
    for function in (fit, update):
        assert len(inspect.signature(function).parameters) <= 12 + 1  # the last are the old keywords
