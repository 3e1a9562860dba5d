"""A digit that is not on the list: flagged, listed and shown by `pals fit`, and made a class by `pals update --add-class`."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from _crowd import votes_of
from _refused import refused
from pals.cli import app
from pals.pipeline import Findings, fit, update
from pals.pipeline.new_class import add_classes
from pals.pipeline.none_of_these import group_sentences, missing_classes, next_step
from pals.relabel.relabel_queue import relabel_queue
from pals.report.data import none_of_these_groups
from pals.report.render import render
from pals.util.config import read_yaml
from pals.util.files import read_json

ITEMS, HIDDEN, LISTED = 400, 3, 24


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """Pictures of digits, the answers of three people who had no 3 to choose, and the truth."""
    folder = tmp_path_factory.mktemp("digits")
    (folder / "images").mkdir()
    data, rng = load_digits(), np.random.default_rng(0)
    order = rng.permutation(len(data.target))[:ITEMS]
    label_N, allowed = data.target[order], [digit for digit in range(10) if digit != HIDDEN]
    rows = []
    for item, (pixels, label) in enumerate(zip(data.images[order], label_N.tolist(), strict=True)):
        Image.fromarray((pixels * 15).astype(np.uint8)).resize((16, 16)).save(folder / "images" / f"{item:03d}.png")
        for person in ("ann", "bob", "cho"):
            said = label if label != HIDDEN and rng.random() < 0.85 else rng.choice(allowed)
            rows.append((f"{item:03d}.png", person, f"d{said}"))
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv(folder / "votes.csv", index=False)
    return folder, label_N


@pytest.fixture(scope="module")
def found(digits: tuple[Path, np.ndarray]) -> Findings:
    folder, _ = digits
    settings = {"data": {"size": 16, "mirror": False}, "engine": {"device": "cpu"}, "files": {"cache": folder / "cache"}}
    return fit(folder / "images", folder / "votes.csv", out=folder / "run", encoder="patches", settings=settings)


def is_hidden(names: list[str], label_N: np.ndarray) -> np.ndarray:
    hidden_N: np.ndarray = label_N[[int(Path(name).stem) for name in names]] == HIDDEN
    return hidden_N


def test_they_are_flagged_listed_and_told_in_the_report(found: Findings, digits: tuple[Path, np.ndarray]) -> None:
    table = pd.read_csv(found.folder / "labels.csv")
    flagged = table["status"] == "none-of-these"
    hidden_N = is_hidden(table["item"].tolist(), digits[1])
    assert hidden_N[flagged].mean() > 0.8 and flagged[hidden_N].mean() > 0.8
    assert (table["none_of_these"] > 0.5).equals(flagged)
    numbers = json.loads((found.folder / "summary.json").read_text())
    assert numbers["none_of_these"] == numbers["status"]["none-of-these"] == flagged.sum()
    lists = sorted((found.folder / "none_of_these").iterdir())
    assert sorted(name for path in lists for name in path.read_text().split()) == sorted(table["item"][flagged])
    assert any("like none of the classes, in " in line for line in found.summary)
    assert any(f"`pals update {found.folder} --add-class NAME --items " in line for line in found.summary)
    shown = read_json(found.folder / "report.json")["summary"]  # the page has the command where the group is
    assert any("like none of the classes, in " in line for line in shown) and not any("`" in line for line in shown)
    page = (found.folder / "report.html").read_text(encoding="utf-8")
    first = (found.folder / "none_of_these" / "group-1.txt").read_text().split()
    assert 'id="none-of-these"' in page and "none_of_these/group-1.txt" in page
    assert f'data-item="{first[0]}"' in page and f"Group 1: {len(first)} items" in page


def test_a_dispute_about_a_class_is_no_new_one(found: Findings) -> None:
    """Half of the group's answers name a class that others contradict in items that are not flagged. Without the dispute
    elsewhere it is what people take the missing class for."""
    votes, group = found.result.votes, found.groups[0].item_G
    rng, four = np.random.default_rng(0), votes.class_names.index("d4")
    takes_R = np.isin(votes.item_R, group) & (rng.random(len(votes.item_R)) < 0.5)

    def told(label_R: np.ndarray) -> tuple[list[str], str]:
        result = replace(found.result, votes=replace(votes, label_R=label_R))
        changed = replace(found, result=result, groups=missing_classes(result, found.trained.features_ND))
        page = render({**read_json(found.folder / "report.json"), "none_of_these": none_of_these_groups(changed)})
        return [*group_sentences(changed.groups), *next_step(changed.groups, found.folder)], page

    result_R, outside_R = found.result.label_N[votes.item_R], ~np.isin(votes.item_R, group)
    odd_R = outside_R & ((votes.label_R == four) != (result_R == four))
    agreed_R = np.where(takes_R, four, np.where(odd_R, result_R, votes.label_R))
    lines, page = told(agreed_R)
    assert "--add-class NAME --items RUN/none_of_these/group-1.txt" in page and any("--add-class" in line for line in lines)
    disputed_R = outside_R & (agreed_R == four) & (rng.random(len(votes.item_R)) < 0.5)
    lines, page = told(np.where(disputed_R, (four + 1) % 9, agreed_R))
    assert any("d4" in line for line in lines)
    assert not any("group-1.txt" in line for line in lines) and "RUN/none_of_these/group-1.txt" not in page


def test_a_group_becomes_a_class(found: Findings, digits: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    """Only some of its items are listed; others get it by what they look like."""
    folder, label_N = digits
    group = (found.folder / "none_of_these" / "group-1.txt").read_text().split()
    listed = [name for name in group if label_N[int(name[:3])] == HIDDEN][:LISTED]
    (tmp_path / "threes.txt").write_text("\n".join(listed) + "\n\n")
    command = ["update", str(found.folder), "--add-class", "d3", "--items", str(tmp_path / "threes.txt")]
    app([*command, "--out", str(tmp_path / "new"), "--cache", str(folder / "cache")], standalone_mode=False)
    table = pd.read_csv(tmp_path / "new" / "labels.csv").set_index("item")
    assert (table.loc[listed, ["label", "status"]] == ["d3", "gold"]).all().all()
    others = table.drop(listed)
    aside = others.index[others["status"] == "no-answer"]
    assert len(aside) > 0
    queue = relabel_queue(tmp_path / "new", top=ITEMS).set_index("item")
    assert (queue.loc[aside, "reason"] == "no answer counts any more").all()
    assert queue.loc[aside, "said"].str.contains(r"^d\d(?: x2| x3)? \(not counted\)|^d\d \(not counted\) x", regex=True).all()
    hidden_N = is_hidden(others.index.tolist(), label_N)
    named_N = (others["label"] == "d3").to_numpy()
    assert named_N[hidden_N].mean() > 0.1 and named_N[~hidden_N].mean() < 0.02
    assert (found.folder / "labels.csv").read_text().count("d3") == 0  # the old run stays as it is
    (tmp_path / "more.csv").write_text(f"item,annotator,label\n{others.index[0]},eve,d3\n")
    settings = {"files": {"cache": folder / "cache"}}
    again = update(tmp_path / "new", tmp_path / "more.csv", out=tmp_path / "again", settings=settings)
    assert "d3" in again.result.votes.class_names and read_yaml(again.folder / "config.yaml")["data"]["added"] == {}
    assert (again.labels.set_index("item").loc[listed, "status"] == "gold").all()


@pytest.mark.parametrize(
    ("name", "listed", "message"),
    [("d4", "001.png", "a class of this name already exists"),
     ("d3", "001.png\n\nnobody.png", r"line 3: 'nobody.png' is not an item of the run"),
     ("d3", "\n", "names no items"), ("d3", None, "list.txt does not exist. Give a text file"),
     (" ", "001.png", "needs a name"),
     ("Dont know", "001.png", 'this means "don.t know". Choose another name')],
)  # fmt: skip
def test_bad_lists(found: Findings, tmp_path: Path, name: str, listed: str | None, message: str) -> None:
    if listed is not None:
        (tmp_path / "list.txt").write_text(listed)
    refused(message, update, found.folder, add_class=name, items=tmp_path / "list.txt", out=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_what_does_not_go_together(found: Findings, digits: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    refused("--add-class NAME and --items FILE together", update, found.folder, add_class="d3", out=tmp_path / "new")
    refused("Nothing to update", update, found.folder, out=tmp_path / "new")
    folder, _ = digits
    settings = {"network": {"name": "small-cnn"}, "data": {"size": 8, "folds": 0}, "train": {"epochs": 1}}
    settings |= {"engine": {"device": "cpu"}, "files": {"cache": folder / "cache"}}
    images, votes = folder / "images", folder / "votes.csv"
    trained = fit(images, votes, out=tmp_path / "cnn", method="soft-votes", settings=settings)
    assert trained.labels["none_of_these"].isna().all() and trained.numbers["none_of_these"] is None
    (tmp_path / "list.txt").write_text("001.png\n")
    given = {"add_class": "d3", "items": tmp_path / "list.txt", "out": tmp_path / "new"}
    refused("needs frozen features .* --encoder auto", update, trained.folder, **given)


def test_a_class_that_is_odd_itself_keeps_its_answers(tmp_path: Path) -> None:
    """Nobody could say otter: a, b and c of the seals are some. All terns were flagged too, and d among them strayed to the
    otters."""
    items, labels = "abcdefghij", ["seal"] * 3 + ["tern"] * 3 + ["seal"] * 4
    table = {"item": list(items), "label": labels, "none_of_these": [1.0] * 6 + [0.9] + [0.1] * 3}
    pd.DataFrame(table).to_csv(tmp_path / "labels.csv", index=False)
    (tmp_path / "none_of_these").mkdir()
    (tmp_path / "none_of_these" / "group-1.txt").write_text("a\nb\nc\nd\n")
    (tmp_path / "none_of_these" / "group-2.txt").write_text("e\nf\n")
    (tmp_path / "none_of_these" / "group-3.txt").write_text("g\n")
    votes = votes_of([(item, 0, int(label == "tern")) for item, label in enumerate(labels)], len(items), 2)
    votes = replace(votes, items=tuple(items), class_names=("seal", "tern"))
    (tmp_path / "otters.txt").write_text("a\nb\n")
    new = add_classes(votes, {"otter": str(tmp_path / "otters.txt")}, str(tmp_path / "votes.csv"))
    assert "".join(np.array(list(items))[new.item_R[new.weight_R == 0]]) == "cdg"
    assert new.gold_I.tolist() == [2, 2] + [-1] * 8
    pd.DataFrame(table).drop(columns="none_of_these").to_csv(tmp_path / "labels.csv", index=False)  # of an earlier version
    shutil.rmtree(tmp_path / "none_of_these")
    assert add_classes(votes, {"otter": str(tmp_path / "otters.txt")}, str(tmp_path / "votes.csv")).weight_R.all()
