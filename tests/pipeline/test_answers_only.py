"""`pals fit --no-images`: labels, tables and report from answers alone; no classifier, and a sentence where one is wanted."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from _refused import refused
from _toy import Answer
from pals import fit
from pals.cli import app
from pals.crowd import dawid_skene
from pals.pipeline import Findings, update
from pals.relabel.relabel_queue import relabel_queue

TRUTH = np.random.default_rng(3).integers(3, size=80)


def answers() -> pd.DataFrame:
    """Three people of whom the first is good, and a name that a spreadsheet would run."""
    rng = np.random.default_rng(0)
    rows = [
        (f"=item {item}", annotator, "abc"[label if rng.random() < looks else rng.integers(3)])
        for item, label in enumerate(TRUTH)
        for annotator, looks in (("ann", 0.95), ("bob", 0.7), ("cho", 0.5))
    ]
    return pd.DataFrame(rows, columns=["item", "annotator", "label"])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    folder = tmp_path_factory.mktemp("answers")
    answers().to_csv(folder / "votes.csv", index=False)
    return fit(None, folder / "votes.csv", out=folder / "run", no_images=True, settings={"files": {"all_probabilities": True}})


def test_tables_and_report_of_dawid_and_skenes_model(found: Findings) -> None:
    names = {path.name for path in found.folder.iterdir()}
    assert {"labels.csv", "annotators.csv", "report.html", "summary.json", "votes.csv", "probabilities.csv"} <= names
    assert "model.safetensors" not in names
    right = (found.labels["label"] == ["abc"[label] for label in TRUTH]).mean()
    assert right > 0.85
    summary = json.loads((found.folder / "summary.json").read_text())
    assert summary["training"]["method"] == "dawid-skene" and summary["held_out"] == {}
    page = (found.folder / "report.html").read_text()
    assert "Training" not in page
    entries = json.loads((found.folder / "report.json").read_text())["gallery"]
    assert entries and all(entry["model"] == entry["neighbors"] == [] for entry in entries)
    assert (found.labels["label"] == np.array(["a", "b", "c"])[found.trained.fusion.label_N]).all()
    low, confidence, high = (found.labels[name] for name in ("confidence_low", "confidence", "confidence_high"))
    assert (low <= confidence).all() and (confidence <= high).all() and (low < high).any()
    plain = dawid_skene(found.result.votes)
    assert (found.labels["dawid_skene"] == np.array(["a", "b", "c"])[plain.label_N]).all()
    table = pd.read_csv(found.folder / "probabilities.csv").set_index("item")
    assert list(table) == ["probability: a", "probability: b", "probability: c"]
    assert table.sum(axis=1).to_numpy() == pytest.approx(1, abs=1e-5)
    assert table.max(axis=1).to_numpy() == pytest.approx(found.labels["confidence"], abs=1e-6)


def test_answers_without_names_are_those_of_many(tmp_path: Path, pals: Callable[..., Answer]) -> None:
    """Five an item, of which 21.5% are wrong. They were taken for one person's, equal ones counted once, and 51.8% said to be
    wrong, and 15% of the labels."""
    rng = np.random.default_rng(0)
    truth = np.repeat(rng.integers(5, size=300), 5)
    label = np.where(rng.random(1500) < 0.215, (truth + rng.integers(1, 5, 1500)) % 5, truth)
    table = pd.DataFrame({"item": [f"i{number // 5}" for number in range(1500)], "label": [f"c{c}" for c in label]})
    table.to_csv(tmp_path / "votes.csv", index=False)
    assert pals("fit", "votes.csv", "--no-images", "--out", "run").code == 0
    found = json.loads((tmp_path / "run" / "summary.json").read_text())
    labels = pd.read_csv(tmp_path / "run" / "labels.csv").set_index("item")["label"]
    wrong = (labels.loc[table["item"]].str[1:].astype(int).to_numpy() != truth).mean()
    assert abs(found["answers_wrong"] - (label != truth).mean()) < 0.05
    low, high = found["labels_wrong_interval"]
    assert low <= wrong <= high < 0.15
    doubtful = pd.read_csv(tmp_path / "run" / "doubtful.csv")
    assert (doubtful["answer"] != doubtful["suggestion"]).all()


@pytest.mark.parametrize("who", [["", "", "", ""], ["ann", "ann", "bob", "cho"]])
def test_dont_know_beside_several_answers_of_one_name(who: list[str], tmp_path: Path, pals: Callable[..., Answer]) -> None:
    """With one "don't know", 92% of the labels were wrong where the majority was right for 95%: unnamed answers, or two of a
    named annotator, to the same items."""
    rng = np.random.default_rng(1)
    truth = rng.integers(5, size=80)
    rows = [
        (item, name, f"c{label if rng.random() < 0.8 else rng.integers(5)}", 4 * item + answer)
        for item, label in enumerate(truth)
        for answer, name in enumerate(who)
    ]
    rows[2] = (*rows[2][:2], "don't know", rows[2][3])
    pd.DataFrame(rows, columns=["item", "annotator", "label", "answer_id"]).to_csv(tmp_path / "votes.csv", index=False)
    assert pals("fit", "votes.csv", "--no-images", "--out", "run").code == 0
    label = pd.read_csv(tmp_path / "run" / "labels.csv").set_index("item")["label"].loc[range(80)]
    assert (label.str[1:].astype(int).to_numpy() == truth).mean() > 0.85


def test_an_annotator_may_be_called_none(tmp_path: Path, pals: Callable[..., Answer]) -> None:
    names = {"ann": "None", "bob": "NaN", "cho": "null"}
    table = answers().replace({"annotator": names})
    table.loc[0, "annotator"] = ""
    table.to_csv(tmp_path / "votes.csv", index=False)
    done = pals("fit", "votes.csv", "--no-images", "--out", "run")
    assert done.code == 0 and "3 annotators have names" in done.out
    assert not Path("run/probabilities.csv").exists()
    found = pd.read_csv(tmp_path / "run" / "annotators.csv", keep_default_na=False).set_index("annotator")["answers"]
    assert found.to_dict() == {"None": 79, "NaN": 80, "null": 80, "(unnamed)": 1}
    again = pals("update", "run", "votes.csv", "--trust", "None", "--out", "trusted")
    assert again.code == 0 and (pd.read_csv(tmp_path / "trusted" / "labels.csv")["status"] == "gold").sum() == 79


def test_who_only_gave_known_labels_gave_no_answers(tmp_path: Path) -> None:
    """ "600 items with 1,693 answers from 13 people", of whom annotators.csv listed twelve."""
    gold = pd.DataFrame({"item": ["=item 0"], "annotator": ["eve"], "label": ["a"], "is_gold": ["true"]})
    found = fit(None, pd.concat([answers().head(90), gold]), out=tmp_path / "run", no_images=True)
    assert found.numbers["annotators"] == len(found.annotators) == 3
    assert found.summary[0] == "30 items with 90 answers from 3 annotators in 3 classes."


def test_resume_relabel_and_update(found: Findings, tmp_path: Path) -> None:
    """Also with items that nobody had answered for before."""
    labels = (found.folder / "labels.csv").read_bytes()
    lines: list[str] = []
    fit(None, found.folder.parent / "votes.csv", out=found.folder, no_images=True, progress=lines.append)
    assert (found.folder / "labels.csv").read_bytes() == labels and any("answers alone" in line for line in lines)
    queue = relabel_queue(found.folder, top=5)
    assert len(queue) == 5 and set(queue["item"]) <= set(found.labels["item"])
    more = pd.DataFrame({"item": [queue["item"][0], "new"], "annotator": "dora", "label": ["a", "b"]})
    more.to_csv(tmp_path / "more.csv", index=False)
    updated = update(found.folder, tmp_path / "more.csv", out=tmp_path / "updated", settings={"data": {"trusted": ("dora",)}})
    (tmp_path / "list.txt").write_text("new")
    items = tmp_path / "list.txt"
    refused("Fit the images with --encoder auto", update, found.folder, add_class="d", items=items, out=tmp_path / "more")
    table = updated.labels.set_index("item")
    assert table.loc[queue["item"][0], ["label", "status"]].tolist() == ["a", "gold"]
    assert table.loc["new", "label"] == "b" and len(table) == 81


def test_there_is_no_classifier(found: Findings, tmp_path: Path) -> None:
    predict = ["predict", str(found.folder), str(tmp_path), "--out", str(tmp_path / "x.csv")]
    export = ["export", str(found.folder), "--onnx", str(tmp_path / "x.onnx")]
    for ask in (lambda: found.model, *(partial(app, command, standalone_mode=False) for command in (predict, export))):
        assert "\n" not in refused("has no classifier: it was fitted to answers alone", ask)


def test_what_does_not_go_together(tmp_path: Path) -> None:
    for name, given in (
        ("encoder", {"encoder": "patches"}), ("epochs", {"settings": {"train": {"epochs": 3}}}),
        ("features", {"features": "x.npy"}), ("method", {"method": "pals"}),
    ):  # fmt: skip
        refused(f"leave out {name}", fit, None, answers(), out=tmp_path / "run", no_images=True, **given)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(80, 3)))
    numbered = answers().assign(item=answers()["item"].str.removeprefix("=item "))
    fit(None, numbered, features=tmp_path / "x.npy", out=tmp_path / "other")
    refused("holds a run with images or vectors", fit, None, numbered, out=tmp_path / "other", no_images=True)
    refused("with no_images=True, give neither", fit, None, answers(), out=tmp_path / "run")
    refused("--no-images", app, ["fit", "votes.csv", "--out", str(tmp_path / "run")], standalone_mode=False)
