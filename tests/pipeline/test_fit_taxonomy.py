"""A fit with a taxonomy: coarse answers in, labels rolled up, accuracy per level, a tree in the report; update and predict."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

import pals
from _refused import refused
from _report import HOSTILE, report
from pals.cli import app
from pals.crowd.result import Result
from pals.labels.taxonomy import Taxonomy
from pals.pipeline import fit
from pals.pipeline.api import update
from pals.pipeline.evaluate import read_truth
from pals.pipeline.fit_warnings import moved_classes
from pals.pipeline.item_answers import ItemAnswer
from pals.pipeline.stages.findings import Findings
from pals.pipeline.stages.read_answers import match_votes
from pals.pipeline.tables.result_tables import classes_table, labels_table
from pals.relabel.queue_reasons import queue_reason
from pals.relabel.relabel_queue import relabel_queue
from pals.report.render import render
from pals.report.sections import link

PARENTS = {"gulls": "birds", "herring": "gulls", "kitti": "gulls", "tern": "birds", "grey": "mammals", "common": "mammals"}
TREE = Taxonomy.from_parents({"birds": None, "mammals": None, **PARENTS})
CLASSES = TREE.leaves
ITEMS = 60


def make(folder: Path) -> None:
    """Vectors in which herring gulls and kittiwakes look alike, and three people: one of them names branches."""
    rng = np.random.default_rng(0)
    truth_N = np.arange(ITEMS) % len(CLASSES)
    look_CD = np.eye(len(CLASSES))
    look_CD[1] = 0.9 * look_CD[0] + 0.1 * look_CD[1]
    np.save(folder / "features.npy", (look_CD[truth_N] + 0.15 * rng.normal(size=(ITEMS, 5))).astype(np.float32))
    rows = []
    for item, truth in enumerate(truth_N.tolist()):
        for annotator, skill, coarse in (("ann", 0.9, 0.0), ("bob", 0.6, 0.6), ("cho", 0.7, 0.1)):
            said = CLASSES[truth if rng.random() < skill else int(rng.integers(len(CLASSES)))]
            rows.append((f"i{item:02}", annotator, PARENTS[said] if rng.random() < coarse else said))
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv(folder / "votes.csv", index=False)
    (folder / "names.txt").write_text("\n".join(f"i{item:02}" for item in range(ITEMS)), encoding="utf-8")
    (folder / "tree.csv").write_text(TREE.to_csv(), encoding="utf-8")
    (folder / "more.csv").write_text("item,annotator,label\ni00,dan,birds\ni01,dan,gulls\ni02,dan,tern\n", encoding="utf-8")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("taxonomy")
    make(folder)
    return folder


def inputs(place: Path) -> dict[str, Any]:
    return {"features": place / "features.npy", "names": place / "names.txt"}


@pytest.fixture(scope="module")
def found(place: Path) -> Findings:
    options = {"taxonomy": place / "tree.csv", "settings": {"data": {"sure": 0.8}}, **inputs(place)}
    return fit(None, place / "votes.csv", out=place / "run", **options)


def test_labels_are_rolled_up_and_queue_and_annotators_follow(found: Findings, place: Path) -> None:
    labels = pd.read_csv(place / "run" / "labels.csv", keep_default_na=False)
    posterior_NC = found.result.posterior_NC
    for row, share_C in zip(labels.itertuples(), posterior_NC, strict=True):
        mass = {name: share_C[[CLASSES.index(leaf) for leaf in TREE.below(name)]].sum() for name in TREE.nodes}
        sure = [name for name in TREE.nodes if mass[name] > 0.8]
        assert row.rolled_up == (max(sure, key=lambda name: TREE.depth_T[TREE.number[name]]) if sure else "")
        if sure:
            assert float(row.rolled_up_probability) == pytest.approx(mass[row.rolled_up], abs=1e-5)
    coarser = labels["rolled_up"] != labels["label"]
    assert 0 < coarser.sum() < ITEMS  # both kinds are there
    queue = relabel_queue(found.folder, top=ITEMS).set_index("item")
    assert queue["said"].str.contains("gulls").any()
    assert set(queue["suggestion"]) | set(queue["second"]) <= set(CLASSES)
    assert queue["second"].to_dict() == found.labels.set_index("item").loc[queue.index, "second"].to_dict()
    table = found.annotators.set_index("annotator")
    assert [name for name in table if name.startswith("accuracy")] == [f"accuracy_level_{level}" for level in (1, 2, 3)]
    bob = table.loc["bob"]
    assert bob["accuracy_level_1"] > bob["accuracy_level_3"]


def test_tables_summary_and_report_have_the_tree(found: Findings, place: Path) -> None:
    votes = pd.read_csv(place / "run" / "votes.csv")
    given = pd.read_csv(place / "votes.csv")
    assert sorted(votes["label"]) == sorted(given["label"])
    answers = set(found.doubtful["answer"])
    assert answers & {"gulls", "birds", "mammals"} and not [name for name in answers if " + " in name]
    confusion = found.confusion
    assert confusion.loc[confusion["answer"] == "gulls", "count"].sum() == (given["label"] == "gulls").sum()
    assert not [text for text in found.annotators["confused"] if text.startswith(("herring -> gulls", "kitti -> gulls"))]
    tree = json.loads((place / "run" / "summary.json").read_text(encoding="utf-8"))["taxonomy"]
    assert (tree["levels"], tree["nodes"], tree["sure"]) == (3, 8, 0.8)
    assert tree["coarse_answers"] == pd.read_csv(place / "votes.csv")["label"].isin({"gulls", "birds", "mammals"}).sum()
    assert tree["accuracy_per_level"] == sorted(tree["accuracy_per_level"], reverse=True)
    assert sum(tree["rolled_up"].values()) == ITEMS
    assert any("of the answers name the right branch, and" in line for line in found.summary)
    data = json.loads((place / "run" / "report.json").read_text(encoding="utf-8"))["taxonomy"]
    rows = {row["name"]: row for row in data["nodes"]}
    given = pd.read_csv(place / "votes.csv")["label"].value_counts()
    assert {name: row["answers"] for name, row in rows.items()} == {name: int(given.get(name, 0)) for name in TREE.nodes}
    assert rows["birds"]["items"] == sum(rows[name]["items"] for name in ("herring", "kitti", "tern"))
    assert rows["birds"]["accuracy"] > rows["kitti"]["accuracy"]
    mistakes = json.loads((place / "run" / "summary.json").read_text(encoding="utf-8"))["taxonomy"]
    assert data["within"]["answers"] == pytest.approx(mistakes["mistakes_within_branches"])
    assert data["across"]["answers"] == pytest.approx(mistakes["mistakes_across_branches"])
    for pair in data["within"]["pairs"]:
        assert pair["result"] not in TREE.below(pair["answer"])
    page = (place / "run" / "report.html").read_text(encoding="utf-8")
    assert '<section id="tree"' in page
    assert "Mix-ups across branches" in page and "Most frequent mix-ups" not in page  # each pair stands once
    first = data["across"]["pairs"][0]
    assert link("doubtful", result=first["result"], answer=first["answer"]).replace("&", "&amp;") in page


def test_updates_predictions_and_a_coarse_truth(found: Findings, place: Path, tmp_path: Path) -> None:
    again = update(place / "run", place / "more.csv", out=place / "run2")
    data = again.trained.plan.data
    assert data.sure == 0.8 and again.result.votes.taxonomy == TREE
    before, after = (answers_of(one.result.votes) for one in (found, again))
    assert {key: value for key, value in after.items() if key[1] != "dan"} == before
    assert after["i01", "dan"] == {"herring", "kitti"} and "rolled_up" in again.labels
    assert match_votes(data).votes.taxonomy == TREE
    model = pals.load_model(place / "run", device="cpu")
    assert model.about.taxonomy == TREE and model.about.sure == 0.8
    by_default, surer = (
        pals.predict_folder(place / "run", place / "features.npy", device="cpu", sure=sure) for sure in (None, 0.99)
    )
    assert (by_default["rolled_up_probability"].dropna() > 0.8).all()
    assert (surer["rolled_up_probability"].dropna() > 0.99).all()
    certain = by_default["confidence"] > 0.8
    assert (by_default["rolled_up"] == by_default["label"]).tolist() == certain.tolist()
    votes = found.result.votes
    (tmp_path / "truth.csv").write_text("item,label\ni00,herring\ni01,gulls\ni02,tern\n", encoding="utf-8")
    known = read_truth(tmp_path / "truth.csv", votes)
    assert [votes.items[row] for row in known.row_G] == ["i00", "i02"] and known.truth.label_N.tolist() == [0, 2]


def test_why_to_look_at_an_item_with_a_coarse_answer() -> None:
    """Who says "gulls" of a kittiwake says nothing else, and makes no tie."""
    for said, reason in (
        ({"gulls": 1}, "only coarser answers allow kitti"), ({"tern": 1}, "nobody said kitti"),
        ({"kitti": 2, "gulls": 1}, "the least sure of those that are agreed on"),
        ({"kitti": 1, "gulls": 1, "birds": 1}, "the least sure of those that are agreed on"),
        ({"kitti": 1, "gulls": 1, "tern": 1}, "1 of 3 said something else"), ({"kitti": 1, "tern": 1}, "a tie"),
        ({"herring": 2, "kitti": 1, "gulls": 1}, "against what most said"),
    ):  # fmt: skip
        answers = [ItemAnswer("", (name,)) for name, count in said.items() for _ in range(count)]
        assert queue_reason("kitti", 0.8, answers, None, TREE.below) == reason, said


def test_an_answer_that_names_a_branch_is_for_every_class_in_it(tmp_path: Path) -> None:
    """Two people who say "gulls" outnumber one who says "grey"; the sizes of classes follow from answers that name one."""
    said = [["gulls", "gulls", "grey" if item < 20 else "kitti"] for item in range(60)]
    rows = [f"{item},{who},{label}" for item, labels in enumerate(said) for who, label in zip("abc", labels, strict=True)]
    written = _written(tmp_path / "votes.csv", "\n".join(["item,annotator,label", *rows]))
    votes = pals.read_votes(written, taxonomy=TREE)
    kitti_NC = np.eye(len(CLASSES))[np.full(60, CLASSES.index("kitti"))]
    result = Result(votes, kitti_NC)
    labels = labels_table(result)
    assert set(labels["status"][:20]) == {"tie-broken"} and set(labels["status"][20:]) == {"agreed"}
    assert set(labels["majority"][:20]) == {"herring|kitti"} and set(labels["majority"][20:]) == {"kitti"}
    assert labels["agreement"].tolist() == pytest.approx([2 / 3] * 20 + [1.0] * 40, abs=1e-6)
    terns = classes_table(Result(votes, np.eye(len(CLASSES))[np.full(60, CLASSES.index("tern"))]))
    assert terns["doubtful_answers"].tolist() == terns["answers"].tolist()  # which count no branch, either
    coarse = Result(votes.take(np.flatnonzero(votes.label_R != CLASSES.index("grey"))), kitti_NC)
    assert moved_classes(cast(Findings, SimpleNamespace(result=coarse))) == []
    assert moved_classes(cast(Findings, SimpleNamespace(result=result))) == []  # nor does the one who says "grey" move them


def test_a_new_class_is_a_root_or_where_a_new_tree_has_it(found: Findings, place: Path, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("i02\ni07\n", encoding="utf-8")
    items = tmp_path / "list.txt"
    root = update(found.folder, add_class="auk", items=items, out=tmp_path / "root")
    assert root.result.votes.taxonomy == TREE.with_root("auk")
    assert (root.labels.set_index("item").loc[["i02", "i07"], ["label", "rolled_up"]] == "auk").all().all()
    again = update(root.folder, add_class="puffin", items=_written(tmp_path / "more.txt", "i12"), out=tmp_path / "twice")
    assert again.result.votes.class_names == (*CLASSES, "auk", "puffin")
    assert again.labels.set_index("item").loc["i02", "status"] == "gold"
    tree = Taxonomy.from_parents({"birds": None, "mammals": None, **PARENTS, "auk": "birds"})
    placed = update(
        found.folder, add_class="auk", items=items, taxonomy=_written(tmp_path / "t.csv", tree.to_csv()), out=tmp_path / "in"
    )
    assert placed.result.votes.taxonomy == tree
    assert (placed.labels.set_index("item").loc[["i02", "i07"], ["label", "status"]] == ["auk", "gold"]).all().all()
    for name, words in (("gulls", "this is a branch of the taxonomy"), ("tern", "a class of this name already exists")):
        refused(f"--add-class {name}: {words}", update, found.folder, add_class=name, items=items, out=tmp_path / "no")


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def answers_of(votes: pals.Votes) -> dict[tuple[str, str], set[str]]:
    said: dict[tuple[str, str], set[str]] = {}
    for item, annotator, label in zip(votes.item_R, votes.annotator_R, votes.label_R, strict=True):
        said.setdefault((votes.items[item], votes.annotators[annotator]), set()).add(votes.class_names[label])
    return said


def test_without_a_taxonomy_there_is_none_of_this_and_roots_alone_will_do(place: Path, tmp_path: Path) -> None:
    flat = pd.read_csv(place / "votes.csv").replace({"gulls": "kitti", "birds": "tern", "mammals": "grey"})
    plain = fit(None, flat, out=tmp_path / "run", **inputs(place))
    assert plain.numbers["taxonomy"] is None and "rolled_up" not in plain.labels
    assert not [name for name in plain.annotators if name.startswith("accuracy")]
    assert not (tmp_path / "run" / "taxonomy.csv").exists()
    assert '<section id="tree"' not in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    refused("has no taxonomy", pals.predict_folder, tmp_path / "run", place / "features.npy", device="cpu", sure=0.9)
    options = {
        "taxonomy": _written(tmp_path / "tree.csv", Taxonomy.from_parents(dict.fromkeys(CLASSES)).to_csv()),
        "truth": _written(tmp_path / "truth.csv", "item,label\ni00,herring\n"),
    }
    roots = fit(None, flat, out=tmp_path / "roots", **options, **inputs(place))
    assert roots.numbers["taxonomy"]["levels"] == 1
    assert any("rolled up to a coarser one" in line for line in roots.summary)


def test_votes_bring_their_own_tree(place: Path, tmp_path: Path) -> None:
    votes = pals.read_votes(place / "votes.csv", taxonomy=TREE)
    assert "rolled_up" in fit(None, votes, out=tmp_path / "run", **inputs(place)).labels
    refused("bring their own taxonomy", fit, None, votes, out=tmp_path / "other", taxonomy=place / "tree.csv", **inputs(place))


def test_the_commands(found: Findings, place: Path, tmp_path: Path) -> None:
    options = ["--features", str(place / "features.npy"), "--names", str(place / "names.txt")]
    tree = ["--taxonomy", str(place / "tree.csv"), "--sure", "0.95"]
    run = str(tmp_path / "run")
    assert not app(["fit", str(place / "votes.csv"), *options, *tree, "--out", run], standalone_mode=False)
    rolled = pd.read_csv(tmp_path / "run" / "labels.csv")["rolled_up_probability"].dropna()
    assert (rolled > 0.95).all()
    out = str(tmp_path / "p.csv")
    assert not app(["predict", run, str(place / "features.npy"), "--out", out, "--sure", "0.6"], standalone_mode=False)
    assert (pd.read_csv(out)["rolled_up_probability"].dropna() > 0.6).all()
    more = [str(place / "more.csv"), "--out", str(tmp_path / "run2"), "--sure", "0.7"]
    assert not app(["update", run, *more], standalone_mode=False)
    assert pd.read_csv(tmp_path / "run2" / "labels.csv")["rolled_up_probability"].min() > 0.7


def test_bad_trees_stop_the_fit(place: Path, tmp_path: Path) -> None:
    for tree, message in (
        ("label,parent\na,b\n", "row 2: Unknown parent 'b'"),
        (TREE.to_csv().replace("kitti", "kittiwake"), "Unknown label 'kitti': did you mean 'kittiwake'"),
    ):
        options = {"taxonomy": _written(tmp_path / "tree.csv", tree), **inputs(place)}
        refused(message, fit, None, place / "votes.csv", out=tmp_path / "run", **options)
    options = {"no_images": True, "settings": {"data": {"sure": 0.8}}}
    refused(r"sure = 0.8: .* --taxonomy", fit, None, place / "votes.csv", out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def with_tree(data: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    node = {"items": 3, "rolled_up": 1, "answers": 2, "answers_below": 5, "accuracy": 0.5, "leaf": False}
    pair = {"result": names[0], "answer": names[1], "count": 2, "total": 8}
    tree = {
        "sure": 0.9,
        "levels": [{"level": 1, "nodes": 2, "accuracy": None}],
        "nodes": [{**node, "name": name, "depth": depth} for depth, name in enumerate(names, start=1)],
        "within": {"answers": 2, "of": 1, "pairs": [pair]},
        "across": {"answers": 0, "of": 0, "pairs": []},
    }
    return {**data, "taxonomy": tree}


def test_no_name_of_a_node_is_ever_run_and_any_tree_is_drawn() -> None:
    page = render(with_tree(report(4), HOSTILE))
    assert "<script>alert" not in page and "<img src=x" not in page and page.count("<details") == len(HOSTILE) - 1
    assert "n399" in render(with_tree(report(4), tuple(f"n{number}" for number in range(400))))
