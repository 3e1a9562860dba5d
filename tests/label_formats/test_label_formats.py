"""Every export, opened by the program it is for where that is installed, and else checked against its published format."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest

from pals.cli.diagnosis import torchvision_problem
from pals.label_formats.export_formats import LABEL_FORMATS
from pals.readers import read_votes
from pals.vision.images.decoding import read_header

Exporting = Callable[..., Path]
FIFTYONE: dict[str, Any] = {
    "type": "object",
    "required": ["classes", "labels"],
    "properties": {
        "classes": {"type": "null"},  # labels are names, not numbers
        "labels": {
            "additionalProperties": {
                "type": "object",
                "required": ["label"],
                "properties": {"label": {"type": "string"}, "confidence": {"type": "number"}, "attributes": {"type": "object"}},
                "additionalProperties": False,
            }
        },
    },
}
"""labels.json of FiftyOneImageClassificationDataset, after docs.voxel51.com; data/ has a file of each name."""


def test_images_by_class(export: Exporting, labels: pd.DataFrame, run: Path) -> None:
    """As torchvision's ImageFolder reads them; a class whose name is no folder's name has another."""
    made = export("folder")
    table = pd.read_csv(made / "labels.csv", dtype={"item": str}).set_index("item")
    assert table["label"].equals(labels["label"]) and "newt + none" in " ".join(table["answers"])
    found = {path.name: path.parent.name for path in made.glob("*/*")}
    assert found["pond_0.png"] == "frog_toad" and len(found) == 30
    assert {name.replace("/", "_"): label.replace("/", "_") for name, label in labels["label"].items()} == found
    assert (made / found["a.jpg"] / "a.jpg").read_bytes() == (run.parent / "photos" / "a.jpg").read_bytes()
    if torchvision_problem() is not None:
        pytest.skip("torchvision does not work here")
    folders = pytest.importorskip("torchvision.datasets").ImageFolder(made)
    assert folders.classes == ["frog_toad", "newt", "none"] and len(folders) == 30


def test_links_instead_of_copies(export: Exporting, run: Path) -> None:
    made = export("folder", "--link")
    links = list(made.glob("*/*.png"))
    assert len(links) == 29 and all(link.is_symlink() and link.is_file() for link in links)
    export("folder", "--overwrite")
    assert not any(path.is_symlink() for path in made.glob("*/*"))
    assert len(list((run.parent / "photos").rglob("*.*"))) == 30  # what links led to is still there


def test_a_table(export: Exporting, labels: pd.DataFrame) -> None:
    table = pd.read_csv(export("csv"), dtype={"item": str}).set_index("item")
    assert table.drop(columns="answers").equals(labels)
    assert "don't know" in " ".join(table["answers"]) and "?" in " ".join(table["answers"])


def test_hugging_face(export: Exporting, labels: pd.DataFrame, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    made = export("hf")
    loaded = datasets.load_dataset(str(made), cache_dir=str(tmp_path / "cache"))["train"]
    assert loaded.features["label"].names == ["frog/toad", "newt", "none"]
    names = loaded.features["label"].int2str(loaded["label"])
    assert dict(zip(loaded["item"], names, strict=True)) == labels["label"].to_dict()
    assert np.allclose(loaded["confidence"], labels["confidence"], atol=1e-6)
    sizes = {item: image.size for item, image in zip(loaded["item"], loaded["image"], strict=True)}
    assert sizes["a.png"] == (12, 9) and sizes["a.jpg"] == (12, 8)
    answers = dict(zip(loaded["item"], loaded["answers"], strict=True))
    several = next(one for one in answers["pond/4.png"] if one["annotator"] == "bob")
    assert several == {"annotator": "bob", "labels": ["newt", "none"], "weight": 1.0, "sure": True}
    assert {one["annotator"]: one["sure"] for one in answers["pond/6.png"]} == {"ann": True, "bob": True, "dan": False}


def test_coco(export: Exporting, labels: pd.DataFrame) -> None:
    made = export("coco")
    content = json.loads(made.read_text(encoding="utf-8"))
    place = labels.index.get_loc("a.png") + 1
    assert content["images"][place - 1] == {"id": place, "file_name": "a.png", "width": 12, "height": 9}
    assert content["annotations"][place - 1]["bbox"] == [0, 0, 12, 9] and content["annotations"][place - 1]["area"] == 108
    votes = read_votes(made)  # our own reader has the label of each image, weighted by its probability
    found = {votes.items[i]: votes.class_names[c] for i, c in zip(votes.item_R, votes.label_R, strict=True)}
    assert found == labels["label"].to_dict()
    coco = pytest.importorskip("pycocotools.coco").COCO(str(made))
    newts = coco.getImgIds(catIds=coco.getCatIds(catNms=["newt"]))
    assert {image["file_name"] for image in coco.loadImgs(newts)} == set(labels.index[labels["label"] == "newt"])


def test_label_studio(export: Exporting, labels: pd.DataFrame) -> None:
    made = export("label-studio", "--prefix", "https://host/")
    tasks, config = json.loads((made / "tasks.json").read_text()), (made / "config.xml").read_text()
    chosen = {task["data"]["pals_item"]: task["predictions"][0]["result"][0]["value"]["choices"] for task in tasks}
    assert chosen == {item: [label] for item, label in labels["label"].items()}
    assert "https://host/pond%2C%20s%C3%BCd/3.png" in {task["data"]["image"] for task in tasks}
    names = [choice.get("value") for choice in ET.fromstring(config).findall("./Choices[@name='label']/Choice")]
    assert names[:3] == ["frog/toad", "newt", "none"]
    interface = pytest.importorskip("label_studio_sdk.label_interface").LabelInterface(config)
    assert interface.is_valid and not [
        error for task in tasks for error in interface.validate_prediction(task["predictions"][0], return_errors=True)
    ]
    assert all(interface.validate_task({"data": task["data"]}) for task in tasks)


def test_fiftyone(export: Exporting, labels: pd.DataFrame) -> None:
    made = export("fiftyone", "--link")
    content = json.loads((made / "labels.json").read_text(encoding="utf-8"))
    jsonschema.validate(content, FIFTYONE)
    files = {path.stem: path for path in (made / "data").iterdir()}
    assert files.keys() == content["labels"].keys() and {"a", "a~2", "pond, süd_3"} <= files.keys()
    assert {read_header(path) for path in files.values()} == {(12, 8), (12, 9)}
    assert {one["attributes"]["item"]: one["label"] for one in content["labels"].values()} == labels["label"].to_dict()
    importers = pytest.importorskip("fiftyone.utils.data")  # its importer needs no database
    with importers.FiftyOneImageClassificationDatasetImporter(str(made)) as read:
        found = {label.item: (Path(path), label.label) for path, _, label in read}
    assert {item: label for item, (_, label) in found.items()} == labels["label"].to_dict()
    assert all(path.is_file() for path, _ in found.values())


def test_cleanlab(export: Exporting, labels: pd.DataFrame, run: Path) -> None:
    made = export("cleanlab")
    issues, quality, people = (
        pd.read_csv(made / f"{name}.csv", dtype={"item": str}) for name in ("label_issues", "label_quality", "annotator_stats")
    )
    doubtful = pd.read_csv(run / "doubtful.csv")
    assert 0 < len(doubtful) == issues["is_label_issue"].sum()
    kept = issues[issues["given_label"] == issues["predicted_label"]]
    assert np.allclose(kept["label_quality"], labels.loc[kept["item"], "confidence"])
    one = issues[(issues["item"] == "pond/4.png") & (issues["annotator"] == "bob")].iloc[0]
    assert one["given_label"] == "newt + none"
    of_newt = issues[(issues["item"] == "pond/4.png") & (issues["given_label"] == "newt")]["label_quality"]
    assert (of_newt <= one["label_quality"]).all() and one["label_quality"] <= 1
    assert quality.set_index("item")["consensus_label"].equals(labels["label"])
    assert people["annotator"].iloc[0] == "bob"  # who guesses has the lowest quality
    assert dict(zip(people["annotator"], people["num_examples_labeled"], strict=True)) == {
        "ann": 30,
        "bob": 29,
        "dan": 27,
    }
    multiannotator = pytest.importorskip("cleanlab.multiannotator")
    given = pd.DataFrame({"ann": [0, 1, 0, 1], "bob": [0, 1, 1, 1], "cho": [0, np.nan, 0, 1]})
    right = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.1, 0.9]])
    theirs = multiannotator.get_label_quality_multiannotator(given, right, verbose=False)
    assert set(theirs["label_quality"]) == set(quality) - {"item"}
    assert set(theirs["annotator_stats"]) == set(people) - {"annotator"}


def test_cleanlabs_own_issue_columns() -> None:
    learning = pytest.importorskip("cleanlab.classification").CleanLearning(cv_n_folds=2)
    rng = np.random.default_rng(0)
    label_N = np.arange(40) % 2
    theirs = learning.find_label_issues(rng.normal(size=(40, 2)) + 3 * label_N[:, None], label_N)
    assert {"is_label_issue", "label_quality", "given_label", "predicted_label"} <= set(theirs)


def test_every_format_has_a_test() -> None:
    here = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert [name for name in LABEL_FORMATS if f'export("{name}"' not in here] == []
