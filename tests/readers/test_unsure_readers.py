"""Marks of unsure answers, and words for "don't know", in every format that can carry them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from _reader_examples import answers
from hypothesis import given
from hypothesis import strategies as st

from _refused import refused
from pals.labels.taxonomy import Taxonomy
from pals.pipeline.tables.result_tables import csv_text
from pals.readers import Votes, read_votes
from pals.readers.unsure_answers import unmarked
from pals.util.errors import InputError

Write = Callable[..., Path]


def said(votes: Votes) -> dict[tuple[str, str | None], str]:
    """What each person said of each item, an unsure label with a mark of its own."""
    found: dict[tuple[str, str | None], str] = {}
    for row in range(len(votes.item_R)):
        annotator = votes.annotators[votes.annotator_R[row]] if votes.annotator_R[row] >= 0 else None
        key = votes.items[votes.item_R[row]], annotator
        text = votes.class_names[votes.label_R[row]] + ("" if votes.sure_R[row] else "~")
        found[key] = f"{found[key]}|{text}" if key in found else text
    for item, person in zip(votes.unknown_item_U.tolist(), votes.unknown_annotator_U.tolist(), strict=True):
        key = votes.items[item], votes.annotators[person] if person >= 0 else None
        assert key not in found
        found[key] = "-"
    return found


EXPECTED = {("a", "ann"): "gull~", ("a", "bob"): "tern", ("b", "ann"): "-", ("b", "bob"): "gull"}


def test_marks_in_the_label_and_signs_that_are_labels(write: Write) -> None:
    for mark in ("gull?", "gull ?", "? gull", "?gull", "gull??", "gull (?)", "gull (unsure)", "gull [Maybe]"):
        votes = read_votes(write(f"item,annotator,label\na,ann,{mark}\na,bob,tern\nb,ann,don't know\nb,bob,gull\n"))
        assert said(votes) == EXPECTED and votes.class_names == ("gull", "tern"), mark
        assert votes.summary.lines()[0].endswith('2 classes; 1 unsure answer; 1 time "don\'t know"')
        assert not votes.summary.skipped
    assert {name for name in ("gull", "gull (adult)", "?", "???", "what? no", "(?)") if unmarked(name)} == set()
    marked = {"gull?": "gull", "Larus sp. ?": "Larus sp.", "gull (?)": "gull", "gull (not sure)": "gull", "1?": "1"}
    assert {name: unmarked(name) for name in marked} == marked
    for label in ("'", "’", "''", "!", ".", "..."):
        votes = read_votes(write(f"item,annotator,label\na,ann,{label}\na,bob,newt\nb,ann,newt\n"))
        assert said(votes) == {("a", "ann"): label, ("a", "bob"): "newt", ("b", "ann"): "newt"}


@pytest.mark.parametrize(
    "column",
    ["sure;no;yes;;", "sure;0;1;1;1", "unsure;x;;;", "Unsure;TRUE;FALSE;;FALSE", "certainty;maybe;sure;;certain",
     "confidence;low;high;;high", "uncertain;yes;no;;no", "sure;probably;sure;;sure"],
)  # fmt: skip
def test_a_column_beside_the_label(column: str, write: Write) -> None:
    header, *cells = column.split(";")
    rows = ["a,ann,gull", "a,bob,tern", "b,ann,?", "b,bob,gull"]
    text = "\n".join(f"{row},{cell}" for row, cell in zip(["item,annotator,label", *rows], [header, *cells], strict=True))
    votes = read_votes(write(text + "\n"))
    assert said(votes) == EXPECTED and not votes.summary.notes


def test_wide_tables_json_lines_and_probabilities(write: Write) -> None:
    path = write("item,annotator,label,confidence\na,ann,gull,0.4\na,bob,tern,1\n")
    votes = read_votes(path)
    assert votes.sure_R.all() and votes.summary.notes == ("Columns not read: confidence",)
    refused(r"votes.csv, row 2: .*'confidence' holds '0.4'", read_votes, path, columns={"sure": "confidence"})
    path = write("item,annotator,label,sure\na,ann,gull,1\na,bob,tern,rather\n")
    refused(r"votes.csv, row 3: the column 'sure' holds 'rather'", read_votes, path)
    path = write('{"item":"a","label":"gull","unsure":true}\n{"item":"b","label":"tern","unsure":7}', "v.jsonl")
    refused(r"v.jsonl, line 2: the column 'unsure' holds 7", read_votes, path)
    votes = read_votes(write("item,ann,bob,confidence\na,gull?,tern,high\nb,?,gull,low\n"))
    assert said(votes) == EXPECTED and votes.summary.notes == ("Columns not read: confidence",)
    lines = [
        {"item": "a", "annotator": "ann", "label": "gull", "unsure": True},
        {"item": "a", "annotator": "bob", "label": "tern"},
        {"item": "b", "annotator": "ann", "label": "I don't know"},
        {"item": "b", "annotator": "bob", "label": "gull", "unsure": False},
    ]
    assert said(read_votes(write("\n".join(map(json.dumps, lines)), "v.jsonl"))) == EXPECTED
    assert said(read_votes(write(json.dumps(lines), "v.json"))) == EXPECTED
    by_item = [
        {"item": "a", "votes": [{"annotator": "ann", "label": "gull", "sure": "maybe"}, {"annotator": "bob", "label": "tern"}]},
        {"item": "b", "votes": {"ann": "?", "bob": "gull"}},
    ]
    assert said(read_votes(write("\n".join(map(json.dumps, by_item)), "v.jsonl"))) == EXPECTED


def label_studio(*choices: tuple[str, list[str]]) -> list[dict[str, object]]:
    return [{"from_name": name, "type": "choices", "value": {"choices": list(chosen)}} for name, chosen in choices]


@pytest.mark.parametrize("mark", [("unsure", ["yes"]), ("are you sure?", ["No"]), ("q2", ["not sure"]), ("species", ["?"])])
def test_label_studio(mark: tuple[str, list[str]], write: Write) -> None:
    first = label_studio(("species", ["gull"]), mark) if mark[0] != "species" else label_studio(("species", ["gull", "?"]))
    results = {"a": {"ann": first, "bob": label_studio(("species", ["tern"]))},
               "b": {"ann": label_studio(("species", ["Don't know"])), "bob": label_studio(("species", ["gull"]))}}  # fmt: skip
    tasks = [
        {"data": {"image": item}, "annotations": [{"completed_by": who, "result": result} for who, result in given.items()]}
        for item, given in results.items()
    ]
    assert said(read_votes(write(json.dumps(tasks), "export.json"))) == EXPECTED


def test_label_studio_in_rows_and_several_questions(write: Write) -> None:
    text = """image,id,species,unsure,annotator,annotation_id,lead_time
