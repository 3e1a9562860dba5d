"""Unsure answers and "don't know" from the file to the tables, the report, the queue and an update."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from _crowd import answered_digits, votes_of
from _refused import refused
from pals.crowd import Result, dawid_skene, rank_doubts
from pals.pipeline import Findings, fit, update
from pals.pipeline.stages.read_answers import match_votes
from pals.pipeline.tables.result_tables import annotators_table, doubtful_table, labels_table
from pals.pipeline.tables.unsure_columns import with_marks
from pals.readers import Votes, read_votes
from pals.relabel.relabel_queue import relabel_queue
from pals.report import sections
from pals.report.data import answers_of
from pals.runs.run_config import VotesConfig

ITEMS = 120


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """Digits, of which every fourth answer of ann is unsure; cho and dan, who says nothing else, do not know ten of them."""
    folder = tmp_path_factory.mktemp("unsure")
    x_ND, _, answers = answered_digits(ITEMS)
    np.save(folder / "x.npy", x_ND[:ITEMS])
    ann, cho = answers["annotator"] == "ann", (answers["annotator"] == "cho") & (answers["item"] < 10)
    answers.loc[ann & (answers["item"] % 4 == 0), "label"] += "?"
    answers.loc[cho, "label"] = "don't know"
    dan = pd.DataFrame({"item": range(5, 15), "annotator": "dan", "label": "?"})
    answers.loc[cho & (answers["item"] == 3), "label"] = "weiß nicht"
    settings = {"data": {"dont_know": ("weiß nicht",)}}
    return fit(None, pd.concat([answers, dan]), features=folder / "x.npy", out=folder / "run", settings=settings)


def test_runs_of_before_and_items_that_nobody_knew(tmp_path: Path) -> None:
    """It was begun without what is kept now."""
    votes = pd.DataFrame({"item": list("aabbc"), "annotator": list("xyxyx"), "label": ["ja", "nein", "ja", "ja", "don't know"]})
    fit(None, votes[:4], no_images=True, out=tmp_path / "run")
    refused(r"or choose another --out\.", fit, None, votes, no_images=True, out=tmp_path / "run")
    refused(r"or choose another --out\.$", fit, None, votes[:3], no_images=True, out=tmp_path / "run")
    for name in "abcd":
        (tmp_path / f"{name}.png").touch()
    votes = tmp_path / "votes.csv"
    votes.write_text("item,annotator,label\na.png,ann,1\nb.png,ann,2\nc.png,ann,don't know\n")
    matched = match_votes(VotesConfig(votes=(str(votes),), images=str(tmp_path)))
    assert matched.warnings == ("Only one annotator: ann", "2 images have no answer ('c.png', 'd.png')")


def test_annotators_items_sentences_and_the_run_keep_them(found: Findings) -> None:
    table = found.annotators.set_index("annotator")
    assert table.columns[:4].tolist() == ["answers", "unsure", "unsure_weight", "dont_know"]
    assert table["answers"].to_dict() == {"ann": 120, "bob": 120, "cho": 110, "dan": 0}
    assert table["unsure"].fillna(-1).to_dict() == {"ann": 0.25, "bob": 0, "cho": 0, "dan": -1}
    assert table["dont_know"].to_dict() == pytest.approx({"ann": 0, "bob": 0, "cho": 10 / 120, "dan": 1}, abs=1e-6)
    assert table["unsure_weight"].notna().to_dict() == {"ann": True, "bob": False, "cho": False, "dan": False}
    assert 0.5 < table.loc["ann", "unsure_weight"] <= 1  # they are as good as her sure ones
    labels = found.labels.set_index("item")
    columns = labels.columns.tolist()
    assert columns[columns.index("votes") + 1] == "dont_know"
    assert labels.loc["7", ["votes", "dont_know"]].tolist() == [2, 2]
    assert labels.loc["12", ["votes", "dont_know"]].tolist() == [3, 1] and labels.loc["20", "dont_know"] == 0
    assert found.numbers["answers"] == 350 and found.measured_agreement.answers == 350
    line = next(line for line in found.summary if "unsure, worth" in line)
    assert line.startswith("30 answers are unsure, worth ")
    assert line.endswith('each, on average; annotators answered "don\'t know" 20 times, about 15 items.')
    again = read_votes(found.folder / "votes.csv")
    assert again.summary.unsure == 30 and again.summary.unknown == 20
    page = (found.folder / "report.html").read_text(encoding="utf-8")
    for words in ("Unsure counts", "Don&#39;t know", "estimated worth of such an answer"):
        assert words in page
    data = json.loads((found.folder / "report.json").read_text())
    assert {row["annotator"]: row["unsure"] for row in data["annotators"]}["ann"] == 0.25


def test_an_update_and_the_queue(found: Findings, tmp_path: Path) -> None:
    more = tmp_path / "more.csv"
    more.write_text("item,annotator,label\n0,cho,d3?\n1,eve,Weiß nicht\n2,bob,d3?\n")
    after = update(found.folder, more, out=tmp_path / "updated")
    table = after.annotators.set_index("annotator")
    assert table.loc["cho", "answers"] == 111 and table.loc["cho", "dont_know"] == pytest.approx(9 / 120, abs=1e-6)
    assert table.loc["eve", "dont_know"] == 1
    votes = after.trained.loaded.votes
    assert int((~votes.sure_R).sum()) == 32
    queue = relabel_queue(found.folder, top=ITEMS).set_index("item")
    for item in ("8", "12"):
        assert "?" in queue.loc[item, "said"] and queue.loc[item, "said"].endswith(
            "don't know" + (" x2" if item == "8" else "")
        )
    assert queue["second"].isin({"", *(f"d{digit}" for digit in range(10))}).all()
    assert not queue["reason"].str.contains("know").any()


@pytest.fixture
def votes() -> Votes:
    rows = [(0, 0, 1), (0, 1, 1), (0, 2, 0), (1, 0, 2), (1, 1, 2)]
    return votes_of(rows, 2, sure=[True, False, False, True, True], unknown=[(0, 3), (0, -1), (1, 3)])


def test_what_is_shown_of_an_item_with_and_without_marks(votes: Votes) -> None:
    result = Result(votes, np.array([[0.05, 0.9, 0.05], [0.0, 0.1, 0.9]]))
    table = doubtful_table(result, rank_doubts(result))
    assert table[["answer", "others"]].to_numpy().tolist() == [["c0", "c1; c1?; don't know x2"]]
    said = answers_of(votes, [0])[0]
    shown = sections.answers_by_label(said)
    assert [(vote["label"] + vote["mark"], vote["voters"]) for vote in shown] == [
        ("c1", ["w0"]), ("c1?", ["w1"]), ("c0?", ["w2"]), ("don't know", ["w3", "somebody"]),
    ]  # fmt: skip
    assert sections.in_words(said)[-1].endswith("×2")
    votes = votes_of([(0, 0, 1), (0, 1, 1), (1, 0, 2)], 2)
    consensus = dawid_skene(votes)
    result = Result(votes, consensus.posterior_NC)
    tables = {"labels": labels_table(result), "annotators": annotators_table(result)}
    assert with_marks(tables, result, consensus.annotators) == tables
