"""Answers that name a node of a taxonomy: the classes below it, and its name again wherever answers are shown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from _reader_examples import answers

from _refused import refused
from pals.labels.taxonomy import Taxonomy, TaxonomyNode
from pals.pipeline.tables.result_tables import csv_text
from pals.readers import Votes, read_votes
from pals.readers.taxonomy_answers import spoken
from pals.util.errors import InputError

TREE = Taxonomy.of(
    [*(TaxonomyNode(name, None) for name in ("birds", "seals")),
     *(TaxonomyNode(name, "birds") for name in ("gulls", "tern")),
     *(TaxonomyNode(name, "gulls") for name in ("herring", "kitti")),
     *(TaxonomyNode(name, "seals") for name in ("grey", "common"))]
)  # fmt: skip
ROWS = """item,annotator,label
a,ann,gulls
a,bob,kitti
b,ann,birds
b,bob,herring|tern
c,ann,seals|grey
c,bob,gulls
d,ann,kitti|herring
"""


def read(folder: Path, text: str = ROWS, separator: str | None = "|", taxonomy: Taxonomy | None = TREE) -> Votes:
    (folder / "votes.csv").write_text(text, encoding="utf-8")
    return read_votes(folder / "votes.csv", separator=separator, taxonomy=taxonomy)


def test_a_node_is_the_classes_below_it_and_keeps_its_name(tmp_path: Path) -> None:
    votes = read(tmp_path)
    assert votes.class_names == TREE.leaves == ("herring", "kitti", "tern", "grey", "common")
    assert answers(votes) == [
        ("a", "ann", ("herring", "kitti")), ("a", "bob", ("kitti",)),
        ("b", "ann", ("herring", "kitti", "tern")), ("b", "bob", ("herring", "tern")),
        ("c", "ann", ("grey", "common")), ("c", "bob", ("herring", "kitti")), ("d", "ann", ("kitti", "herring")),
    ]  # fmt: skip
    assert votes.summary.skipped == ()
    cells = read(tmp_path).to_frame()["label"].tolist()
    assert cells == ["gulls", "kitti", "birds", "herring|tern", "seals", "gulls", "gulls"]
    votes = read(tmp_path)
    rows, names = spoken(votes, np.flatnonzero(votes.item_R == votes.items.index("b")))
    assert names.tolist() == ["birds", "herring", "tern"] and votes.answer_R[rows].tolist() == [2, 3, 3]
    flat = read(tmp_path, ROWS.replace("gulls", "kitti").replace("birds", "tern").replace("seals|", ""), taxonomy=None)
    assert spoken(flat, np.arange(len(flat.item_R)))[1].tolist() == [flat.class_names[label] for label in flat.label_R]


@pytest.mark.parametrize("separator", ["|", None])
def test_what_is_written_is_read_back_with_the_same_tree(separator: str | None, tmp_path: Path) -> None:
    votes = read(tmp_path)
    frame = votes.to_frame(separator)
    assert frame["label"].tolist().count("gulls") == 3
    again = read(tmp_path, csv_text(frame), separator)
    assert [(item, annotator, sorted(labels)) for item, annotator, labels in answers(again)] == [
        (item, annotator, sorted(labels)) for item, annotator, labels in answers(votes)
    ]


def test_trees_in_files_and_names_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "tree.csv").write_text(TREE.to_csv(), encoding="utf-8")
    (tmp_path / "votes.csv").write_text(ROWS, encoding="utf-8")
    votes = read_votes(tmp_path / "votes.csv", taxonomy=tmp_path / "tree.csv")
    assert votes.taxonomy == TREE
    (tmp_path / "votes.csv").write_text("item,annotator,label\na,ann,birds\n", encoding="utf-8")
    votes = read_votes(tmp_path / "votes.csv", taxonomy=TREE, class_names=["tern", "herring", "grey"])
    assert votes.class_names == ("herring", "tern", "grey")
    assert answers(votes) == [("a", "ann", ("herring", "tern"))]
    with pytest.raises(InputError, match=r"row 8: Unknown label 'gull': did you mean 'gulls'\?.*add it to the taxonomy"):
        read(tmp_path, f"{ROWS.removesuffix('d,ann,kitti|herring' + chr(10))}d,ann,gull\n")
    refused("Unknown label '0'", read, tmp_path, "item,annotator,label\na,ann,0\nb,ann,1\n")
    votes = read(tmp_path, "item,annotator,label,is_gold\na,ann,gulls,true\nb,ann,kitti,true\nb,bob,grey,false\n")
    assert votes.gold_I.tolist() == [-1, 1] and "gold answer with several labels" in str(votes.summary)
