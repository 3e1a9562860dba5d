"""Files as people send them: each is read rightly, or refused with its place and a way out. Nothing is lost in silence."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from _reader_examples import CVAT, DCIC, LABEL_STUDIO, LONG, answers

from pals.readers import READERS, read_votes
from pals.util.errors import InputError

Write = Callable[..., Path]


def test_columns_in_any_order_and_by_other_names(write: Write) -> None:
    path = write("when\tSpecies seen\tPhoto\tWho\n1\tnewt\ta.jpg\tann\n2\tfrog\ta.jpg\tbob\n", "votes.tsv")
    with pytest.raises(InputError, match=r"cannot tell.*'Species seen'.*Looked for: a table with columns item and label"):
        read_votes(path)
    votes = read_votes(path, columns={"label": "Species seen", "annotator": "Who"})
    assert answers(votes) == [("a.jpg", "ann", ("newt",)), ("a.jpg", "bob", ("frog",))]
    assert votes.summary.notes == ("Columns not read: when",)
    with pytest.raises(InputError, match=r"no column 'species' for 'label'\. Found: 'when', 'Species seen'"):
        read_votes(path, columns={"label": "species"})
    with pytest.raises(InputError, match="Unknown column role 'lable': did you mean 'label'"):
        read_votes(path, format="long", columns={"lable": "Species seen"})
    with pytest.raises(InputError, match=r"no column for 'label' \(looked for label, class.*columns=\{'label'"):
        read_votes(path, format="long")


def test_a_table_without_header(write: Write) -> None:
    with pytest.raises(InputError, match="a table without a header row needs one"):
        read_votes(write("a01.jpg,ann,newt\na02.jpg,bob,frog\n"))


def test_unknown_format(write: Write) -> None:
    with pytest.raises(InputError, match="Unknown format 'labelstudio': did you mean 'label-studio'"):
        read_votes(write(LONG), format="labelstudio")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-be"])
def test_byte_order_marks(encoding: str, write: Write) -> None:
    text = "item,annotator,label\nteich.jpg,Zoë,Kröte\nteich.jpg,bob,蛙\n"
    data = ("\ufeff" + text).encode(encoding) if encoding == "utf-16-be" else text.encode(encoding)
    votes = read_votes(write(data))
    assert answers(votes) == [("teich.jpg", "Zoë", ("Kröte",)), ("teich.jpg", "bob", ("蛙",))]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("name", ["metadata.jsonl", "answers.jsonl"])
def test_byte_order_marks_of_json_lines(name: str, encoding: str, write: Write) -> None:
    lines = '{"file_name": "teich.jpg", "votes": {"Zoë": "Kröte"}}\n{"file_name": "bach.jpg", "votes": {"Zoë": "蛙"}}\n'
    assert answers(read_votes(write(lines.encode(encoding), name))) == [
        ("teich.jpg", "Zoë", ("Kröte",)),
        ("bach.jpg", "Zoë", ("蛙",)),
    ]


def test_mixed_encodings(write: Write) -> None:
    path = write("item,annotator,label\na.jpg,Zoë,newt\n".encode() + "b.jpg,Zoë,frog\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"votes.csv: line 3 is not UTF-8 text \(byte 0xeb\).*encoding='cp1252'"):
        read_votes(path)
    path = write("item,annotator,label\nb.jpg,Zoë,frog\nb.jpg,x,y\n".encode("cp1252"))
    assert read_votes(path, encoding="cp1252").workers == ("Zoë", "x")
    with pytest.raises(InputError, match="Unknown encoding 'klingon'"):
        read_votes(path, encoding="klingon")


def test_duplicate_answers_are_one_vote_and_are_counted(write: Write) -> None:
    votes = read_votes(write(LONG + "a01.jpg,ann,newt\na01.jpg,ann,newt\n"))
    assert votes.num_answers == 3
    (skipped,) = votes.summary.skipped
    assert (skipped.reason, skipped.count) == ("the same person's same answer again", 2)
    assert skipped.examples == ("votes.csv, row 5", "votes.csv, row 6")
    again = DCIC.replace('"class_label":null', '"class_label":"newt"').replace("a02.png", "a01.png")
    votes = read_votes(write(again, "dcic.json"))
    assert votes.num_answers == 2
    assert votes.summary.skipped[0].examples == ("dcic.json, set 1, annotation 2",)


def test_unnamed_people_are_never_the_same(write: Write) -> None:
    votes = read_votes(write("item,label\na.jpg,newt\na.jpg,newt\na.jpg,frog\n"))
    assert votes.num_answers == 3
    assert votes.to_candidates().frequency_NC.tolist()[0] == pytest.approx([1 / 3, 2 / 3])  # type: ignore[union-attr]


def test_different_answers_of_one_person(write: Write) -> None:
    """In rows of a table they are one answer with several labels; elsewhere both stand, and the summary says so."""
    votes = read_votes(write(LONG + "a01.jpg,ann,frog\n"))
    assert answers(votes)[0] == ("a01.jpg", "ann", ("newt", "frog"))
    votes = read_votes(
        write('{"item":"a","votes":[{"annotator":"ann","label":"newt"},{"annotator":"ann","label":"frog"}]}', "v.jsonl")
    )
    assert votes.num_answers == 2
    assert "1 item has different answers by one person, all of them kept ('a')" in votes.summary.notes


def test_two_files_are_read_as_one(write: Write) -> None:
    votes = read_votes([write(LONG, "1.csv"), write(LONG + "a02.jpg,cho,toad\n", "2.csv")])
    assert answers(votes) == [*answers(read_votes(write(LONG))), ("a02.jpg", "cho", ("toad",))]
    assert votes.summary.skipped[0].count == 3
    assert votes.summary.skipped[0].examples[0] == "2.csv, row 2"


@pytest.mark.parametrize("word", ["", " ", "NA", "NaN"])
def test_a_blank_is_no_vote(word: str, write: Write) -> None:
    votes = read_votes(write(f"item,annotator,label\na,ann,newt\na,bob,{word}\nb,ann,{word}\nc,x,frog\n"))
    assert answers(votes) == [("a", "ann", ("newt",)), ("c", "x", ("frog",))]
    assert votes.items == ("a", "b", "c")
    assert votes.summary.skipped[0].count == 2
    assert votes.summary.skipped[0].examples == ("votes.csv, row 3", "votes.csv, row 4")
    assert votes.to_candidates(on_empty="drop").ids == ("a", "c")
    with pytest.raises(InputError, match=r"1 of 3 items have no candidate label; the first is 'b'"):
        votes.to_candidates()


def test_a_word_can_be_taken_as_a_class(write: Write) -> None:
    text = "item,annotator,label\na,ann,skip\na,bob,none|na\n"
    assert read_votes(write(text), no_answer=()).class_names == ("na", "none", "skip")
    assert read_votes(write(text), no_answer=(), separator=None).class_names == ("none|na", "skip")


def test_a_class_nobody_chose(write: Write) -> None:
    votes = read_votes(write(LONG), class_names=["newt", "toad", "frog"])
    assert votes.class_names == ("newt", "toad", "frog")
    assert "1 class that nobody chose ('toad')" in votes.summary.notes
    assert votes.to_candidates().num_classes == 3
    with pytest.raises(InputError, match=r"votes.csv, row 2: Unknown label 'newt': did you mean 'newts'"):
        read_votes(write(LONG), class_names=["newts", "frog"])
    with pytest.raises(InputError, match="same name"):
        read_votes(write(LONG), class_names=["newt", "frog", "newt"])


def test_class_numbers_for_given_names(write: Write) -> None:
    path = write(",ann,bob\na,1.0,\nb,0.0,1.0\n")
    assert read_votes(path).class_names == ("0", "1")
    assert [labels for _, _, labels in answers(read_votes(path, class_names=["frog", "newt"]))] == [
        ("newt",),
        ("frog",),
        ("newt",),
    ]
    with pytest.raises(InputError, match="Unknown label '1'"):
        read_votes(path, class_names=["frog"])
    numbers = read_votes(write("item,label\na,10\nb,9\nc,1\n"))
    assert numbers.class_names == ("1", "9", "10")


def test_cleanlab_frames_hold_numbers(write: Write) -> None:
    with pytest.raises(InputError, match=r"row 3: 'newt' is not a class number.* --format wide"):
        read_votes(write(",ann,bob\na,1,\nb,0,newt\n"), format="cleanlab")


def test_one_annotator_only(write: Write) -> None:
    assert "Only one annotator: ann" in read_votes(write("item,annotator,label\na,ann,newt\nb,ann,frog\n")).summary.notes


@pytest.mark.parametrize("content", ["", " \n\n", "\ufeff", "\x00\x00"])
@pytest.mark.parametrize("name", [None, *READERS])
def test_an_empty_file(content: str, name: str | None, write: Write) -> None:
    with pytest.raises(InputError, match=r"votes.csv: the file is empty. Export the answers again."):
        read_votes(write(content), format=name)


def test_nothing_in_the_file(write: Write, tmp_path: Path) -> None:
    for content, message in (
        ("item,annotator,label\n", "a header but no row"),
        (
            "item,annotator,label\na,ann,\nb,ann,?\n",
            r"nothing .* was found: 1 skipped: no answer .*row 2\); 1 time \"don't know\"",
        ),
        ("[]", "a JSON list without objects"),
        ("{}", "no key for item"),
        ("<annotations></annotations>", "no <image>"),
        ('[{"name":"x","annotations":[]}]', "nothing to learn from"),
    ):
        with pytest.raises(InputError, match=message):
            read_votes(write(content))
    with pytest.raises(InputError, match=r"gone.csv does not exist"):
        read_votes(tmp_path / "gone.csv")
    with pytest.raises(InputError, match=r"is a folder with neither metadata.jsonl"):
        read_votes(tmp_path)
    with pytest.raises(InputError, match="No file"):
        read_votes([])


@pytest.mark.parametrize("text", [DCIC, LABEL_STUDIO])
def test_truncated_json(text: str, write: Write) -> None:
    with pytest.raises(InputError, match=r"x.json, line \d+, column \d+: the JSON ends in the middle. Export or download"):
        read_votes(write(text[: len(text) // 2], "x.json"))
    with pytest.raises(InputError, match=r"x.jsonl, line 2: the JSON ends in the middle"):
        read_votes(write('{"item":"a","label":"newt"}\n{"item":"b","lab', "x.jsonl"))


def test_rows_with_too_many_cells(write: Write) -> None:
    with pytest.raises(InputError, match=r"Expected 3 fields in line 3, saw 4.*Fix that row"):
        read_votes(write("item,annotator,label\na,ann,newt\nb,ann,frog,toad\n"))
    with pytest.raises(InputError, match=r"row 2 has more cells than the 3 names .* or fix the row"):
        read_votes(write("item,annotator,label\na,ann,newt,x\nb,ann,frog,y\n"))
    for above in (0, 3):
        with pytest.raises(InputError, match=f"a quotation mark in row {3 + above} is never closed. Close it or remove it"):
            read_votes(write("\n" * above + 'item,annotator,label\na,ann,newt\na,bob,"newt\nb,bob,frog\n'))


def test_two_columns_of_one_name(write: Write) -> None:
    for text in ("item,label,label\na,ann,newt\nb,ann,frog\n", "image,ann,bob, ann\na,newt,newt,frog\nb,frog,newt,frog\n"):
        with pytest.raises(InputError, match=r"two columns are named '(label|ann)'\. Give every column a name of its own"):
            read_votes(write(text))
    assert read_votes(write("item,label,,\na,newt,,\nb,frog,,\n")).num_answers == 2


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_page_that_asks_to_sign_in(encoding: str, write: Write) -> None:
    for text in ("<!DOCTYPE html>\n<html><body>Sign in</body></html>", "<html><head></head></html>"):
        with pytest.raises(InputError, match=r"votes.csv: this is a web page\. Download or export the answers again"):
            read_votes(write(text.encode(encoding)))


def test_utf_16_without_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "votes.csv"
    for encoding in ("utf-16-le", "utf-16-be"):
        path.write_bytes("item,annotator,label\na,ann,newt\na,bob,kröte\n".encode(encoding))
        with pytest.raises(InputError, match=r"this looks like UTF-16 without a mark\. Save it as UTF-8, or say --encoding"):
            read_votes(path)
        assert read_votes(path, encoding=encoding).num_answers == 2


def test_names_that_look_the_same(write: Write) -> None:
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
        "a,ann,#REF!\na,bob,x\n": "1 label is the error of a spreadsheet ('#REF!'); fix these cells and export the file again",
    }
    for rows, note in notes.items():
        assert note in read_votes(write(f"item,annotator,label\n{rows}")).summary.notes, rows


def test_a_column_of_free_text_is_pointed_out(write: Write) -> None:
    rows = "".join(f"p{i},ann,some words {i}\n" for i in range(101))
    note = "101 classes for 101 answers: check which column holds the label"
    assert note in read_votes(write(f"item,annotator,label\n{rows}")).summary.notes
    assert note not in read_votes(write(f"item,annotator,label\n{rows}{rows.replace('ann', 'bob')}")).summary.notes


def test_rows_with_too_few_cells_and_blank_rows(write: Write) -> None:
    votes = read_votes(write("\n\nitem,annotator,label\na,ann,newt\n\nb,ann\n,ann,frog\nc,bob,frog\n"))
    assert answers(votes) == [("a", "ann", ("newt",)), ("c", "bob", ("frog",))]
    found = {skipped.reason: skipped.examples for skipped in votes.summary.skipped}
    assert found["no item is named"] == ("votes.csv, row 5", "votes.csv, row 7")
    assert [places for reason, places in found.items() if "no answer" in reason] == [("votes.csv, row 6",)]
    assert votes.summary.rows == 5


@pytest.mark.parametrize("weight", ["-1", "inf", "nan", "much", ""])
def test_bad_weights(weight: str, write: Write) -> None:
    with pytest.raises(InputError, match=r"votes.csv, row 3: the weight is '.*write 1 for one vote"):
        read_votes(write(f"item,annotator,label,weight\na,ann,newt,2\na,bob,frog,{weight}\n"))
    with pytest.raises(InputError, match=r"line 1: the weight is"):
        read_votes(write(f'{{"item":"a","label":"x","weight":"{weight}"}}', "x.jsonl"))


def test_gold_is_kept_apart(write: Write) -> None:
    text = "item,annotator,label,is_gold\na,ann,newt,0\na,eve,frog,1\nb,ann,newt,\nc,eve,frog,yes\nc,zoe,newt,true\n"
    votes = read_votes(write(text))
    assert [votes.class_names[g] if g >= 0 else None for g in votes.gold_I] == ["frog", None, None]
    assert answers(votes) == [("a", "ann", ("newt",)), ("b", "ann", ("newt",))]
    assert votes.summary.skipped[0].reason.startswith("a gold answer with several labels, or against another")
    assert votes.summary.gold == 1
    sets = votes.to_candidates(on_empty="drop", use_gold=True)
    assert sets.allowed_NC.tolist() == [[True, False], [False, True]]
    with pytest.raises(InputError, match=r"row 2 has 'perhaps' in the column 'is_gold'. Write true or false"):
        read_votes(write("item,label,is_gold\na,newt,perhaps\n"))


@pytest.mark.parametrize(
    "text",
    ["item,annotator,label,truth\na,ann,newt,frog\na,bob,newt,frog\nb,ann,frog,\n",
     "item,ann,bob,truth\na,newt,newt,frog\nb,frog,,\n", "item,candidates,truth\na,newt,frog\nb,frog,\n"],
)  # fmt: skip
def test_gold_in_a_column_of_its_own(text: str, write: Write) -> None:
    votes = read_votes(write(text))
    assert votes.gold_I.tolist() == [0, -1]
    assert votes.class_names == ("frog", "newt")
    assert all(labels == (("newt",) if item == "a" else ("frog",)) for item, _, labels in answers(votes))


def test_wide_table_with_an_item_twice(write: Write) -> None:
    with pytest.raises(InputError, match=r"row 4 names 'a' again in the column 'item'.*format='long'"):
        read_votes(write("item,Art\na,newt\nb,frog\na,frog\n"))
    votes = read_votes(write("item,Art\na,newt\nb,frog\na,frog\n"), columns={"label": "Art"})
    assert votes.num_answers == 3


def test_wide_table_with_an_item_twice_below_one_without(write: Write) -> None:
    file = io.BytesIO()
    pd.DataFrame({"item": [None, "a", "b", "c", "b"], "ann": ["newt"] * 5}).to_parquet(file)
    with pytest.raises(InputError, match="row 5 names 'b' again in the column 'item'"):
        read_votes(write(file.getvalue(), "votes.parquet"), format="wide")
    with pytest.raises(InputError, match="row 6 names 'b' again in the column 'item'"):
        read_votes(write("item,ann\n,newt\na,newt\nb,newt\nc,newt\nb,newt\n"), format="wide")


def test_wide_table_with_chosen_annotators(write: Write) -> None:
    path = write("when,photo,ann,bob,remark\n1,a.jpg,newt,frog,dark\n")
    votes = read_votes(path, columns={"item": "photo", "annotators": ["ann", "bob"]})
    assert votes.workers == ("ann", "bob")
    assert votes.summary.notes == ("Columns not read: when, remark",)
    with pytest.raises(InputError, match="no column 'cho'"):
        read_votes(path, columns={"item": "photo", "annotators": ["ann", "cho"]})


def test_paths_with_spaces_and_other_letters(tmp_path: Path) -> None:
    folder = tmp_path / "Teich Nº 3 – Frühling"
    folder.mkdir()
    path = folder / "Antworten von Zoë.csv"
    path.write_text('item,annotator,label\n"Bilder/a, b.jpg",Zoë,newt\nBilder\\蛙 1.jpg,Zoë,frog\n', encoding="utf-8")
    votes = read_votes(path)
    assert votes.items == ("Bilder/a, b.jpg", "Bilder/蛙 1.jpg")
    assert str(path) in str(votes.summary)


def test_classes_that_differ_in_capitals(write: Write) -> None:
    assert (
        "Classes that differ in capitals only: 'Newt', 'newt'"
        in read_votes(write("item,label\na,Newt\nb,newt\n")).summary.notes
    )


def test_line_endings_of_old_macs_and_windows(write: Write) -> None:
    expected = answers(read_votes(write(LONG)))
    for ending in ("\r", "\r\n"):
        assert answers(read_votes(write(LONG.replace("\n", ending)))) == expected


def test_a_column_without_name(write: Write) -> None:
    path = write(",label\na.jpg,newt\nb.jpg,frog\n")
    for name in (None, "long"):
        with pytest.raises(InputError, match="no column '' for 'item'"):
            read_votes(path, format=name, columns={"item": "", "label": "label"})
    assert read_votes(path, columns={"item": "Unnamed: 0", "label": "label"}).items == ("a.jpg", "b.jpg")


def test_xml_says_how_it_is_encoded(write: Write) -> None:
    text = '<?xml version="1.0" encoding="iso-8859-1"?>' + CVAT.replace("newt", "Kröte")
    assert read_votes(write(text.encode("latin-1"), "ann.xml")).class_names == ("Kröte",)


def test_label_studio_results_that_are_no_choices(write: Write) -> None:
    more = LABEL_STUDIO.replace('"result":[{"id":"x1"', '"result":[{"type":"relation","from_id":"x"},{"id":"x1"')
    assert answers(read_votes(write(more, "x.json"))) == answers(read_votes(write(LABEL_STUDIO, "x.json")))


# ---- files that mean harm


def test_pickles_are_not_loaded(write: Write, tmp_path: Path) -> None:
    import pickle

    class Harm:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (tmp_path / "harmed",))  # type: ignore[return-value]

    for name in ("plcifar10.pkl", "votes.csv"):
        with pytest.raises(InputError, match="a pickle, which could run any program and is never loaded"):
            read_votes(write(pickle.dumps(Harm()), name))
    assert not (tmp_path / "harmed").exists()


@pytest.mark.parametrize(
    "doctype",
    ['<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>', '<!DOCTYPE x SYSTEM "http://example.org/x.dtd">',
     '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'],
)  # fmt: skip
def test_xml_with_entities_is_refused(doctype: str, write: Write) -> None:
    with pytest.raises(InputError, match=r"line 1: the file declares a document type or entities.*It was not read"):
        read_votes(write(doctype + CVAT, "x.xml"))


def test_deep_and_odd_json(write: Write) -> None:
    for content, message in (
        ("[" * 100_000, "nested too deeply|ends in the middle"),
        ('[{"image": "a.jpg", "label": ' + "9" * 5000 + "}]", "Exceeds the limit"),
        ('{"item":"a","label":"\\ud800"}', "half a character, not text"),
        ('{"item":"a","label":{"x":1}}', "has an object where a name belongs"),
        ('{"item":"a","votes":3}', "the votes are a number"),
        ('{"item":"a","label":"x"}\n[1]', "line 2 holds a list, not an object"),
        ('{"item":"a","label":"x","is_gold":"so so"}', "is_gold is 'so so'"),
    ):
        with pytest.raises(InputError, match=message):
            read_votes(write(content, "x.json"))


@pytest.mark.parametrize(("data", "what"), [(b"PK\x03\x04xx", "ZIP or Excel"), (b"\x1f\x8bxx", "gzip"), (b"%PDF-1", "PDF")])
def test_other_kinds_of_files(data: bytes, what: str, write: Write) -> None:
    with pytest.raises(InputError, match=f"this is an? .*{what}|this is a {what}"):
        read_votes(write(data))


def test_labels_that_are_no_labels(write: Write) -> None:
    rows = "".join(f"{i},{i}x\n" for i in range(50_000))
    votes = read_votes(write("item,label\n" + rows))
    with pytest.raises(InputError, match="50,000 items with 50,000 different labels are too many"):
        votes.to_candidates()


def test_a_file_that_may_not_be_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    path = write(LONG)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(InputError, match=r"votes\.csv: it cannot be read \(Permission denied\)\. Make the file readable"):
        read_votes(path)


def test_one_of_everything_is_singular(write: Write) -> None:
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


def test_remedies_name_the_flags_of_the_command_line(write: Write) -> None:
    for text, name, options, flag in (
        ("foo,bar,baz\n1,2,3\n", "t.csv", {}, "--format long"),
        ("image,who\na.jpg,ann\n", "u.csv", {"format": "long"}, "--label-column NAME"),
        ("image,ann\na.jpg,newt\na.jpg,frog\n", "w.csv", {}, "--format long"),
        ('{"x": 1, "label": "newt"}\n', "v.jsonl", {}, "--item-column NAME"),
        (LONG, "x.csv", {"class_names": ["toad"]}, "--classes"),
    ):
        with pytest.raises(InputError, match=flag):
            read_votes(write(text, name), **options)


def test_an_encoding_for_each_file(write: Write) -> None:
    files = [write("item,annotator,label\na,ann,größer\n", "u.csv"), write("", "w.csv")]
    files[1].write_bytes("item,annotator,label\nb,ann,größer\n".encode("cp1252"))
    assert read_votes(files, encoding=[None, "cp1252"]).class_names == ("größer",)
    with pytest.raises(InputError, match=r"one encoding for each of the 2 files .* found 1"):
        read_votes(files, encoding=["cp1252"])
