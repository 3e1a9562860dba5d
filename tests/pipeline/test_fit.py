"""From a folder of pictures and a file of answers to everything that `pals fit` leaves, and what is done with it afterwards."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from _pictures import CLASSES, make_pictures
from _toy import Answer
from pals.pipeline.stages.fit_defaults import Facts, choose
from pals.readers import read_votes
from pals.util.config import read_yaml
from pals.util.files import read_json
from pals.vision.networks import build_network

Pals = Callable[..., Answer]
COLUMNS = ("--item-column", "picture", "--annotator-column", "who", "--label-column", "class")
LITE0: dict[str, Any] = {"network": {"name": "efficientnet-lite0", "frozen": True}}
QUICK = ("--epochs", "2", "--set", "method.neighbors=5", "--set", "train.batch_size=32", "--device", "cpu")
TRAINED = ("--network", "small-cnn", "--no-frozen", "--folds", "2", "--set", "data.fold_epochs=2")
FILES = {
    *(".lock", "config.yaml", "run.json", "log.jsonl", "checkpoint.pt", "summary.json", "model.safetensors", "votes.csv"),
    *("labels.csv", "doubtful.csv", "annotators.csv", "confusion.csv", "classes.csv", "agreement.csv", "next.csv"),
    *("guideline.csv", "second-look.npz", "standing.npz", "report.json", "report.html"),
}
LABELS = [
    *("item", "label", "confidence", "confidence_low", "confidence_high", "second", "second_probability", "third"),
    *("third_probability", "majority", "dawid_skene"),
    *("votes", "agreement", "in_votes", "status", "none_of_these"),
]
DOUBTFUL = ["rank", "item", "annotator", "answer", "suggestion", "probability_wrong", "confidence", "others", "neighbors"]


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PALS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_pictures(tmp_path / "my data é")


def fit(pals: Pals, data: Path, out: str = "run", *more: str | Path) -> Answer:
    return pals("fit", data / "images", data / "votes.csv", "--out", out, *COLUMNS, *QUICK, *TRAINED, *more)


def test_what_a_laptop_does_by_default(pals: Pals, data: Path) -> None:
    """Encoders are compared, nothing is trained; the saved model holds the encoder, and predicts with it."""
    quick = ("--device", "cpu", "--truth", data / "truth.csv")
    answer = pals("fit", data / "images", data / "votes.csv", "--out", "run", *COLUMNS, *quick, code=0)
    settings = read_yaml(Path("run/config.yaml"))
    name = settings["network"]["name"]
    assert re.search(rf"Encoder: {name}, which predicts the answers better than .*% likelier", answer.out)
    assert re.search(rf"Closed form on {name} at \d+ px: ", answer.out)
    assert settings["network"] == {"name": name, "weights": None, "frozen": True, "head": "linear", "adapt": False}
    assert settings["method"]["name"] == "closed-form"
    grades = read_json(Path("run/summary.json"))["grades"]
    assert grades["labels"] > grades["majority"]
    assert pals("predict", "run", data / "images", "--out", "p.csv", "--device", "cpu").code == 0
    assert len(pd.read_csv("p.csv")) == 60


def test_one_command(pals: Pals, data: Path) -> None:
    answer = fit(pals, data, "run", "--truth", data / "truth.csv")
    assert answer.code == 0, answer.err
    run = Path("run")
    assert {path.name for path in run.iterdir() if path.is_file()} == FILES
    for line in ("180 answers by 3 annotators on 60 items", "60 images"):
        assert line in answer.out, line
    start = answer.out.index(f"{100 * read_json(run / 'summary.json')['grades']['labels']:.0f}% of the labels are right")
    first, check, *warnings, files, following = answer.out[start:].splitlines()
    assert "(majority " in first and check.startswith("Overruled the majority on ")
    assert len(warnings) <= 4 and all(line.startswith("Warning: ") for line in warnings)
    assert re.fullmatch(r"Wrote run in \d+ s; open run/report.html", files) and following == "Next: pals review run"
    labels = pd.read_csv(run / "labels.csv")
    assert list(labels) == LABELS and len(labels) == 60 and set(labels["label"]) <= set(CLASSES)
    assert labels["confidence"].between(0, 1).all()
    truth = pd.read_csv(data / "truth.csv").set_index("image")["label"]
    votes = pd.read_csv(data / "votes.csv")
    single = (votes["class"].to_numpy() == np.repeat(truth.to_numpy(), 3)).mean()
    assert (labels["label"].to_numpy() == truth[labels["item"]].to_numpy()).mean() > single
    doubtful = pd.read_csv(run / "doubtful.csv")
    assert list(doubtful) == DOUBTFUL and (doubtful["answer"] != doubtful["suggestion"]).all()
    assert doubtful["probability_wrong"].is_monotonic_decreasing
    assert set(pd.read_csv(run / "annotators.csv")["annotator"]) == {"ann", "bob", "cho"}
    assert list(pd.read_csv(run / "classes.csv")["class"]) == list(CLASSES)
    assert read_votes(run / "votes.csv").num_answers == 180
    held_out = read_json(run / "summary.json")["held_out"]
    assert 1 / 3 < held_out["approximate"] <= held_out["covering"] <= 1
    report = read_json(run / "report.json")
    assert {"covering", "approximate"} <= set(report["curves"][-1])  # in the first epoch the network is not yet asked
    assert set(report["thumbs"]) >= {entry["item"] for entry in report["gallery"]}
    assert (run / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert read_yaml(run / "config.yaml")["method"]["preset"] == "small"


def test_the_same_command_continues_and_another_is_refused(pals: Pals, data: Path) -> None:
    assert fit(pals, data).code == 0
    before = Path("run/labels.csv").read_bytes()
    again = fit(pals, data)
    assert again.code == 0, again.err
    assert "keeping its settings" in again.out and "Training is finished; writing the results again." in again.out
    assert Path("run/labels.csv").read_bytes() == before
    for option, name in (("--set=method.delta=0.5", "method.delta"), ("--no-mirror", "data.mirror")):
        other = fit(pals, data, "run", option)
        assert other.code == 2 and name in other.err
    with (data / "votes.csv").open("a") as file:
        file.write("000.png,dan,dark\n")
    changed = fit(pals, data)
    assert changed.code == 2 and "pals update run VOTES" in changed.err


@pytest.mark.slow
def test_what_comes_after(pals: Pals, data: Path) -> None:
    """predict, export, relabel, update and report on one run, with blanks and accents in all names."""
    folder = data.parent / "ein Ordner"
    (data / "images").rename(folder)
    (folder / "001.png").rename(folder / "größe 1.png")
    text = (data / "votes.csv").read_text().replace("001.png", "größe 1.png")
    (data / "votes.csv").write_text(text, encoding="utf-8")
    words = ("fit", folder, data / "votes.csv", "--out", "mein Lauf", *COLUMNS, *QUICK, *TRAINED)
    pals(*words, code=0)
    command = read_json(Path("mein Lauf/report.json"))["command"]  # can be repeated as it stands
    assert shlex.split(command)[1:] == [str(word) for word in words]
    pals("predict", "mein Lauf", folder, "--out", "p.csv", "--threshold", "0.4", "--device", "cpu", code=0)
    predicted = pd.read_csv("p.csv")
    assert len(predicted) == 60 and predicted["p_1"].between(1 / 3, 1).all()

    pals("relabel", "mein Lauf", "--top", "60", "--out", "queue.csv", code=0)
    assert Path("queue.csv").read_bytes().startswith(b"\xef\xbb\xbfrank,item,")  # marked as UTF-8, which Excel needs
    queue = pd.read_csv("queue.csv", dtype=str)
    assert len(queue) == 60 and "größe 1.png" in set(queue["item"])
    queue["label"], queue["annotator"] = queue["suggestion"], "eve"
    queue.loc[0, "label"] = "drak"
    queue.to_csv("filled.csv", index=False, encoding="utf-8-sig")
    pals("relabel", "mein Lauf", "--top", "5", "--to", "label-studio", "--out", "queue.json", code=0)
    assert len(json.loads(Path("queue.json").read_text())) == 5

    answer = pals("update", "mein Lauf", "filled.csv", "--device", "cpu", code=0)
    assert "1 class is new ('drak'); fix the file if that is a mistake" in answer.out
    assert f"Network and method are those of {Path('mein Lauf').resolve()}." in answer.out
    assert {path.name for path in Path("mein Lauf").iterdir() if path.is_file()} == FILES | {"changes.csv", "round.json"}
    updated = read_votes("mein Lauf/votes.csv")
    assert updated.num_answers == 240 and set(updated.annotators) == {"ann", "bob", "cho", "eve"}
    settings = read_yaml(Path("mein Lauf/config.yaml"))
    assert settings["train"]["epochs"] == 1
    assert settings["network"]["weights"].endswith("mein Lauf/rounds/0/model.safetensors")

    html = Path("mein Lauf/report.html").read_bytes()
    Path("mein Lauf/report.html").unlink()
    assert pals("report", "mein Lauf").code == 0 and Path("mein Lauf/report.html").read_bytes() == html


def test_an_update_reads_the_earlier_answers_as_they_were_written(pals: Pals, data: Path) -> None:
    """Encoding and separator of the first file are not those of votes.csv; classes that were named stay named."""
    text = (data / "votes.csv").read_text().replace("dark", "größer").replace("ann,bright", "ann,bright;größer", 1)
    (data / "votes.csv").write_bytes(text.encode("cp1252"))
    classes = "striped,größer,bright,spotted"
    answer = fit(pals, data, "run", "--encoding", "cp1252", "--classes", classes, "--set", "data.separator=';'")
    assert answer.code == 0, answer.err
    item = pd.read_csv("run/votes.csv")["item"].iloc[0]
    Path("more.csv").write_bytes(f"item,annotator,label\n{item},Jürgen,größer\n".encode("cp1252"))
    assert "--encoding cp1252" in pals("update", "run", "more.csv").err
    pals("update", "run", "more.csv", "--encoding", "cp1252", "--device", "cpu", code=0)
    assert pd.read_csv("run/classes.csv")["class"].tolist() == classes.split(",")
    before, after = read_votes("run/rounds/0/votes.csv", separator=";"), read_votes("run/votes.csv", separator=";")
    assert after.num_answers == before.num_answers + 1 and set(after.class_names) == {"striped", "größer", "bright"}
    assert "Jürgen" in after.annotators


def test_a_handful_of_pictures(pals: Pals, tmp_path: Path) -> None:
    """Fewer than the neighbours that usually vote: all others do, and it is said."""
    data = make_pictures(tmp_path / "few", items=7)
    few = ("--epochs", "1", "--device", "cpu", *COLUMNS)
    answer = pals("fit", data / "images", data / "votes.csv", "--out", "run", *few, "--network", "small-cnn", "--folds", "0")
    assert answer.code == 0, answer.err
    assert "Only 7 items have answers: all others vote on each" in answer.out
    assert read_yaml(Path("run/config.yaml"))["method"]["neighbors"] == 6


def test_feature_vectors_instead_of_pictures(pals: Pals, data: Path, tmp_path: Path) -> None:
    truth = pd.read_csv(data / "truth.csv")
    number = truth["label"].map({name: c for c, name in enumerate(CLASSES)}).to_numpy()
    vectors = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32) + 3 * np.eye(5)[number]
    np.save(tmp_path / "x.npy", vectors)
    (tmp_path / "names.txt").write_text("\n".join(truth["image"]) + "\n")
    common = ("fit", data / "votes.csv", "--features", tmp_path / "x.npy", "--out", "run", *COLUMNS, *QUICK)
    unnamed = pals(*common)
    assert unnamed.code == 2 and "--names" in unnamed.err and not Path("run").exists()
    pals(*common, "--names", tmp_path / "names.txt", code=0)
    assert read_json(Path("run/report.json"))["thumbs"] == {} and len(pd.read_csv("run/labels.csv")) == 60


def test_networks_that_leave_a_fold_out_are_fine_tuned_like_the_classifier(pals: Pals, data: Path) -> None:
    """From the pretrained weights and at their rate, in the first run and in an update of an update, where the classifier
    itself goes on from the run before."""
    torch.manual_seed(5)
    torch.save(build_network("small-cnn", (3, 32, 32), 3).state_dict(), "published.pth")
    assert fit(pals, data, "run", "--weights", "published.pth", "--set", "data.size=32").code == 0
    for before, out in (("run", "second"), ("second", "third")):
        pals("update", before, data / "votes.csv", *COLUMNS, "--out", out, "--device", "cpu", code=0)
    for run in ("run", "second", "third"):
        for fold in ("fold-1", "fold-2"):
            settings = read_yaml(Path(run, "folds", fold, "config.yaml"))
            assert settings["network"]["weights"] == str(Path("published.pth").resolve())
            train = {key: settings["train"][key] for key in ("lr", "encoder_lr_scale", "batch_size")}
            assert train == {"lr": 0.01, "encoder_lr_scale": 0.1, "batch_size": 32}
    assert read_yaml(Path("third/config.yaml"))["train"]["lr"] == pytest.approx(0.01 / 9)


@pytest.mark.parametrize(
    ("facts", "given", "expected"),
    [(Facts(5000, 10, 32, False), {"network": {"name": "patches"}}, ("data.size", 32)),
     (Facts(5000, 10, 400, False), {"network": {"name": "patches"}}, ("data.size", 64)),
     (Facts(5000, 10, 32, False), LITE0, ("data.size", 112)),
     (Facts(5000, 10, 400, False), LITE0, ("data.size", 224)),
     (Facts(5000, 10, 32, False), LITE0, ("method.name", "closed-form")),
     (Facts(5000, 10, 32, False), LITE0 | {"method": {"name": "pals"}}, ("network.head", None)),
     (Facts(5000, 10, 32, True), LITE0, ("method.name", "closed-form")),
     (Facts(5000, 10, 400, True), {}, ("data.size", 224)),
     (Facts(5000, 10, 32, True), {}, ("network.name", "resnet18")),
     (Facts(5000, 10, 400, True), {}, ("network.name", "imagenet-resnet18")),
     (Facts(5000, 10, None, False), {}, ("network.name", "linear")),
     (Facts(5000, 10, None, False), {}, ("method.name", "closed-form")),
     (Facts(5000, 10, None, False), {"method": {"name": "pals"}}, ("network.name", "mlp")),
     (Facts(5000, 10, None, False), {"train": {"epochs": 3}}, ("method.name", "pals")),
     (Facts(5000, 10, None, False, 4097), {}, ("method.name", "pals")),
     (Facts(4000, 10, None, False, 4097), {}, ("method.name", "closed-form")),
     (Facts(5000, 10, 32, False), {"network": {"name": "small-cnn"}}, ("network.frozen", None)),
     (Facts(5000, 10, 32, False), {"network": {"name": "small-cnn"}}, ("data.folds", 3)),
     (Facts(5000, 10, 32, True), {"network": {"name": "patches"}}, ("network.frozen", True)),
     (Facts(5000, 10, 32, True), {"network": {"name": "resnet32"}}, ("network.name", "resnet32")),
     (Facts(5000, 10, 400, False), {"network": {"weights": "x.pt"}}, ("network.frozen", True)),
     (Facts(5000, 10, 400, True), {"network": {"weights": "x.pt"}}, ("network.frozen", None)),
     (Facts(5000, 10, 32, False), LITE0 | {"train": {"epochs": 3}}, ("train.epochs", 3)),
     (Facts(5000, 10, 400, False), LITE0 | {"data": {"size": 48}}, ("data.size", 48))],
)  # fmt: skip
def test_what_is_not_given_is_chosen(facts: Facts, given: dict[str, Any], expected: tuple[str, object]) -> None:
    values, reasons = choose(given, facts)
    section, key = expected[0].split(".")
    assert values.get(section, {}).get(key) == expected[1]
    assert reasons or values["method"]["name"] == "closed-form"


@pytest.mark.parametrize(("method", "saved"), [("fredis", True), ("proden", True), ("dividemix", False), ("pl-knn", False)])
def test_other_methods(method: str, saved: bool, pals: Pals, data: Path, tmp_path: Path) -> None:
    """Those that make no single network are refused before anything is trained."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32))
    (tmp_path / "names.txt").write_text("\n".join(pd.read_csv(data / "truth.csv")["image"]) + "\n")
    common = ("--features", tmp_path / "x.npy", "--names", tmp_path / "names.txt", "--out", "run", *COLUMNS, "--epochs", "2")
    answer = pals("fit", data / "votes.csv", *common, "--method", method, "--device", "cpu", code=0 if saved else 2)
    assert (saved or "Choose a method that trains one network" in answer.err) and Path("run").exists() == saved
