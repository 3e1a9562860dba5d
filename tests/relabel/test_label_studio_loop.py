"""To Label Studio and back: tasks that it imports, its labelling settings, and answers that find their items and people."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema
import numpy as np
import pandas as pd
import pytest
from _label_studio import TASKS, exported, exported_min
from hypothesis import given
from hypothesis import strategies as st

from _refused import refused
from _slow import rest_slow
from _toy import Answer
from pals.labels.taxonomy import Taxonomy
from pals.pipeline import fit, update
from pals.readers import Votes, read_votes
from pals.relabel.label_studio_tasks import label_studio_tasks, labelling_config
from pals.relabel.relabel_queue import relabel_queue

Pals = Callable[..., Answer]
TREE = Taxonomy.from_parents({"birds": None, "gull": "birds", "tern": "birds", "seal": None})
CLASSES, ITEMS = TREE.leaves, 40


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs on the answers alone (`plain`), on vectors (`vectors`) and on vectors with a tree (`tree`)."""
    folder = tmp_path_factory.mktemp("studio")
    rng = np.random.default_rng(0)
    truth_N = np.arange(ITEMS) % 3
    np.save(folder / "x.npy", (np.eye(3)[truth_N] + 0.2 * rng.normal(size=(ITEMS, 3))).astype(np.float32))
    names = [f"bay {item % 2}/{item:02}é.jpg" for item in range(ITEMS)]
    (folder / "names.txt").write_text("\n".join(names), encoding="utf-8")
    (folder / "tree.csv").write_text(TREE.to_csv(), encoding="utf-8")
    rows = [(names[item], who, CLASSES[truth if rng.random() < 0.75 else rng.integers(3)])
            for item, truth in enumerate(truth_N) for who in ("ann", "bob", "cho")]  # fmt: skip
    votes = pd.DataFrame(rows, columns=["item", "annotator", "label"])
    vectors: dict[str, Any] = {"features": folder / "x.npy", "names": folder / "names.txt"}
    fit(None, votes, out=folder / "plain", no_images=True)
    fit(None, votes, out=folder / "vectors", **vectors)
    fit(None, votes, out=folder / "tree", taxonomy=folder / "tree.csv", **vectors)
    return folder


def said(votes: Votes, people: tuple[str, ...] = ("3", "8")) -> set[tuple[str, str, str, bool]]:
    """What these people answered: item, person, label, whether sure."""
    columns = zip(votes.item_R, votes.annotator_R, votes.label_R, votes.sure_R, strict=True)
    named = ((votes.items[i], votes.annotators[w], votes.class_names[c], bool(sure)) for i, w, c, sure in columns)
    return {row for row in named if row[1] in people}


def relabelled(pals: Pals, run: Path, *more: str | Path) -> list[dict[str, Any]]:
    pals("relabel", run, "--top", "6", "--to", "label-studio", "--out", "tasks.json", *more, code=0)
    tasks: list[dict[str, Any]] = json.loads(Path("tasks.json").read_text(encoding="utf-8"))
    return tasks


@pytest.mark.parametrize("kind", ["plain", "vectors", "tree"])
def test_tasks_are_what_label_studio_imports(pals: Pals, place: Path, kind: str) -> None:
    """By its schema, in the order of the queue, and with predictions that the labelling settings allow."""
    tasks = relabelled(pals, place / kind)
    jsonschema.validate(tasks, TASKS)
    queue = relabel_queue(place / kind, 6, audit=0.25)
    assert [task["data"]["pals_item"] for task in tasks] == [task["meta"]["pals_item"] for task in tasks]
    assert [task["data"]["pals_item"] for task in tasks] == queue["item"].tolist()
    assert [task["data"]["pals_rank"] for task in tasks] == ["0001", "0002", "0003", "0004", "0005", "0006"]
    config = ET.fromstring(Path("tasks-config.xml").read_text(encoding="utf-8"))
    question = config.find("./*[@name='label']")
    assert question is not None and question.tag == ("Taxonomy" if kind == "tree" else "Choices")
    for task, row in zip(tasks, queue.itertuples(), strict=True):
        (prediction,) = task["predictions"]
        (result,) = prediction["result"]
        assert prediction["model_version"] == f"pals {kind}"
        assert prediction["score"] == result["score"] == pytest.approx(float(row.confidence), abs=1e-4)
        assert result["type"] == question.tag.casefold() and result["from_name"] == question.get("name")
        shown = config.find(f"./*[@name='{result['to_name']}']")
        assert shown is not None and shown.get("value", "").removeprefix("$") in task["data"]
        (choice,) = result["value"][result["type"]]
        assert (choice if kind != "tree" else choice[-1]) == row.suggestion
        element = question
        for name in choice if kind == "tree" else [choice]:
            (element,) = [child for child in element if child.get("value") == name]


