"""Votes to candidates, and names to files."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from _reader_examples import answers
from hypothesis import given
from hypothesis import strategies as st

from _refused import refused
from pals.readers import Votes, read_votes
from pals.readers.matching import match_names

Write = Callable[..., Path]

TEXT = "item,annotator,label,weight\na,ann,newt,1\na,bob,newt|frog,2\nb,ann,frog,1\nb,bob,toad,3\n"


@pytest.fixture
def votes(write: Write) -> Votes:
    return read_votes(write(TEXT))


def test_candidates_by_hand(votes: Votes) -> None:
    sets = votes.to_candidates()
    assert (sets.ids, sets.class_names) == (("a", "b"), ("frog", "newt", "toad"))
    assert sets.allowed_NC.tolist() == [[True, True, False], [True, False, True]] and sets.frequency_NC is not None
    assert sets.frequency_NC.tolist() == [pytest.approx([1 / 3, 2 / 3, 0]), pytest.approx([0.25, 0, 0.75])]
    more = replace(votes, items=("a", "b", "c"), gold_I=np.array([-1, -1, 2]))
    refused("the first is 'c'", more.to_candidates)
    assert more.to_candidates(on_empty="drop").ids == ("a", "b")
    every = more.to_candidates(on_empty="all")
    assert every.frequency_NC is not None and every.frequency_NC[2].tolist() == pytest.approx([1 / 3] * 3)
    assert more.to_candidates(use_gold=True).allowed_NC[2].tolist() == [False, False, True]
    sets = replace(votes, weight_R=np.array([1.0, 0, 0, 1, 0])).to_candidates()
    assert sets.allowed_NC.tolist() == [[False, True, False], [True, False, False]]
    sets = replace(votes, weight_R=np.full(5, 1.7e308)).to_candidates()
    assert sets.frequency_NC is not None and sets.frequency_NC.sum(dim=1).tolist() == pytest.approx([1, 1])
    first, *_ = votes.summary.lines()
    assert first.endswith("votes.csv (long): 4 answers by 2 annotators on 2 items, 3 classes")


@pytest.mark.parametrize(
    ("change", "message"),
    [({"label_R": np.full(5, 3)}, "label_R of the votes must hold 5 numbers from 0 to 2"),
     ({"annotator_R": np.full(5, -2)}, "annotator_R"), ({"item_R": np.full(5, 2)}, "item_R"),
     ({"gold_I": np.zeros(5)}, "gold_I"), ({"weight_R": np.full(5, np.nan)}, "finite numbers")],
)  # fmt: skip
def test_inconsistent_votes_are_refused(votes: Votes, change: dict[str, np.ndarray], message: str) -> None:
    refused(message, replace, votes, **change)


def test_match_by_path_base_name_spelling_and_number() -> None:
    files = ["ponds/a.jpg", "ponds/b.jpg", "lakes/a.jpg", "lakes/c d.jpg", "lakes/Kröte.jpg"]
    decomposed = unicodedata.normalize("NFD", "Kröte.jpg")
    found = match_names(["ponds/a.jpg", "b.jpg", "Data/lakes/a.jpg", "/home/ann/c d.jpg", decomposed, "x.jpg", "a.jpg"], files)
    assert found.file_I.tolist() == [0, 1, 2, 3, 4, -1, -1] and (found.by_path, found.by_name) == (2, 3)
    assert (found.missing, found.ambiguous, found.refused) == (("x.jpg",), ("a.jpg",), ())
    found = match_names(["fold1/a.jpg", "fold2/a.jpg"], ["fold2/a.jpg", "fold2/b.jpg"])
    assert found.file_I.tolist() == [-1, 0] and found.ambiguous == ("fold1/a.jpg",)
    found = match_names(["x/a.jpg", "y/a.jpg"], ["z/a.jpg"])
    assert found.file_I.tolist() == [-1, -1] and len(found.ambiguous) == 2
    found = match_names(["./x//a.jpg", "x\\b.jpg", "x/./c.jpg", "a..b.jpg"], ["x/a.jpg", "x/b.jpg", "x/c.jpg", "a..b.jpg"])
    assert found.by_path == 4
    assert match_names(["a01", "7"], ["x/a01.png", "pond-7.png", "pond-17.png"]).file_I.tolist() == [0, 1]
    assert match_names(["a01"], ["x/a01.png", "x/a01.jpg"]).ambiguous == ("a01",)
    refused("'x//?a.jpg' is listed twice", match_names, ["a.jpg"], ["x/a.jpg", "x//a.jpg"])


@pytest.mark.parametrize("item", ["../a.jpg", "x/../../a.jpg", "..\\a.jpg", "/../../a.jpg", "x/../a.jpg"])
def test_paths_cannot_leave_the_folder(item: str) -> None:
    found = match_names([item], ["a.jpg", "etc/passwd"])
    assert found.refused == (item,) and found.file_I.tolist() == [-1]
    assert "leads out of the image folder" in str(found)


def test_votes_follow_their_files(write: Write) -> None:
    votes = read_votes(write(TEXT.replace("\na,", "\nponds/a.jpg,").replace("\nb,", "\nb.jpg,") + "gone.jpg,ann,newt,1\n"))
    matched, report = votes.match([Path("ponds/b.jpg"), "ponds/new.jpg", "ponds/a.jpg"])
    assert matched.items == ("ponds/b.jpg", "ponds/new.jpg", "ponds/a.jpg") and report.missing == ("gone.jpg",)
    assert report.unanswered == ("ponds/new.jpg",)
    assert "1 item of the votes has no image; its answers are not used ('gone.jpg')" in report.lines()
    assert "1 image has no answer ('ponds/new.jpg')" in report.lines()
    sets = matched.to_candidates(on_empty="drop")
    assert sets.frequency_NC is not None and sets.ids == ("ponds/b.jpg", "ponds/a.jpg")
    assert sets.frequency_NC.tolist() == [pytest.approx([0.25, 0, 0.75]), pytest.approx([1 / 3, 2 / 3, 0])]


part = st.sampled_from(["a", "b", "..", ".", "", "c.jpg", "d.jpg"])
path = st.lists(part, min_size=1, max_size=4).map("/".join)


@given(
    items=st.lists(path, unique=True, max_size=6), files=st.sets(st.sampled_from(["a/c.jpg", "b/c.jpg", "d.jpg", "a/b/d.jpg"]))
)
def test_a_file_belongs_to_one_item_at_most(items: list[str], files: set[str]) -> None:
    from pals.readers.matching import one_spelling

    items = list(dict.fromkeys(map(one_spelling, items)))
    listed = sorted(files)
    found = match_names(items, listed)
    taken = [f for f in found.file_I.tolist() if f >= 0]
    assert len(taken) == len(set(taken)) == found.by_path + found.by_name
    assert len(items) == len(taken) + len(found.missing) + len(found.ambiguous) + len(found.refused)
    for item, file in zip(items, found.file_I.tolist(), strict=True):
        if item in files:
            assert listed[file] == item
        if file >= 0:
            assert item.rpartition("/")[2] == listed[file].rpartition("/")[2] and ".." not in item.split("/")


def test_a_table_of_the_votes_reads_back(write: Write, tmp_path: Path) -> None:
    """Named and unnamed annotators, several labels in one answer, weights, a gold label."""
    path = write(
        "item,annotator,label,weight,is_gold\n"
        "b.jpg,ann,newt,2,\nb.jpg,,frog,1,\na.jpg,bob,newt|frog,0.5,\na.jpg,,toad|frog,1,\na.jpg,,toad,1,1\nc.jpg,ann,frog,1,\n",
    )
    votes = read_votes(path)
    again_path = tmp_path / "again.csv"
    votes.to_frame().to_csv(again_path, index=False)
    again = read_votes(again_path)
    assert again.class_names == votes.class_names and set(again.items) == set(votes.items)

    def rows(found: Votes) -> list[tuple[str, str, tuple[str, ...], float]]:
        weight = [float(found.weight_R[found.answer_R == answer][0]) for answer in dict.fromkeys(found.answer_R.tolist())]
        pairs = zip(answers(found), weight, strict=True)
        return sorted((item, annotator or "", tuple(sorted(labels)), share) for (item, annotator, labels), share in pairs)

    assert rows(again) == rows(votes) and len(rows(votes)) == 5
    gold = dict(zip(again.items, again.gold_I.tolist(), strict=True))
    assert gold == {"a.jpg": again.class_names.index("toad"), "b.jpg": -1, "c.jpg": -1}


def test_trusted_annotators_are_right(write: Write) -> None:
    """A coarse answer does not contradict an exact one of the same branch; two that have several labels in common only vote."""
    said = ["a,ann,newt|toad", "a,eve,toad", "b,ann,newt|frog", "b,eve,toad", "c,ann,newt|toad", "c,eve,toad|newt"]
    votes = read_votes(write("item,annotator,label\n" + "\n".join([*said, "d,eve,frog?|newt"]) + "\n"))
    found = votes.trusting(["ann", "eve"])
    assert [found.class_names[label] if label >= 0 else "" for label in found.gold_I] == ["toad", "", "", ""]
    assert sorted(set(found.item_R.tolist())) == [1, 2, 3]
    rows = ["a,ann,newt,0", "a,eve,frog,0", "b,eve,frog,0", "b,kim,newt,0", "c,eve,newt|frog,0", "d,,newt,1", "d,eve,frog,0"]
    votes = read_votes(write("item,annotator,label,is_gold\n" + "\n".join(rows) + "\n"))
    found = votes.trusting(["eve", "kim"])
    gold = {item: "" if label < 0 else found.class_names[label] for item, label in zip(found.items, found.gold_I, strict=True)}
    assert gold == {"a": "frog", "b": "", "c": "", "d": "frog"}
    said = [(found.items[i], found.annotators[w]) for i, w in zip(found.item_R, found.annotator_R, strict=True)]
    assert said == [("a", "ann"), ("b", "eve"), ("b", "kim"), ("c", "eve"), ("c", "eve")] and found.num_answers == 4
    assert votes.trusting([]).gold_I.tolist() == votes.gold_I.tolist()
    assert found.match(["a", "b", "c", "d"])[1].unanswered == ()  # of d the right label is known
    refused("Unknown annotator 'evve': did you mean 'eve'", votes.trusting, ["evve"])