a,1,gull,unsure,ann,1,2
a,1,tern,,bob,2,2
b,2,"{""choices"":[""?""]}",,ann,3,2
b,2,gull,,bob,4,2
"""
    assert said(read_votes(write(text))) == EXPECTED
    chosen = read_votes(write(text), columns={"label": "unsure"}, no_answer=())  # the user's word goes first
    assert chosen.class_names == ("unsure",)
    result = label_studio(("species", ["gull"]), ("age", ["adult"]), ("unsure", ["yes"]))
    text = json.dumps([{"data": {"image": "a.jpg"}, "annotations": [{"id": 1, "completed_by": 1, "result": result}]}])
    refused(r"several questions: 'species', 'age'\. Choose one", read_votes, write(text, "export.json"))


def test_zooniverse(write: Write) -> None:
    def cell(*tasks: tuple[str, str, object]) -> str:
        text = json.dumps([{"task": task, "task_label": title, "value": value} for task, title, value in tasks])
        return '"' + text.replace('"', '""') + '"'

    def species(value: object) -> tuple[str, str, object]:
        return "T0", "What is it?", value

    rows = [
        ("ann", cell(species("gull"), ("T1", "Are you sure?", "No")), "a"),
        ("bob", cell(species("tern"), ("T1", "Are you sure?", "Yes")), "a"),
        ("ann", cell(species("Can't tell")), "b"),
        ("bob", cell(species(["gull"])), "b"),
    ]
    lines = [f'{who},{said},"{{""9"":{{""Filename"":""{item}""}}}}"' for who, said, item in rows]
    assert said(read_votes(write("\n".join(["user_name,annotations,subject_data", *lines]) + "\n"))) == EXPECTED


def test_attributes_of_tags(write: Write, tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    tag = '<image name="{}"><tag label="{}">{}</tag></image>'
    mark = '<attribute name="unsure">true</attribute><attribute name="age">?</attribute>'
    ann, bob = (
        tag.format("a", "gull", mark) + tag.format("b", "skip", ""),
        tag.format("a", "tern", "") + tag.format("b", "gull", ""),
    )
    for who, images in (("ann", ann), ("bob", bob)):
        (tmp_path / f"jobs/{who}.xml").write_text(f"<annotations>{images}</annotations>")
    assert said(read_votes(tmp_path / "jobs")) == EXPECTED
    datumaro = {
        "categories": {"label": {"labels": [{"name": "gull"}, {"name": "tern"}]}},
        "items": [{"id": "a", "annotations": [{"type": "label", "label_id": 0, "attributes": {"sure": False}}]}],
    }
    assert said(read_votes(write(json.dumps(datumaro), "ann.json"))) == {("a", "ann"): "gull~"}
    coco = {
        "images": [{"id": 1, "file_name": "a"}],
        "categories": [{"id": 1, "name": "gull"}, {"id": 2, "name": "tern"}],
        "annotations": [
            {"image_id": 1, "category_id": 1, "attributes": {"unsure": True}}, {"image_id": 1, "category_id": 2},
        ],
    }  # fmt: skip
    assert said(read_votes(write(json.dumps(coco), "c.json"))) == {("a", None): "gull~|tern"}


def test_a_question_mark_may_belong_to_a_name_and_what_is_written_is_read(write: Write) -> None:
    never_both = "item,annotator,label\na,ann,what?\nb,bob,gull\n"
    votes = read_votes(write(never_both))
    assert votes.class_names == ("gull", "what?") and votes.sure_R.all()
    assert "taken for a part of the name ('what?'); if it means unsure, name the classes" in votes.summary.notes[-1]
    assert said(read_votes(write(never_both), class_names=["gull", "what"])) == {("a", "ann"): "what~", ("b", "bob"): "gull"}
    declared = read_votes(write("item,annotator,label\na,ann,what?\nb,bob,gull\nb,cho,gull?\n"), class_names=["gull", "what?"])
    assert said(declared) == {("a", "ann"): "what?", ("b", "bob"): "gull", ("b", "cho"): "gull~"}
    votes = read_votes(write("item,annotator,label\na,ann,otter?\nb,bob,gull\nb,cho,gull?\n"))
    assert votes.class_names == ("gull", "otter") and said(votes)["a", "ann"] == "otter~"
    votes = read_votes(write("item,annotator,label\na,ann,what?\nb,bob,gull\n"))
    earlier = write(csv_text(votes.to_frame()), "earlier.csv")
    both = read_votes([earlier, write("item,annotator,label\nb,cho,gull?\n", "more.csv")])
    assert said(both) == {("a", "ann"): "what?", ("b", "bob"): "gull", ("b", "cho"): "gull~"}
    text = """item,annotator,label
