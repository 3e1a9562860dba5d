"""The queue of items to look at next: who comes first and why, and the way to a person and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from _refused import refused
from pals.pipeline.finished_run import separator_of
from pals.pipeline.item_order import expected_benefit, spread_over_classes
from pals.readers import read_votes
from pals.relabel.label_studio_tasks import label_studio_tasks
from pals.relabel.relabel_queue import relabel_queue, to_fill_in

LABELS = """item,label,confidence,second,votes,agreement,in_votes,status
ponds/a 1.jpg,frog,0.99,,3,1.0,true,agreed
ponds/b.jpg,frog,0.55,newt,2,0.5,true,tie-broken
ponds/c.jpg,newt,0.90,frog,3,0.333,true,corrected
ponds/d.jpg,newt,0.40,,0,,false,no-answer
ponds/e.jpg,toad,1.0,,1,0.0,false,gold
ponds/f.jpg,toad,0.97,,1,1.0,true,agreed
ponds/g.jpg,"toad, common",0.45,toad,3,0.667,true,unsure
ponds/h.jpg,toad,0.80,newt,2,0.0,false,corrected
"""
VOTES = """item,annotator,label,weight,is_gold
ponds/a 1.jpg,ann,frog,1,false
ponds/a 1.jpg,bob,frog,1,false
ponds/a 1.jpg,cho,frog,1,false
ponds/b.jpg,ann,newt,1,false
ponds/b.jpg,bob,frog,1,false
ponds/c.jpg,ann,frog,1,false
ponds/c.jpg,bob,frog,1,false
ponds/c.jpg,cho,newt,1,false
ponds/e.jpg,ann,frog,1,false
ponds/e.jpg,,toad,1,true
ponds/f.jpg,ann,toad,1,false
ponds/g.jpg,ann,"toad, common",1,false
ponds/g.jpg,bob,"toad, common",1,false
ponds/g.jpg,cho,toad,1,false
ponds/h.jpg,ann,frog,0.5,false
ponds/h.jpg,bob,newt,1.5,false
"""
DOUBTFUL = """rank,item,annotator,answer,suggestion,probability_wrong,confidence,others,neighbors
1,ponds/h.jpg,bob,newt,toad,0.95,0.80,frog,
2,ponds/c.jpg,ann,frog,newt,0.91,0.90,frog; newt,
3,ponds/c.jpg,bob,frog,newt,0.90,0.90,frog; newt,
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for name, text in (("labels.csv", LABELS), ("votes.csv", VOTES), ("doubtful.csv", DOUBTFUL)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def rows(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    return {row["item"].removeprefix("ponds/"): row for row in frame.to_dict("records")}


def test_benefit_by_hand_and_one_class_does_not_fill_the_queue() -> None:
    """Three quarters of 1 - confidence, a quarter of (votes against + 1/2) / (votes + 1)."""
    benefit = expected_benefit(np.array([0.4, 0.55, 0.99, 1.0]), np.array([0.0, 2.0, 3.0, 1.0]), np.array([0.0, 0.5, 1.0, 1.0]))
    assert benefit.tolist() == pytest.approx(
        [0.75 * 0.6 + 0.25 * 0.5, 0.75 * 0.45 + 0.25 * 1.5 / 3, 0.75 * 0.01 + 0.25 * 0.5 / 4, 0.25 * 0.25]
    )
    benefit = np.concatenate([np.linspace(0.60, 0.55, 100), np.linspace(0.50, 0.45, 100), np.linspace(0.50, 0.45, 100)])
    label = np.repeat(np.array(["a", "b", "c"], dtype=object), 100)
    assert set(label[np.argsort(-benefit)[:30]]) == {"a"}
    counts = pd.Series(label[spread_over_classes(benefit, label, 30)[:30]]).value_counts()
    assert counts["a"] <= 15 and counts["b"] >= 7 and counts["c"] >= 7
    nothing_to_gain = np.where(label == "a", benefit, 0.001)  # but where there is nothing to gain nobody is bothered
    assert set(label[spread_over_classes(nothing_to_gain, label, 30)[:30]]) == {"a"}


@given(
    confidence=st.floats(0, 1),
    votes=st.integers(0, 50),
    agreement=st.floats(0, 1),
    less=st.floats(0, 1),
    more=st.integers(1, 9),
)
def test_doubt_never_lowers_the_benefit(confidence: float, votes: int, agreement: float, less: float, more: int) -> None:
    def benefit(c: float, v: float, a: float) -> float:
        return float(expected_benefit(np.array([c]), np.array([v]), np.array([a]))[0])

    now = benefit(confidence, votes, agreement)
    assert 0 <= now <= 1
    assert benefit(confidence * less, votes, agreement) >= now  # less sure
    assert benefit(confidence, votes, agreement * less) >= now - 1e-12  # fewer agree
    assert benefit(confidence, votes + more, 1.0) <= benefit(confidence, votes, 1.0)  # more who all agree


def slow_spread(benefit: list[float], label: list[str], top: int) -> list[int]:
    """One after the other: always the item that counts most now."""
    share = top / len(set(label))
    left, taken, queue = set(range(len(label))), dict.fromkeys(label, 0), []
    while left and len(queue) < top:
        best = max(left, key=lambda i: (benefit[i] / (1 + taken[label[i]] / share), -i))
        left.remove(best)
        taken[label[best]] += 1
        queue.append(best)
    return queue


@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.sampled_from("abc")), min_size=1, max_size=25, unique_by=lambda x: x[0]),
    st.integers(1, 30),
)
def test_spread_is_greedy(items: list[tuple[int, str]], top: int) -> None:
    benefit, label = [value / 10**6 for value, _ in items], [name for _, name in items]
    got = spread_over_classes(np.array(benefit), np.array(label, dtype=object), top)[:top].tolist()
    assert len(got) == min(top, len(items)) == len(set(got)) and got == slow_spread(benefit, label, top)