def test_ranks_sort_as_text_and_the_labelling_settings() -> None:
    row = {"item": "a", "suggestion": "x", "confidence": 0.5, "second": "", "reason": "", "said": ""}
    tasks = label_studio_tasks(pd.DataFrame([{"rank": rank, **row} for rank in range(1, 10_002)]))
    ranks = [task["data"]["pals_rank"] for task in tasks]
    assert ranks == sorted(ranks) and ranks[0] == "00001"
    few = ET.fromstring(labelling_config(['a"<b>&', "b\nc"]))
    (image,), (label, sure) = few.findall("Image"), few.findall("Choices")
    assert (image.get("name"), image.get("value")) == ("image", "$image")
    assert [choice.get("value") for choice in label] == ['a"<b>&', "b\nc", "don't know"]
    assert label.get("layout") == "inline" and [choice.get("value") for choice in sure] == ["unsure"]
    many = ET.fromstring(labelling_config([f"c{number}" for number in range(30)] + ["don't know"]))
    assert many.findall("Choices")[0].get("layout") == "select" and len(many.findall("Choices")[0]) == 31
    tree = ET.fromstring(labelling_config(CLASSES, TREE, pictures=False)).find("Taxonomy")
    assert tree is not None and tree.get("toName") == "item"
    assert [top.get("value") for top in tree] == ["birds", "seal", "don't know"]
    assert [leaf.get("value") for leaf in tree[0]] == ["gull", "tern"]
    for wrong in ("a\x01", "$5"):
        refused(r"Label Studio cannot show the class .* Rename it", labelling_config, ["5$", wrong])


@pytest.fixture
def pictured(place: Path, tmp_path: Path) -> Path:
    """A run whose settings say that it has pictures, in a folder with a blank in its name."""
    run = tmp_path / "run"
    run.mkdir()
    for name in ("labels.csv", "doubtful.csv", "votes.csv", "classes.csv", "standing.npz"):
        (run / name).write_bytes((place / "plain" / name).read_bytes())
    (run / "config.yaml").write_text(json.dumps({"data": {"images": str(tmp_path / "my data" / "photos")}}))
    return run


def served(task: dict[str, Any], root: Path) -> Path:
    """The file that Label Studio serves at the address."""
    address = urlsplit(task["data"]["image"])
    assert address.path == "/data/local-files/"
    return root / parse_qs(address.query)["d"][0]


def test_local_files_and_another_prefix(pals: Pals, pictured: Path, tmp_path: Path, place: Path) -> None:
    folder = tmp_path / "my data" / "photos"
    for more, root in (((), tmp_path / "my data"), (("--document-root", tmp_path), tmp_path)):
        tasks = relabelled(pals, pictured, *more)
        for task in tasks:
            assert served(task, root) == folder / task["data"]["pals_item"]
    jsonschema.validate(tasks, TASKS)
    answer = pals("relabel", pictured, "--to", "label-studio", "--out", "tasks.json")
    words = answer.out.replace("\n", "")
    assert "LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true" in words and "tasks-config.xml" in words
    assert f"LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={tmp_path / 'my data'}" in words and str(folder) in words
    assert relabelled(pals, pictured, "--prefix", "")[0]["data"]["image"].endswith("é.jpg")
    (first, *_) = relabelled(pals, place / "vectors", "--prefix", "https://pics.org/x/")
    assert first["data"]["image"].startswith("https://pics.org/x/bay%20")
    assert first["predictions"][0]["result"][0]["to_name"] == "image"


