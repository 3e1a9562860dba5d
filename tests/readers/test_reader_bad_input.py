"""Files as people send them: each is read rightly, or refused with its place and a way out. Nothing is lost in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _reader_examples import COCO, CVAT, DCIC, EXPECTED, LABEL_STUDIO, LONG, Row, answers

from pals.readers import read_votes

Write = Callable[..., Path]


def test_columns_files_blank_rows_and_chosen_annotators(write: Write) -> None:
    path = write("when\tSpecies seen\tPhoto\tWho\n1\tnewt\ta.jpg\tann\n2\tfrog\ta.jpg\tbob\n", "votes.tsv")
    votes = read_votes(path, columns={"label": "Species seen", "annotator": "Who"})
    assert answers(votes) == [("a.jpg", "ann", ("newt",)), ("a.jpg", "bob", ("frog",))]
    assert votes.summary.notes == ("Columns not read: when",)
    votes = read_votes([write(LONG, "1.csv"), write(LONG + "a02.jpg,cho,toad\n", "2.csv")])
    assert answers(votes) == [*answers(read_votes(write(LONG))), ("a02.jpg", "cho", ("toad",))]
    assert votes.summary.skipped[0].count == 3 and votes.summary.skipped[0].examples[0] == "2.csv, row 2"
    votes = read_votes(write("\n\nitem,annotator,label\na,ann,newt\n\nb,ann\n,ann,frog\nc,bob,frog\n"))
    assert answers(votes) == [("a", "ann", ("newt",)), ("c", "bob", ("frog",))]
    found = {skipped.reason: skipped.examples for skipped in votes.summary.skipped}
    assert found["no item is named"] == ("votes.csv, row 5", "votes.csv, row 7")
    assert [places for reason, places in found.items() if "no answer" in reason] == [("votes.csv, row 6",)]
    assert votes.summary.rows == 5
    path = write("when,photo,ann,bob,remark\n1,a.jpg,newt,frog,dark\n")
    votes = read_votes(path, columns={"item": "photo", "annotators": ["ann", "bob"]})
    assert votes.annotators == ("ann", "bob") and votes.summary.notes == ("Columns not read: when, remark",)


ODD_BUT_RIGHT = [  # content, options, answers
    ("item,label,,\na,newt,,\nb,frog,,\n", {}, [("a", None, ("newt",)), ("b", None, ("frog",))]),
    ("item,Art\na,newt\na,frog\n", {"columns": {"label": "Art"}}, [("a", None, ("newt",)), ("a", None, ("frog",))]),
    ("image,wer,Art\na,ann,newt\nb,bob,frog\nc,ann,newt\n", {"columns": {"label": "Art", "annotator": "wer"}},
     [("a", "ann", ("newt",)), ("b", "bob", ("frog",)), ("c", "ann", ("newt",))]),
    ("image,wer,Art\na,ann,newt\n", {"format": "wide"}, [("a", "wer", ("ann",)), ("a", "Art", ("newt",))]),
    ("item,annotator,label,\na,ann,newt,\n,,,\nlabel,item,item,\n", {},
     [("a", "ann", ("newt",)), ("label", "item", ("item",))]),
    ("item,annotator,label\nimage,ann,newt\nb,ann,class\n", {}, [("image", "ann", ("newt",)), ("b", "ann", ("class",))]),
    *(("item,annotator,label\na,ann,newt\n".encode(encoding), {"encoding": encoding}, [("a", "ann", ("newt",))])
      for encoding in ("utf-16-le", "utf-16-be")),
    (",label\na.jpg,newt\n", {"columns": {"item": "Unnamed: 0", "label": "label"}}, [("a.jpg", None, ("newt",))]),
    (COCO.replace('{"id":2,"name":"newt"}', '{"id":2,"name":"newt"},{"id":2,"name":"newt"}'), {},
     [("a01.jpg", None, ("newt", "frog"))]),
    *((LONG.replace("\n", ending), {}, EXPECTED["long"][2]) for ending in ("\r", "\r\n")),
    ("item,annotator,label," + "x" * 200_000 + "\na,ann,newt,\n", {}, [("a", "ann", ("newt",))]),
    ("sep=;\r\nitem;worker;label\r\na,1;ann;newt\r\n", {}, [("a,1", "ann", ("newt",))]),
]  # fmt: skip


@pytest.mark.parametrize(("content", "options", "expected"), ODD_BUT_RIGHT, ids=range(len(ODD_BUT_RIGHT)))
def test_odd_files_that_are_right(content: str | bytes, options: dict[str, Any], expected: list[Row], write: Write) -> None:
    assert answers(read_votes(write(content), **options)) == expected


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-be"])
def test_byte_order_marks(encoding: str, write: Write) -> None:
    def data(text: str) -> bytes:
        return ("\ufeff" + text).encode(encoding) if encoding == "utf-16-be" else text.encode(encoding)

    votes = read_votes(write(data("item,annotator,label\nteich.jpg,Zoë,Kröte\nteich.jpg,bob,蛙\n")))
    assert answers(votes) == [("teich.jpg", "Zoë", ("Kröte",)), ("teich.jpg", "bob", ("蛙",))]
    lines = '{"file_name": "teich.jpg", "votes": {"Zoë": "Kröte"}}\n{"file_name": "bach.jpg", "votes": {"Zoë": "蛙"}}\n'
    for name in ("metadata.jsonl", "answers.jsonl"):
        found = answers(read_votes(write(data(lines), name)))
        assert found == [("teich.jpg", "Zoë", ("Kröte",)), ("bach.jpg", "Zoë", ("蛙",))]


def test_same_different_and_single_answers(write: Write) -> None:
    votes = read_votes(write(LONG + "a01.jpg,ann,newt\na01.jpg,ann,newt\n"))
    assert votes.num_answers == 3
    (skipped,) = votes.summary.skipped
    assert (skipped.reason, skipped.count) == ("the same person's same answer again", 2)
    assert skipped.examples == ("votes.csv, row 5", "votes.csv, row 6")
    again = DCIC.replace('"class_label":null', '"class_label":"newt"').replace("a02.png", "a01.png")
    votes = read_votes(write(again, "dcic.json"))
    assert votes.num_answers == 2 and votes.summary.skipped[0].examples == ("dcic.json, set 1, annotation 2",)
    votes = read_votes(write("item,label\na.jpg,newt\na.jpg,newt\na.jpg,frog\n"))
    assert votes.num_answers == 3
    assert votes.to_candidates().frequency_NC.tolist()[0] == pytest.approx([1 / 3, 2 / 3])  # type: ignore[union-attr]
    votes = read_votes(write(LONG + "a01.jpg,ann,frog\n"))
    assert answers(votes)[0] == ("a01.jpg", "ann", ("newt", "frog"))
    votes = read_votes(
        write('{"item":"a","votes":[{"annotator":"ann","label":"newt"},{"annotator":"ann","label":"frog"}]}', "v.jsonl")
    )
    assert votes.num_answers == 2
    assert "1 item has different answers by one person, all of them kept ('a')" in votes.summary.notes
    votes = read_votes(write("item,annotator,label,gold\na.jpg,ann,newt,newt\n"))
    assert (
        str(votes.summary)
        .splitlines()[0]
        .endswith("(long): 1 answer by 1 annotator on 1 item, 1 class; 1 item with a gold label")
    )
    _, found = votes.match(["b.jpg"])
    assert found.lines() == [
        "no items found by path, 0 by base name",
        "1 item of the votes has no image; its answers are not used ('a.jpg')",
        "1 image has no answer ('b.jpg')",
    ]


@pytest.mark.parametrize("word", ["", " ", "NA", "NaN"])
def test_a_blank_is_no_vote(word: str, write: Write) -> None:
    votes = read_votes(write(f"item,annotator,label\na,ann,newt\na,bob,{word}\nb,ann,{word}\nc,x,frog\n"))
    assert answers(votes) == [("a", "ann", ("newt",)), ("c", "x", ("frog",))] and votes.items == ("a", "b", "c")
    assert votes.summary.skipped[0].count == 2
    assert votes.summary.skipped[0].examples == ("votes.csv, row 3", "votes.csv, row 4")
    assert votes.to_candidates(on_empty="drop").ids == ("a", "c")


def test_classes_that_are_given_encoded_xml_and_no_choices(write: Write) -> None:
    text = "item,annotator,label\na,ann,skip\na,bob,none|na\n"
    assert read_votes(write(text), no_answer=()).class_names == ("na", "none", "skip")
    assert read_votes(write(text), no_answer=(), separator=None).class_names == ("none|na", "skip")
    votes = read_votes(write(LONG), class_names=["newt", "toad", "frog"])
    assert votes.class_names == ("newt", "toad", "frog") and votes.to_candidates().num_classes == 3
    assert "1 class that nobody chose ('toad')" in votes.summary.notes
    path = write(",ann,bob\na,1.0,\nb,0.0,1.0\n")
    assert read_votes(path).class_names == ("0", "1")
    found = answers(read_votes(path, class_names=["frog", "newt"]))
    assert [labels for _, _, labels in found] == [("newt",), ("frog",), ("newt",)]
    assert read_votes(write("item,label\na,10\nb,9\nc,1\n")).class_names == ("1", "9", "10")
    text = '<?xml version="1.0" encoding="iso-8859-1"?>' + CVAT.replace("newt", "Kröte")
    assert read_votes(write(text.encode("latin-1"), "ann.xml")).class_names == ("Kröte",)
    more = LABEL_STUDIO.replace('"result":[{"id":"x1"', '"result":[{"type":"relation","from_id":"x"},{"id":"x1"')
    assert answers(read_votes(write(more, "x.json"))) == answers(read_votes(write(LABEL_STUDIO, "x.json")))


def test_names_that_look_the_same_and_free_text(write: Write) -> None:
    look_same = "Classes that look the same, with other or unseen characters in them"
    notes = {
        "a.jpg,ann,newt\nA.JPG,bob,newt\n": "Items that differ in capitals only: 'a.jpg', 'A.JPG'",
        "a,ann,newt\nb,bob,newt\u200b\n": rf"{look_same}: 'newt', 'newt\u200b'",
        "a,ann,m\u00f6lch\nb,bob,mo\u0308lch\n": f"{look_same}: 'mo\u0308lch', 'm\u00f6lch'",
        "a,ann,ne\0wt\nb,bob,newt\n": r"1 label has a line break or control character inside ('ne\x00wt'); check the quotes in "
        "the file",
        "a,ann,1\na,bob,01\n": "Classes that are the same number, written in different ways: '1', '01'",
        "a,ann,1.0\na,bob,1\nb,bob,x\n": "Classes that are the same number, written in different ways: '1', '1.0'",
        "a,ann,red newt\na,bob,red-newt\n": "Classes that differ in blanks, hyphens or underscores: 'red newt', 'red-newt'",
        "a,ann,newt\na,Ann,newt\n": "Annotators that differ in capitals only: 'ann', 'Ann'",
        "a,ann lee,newt\na,ann  lee,newt\n": "Annotators that differ in blanks, hyphens or underscores: 'ann lee', 'ann  lee'",
        "a,ann,newt\nb,ann,frog\n": "Only one annotator: ann",
        "a,ann,Newt\nb,bob,newt\n": "Classes that differ in capitals only: 'Newt', 'newt'",
        "a,ann,#REF!\na,bob,x\n": "1 label is the error of a spreadsheet ('#REF!'); fix these cells and export the file again",
    }
    for rows, note in notes.items():
        assert note in read_votes(write(f"item,annotator,label\n{rows}")).summary.notes, rows
    rows = "".join(f"p{i},ann,some words {i}\n" for i in range(101))
    note = "101 classes for 101 answers: check which column holds the label"
    assert note in read_votes(write(f"item,annotator,label\n{rows}")).summary.notes
    assert note not in read_votes(write(f"item,annotator,label\n{rows}{rows.replace('ann', 'bob')}")).summary.notes


def test_gold_is_kept_apart_and_paths_may_have_other_letters(write: Write, tmp_path: Path) -> None:
    text = "item,annotator,label,is_gold\na,ann,newt,0\na,eve,frog,1\nb,ann,newt,\nc,eve,frog,yes\nc,zoe,newt,true\n"
    votes = read_votes(write(text))
    assert [votes.class_names[g] if g >= 0 else None for g in votes.gold_I] == ["frog", None, None]
    assert answers(votes) == [("a", "ann", ("newt",)), ("b", "ann", ("newt",))]
    assert votes.summary.skipped[0].reason.startswith("a gold answer with several labels, or against another")
    assert votes.summary.gold == 1
    sets = votes.to_candidates(on_empty="drop", use_gold=True)
    assert sets.allowed_NC.tolist() == [[True, False], [False, True]]
    folder = tmp_path / "Teich Nº 3 – Frühling"
    folder.mkdir()
    path = folder / "Antworten von Zoë.csv"
    path.write_text('item,annotator,label\n"Bilder/a, b.jpg",Zoë,newt\nBilder\\蛙 1.jpg,Zoë,frog\n', encoding="utf-8")
    votes = read_votes(path)
    assert votes.items == ("Bilder/a, b.jpg", "Bilder/蛙 1.jpg") and str(path) in str(votes.summary)


@pytest.mark.parametrize(
    "text",
    ["item,annotator,label,truth\na,ann,newt,frog\na,bob,newt,frog\nb,ann,frog,\n",
     "item,ann,bob,truth\na,newt,newt,frog\nb,frog,,\n", "item,candidates,truth\na,newt,frog\nb,frog,\n"],
)  # fmt: skip
def test_gold_in_a_column_of_its_own(text: str, write: Write) -> None:
    votes = read_votes(write(text))
    assert votes.gold_I.tolist() == [0, -1] and votes.class_names == ("frog", "newt")
    assert all(labels == (("newt",) if item == "a" else ("frog",)) for item, _, labels in answers(votes))