def test_the_queue(run: Path) -> None:
    queue = relabel_queue(run)
    assert list(queue.columns) == ["rank", "item", "suggestion", "confidence", "second", "reason", "said", "audit"]
    assert queue["rank"].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert "ponds/e.jpg" not in set(queue["item"])  # gold
    assert queue["item"].tolist() == [
        f"ponds/{name}" for name in ("d.jpg", "g.jpg", "b.jpg", "h.jpg", "c.jpg", "f.jpg", "a 1.jpg")
    ]
    assert relabel_queue(run, top=2)["item"].tolist() == ["ponds/d.jpg", "ponds/g.jpg"]
    found = rows(queue)
    assert {name: (row["suggestion"], row["second"], row["said"]) for name, row in found.items()} == {
        "a 1.jpg": ("frog", "", "frog x3"),
        "b.jpg": ("frog", "newt", "newt; frog"),
        "c.jpg": ("newt", "frog", "frog x2; newt"),
        "d.jpg": ("newt", "", ""),
        "f.jpg": ("toad", "", "toad"),
        "g.jpg": ("toad, common", "toad", "toad, common x2; toad"),
        "h.jpg": ("toad", "newt", "frog; newt"),
    }
    assert {name: row["reason"] for name, row in found.items()} == {
        "a 1.jpg": "the least sure of those that are agreed on",
        "b.jpg": "a tie",
        "c.jpg": "against what most said; ann's frog is probably wrong (91%)",
        "d.jpg": "nobody answered",
        "f.jpg": "one answer only",
        "g.jpg": "1 of 3 said something else; the result is unsure",
        "h.jpg": "nobody said toad; bob's newt is probably wrong (95%)",
    }
    assert found["b.jpg"]["confidence"] == 0.55


def test_queues_of_a_budget_without_doubts_and_of_gold(run: Path) -> None:
    """After the queue itself, and once."""
    paid = ["ponds/f.jpg", "ponds/d.jpg", "ponds/c.jpg"]
    queue = relabel_queue(run, 2, paid)
    assert queue["item"].tolist() == ["ponds/d.jpg", "ponds/g.jpg", "ponds/c.jpg", "ponds/f.jpg"]
    assert queue["rank"].tolist() == [1, 2, 3, 4] and relabel_queue(run, 7, paid).equals(relabel_queue(run, 7))
    (run / "doubtful.csv").write_text(DOUBTFUL.partition("\n")[0] + "\n")
    assert "probably wrong" not in " ".join(relabel_queue(run)["reason"])
    head, *lines = LABELS.splitlines()
    (run / "labels.csv").write_text("\n".join([head, *(line for line in lines if line.endswith("gold"))]) + "\n")
    queue = relabel_queue(run)
    assert len(queue) == 0 and "rank" in queue.columns and label_studio_tasks(queue) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [("labels.csv", "0.55", "sure", r"confidence of 'ponds/b.jpg' is 'sure', not a number"),
     ("labels.csv", "0.55", "", r"confidence of 'ponds/b.jpg' is '', not a number"),
     ("labels.csv", "agreement,", "agreed,", r"labels\.csv has no column 'agreement'"),
     ("doubtful.csv", "0.95", "sure", r"probability_wrong of 'ponds/h.jpg' is 'sure', .* doubtful.csv"),
     ("votes.csv", ",weight", ",mass", r"votes\.csv has no column 'weight'"),
     ("doubtful.csv", "probability_wrong", "p", r"doubtful\.csv has no column 'probability_wrong'"),
     ("labels.csv", LABELS, "", r"labels\.csv has no column 'item'"),
     ("labels.csv", "frog,0.99,,3", "frog,0.99,,3,4,5,6,7,8", r"row \d+ has another number of cells"),
     ("labels.csv", "frog,0.55,newt,2", "frog,0.55,newt,2,3,4,5", r"row \d+ has another number of cells")],
)  # fmt: skip
def test_tables_that_were_changed(run: Path, name: str, old: str, new: str, message: str) -> None:
    text = (run / name).read_text()
    assert old in text
    (run / name).write_text(text.replace(old, new))
    said = refused(message, relabel_queue, run)
    assert "\n" not in said