def test_what_does_not_go_together(pals: Pals, pictured: Path, place: Path) -> None:
    for folder, more, message in (
        (pictured, "--document-root run", "is not above the images' folder"),
        (pictured, "--document-root . --prefix x", "Give either --prefix or --document-root"),
        (place / "plain", "--document-root .", "has no images"),
        (pictured, "--out tasks.csv", "Label Studio imports tasks from a .json file"),
    ):
        answer = pals("relabel", folder, "--to", "label-studio", "--out", "tasks.json", *more.split(), code=2)
        assert message in answer.err.replace("\n", " ") and "Traceback" not in answer.err
        assert not Path("tasks.json").exists() and not Path("tasks.csv").exists()


@pytest.mark.parametrize("small", rest_slow(1, [False, True]))
@pytest.mark.parametrize("kind", ["plain", "vectors", "tree"])
def test_answers_come_back_on_their_items(pals: Pals, place: Path, kind: str, small: bool) -> None:
    tasks = relabelled(pals, place / kind)
    items = [task["data"]["pals_item"] for task in tasks]

    def choice(name: str) -> Any:
        return name if kind != "tree" else list(TREE.path(name)) if name in TREE.number else [name]

    coarse = choice("birds") if kind == "tree" else choice("gull")
    export = exported(tasks, {
        0: [{"who": 3, "choice": choice("gull"), "lead_time": 2.25}, {"who": 8, "choice": choice("seal"), "unsure": True}],
        2: [{"who": 3, "choice": coarse}],
        3: [{"who": 3, "choice": choice("tern"), "was_cancelled": True}],
        4: [{"who": 8, "choice": choice("don't know")}],
    })  # fmt: skip
    export[1]["drafts"] = exported(tasks, {1: [{"who": 3, "choice": choice("tern")}]})[1]["annotations"]
    Path("export.json").write_text(json.dumps(exported_min(export) if small else export), encoding="utf-8")
    pals("update", place / kind, "export.json", "--out", "after", code=0)
    found = read_votes("after/votes.csv", taxonomy=TREE if kind == "tree" else None)
    birds = {(items[2], "3", name, True) for name in (("gull", "tern") if kind == "tree" else ("gull",))}
    assert said(found) == {(items[0], "3", "gull", True), (items[0], "8", "seal", False)} | birds
    assert found.num_answers == 3 * ITEMS + 3 and set(found.annotators) == {"ann", "bob", "cho", "3", "8"}
    assert [
        (found.items[i], found.annotators[w]) for i, w in zip(found.unknown_item_U, found.unknown_annotator_U, strict=True)
    ] == [(items[4], "8")]
    row = next(r for r, (i, w) in enumerate(zip(found.item_R, found.annotator_R, strict=True))
               if (found.items[i], found.annotators[w]) == (items[0], "3"))  # fmt: skip
    assert found.seconds_R[row] == 2.25 and set(found.class_names) == set(CLASSES)


def test_exports_with_a_ground_truth_and_without_answers(pals: Pals, place: Path) -> None:
    tasks = relabelled(pals, place / "plain")
    export = exported(tasks, {0: [{"who": 3, "choice": "seal", "ground_truth": True}]})
    Path("export.json").write_text(json.dumps(export), encoding="utf-8")
    after = update(place / "plain", "export.json", out="after").labels.set_index("item")
    assert after.loc[tasks[0]["data"]["pals_item"], ["label", "status"]].tolist() == ["seal", "gold"]
    Path("export.json").write_text(json.dumps(exported(relabelled(pals, place / "plain"), {})), encoding="utf-8")
    refused("nothing to learn from", read_votes, "export.json")


