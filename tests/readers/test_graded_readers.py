"""Ranked answers, percentages, possible and impossible labels: as columns and as notation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _reader_examples import parquet_bytes

from pals.labels.taxonomy import Taxonomy
from pals.readers import Votes, read_votes
from pals.util.csv_text import csv_text
from pals.util.errors import InputError

Write = Callable[..., Path]
LONG = "item,annotator,label\n"
SHEET = "item,annotator,top,second,third,p,q,possible,never\n"
COLUMNS = {"label": "top", "second": "second,third", "percent": "p,q", "possible": "possible", "impossible": "never"}
PLAIN = "z,zoe,cat\nz,ann,deer\nz,bob,dog\n"
"""The labels on their own."""


def said(votes: Votes, item: str = "a") -> dict[str, str]:
    """What each annotator answered about an item: rank, label, percentage."""
    found: dict[str, str] = {}
    for row in np.flatnonzero(votes.item_R == votes.items.index(item)):
        rank, percent = votes.rank_R[row], votes.percent_R[row]
        text = (f"{rank}." if rank else "") + votes.class_names[votes.label_R[row]]
        text += ("" if np.isnan(percent) else f":{100 * percent:.4g}") + ("" if votes.sure_R[row] else "?")
        who = votes.annotators[votes.annotator_R[row]]
        found[who] = f"{found[who]} {text}" if who in found else text
    return found


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ("deer,,,,,,", "1.deer"),
        ("deer,dog,,,,,", "1.deer 2.dog"),
        ("deer,dog,cat,60,30,,", "1.deer:60 2.dog:30 3.cat"),
        ("deer,,,70,,deer|dog|cat,", "1.deer:70 dog cat"),
        ("deer,dog,,,,dog|cat,", "1.deer 2.dog cat"),
        ("deer,,,,,,dog", "1.deer cat"),
        ("deer,,,,,dog,cat", "1.deer dog"),
        (",,,,,deer|dog,", "deer dog"),
        (",,,,,,dog", "cat deer"),
        ("deer|dog,cat,,80,,,", "1.deer:40 1.dog:40 2.cat"),
        ("deer?,dog,,,,,", "1.deer? 2.dog"),
        ("idk,,,,,deer|dog,", "deer? dog?"),
        ("deer,deer,,50,,,", "1.deer:50"),
        ("deer,deer,dog,,,,", "1.deer 2.dog"),
    ],
)
def test_columns(cells: str, expected: str, write: Write) -> None:
    votes = read_votes(write(f"{SHEET}a,ann,{cells}\nz,bob,cat,,,,,,\nz,cho,dog,deer,,,,,\n"), columns=COLUMNS)
    assert said(votes) == {"ann": expected}
    assert [skipped.reason for skipped in votes.summary.skipped] == ["a second choice that is the first one again"] * (
        "deer,deer" in cells
    )
    again = read_votes(write(csv_text(votes.to_frame()), "again.csv"))
    assert said(again) == said(votes) and said(again, "z") == said(votes, "z")


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("deer>dog", "1.deer 2.dog"),
        ("deer > dog > cat", "1.deer 2.dog 3.cat"),
        ("deer>dog|cat", "1.deer dog cat"),
        ("deer|dog>cat", "1.deer 1.dog 2.cat"),
        ("deer>dog?", "1.deer 2.dog?"),
        ("deer:70|dog:30", "deer:70 dog:30"),
        ("deer:0.7|dog:0.3", "deer:70 dog:30"),
        ("deer: 70%|dog", "deer:70 dog"),
        ("deer 70%>dog", "1.deer:70 2.dog"),
        ("deer:33|dog:33|cat:33", "deer:33 dog:33 cat:33"),
        ("deer|dog", "deer dog"),
    ],
)
@pytest.mark.parametrize("name", ["v.csv", "v.tsv", "v.parquet", "wide.csv"])
def test_notation(label: str, expected: str, name: str, write: Write) -> None:
    content: str | bytes = f"{LONG}a,ann,{label}\n{PLAIN}"
    if name == "v.tsv":
        content = f"{LONG}a,ann,{label}\n{PLAIN}".replace(",", "\t")
    elif name == "v.parquet":
        rows = [line.split(",") for line in [f"a,ann,{label}", *PLAIN.split()]]
        content = parquet_bytes(**dict(zip(("item", "annotator", "label"), zip(*rows, strict=True), strict=True)))
    elif name == "wide.csv":
        content = f"image,ann,bob,cho\na,{label},,\nz,deer,dog,cat\ny,dog,deer,deer\n"
    votes = read_votes(write(content, name))
    assert said(votes) == {"ann": expected} and votes.class_names == ("cat", "deer", "dog")
    assert ("Taken as notation" in str(votes.summary)) == (label != "deer|dog")


def test_records(write: Write) -> None:
    lines = [
        '{"item": "a", "annotator": "ann", "label": "deer", "next": "dog", "p": [70], "can": ["dog", "cat"]}',
        '{"item": "a", "annotator": "bob", "label": ["deer", "dog"], "p": [70, 30]}',
        '{"item": "a", "annotator": "cho", "label": "cat", "not": ["deer"]}',
        '{"item": "a", "annotator": "dan", "not": ["deer", "dog"]}',
        '{"item": "a", "annotator": "eve", "label": "cat>dog"}',
    ]
    columns = {"percent": "p", "second": "next", "possible": "can", "impossible": "not"}
    first = read_votes(write("\n".join(lines[:4]), "v.jsonl"), columns=columns)
    assert said(first) == {"ann": "1.deer:70 2.dog cat", "bob": "1.deer:70 1.dog:30", "cho": "1.cat dog", "dan": "cat"}
    assert said(read_votes(write("\n".join([*lines[2:], *lines[:1]]), "v.jsonl"), class_names=["cat", "deer", "dog"])) == {
        "ann": "deer", "cho": "cat", "eve": "1.cat 2.dog",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "more", "classes"),
    [
        ("a,ann,animal>deer\na,bob,animal>dog\nb,ann,animal\n", {}, ("animal", "animal>deer", "animal>dog")),
        ("a,ann,animal>deer\na,bob,animal>dog\n", {"notation": "ranked"}, ("animal", "deer", "dog")),
        (f"a,ann,deer>dog\n{PLAIN}", {"notation": "plain"}, ("cat", "deer", "deer>dog", "dog")),
        (f"a,ann,deer>dog\n{PLAIN}", {"class_names": ["cat", "deer", "dog", "deer>dog"]}, ("cat", "deer", "dog", "deer>dog")),
        ("a,ann,deer>dog\na,bob,dog>deer\n", {}, ("deer", "dog")),
        ("a,ann,deer>dog\na,bob,cat\n", {"class_names": ["cat", "deer", "dog"]}, ("cat", "deer", "dog")),
        ("a,ann,class:1\na,bob,class:2\n", {}, ("class:1", "class:2")),
        ("a,ann,class:1\na,bob,class:2\n", {"notation": "percent"}, ("class",)),
        ("a,ann,deer:60|dog:40\na,bob,deer:10|dog:90\n", {}, ("deer", "dog")),
        ("a,ann,16:9\na,bob,4:3\na,cho,16\n", {}, ("16", "16:9", "4:3")),
    ],
)
def test_what_is_notation(text: str, more: dict[str, Any], classes: tuple[str, ...], write: Write) -> None:
    votes = read_votes(write(LONG + text), **more)
    assert votes.class_names == classes
    again = read_votes(write(csv_text(votes.to_frame()), "again.csv"))
    assert said(again) == said(votes)


def test_names_with_the_signs_of_notation_are_pointed_out(write: Write) -> None:
    notes = read_votes(write(f"{LONG}a,ann,animal>deer\na,bob,size:2\n")).summary.notes
    assert "'animal>deer'" in notes[0] and "--notation ranked" in notes[0]
    assert "'size:2'" in notes[1] and "--notation percent" in notes[1]
    with pytest.raises(InputError, match=r"'rank'.*'ranked'"):
        read_votes(write(f"{LONG}a,ann,deer\n"), notation="rank")


TREE = Taxonomy.from_parents({"hoofed": None, "deer": "hoofed", "horse": "hoofed", "dog": None})


def test_a_grade_of_a_node_is_that_of_its_leaves(write: Write) -> None:
    votes = read_votes(write(f"{LONG}a,ann,dog>hoofed\na,bob,hoofed:80|dog:20\na,cho,hoofed>deer\n"), taxonomy=TREE)
    assert said(votes) == {"ann": "1.dog 2.deer 2.horse", "bob": "deer:40 horse:40 dog:20", "cho": "1.deer 1.horse"}
    sheet = read_votes(write(f"{SHEET}a,ann,dog,hoofed,,,,,\na,bob,,,,,,,hoofed\n"), columns=COLUMNS, taxonomy=TREE)
    assert said(sheet) == {"ann": "1.dog 2.deer 2.horse", "bob": "dog"}


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ("deer,dog,,70,50,,", ("'deer', 'dog' add up to 120", "add up to 100")),
        ("deer,dog,,60,20,,", ("'deer', 'dog' add up to 80", "leave out")),
        ("deer,dog,,-5,,,", ("'-5'", "from 0 to 100")),
        ("deer,dog,,120,,,", ("'120'", "from 0 to 100")),
        ("deer,dog,,often,,,", ("'often'", "from 0 to 100")),
        ("deer,dog,,0.7,,,", ("'0.7'", "below 1 as 0.5%")),
        ("deer,,cat,,,,", ("'cat' is choice 3, but there is no choice 2", "without a gap")),
        (",dog,,,,,", ("the second choice is 'dog', but there is no first", "Fill in")),
        ("deer,,,,,deer|cat,cat", ("'cat' is both possible and impossible", "Remove it")),
        ("deer,,,,,,deer", ("'deer' is both chosen and impossible", "Remove it")),
        (",,,,,,cat|deer|dog", ("all 3 classes are impossible", "Leave at least one")),
    ],
)
def test_columns_that_contradict_themselves(cells: str, words: tuple[str, ...], write: Write) -> None:
    path = write(f"{SHEET}z,bob,cat,dog,,80,20,,\na,ann,{cells}\n")
    with pytest.raises(InputError) as error:
        read_votes(path, columns=COLUMNS)
    assert all(part in str(error.value) for part in ("row 3", *words))


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("deer:70|dog:50", ("'deer', 'dog' add up to 120",)),
        ("deer:70|dog:20", ("'deer', 'dog' add up to 90",)),
        ("deer:170", ("'deer:170'", "0 to 100")),
        ("deer:-5|dog", ("'deer:-5'", "0 to 100")),
        ("deer>>dog", ("'deer>>dog'", "missing")),
    ],
)
def test_notation_that_contradicts_itself(label: str, words: tuple[str, ...], write: Write) -> None:
    path = write(f"{LONG}{PLAIN}a,ann,{label}\n")
    with pytest.raises(InputError) as error:
        read_votes(path, notation="ranked" if ">" in label else None)
    assert all(part in str(error.value) for part in ("row 5", *words))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"second": "sekond"}, ("no column 'sekond'", "'second'")),
        ({"percent": ["p", "q"]}, ("2 columns of percentages", "--second-column")),
        ({"rank": "second"}, ("row 2", "'dog'", "Write 1 for the first choice")),
    ],
)
def test_columns_that_are_not_what_they_should_be(columns: dict[str, Any], words: tuple[str, ...], write: Write) -> None:
    with pytest.raises(InputError) as error:
        read_votes(write(f"{SHEET}a,ann,deer,dog,,60,,,\n"), columns={"label": "top", **columns})
    assert all(part in str(error.value) for part in words)


def test_impossible_labels_alone(write: Write) -> None:
    votes = read_votes(write("item,annotator,no\na,ann,deer\na,bob,dog|cat\n"), columns={"impossible": "no"})
    assert said(votes) == {"ann": "cat dog", "bob": "deer"}


def test_a_typing_error_in_a_hundred_percentages_is_left_out(write: Write) -> None:
    rows = [f"i{n},ann,{'deer' if n % 2 else 'dog'},,,{'8p' if n == 7 else 80},,," for n in range(200)]
    votes = read_votes(write(SHEET + "\n".join(rows) + "\n"), columns=COLUMNS)
    assert np.isnan(votes.percent_R).sum() == 1
    assert any("row 9" in note and "'8p'" in note for note in votes.summary.notes)


def test_columns_of_choices_are_asked_for_by_name(write: Write) -> None:
    path = write(SHEET + "a,ann,deer,dog,cat,60,20,deer|dog,cat\nb,ann,cat,dog,deer,60,20,cat|dog,deer\n")
    with pytest.raises(InputError, match=r"top, second, third, possible, never\? Add --label-column top, and perhaps "):
        read_votes(path)
    flags = "--second-column second --possible-column possible"
    assert any(note.endswith(flags) for note in read_votes(path, columns={"label": "top"}).summary.notes)


def test_the_same_answer_again_has_the_same_grades(write: Write) -> None:
    rows = "a,ann,deer,dog,,,,,\n" * 2 + "a,ann,dog,deer,,,,,\nb,ann,cat,,,50,,,\nb,ann,cat,,,60,,,\n"
    votes = read_votes(write(SHEET + rows), columns=COLUMNS)
    assert votes.num_answers == 4 and votes.summary.skipped[0].examples[0] == "votes.csv, row 3"


def test_files_of_both_kinds_are_joined(write: Write) -> None:
    sheet, plain = write(f"{SHEET}a,ann,deer,dog,,70,,,\n", "sheet.csv"), write(f"{LONG}a,bob,dog\nb,ann,cat\n", "plain.csv")
    votes = read_votes([sheet, plain], columns=[COLUMNS, {}])
    assert said(votes) == {"ann": "1.deer:70 2.dog", "bob": "dog"}
    again = write(csv_text(votes.to_frame()), "again.csv")
    assert said(read_votes([again, write(f"{LONG}a,cho,dog>cat\n", "new.csv")]))["cho"] == "1.dog 2.cat"