@pytest.mark.parametrize(("name", "written"), [("labels.csv", 8), ("doubtful.csv", 3), ("votes.csv", 15)])
def test_a_table_that_lost_rows(run: Path, name: str, written: int) -> None:
    (run / "summary.json").write_text(json.dumps({"items": 8, "doubtful_answers": 3, "answers": 15}))
    assert len(relabel_queue(run)) == 7
    lines = (run / name).read_text(encoding="utf-8").splitlines(keepends=True)
    (run / name).write_text("".join(lines[:3]), encoding="utf-8")
    message = (
        rf"{name} is cut off: it has 2 rows, and the fit wrote at least {written}\. Restore it from a copy, or run `pals fit`"
    )
    refused(message, relabel_queue, run)
    (run / "summary.json").unlink()  # of an older version
    relabel_queue(run)


def test_what_is_no_run(run: Path, tmp_path: Path) -> None:
    refused("A queue of 0 items", relabel_queue, run, top=0)
    (run / "votes.csv").unlink()
    refused(r"holds no votes\.csv", relabel_queue, run)
    refused(r"holds no labels\.csv. Give the folder", relabel_queue, tmp_path / "nowhere")


def test_a_spreadsheet_and_back(run: Path, tmp_path: Path) -> None:
    """Rows that were left blank are no votes; a person may also name two labels, or say that nobody can tell."""
    sheet = to_fill_in(relabel_queue(run))
    assert list(sheet.columns) == [
        "rank",
        "item",
        "label",
        "annotator",
        "suggestion",
        "confidence",
        "second",
        "reason",
        "said",
        "audit",
    ]
    assert (sheet[["label", "annotator"]] == "").all(axis=None)
    path = tmp_path / "queue.csv"
    sheet.to_csv(path, index=False)
    refused("nothing to learn from", read_votes, path)
    filled = sheet.copy()
    for item, label in (("d.jpg", "newt"), ("b.jpg", "frog|newt"), ("a 1.jpg", "don't know"), ("g.jpg", "toad, common")):
        filled.loc[filled["item"] == f"ponds/{item}", ["label", "annotator"]] = [label, "dora"]
    filled.loc[filled["item"] == "ponds/f.jpg", "annotator"] = "dora"  # a name, but no answer
    filled.to_csv(path, index=False)
    votes = read_votes(path)
    answers = {
        (votes.items[i], votes.annotators[w], votes.class_names[c])
        for i, w, c in zip(votes.item_R, votes.annotator_R, votes.label_R, strict=True)
    }
    expected = (("d", "newt"), ("b", "frog"), ("b", "newt"), ("g", "toad, common"))
    assert answers == {(f"ponds/{name}.jpg", "dora", label) for name, label in expected}

    assert votes.num_answers == 3 and votes.weight_R.tolist() == [1.0] * 4
    together = read_votes([run / "votes.csv", path])  # as an update reads them
    assert together.summary.answers == 18 and "dora" in together.annotators


def test_a_label_that_holds_the_separator_is_copied_as_it_stands(run: Path) -> None:
    """Its suggestion made two classes of one."""
    for name in ("labels.csv", "votes.csv"):
        (run / name).write_text((run / name).read_text().replace("newt", "red\\|black" if name == "votes.csv" else "red|black"))
    sheet = to_fill_in(relabel_queue(run), separator_of(run))
    sheet["label"], sheet["annotator"] = sheet["suggestion"], "dora"
    sheet.to_csv(run / "queue.csv", index=False)
    assert read_votes([run / "votes.csv", run / "queue.csv"]).class_names == ("frog", "red|black", "toad", "toad, common")


def test_answers_with_several_labels_and_without_a_name(run: Path) -> None:
    """ "frog|newt" says frog, too; nobody is called "(unnamed)"."""
    labels = LABELS.splitlines()[0] + "\ni.jpg,frog,0.6,toad,2,0.5,true,tie-broken\nj.jpg,frog,0.6,newt,1,0.5,true,tie-broken\n"
    (run / "labels.csv").write_text(labels)
    votes = VOTES.splitlines()[0] + "\ni.jpg,ann,newt|frog,1,false\ni.jpg,,toad,1,false\nj.jpg,ann,frog|newt,1,false\n"
    (run / "votes.csv").write_text(votes)
    (run / "doubtful.csv").write_text(DOUBTFUL.splitlines()[0] + "\n1,i.jpg,(unnamed),toad,frog,0.9,0.6,newt + frog,\n")
    queue = relabel_queue(run).set_index("item")
    assert queue.loc["i.jpg", "reason"] == "a tie; somebody's toad is probably wrong (90%)"
    assert queue.loc["j.jpg", "reason"] == "a tie"
    assert (queue.loc["i.jpg", "second"], queue.loc["j.jpg", "second"]) == ("toad", "newt")
    assert queue.loc["i.jpg", "said"] == "newt + frog; toad"