@given(st.text("aä +%?&#=.;/\\'\"", min_size=1, max_size=12))
def test_odd_names_come_back(tmp_path_factory: pytest.TempPathFactory, odd: str) -> None:
    """Whatever stands in a name, it leads back to the item; so does the address of its image alone."""
    item = f"ponds/x{odd}y.png"
    row = {"rank": 1, "item": item, "suggestion": "a", "confidence": 0.5, "second": "", "reason": "a tie", "said": "a; b"}
    export = exported(label_studio_tasks(pd.DataFrame([row])), {0: [{"who": 3, "choice": "b"}]})
    path = tmp_path_factory.getbasetemp() / "odd.json"
    for names in (True, False):
        if not names:
            export[0]["meta"] = {}
            del export[0]["data"]["pals_item"]
        path.write_text(json.dumps(export))
        votes, _ = read_votes(path, class_names=["a", "b"]).match([item])
        assert votes.item_R.tolist() == [0] and votes.label_R.tolist() == [1]


def test_classes_that_sound_like_sureness(tmp_path: Path) -> None:
    """The tasks' own question is the question, whatever its classes are called."""
    row = {"rank": 1, "item": "a.jpg", "suggestion": "low", "confidence": 0.5, "second": "", "reason": "", "said": ""}
    export = exported(label_studio_tasks(pd.DataFrame([row])), {0: [{"who": 3, "choice": "high", "unsure": True}]})
    for name, rows in (("export.json", export), ("min.json", exported_min(export))):
        (tmp_path / name).write_text(json.dumps(rows))
        found = read_votes(tmp_path / name)
        assert found.class_names == ("high",) and found.sure_R.tolist() == [False]


def test_tasks_of_another_project(pals: Pals, place: Path) -> None:
    tasks = relabelled(pals, place / "vectors")
    export = exported(tasks, {0: [{"who": 3, "choice": "gull"}], 1: [{"who": 3, "choice": "seal"}]})
    for number, task in enumerate(export):
        task["data"] = {"image": f"/data/upload/4/1a2b3c4d-other{number}.jpg"}
        task["meta"] = {}
    Path("export.json").write_text(json.dumps(export), encoding="utf-8")
    answer = pals("update", place / "vectors", "export.json", "--out", "after")
    words = " ".join(answer.err.split())
    assert answer.code == 2 and "(the first of 6 is 'other0.jpg'). Check that its answers are about the items" in words
    answer = pals("update", place / "plain", "export.json", "--out", "after")
    assert answer.code == 0 and "6 items are new ('other0.jpg'" in " ".join(answer.out.split())
    export[0]["data"] = tasks[0]["data"]  # one of ours among them
    Path("export.json").write_text(json.dumps(export), encoding="utf-8")
    answer = pals("update", place / "vectors", "export.json", "--out", "again", code=0)
    assert "5 items of the votes have no image; their answers are not used" in " ".join(answer.out.split())
    assert said(read_votes("again/votes.csv")) == {(tasks[0]["data"]["pals_item"], "3", "gull", True)}


@pytest.mark.parametrize(
    ("kind", "classes", "code", "message"),
    [("plain", (), 0, "1 class is new ('otter'); fix the file if that is a mistake"),
     ("plain", ("--classes", ",".join(CLASSES)), 2, "Unknown label 'otter'"),
     ("tree", (), 2, "Fix it, or add it to the taxonomy")],
)  # fmt: skip
def test_a_choice_that_is_no_class(
    pals: Pals, place: Path, kind: str, classes: tuple[str, ...], code: int, message: str
) -> None:
    choice = ["birds", "otter"] if kind == "tree" else "otter"
    export = exported(relabelled(pals, place / kind), {0: [{"who": 3, "choice": choice}]})
    Path("export.json").write_text(json.dumps(export), encoding="utf-8")
    answer = pals("update", place / kind, "export.json", "--out", "after", *classes)
    assert answer.code == code and message in " ".join((answer.out + answer.err).split()) and "Traceback" not in answer.err