a,ann,gull?|tern
a,bob,gull?|tern?
b,,gull
b,,tern?
c,ann,?
c,,?
"""
    votes = read_votes(write(text))
    for separator in ("|", None):
        again = read_votes(write(csv_text(votes.to_frame(separator)), "again.csv"), separator=separator)
        assert said(again) == said(votes) and again.num_answers == votes.num_answers


@pytest.mark.parametrize("word", ["?", "??", "Don't know", "dont know", "Can’t tell.", "not sure", "SKIP", "don't know?"])
def test_not_knowing_is_kept_but_is_no_vote(word: str, write: Write) -> None:
    votes = read_votes(write(f"item,annotator,label\na,ann,newt\na,bob,{word}\nb,ann,{word}\nc,x,frog\n"))
    assert answers(votes) == [("a", "ann", ("newt",)), ("c", "x", ("frog",))] and votes.items == ("a", "b", "c")
    assert said(votes)["a", "bob"] == said(votes)["b", "ann"] == "-"
    assert votes.num_answers == votes.summary.answers == 2
    assert (votes.summary.unknown, votes.summary.skipped) == (2, ())
    assert votes.to_candidates(on_empty="drop").ids == ("a", "c")
    refused(r"1 of 3 items have no candidate label; the first is 'b'", votes.to_candidates)


def test_words_for_dont_know_repeated_and_gold_answers(write: Write) -> None:
    path = write("item,annotator,label\na,ann,skip\na,bob,walk\nb,ann,run\n")
    refused(r"The class 'skip'.*--classes", read_votes, path, class_names=["walk", "run", "skip"])
    with pytest.raises(InputError, match=r"The class 'skip'.*taxonomy"):
        read_votes(path, taxonomy=Taxonomy.from_parents({"slow": None, "walk": "slow", "skip": "slow", "run": None}))
    assert read_votes(path, class_names=["walk", "run", "skip"], no_answer=()).class_names == ("walk", "run", "skip")
    path = write("item,annotator,label\na,ann,gull\na,bob,weiß nicht\nb,ann,skip\n")
    votes = read_votes(path, no_answer=["Weiß nicht"])
    assert said(votes) == {("a", "ann"): "gull", ("a", "bob"): "-", ("b", "ann"): "skip"}
    votes = read_votes(write("item,annotator,label\na,ann,gull|not sure\na,bob,tern\nb,bob,gull\nb,bob,?\n"))
    assert said(votes) == {("a", "ann"): "gull~", ("a", "bob"): "tern", ("b", "bob"): "gull~"}
    assert not votes.summary.skipped
    first = write("item,annotator,label\na,ann,?\na,bob,?\na,,?\na,,?\nb,bob,tern\n", "1.csv")
    later = write("item,annotator,label\na,ann,gull\na,bob,?\n", "2.csv")
    votes = read_votes([first, later])
    assert len(votes.unknown_item_U) == 3 and votes.unknown_annotator_U.tolist().count(-1) == 2
    assert {(s.reason, s.count) for s in votes.summary.skipped} == {
        ('"don\'t know" of a person who does give an answer', 1), ("the same person's same answer again", 1)
    }  # fmt: skip
    first = write("item,annotator,label\na,ann,gull?\nb,ann,gull?\nb,bob,tern\nc,,gull?\n", "1.csv")
    later = write("item,annotator,label\na,ann,gull\nb,ann,tern\nc,,gull\n", "2.csv")
    votes = read_votes([first, later])
    assert votes.sure_R[(votes.item_R == 0)].tolist() == [True] and said(votes)["b", "ann"] == "gull~|tern"
    assert said(votes)["c", None] == "gull~|gull"
    text = "item,annotator,label,is_gold\na,eve,gull?,1\nb,eve,gull,1\nb,ann,tern,0\nc,eve,?,1\nc,ann,tern,0\n"
    votes = read_votes(write(text))
    assert votes.gold_I.tolist() == [-1, 0, -1]
    assert [(s.reason, s.count) for s in votes.summary.skipped] == [
        ("no answer (blank)", 1), ("a gold answer that is marked as unsure", 1)
    ]  # fmt: skip
    assert not len(votes.unknown_item_U)


label_ = st.text(st.sampled_from("ab? ()|"), min_size=1, max_size=4).map(str.strip).filter(bool)


@given(
    rows=st.lists(
        st.tuples(st.sampled_from("xyz"), st.sampled_from(["ann", "bob", None]), st.lists(label_, min_size=1, max_size=2)),
        min_size=1,
    ),
    no_answer=st.sampled_from([(), ("?",)]),
)
def test_any_marks_come_back(
    rows: list[tuple[str, str | None, list[str]]], no_answer: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("marks")
    lines = [json.dumps(dict(zip(("item", "annotator", "label"), row, strict=True))) for row in rows]
    plain = json.dumps({"item": "extra", "annotator": "zoe", "label": "c"})
    (folder / "v.jsonl").write_text("\n".join([*lines, plain]), encoding="utf-8")
    votes = read_votes(folder / "v.jsonl", no_answer=no_answer)
    (folder / "again.csv").write_text(csv_text(votes.to_frame()), encoding="utf-8")
    words = (*no_answer, "don't know") if len(votes.unknown_item_U) else no_answer
    again = read_votes(folder / "again.csv", no_answer=words)

    def in_order(votes: Votes) -> list[tuple[object, ...]]:
        people = [votes.annotators[w] if w >= 0 else "" for w in votes.annotator_R.tolist()]
        names = [votes.class_names[c] for c in votes.label_R.tolist()]
        unknown = zip(votes.unknown_item_U.tolist(), votes.unknown_annotator_U.tolist(), strict=True)
        nobody = [(votes.items[i], votes.annotators[w] if w >= 0 else "", "", False) for i, w in unknown]
        return sorted(
            [*zip([votes.items[i] for i in votes.item_R], people, names, votes.sure_R.tolist(), strict=True), *nobody]
        )

    assert in_order(again) == in_order(votes)


COCO = {
    "images": [{"id": 1, "file_name": "a"}, {"id": 2, "file_name": "b"}],
    "categories": [{"id": 1, "name": "gull"}, {"id": 2, "name": "tern"}, {"id": 3, "name": "Can't tell"}],
    "annotations": [{"image_id": 1, "category_id": 1}, {"image_id": 2, "category_id": 3}],
}
DATUMARO = {
    "categories": {"label": {"labels": [{"name": "gull"}, {"name": "tern"}, {"name": "Can't tell"}]}},
    "items": [{"id": item, "annotations": [{"type": "label", "label_id": label}]} for item, label in (("a", 0), ("b", 2))],
}
LISTED = "".join(f"<label><name>{name}</name></label>" for name in ("gull", "tern", "Can't tell"))
CVAT = f"""<annotations><meta><task><labels>{LISTED}</labels></task></meta>
<image name="a"><tag label="gull"/></image><image name="b"><tag label="Can't tell"/></image></annotations>"""


@pytest.mark.parametrize(
    ("text", "name", "who"),
    [(json.dumps(COCO), "c.json", None), (json.dumps(DATUMARO), "ann.json", "ann"), (CVAT, "ann.xml", "ann")],
    ids=["coco", "datumaro", "cvat"],
)
def test_dont_know_is_no_class_even_if_the_file_lists_it(text: str, name: str, who: str | None, write: Write) -> None:
    votes = read_votes(write(text, name))
    assert votes.class_names == ("gull", "tern") and said(votes) == {("a", who): "gull", ("b", who): "-"}
    assert read_votes(write(text, name), no_answer=()).class_names == ("gull", "tern", "Can't tell")
