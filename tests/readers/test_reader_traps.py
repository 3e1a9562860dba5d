"""Files that would be read wrongly without anybody noticing: each is read rightly, or refused."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from _reader_examples import COCO, LONG, answers
from hypothesis import given
from hypothesis import strategies as st

from _refused import refused
from pals.labels.cells import join_labels, split_labels
from pals.pipeline.tables.result_tables import csv_text
from pals.readers import Votes, read_votes

Write = Callable[..., Path]


def test_what_makes_a_long_table_a_class_and_who_is_counted(write: Write) -> None:
    for header in ("picture,who,species", "photo,volunteer,taxon", "file,observer,diagnosis", "Image,Identified by,Species"):
        votes = read_votes(write(f"{header}\na.jpg,ann,newt\nb.jpg,bob,frog\n"))
        assert votes.summary.format == "long"
        assert answers(votes) == [("a.jpg", "ann", ("newt",)), ("b.jpg", "bob", ("frog",))]
    for text in (
        "image,ann,bob\na,newt,frog\nb,frog,newt\n", "image,ann,bob\na,newt,newt|frog\n",
        "image,ann\na,newt\nb,frog\n", "image,ann,bob,cho\na,newt,newt,\nb,frog,newt,toad\n",
        "image,ann,bob\na,Newt,newt\n\n",
    ):  # fmt: skip
        assert read_votes(write(text)).summary.format == "wide"
    assert read_votes(write("item,label\na,newt\n,toad\nb,frog\n")).class_names == ("frog", "newt")
    assert read_votes(write("item,label\na,newt\n,toad\n"), class_names=["newt", "frog"]).class_names == ("newt", "frog")
    votes = read_votes(write("image,ann,bob,cho,dan\na,,newt,,?\nb,,frog,NA,newt\n"))
    assert votes.annotators == ("bob", "dan")
    assert [votes.annotators[w] for w in votes.annotator_R] == ["bob", "bob", "dan"]
    assert [votes.annotators[w] for w in votes.unknown_annotator_U] == ["dan"] and votes.summary.annotators == 2
    assert "2 annotators without any answer, not counted ('ann', 'cho')" in votes.summary.notes
    asked = read_votes(write("item,annotator,label\na,ann,newt\nb,eve,\nb,bob,frog\n"))
    assert asked.annotators == ("ann", "bob")
    assert "1 annotator without any answer, not counted ('eve')" in asked.summary.notes
    votes = read_votes(write("item,annotator,label,is_gold\na,eve,newt,true\na,ann,frog,false\nb,ann,frog,false\n"))
    assert votes.annotators == ("eve", "ann")


def test_line_breaks_weights_known_classes_and_backslashes(write: Write) -> None:
    votes = read_votes(write('item,annotator,label\na,ann,"newt\nb,ann,frog"\nc,bob,newt\n'))
    note = "1 label has a line break or control character inside ('newt\\nb,ann,frog'); check the quotes in the file"
    assert note in votes.summary.notes
    votes = read_votes(write("item,annotator,label\na,ann,newt\na,bob,frog\nb,bob,frog\n"))
    sets = replace(votes, weight_R=np.array([1e308, 1e-20, 1.0])).to_candidates()
    assert sets.allowed_NC.tolist() == [[True, True], [True, False]] and sets.frequency_NC is not None
    assert sets.frequency_NC.tolist() == [[0, 1], [1, 0]]
    path = write("item,label\na,red|black\nb,newt\n")
    assert read_votes(path, class_names=["newt", "red|black"]).label_R.tolist() == [1, 0]
    assert read_votes(path, class_names=["black", "newt", "red", "red|black"]).label_R.tolist() == [2, 0, 1]
    refused("row 2: Unknown label", read_votes, path, class_names=["newt", "red"])
    assert split_labels("C:\\dir\\\\x|b", "|") == ["C:\\dir\\\\x", "b"]
    assert split_labels("a\\|b|c", "|") == ["a|b", "c"]


def again(votes: Votes, write: Write, separator: str | None = "|") -> Votes:
    return read_votes(write(csv_text(votes.to_frame(separator)), "again.csv"), separator=separator, no_answer=())


def same(a: Votes, b: Votes) -> None:
    assert a.class_names == b.class_names
    key = sorted((item, worker or "", sorted(labels)) for item, worker, labels in answers(a))
    assert key == sorted((item, worker or "", sorted(labels)) for item, worker, labels in answers(b))
    first, second = (votes.to_candidates(on_empty="drop") for votes in (a, b))
    assert first.frequency_NC is not None and second.frequency_NC is not None
    by_item = dict(zip(second.ids, second.frequency_NC.tolist(), strict=True))
    assert {item: pytest.approx(by_item[item]) for item in first.ids} == dict(
        zip(first.ids, first.frequency_NC.tolist(), strict=True)
    )


def test_separators_in_labels_and_several_answers_of_one_annotator(write: Write) -> None:
    rows = [("1", "a", "red|black"), ("1", "b", "blue"), ("2", "a", ["blue", "red|black"]), ("3", None, ["back\\", "a\\|b"])]
    lines = "\n".join(json.dumps(dict(zip(("item", "annotator", "label"), row, strict=True))) for row in rows)
    votes = read_votes(write(lines, "v.jsonl"))
    assert set(votes.class_names) == {"red|black", "blue", "back\\", "a\\|b"}
    same(again(votes, write), votes)
    assert "red\\|black" in csv_text(votes.to_frame())
    text = """{"item":"a","votes":[{"annotator":"ann","label":"newt"},{"annotator":"ann","label":"frog"}]}
    {"item":"b","candidates":["newt","frog","toad"]}\n{"item":"b","label":"frog"}"""
    votes = read_votes(write(text, "v.jsonl"))
    assert votes.num_answers == 4
    for separator in ("|", None):
        same(again(votes, write, separator), votes)
    coco = read_votes(write(COCO, "c.json"))  # weights that differ within one answer
    same(again(coco, write), coco)
    plain = read_votes(write(LONG))
    assert "answer_id" not in plain.to_frame()
    text = "item,annotator,label,answer_id\na,ann,newt,1\na,ann,frog,2\na,bob,newt,1\nb,ann,frog,1\nb,ann,newt,\nb,ann,toad,\n"
    votes = read_votes(write(text))
    assert sorted(answers(votes)) == [
        ("a", "ann", ("frog",)), ("a", "ann", ("newt",)), ("a", "bob", ("newt",)),
        ("b", "ann", ("frog",)), ("b", "ann", ("newt", "toad")),
    ]  # fmt: skip


name_ = st.text(st.sampled_from("ab|\\=+-@'\t ,;\"é"), min_size=1, max_size=4).map(str.strip).filter(bool)


@given(labels=st.lists(name_, min_size=1, max_size=4), separator=st.sampled_from(["|", ";", "a"]))
def test_labels_in_one_cell(labels: list[str], separator: str) -> None:
    assert split_labels(join_labels(labels, separator), separator) == labels


@given(
    rows=st.lists(st.tuples(name_, st.none() | name_, st.lists(name_, min_size=1, max_size=3, unique=True)), min_size=1),
    separator=st.sampled_from(["|", "a|", None]),
)
def test_any_votes_come_back(
    rows: list[tuple[str, str | None, list[str]]], separator: str | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("votes")

    def write(text: str, name: str) -> Path:
        (folder / name).write_text(text, encoding="utf-8", newline="")
        return folder / name

    lines = [json.dumps(dict(zip(("item", "annotator", "label"), row, strict=True))) for row in rows]
    more = json.dumps({"item": "extra", "votes": [{"annotator": "x", "label": "b1"}, {"annotator": "x", "label": "b2"}]})
    votes = read_votes(write("\n".join([*lines, more]), "v.jsonl"), no_answer=())
    same(again(votes, write, separator), votes)


def test_rows_mean_the_same_in_csv_and_json_and_no_cell_is_a_formula(write: Write) -> None:
    rows = [("1", "ann", "newt"), ("1", "ann", "frog"), ("1", "bob", "newt"), ("2", "ann", "frog")]
    frame = pd.DataFrame(rows, columns=["item", "annotator", "label"])
    lines = frame.to_json(orient="records", lines=True)
    found = [read_votes(write(frame.to_csv(index=False))), read_votes(write(lines, "v.jsonl"))]
    found.append(read_votes(write(frame.to_json(orient="records"), "v.json")))
    heavy = "\n".join(json.dumps({**json.loads(line), "weight": 1}) for line in lines.splitlines())
    found.append(read_votes(write(heavy, "w.jsonl")))  # by another path through the code
    for votes in found:
        assert votes.num_answers == 3
        frequency_NC = votes.to_candidates().frequency_NC
        assert frequency_NC is not None and frequency_NC.tolist() == [[0.25, 0.75], [1, 0]]
    labels = ["=1+1", "+x", "-x", "@x", "'=y", "-3", "plain"]
    lines = "\n".join(json.dumps({"item": f"={n}.jpg", "annotator": f"@{n}", "label": label}) for n, label in enumerate(labels))
    votes = read_votes(write(lines, "v.jsonl"))
    text = csv_text(votes.to_frame())
    cells = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    assert not [c for c in cells.to_numpy().ravel() if c[0:1] in tuple("=+-@\t\r") and c != "-3"]
    same(again(votes, write), votes)
    assert set(again(votes, write).items) == set(votes.items)
    rows = [{"item": f"a\ri{n}", "annotator": f"a\rb{n % 2}", "label": f"c\rt{n % 2}"} for n in range(4)]
    votes = read_votes(write("".join(json.dumps(row) + "\n" for row in rows), "votes.jsonl"))
    assert answers(read_votes(write(csv_text(votes.to_frame())))) == answers(votes)


word = st.sampled_from(["a", "b", " a", "c"])


@given(rows=st.lists(st.tuples(word, st.sampled_from(["", "ann", "bob"]), word), min_size=1, max_size=8))
def test_any_rows_mean_the_same(rows: list[tuple[str, str, str]], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("rows")
    frame = pd.DataFrame(rows, columns=["item", "annotator", "label"]).assign(weight="1")
    frame.to_csv(folder / "v.csv", index=False)
    frame.to_json(folder / "v.jsonl", orient="records", lines=True)
    table, lines = read_votes(folder / "v.csv"), read_votes(folder / "v.jsonl")
    assert answers(table) == answers(lines)
    assert [(s.reason, s.count) for s in table.summary.skipped] == [(s.reason, s.count) for s in lines.summary.skipped]


SEVERAL_IN_JSON = """{"item": "a", "annotator": "ann", "label": "newt|frog"}
{"item": "a", "annotator": "bob", "label": "newt"}
{"item": "b", "annotator": "bob", "label": "frog"}
"""
SEVERAL_IN_CSV = "item,annotator,label\na,ann,newt; frog\na,bob,newt\nb,bob,frog\n"


def test_labels_that_look_like_several_or_no_answer(tmp_path: Path, write: Write) -> None:
    for name, text in (("votes.jsonl", SEVERAL_IN_JSON), ("votes.csv", SEVERAL_IN_CSV)):
        (tmp_path / name).write_text(text)
        (note,) = (note for note in read_votes(tmp_path / name).summary.notes if "several" in note)
        assert note.startswith("1 label looks like several labels ('newt") and "put | between" in note
    (tmp_path / "votes.csv").write_text("item,annotator,label\na,ann,black/white\nb,ann,black\n")
    assert not [note for note in read_votes(tmp_path / "votes.csv").summary.notes if "several" in note]
    path = write("item,annotator,label\na,ann,None\na,bob,cat\nb,ann,None|cat\nb,bob,NA\n")
    votes = read_votes(path)
    assert votes.class_names == ("cat",)
    assert [skipped.reason for skipped in votes.summary.skipped] == ["no answer (blank or 'None')"]
    assert "'None': read as no answer; if it is a class, name all classes with --classes" in votes.summary.notes
    votes = read_votes(path, class_names=["cat", "None"])
    assert answers(votes) == [("a", "ann", ("None",)), ("a", "bob", ("cat",)), ("b", "ann", ("None", "cat"))]
    again = read_votes(write(csv_text(votes.to_frame()), "again.csv"))  # as `pals update` reads it
    assert again.class_names == ("None", "cat") and answers(again) == answers(votes)


def test_columns_and_entries_by_their_usual_words_and_numbers_of_rows(write: Write) -> None:
    rows = "".join(f"{number},p{number // 2},w{number % 2},newt\n" for number in range(4))
    for header in ("id,photo_id,who,label", "Id,subject,who,label", "id,photo_name,who,label"):
        assert read_votes(write(f"{header}\n{rows}")).items == ("p0", "p1")
    assert read_votes(write("id,who,label\n1,ann,newt\n2,ann,frog\n")).items == ("1", "2")
    rows = "".join(f"p{n},w{n % 2},newt\n" for n in range(11))
    note = "No item has two answers, so no two annotators can be compared: check which column names the item"
    assert note in read_votes(write(f"item,annotator,label\n{rows}")).summary.notes
    assert note not in read_votes(write(f"item,annotator,label\n{rows}p1,w0,newt\n")).summary.notes
    votes = read_votes(write("image,ann,bob,majority\na,newt,newt,newt\nb,frog,newt,frog\n"))
    assert votes.annotators == ("ann", "bob") and "Columns not read: majority" in votes.summary.notes
    votes = read_votes(write("sep=;\r\nitem;worker;label\r\na,1;ann;newt\r\na,1;bob;\r\n"))
    assert answers(votes) == [("a,1", "ann", ("newt",))]
    assert votes.summary.skipped[0].examples == ("votes.csv, row 4",)
    row = {"item": "a", "votes": [{"Annotator ID": "ann", "Class": "newt"}, {"person": "bob", "answer": ["newt", "frog"]}]}
    assert answers(read_votes(write(json.dumps(row), "v.jsonl"))) == [("a", "ann", ("newt",)), ("a", "bob", ("newt", "frog"))]
    row = {"item": "a", "votes": [{"annotator": "ann", "klasse": "newt"}]}
    refused(r"line 1: a vote has no label; found: 'annotator', 'klasse'\. Write", read_votes, write(json.dumps(row), "v.jsonl"))


def test_numbers_with_and_without_a_point(write: Write) -> None:
    """As pandas writes whole numbers in columns with and without gaps."""
    votes = read_votes(write("image,ann,bob\na,1,1.0\nb,0,\nc,1,0.0\n"))
    assert votes.summary.format == "wide" and votes.class_names == ("0", "1")
    table = "item,annotator,label\na,ann,1.0\na,bob,1\nb,ann,2.0\n"
    assert answers(read_votes(write(table))) == [("a", "ann", ("1",)), ("a", "bob", ("1",)), ("b", "ann", ("2",))]
    votes = read_votes(write(table), class_names=["1", "1.0", "2"])
    assert answers(votes) == [("a", "ann", ("1.0",)), ("a", "bob", ("1",)), ("b", "ann", ("2",))]
    again = read_votes(write(csv_text(votes.to_frame()), "again.csv"))
    assert answers(again) == answers(votes)
    labels = [{"name": "1"}, {"name": "1.0"}]
    items = [{"id": item, "annotations": [{"type": "label", "label_id": label}]} for item, label in (("a", 1), ("b", 0))]
    content = {"categories": {"label": {"labels": labels}}, "items": items}
    votes = read_votes(write(json.dumps(content), "ann.json"))
    assert votes.class_names == ("1", "1.0") and answers(votes) == [("a", "ann", ("1.0",)), ("b", "ann", ("1",))]
