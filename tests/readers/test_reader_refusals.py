"""Files that are refused: the message names the file, the place in it, the value and the remedy."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _reader_examples import COCO, CVAT, DCIC, JSON_MIN, LABEL_STUDIO, LONG, mat_bytes, parquet_bytes

from _refused import refused
from pals.readers import READERS, read_votes

Write = Callable[..., Path]
HEADER = "item,annotator,label\n"
HEADERLESS = "when\tSpecies seen\tPhoto\tWho\n1\tnewt\ta.jpg\tann\n2\tfrog\ta.jpg\tbob\n"
TWICE_WIDE = "item,Art\na,newt\nb,frog\na,frog\n"
DOCTYPES = (
    '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>',
    '<!DOCTYPE x SYSTEM "http://example.org/x.dtd">',
    '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>',
)


Case = tuple[str | bytes, str, dict[str, Any], tuple[str, ...]]
REFUSED: dict[str, list[Case]] = {  # content, name of the file, options, what the message holds
    "columns": [
        (HEADERLESS, "v.tsv", {}, ("the answer: Species seen?", "--label-column 'Species seen'")),
        ("image,who,top,second,percent\na,ann,newt,frog,90\n", "v.csv", {}, ("the answer: top, second?", "--label-column top")),

        ("foto,who,label\na,ann,newt\n", "v.csv", {}, ("the image's name: foto?", "--item-column foto")),
        ("foto,who,top\na,ann,newt\n", "v.csv", {}, ("'foto'", "item and label")),
        (HEADERLESS, "v.tsv", {"columns": {"label": "species"}}, ("no column 'species'", "'label'", "'when'")),
        (HEADERLESS, "v.tsv", {"format": "long", "columns": {"lable": "Who"}}, ("'lable'", "did you mean 'label'")),
        (HEADERLESS, "v.tsv", {"format": "long"}, ("no column for 'label'", "--label-column", "columns={'label'")),
        ("a01.jpg,ann,newt\na02.jpg,bob,frog\n", "v.csv", {}, ("header row",)),
        (",label\na.jpg,newt\nb.jpg,frog\n", "v.csv", {"columns": {"item": "", "label": "label"}}, ("no column ''",)),
        ("item,label,label\na,ann,newt\n", "v.csv", {}, ("'label'", "Give every column a name of its own")),
        ("image,ann,bob, ann\na,newt,newt,frog\n", "v.csv", {}, ("two columns", "'ann'")),
        ("image,wer,Art\na,ann,newt\nb,bob,frog\nc,ann,newt\n", "v.csv", {}, ("'wer'", "--format wide", "--label-column")),
        ("when,photo,ann\n1,a,newt\n", "v.csv", {"columns": {"item": "photo", "annotators": ["ann", "cho"]}}, ("'cho'",)),
        ("foo,bar,baz\n1,2,3\n", "v.csv", {}, ("--format long",)),
        ('{"x": 1, "label": "newt"}\n', "v.jsonl", {}, ("no key for item", "--item-column NAME")),
        (LONG, "v.csv", {"format": "labelstudio"}, ("'labelstudio'", "did you mean 'label-studio'")),
    ],
    "classes": [
        (LONG, "v.csv", {"class_names": ["newts", "frog"]}, ("row 2", "'newt'", "did you mean 'newts'", "--classes")),
        (LONG, "v.csv", {"class_names": ["newt", "frog", "newt"]}, ("same name",)),
        (LONG, "v.csv", {"class_names": ["newt", " ", "frog"]}, ("--classes", "empty name")),
        (",ann,bob\na,1.0,\nb,0.0,1.0\n", "v.csv", {"class_names": ["frog"]}, ("'1'",)),
        (",ann,bob\na,1,\nb,0,newt\n", "v.csv", {"format": "cleanlab"}, ("row 3", "'newt'", "--format wide")),
        ("item,label\na,red|black\nb,newt\n", "v.csv", {"class_names": ["newt", "red"]}, ("row 2",)),
    ],
    "rows": [
        (LONG + LONG, "v.csv", {}, ("row 5", "names of columns", "Delete that row")),
        (LONG + "Task,Worker,Label\nx,ann,newt\n", "v.csv", {}, ("row 5",)),
        ("image,ann,bob\na,newt,newt\nimage,cho,dan\nb,newt,frog\n", "v.csv", {}, ("row 3",)),
        (",ann,bob\na,1,1\n,ann,bob\nb,1,0\n", "v.csv", {}, ("row 3",)),
        ("item,annotator,label,\na,ann,newt,\nlabel,item,,annotator\nnewt,b,,ann\n", "v.csv", {}, ("row 3",)),
        (HEADER + "a,ann,newt\nb,ann,frog,toad\n", "v.csv", {}, ("line 3", "Fix that row")),
        (HEADER + "a,ann,newt,x\nb,ann,frog,y\n", "v.csv", {}, ("row 2", "the 3 names", "fix the row")),
        (HEADER + 'a,ann,newt\na,bob,"newt\nb,bob,frog\n', "v.csv", {}, ("row 3", "quotation mark", "Close it")),
        ("\n\n\n" + HEADER + 'a,ann,newt\na,bob,"newt\nb,bob,frog\n', "v.csv", {}, ("row 6", "quotation mark")),
        (TWICE_WIDE, "v.csv", {}, ("row 4", "'a'", "'item'", "format='long'")),
        (parquet_bytes(item=[None, "a", "b", "c", "b"], ann=["newt"] * 5), "v.parquet", {"format": "wide"}, ("row 5", "'b'")),
        ("item,ann\n,newt\na,newt\nb,newt\nc,newt\nb,newt\n", "v.csv", {"format": "wide"}, ("row 6", "'b'")),
        ("item,label,is_gold\na,newt,perhaps\n", "v.csv", {}, ("row 2", "'perhaps'", "'is_gold'")),
        ('{"item":"a","label":"x","is_gold":"so so"}', "v.jsonl", {}, ("line 1", "'so so'")),
        *((HEADER.replace("\n", f",weight\na,ann,newt,2\na,bob,frog,{weight}\n"), "v.csv", {}, ("row 3", repr(weight)))
          for weight in ("-1", "inf", "nan", "much", "", "1e308")),
        *((f'{{"item":"a","label":"x","weight":"{weight}"}}', "v.jsonl", {}, ("line 1", "weight", "1e+12"))
          for weight in ("-1", "much")),
    ],
    "nothing": [
        (HEADER, "v.csv", {}, ("no row",)),
        (HEADER + "a,ann,\nb,ann,?\n", "v.csv", {}, ("row 2", '1 time "don\'t know"')),
        ("[]", "v.json", {}, ("a JSON list without objects",)),
        ("{}", "v.json", {}, ("no key for item",)),
        ("<annotations></annotations>", "v.xml", {}, ("no <image>",)),
        ('[{"name":"x","annotations":[]}]', "v.json", {}, ("nothing to learn from",)),
    ],
    "JSON": [
        (DCIC[: len(DCIC) // 2], "v.json", {}, ("line ", "column ", "ends in the middle")),
        (LABEL_STUDIO[: len(LABEL_STUDIO) // 2], "v.json", {}, ("line ", "column ", "ends in the middle")),
        ('{"item":"a","label":"newt"}\n{"item":"b","lab', "v.jsonl", {}, ("line 2", "ends in the middle")),
        ('{"item":"a","label":"x"}\n[1]', "v.jsonl", {}, ("line 2", "a list")),
        ("[" * 100_000, "v.json", {}, ("JSON",)),
        ('[{"image": "a.jpg", "label": ' + "9" * 5000 + "}]", "v.json", {}, ("Exceeds the limit",)),
        ('{"item":"a","label":"\\ud800"}', "v.json", {}, ("half a character",)),
        ('{"item":"a","label":{"x":1}}', "v.json", {}, ("an object where a name belongs",)),
        ('{"item":"a","votes":3}', "v.json", {}, ("a number",)),
        ('{"item":"a","votes":[{"annotator":"ann","klasse":"newt"}]}', "v.jsonl", {}, ("line 1", "'klasse'")),
        ('{"item":"a","label":"x"}\n{"item":"b","label":"x","label":"y"}\n', "v.jsonl", {}, ("line 2", "'label'", "'b'")),
        ('{"0":{"12":1},"0":{"40":0}}', "answers.json", {}, ("'0'", "twice")),
        (COCO.replace('{"id":1,"file_name":"a01.jpg"}', '{"id":1,"file_name":"a01.jpg"},{"id":1,"file_name":"b.jpg"}'),
         "c.json", {}, ("entry 2 of `images`", "'1'", "'a01.jpg'", "'b.jpg'")),
        (COCO.replace('{"id":2,"name":"newt"}', '{"id":1,"name":"newt"}'), "c.json", {}, ("entry 2 of `categories`", "'1'")),
        (COCO.replace('"image_id":1', '"image_id":9', 1), "c.json", {}, ("annotation 1", "image_id '9'", "`images`")),
        (COCO.replace('"category_id":2', '"category_id":7', 1), "c.json", {}, ("annotation 1", "'7'", "`categories`")),
        (COCO.replace('"category_id":2,', "", 1), "c.json", {}, ("annotation 1", "category_id None")),
        (COCO.replace('"score":0.9', '"score":-1', 1), "c.json", {}, ("annotation 1", "score -1")),
    ],
    "XML": [
        (CVAT.replace("</annotations>", '<track><image name="b"/></track></annotations>'), "v.xml", {},
         ("<track>",)),
        *((doctype + CVAT, "v.xml", {}, ("line 1", "document type or entities")) for doctype in DOCTYPES),
    ],
    "MATLAB": [
        (mat_bytes(x=np.ones((2, 2))), "v.mat", {}, ("`partial_target`", "'x'")),
        (mat_bytes(partial_target=np.full((2, 2), 3)), "v.mat", {}, ("0 and 1",)),
        (mat_bytes(partial_target=np.ones((2, 3)), data=np.ones((9, 2))), "v.mat", {}, ("9 items",)),
        (mat_bytes(partial_target=np.ones((2, 3)), target=np.ones((2, 4))), "v.mat", {}, ("(4, 2)", "(3, 2)")),
        (b"\x89HDF\r\n\x1a\n....", "v.mat", {}, ("7.3", "-v7")),
    ],
    "other files": [
        (b"PK\x03\x04xx", "v.csv", {}, ("ZIP or Excel",)),
        (b"\x1f\x8bxx", "v.csv", {}, ("gzip",)),
        (b"%PDF-1", "v.csv", {}, ("PDF",)),
        *((text.encode(encoding), "v.csv", {}, ("a web page", "sign in")) for encoding in ("utf-8", "utf-8-sig", "utf-16")
          for text in ("<!DOCTYPE html>\n<html><body>Sign in</body></html>", "<html><head></head></html>")),
    ],
    "encodings": [
        (HEADER.encode() + "a,Zoë,newt\n".encode() + "b,Zoë,frog\n".encode("latin-1"), "v.csv", {},
         ("line 3", "UTF-8", "0xeb", "encoding='cp1252'")),
        (LONG, "v.csv", {"encoding": "klingon"}, ("'klingon'",)),
        *(((HEADER + "a,ann,newt\n").encode(encoding), "v.csv", {}, ("UTF-16", "--encoding")) for encoding in
          ("utf-16-le", "utf-16-be")),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{kind} {n}") for kind, cases in REFUSED.items() for n, case in enumerate(cases)]
)
def test_the_message_names_file_place_and_value(case: Case, write: Write) -> None:
    content, name, options, words = case
    said = refused(".", read_votes, write(content, name), **options)
    message = said
    names_file = "class_names" not in options and not message.startswith("Unknown")
    assert [word for word in (*words, *([name] if names_file else [])) if word not in message] == []
    assert message.endswith((".", "?", ")")) and "\n" not in message and len(message) < 900


@pytest.mark.parametrize("content", ["", " \n\n", "\ufeff", "\x00\x00"])
@pytest.mark.parametrize("name", [None, *READERS])
def test_an_empty_file(content: str, name: str | None, write: Write) -> None:
    refused(r"votes.csv: the file is empty", read_votes, write(content), format=name)


def test_absent_pickled_and_closed_files_and_several_questions(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    for files, word in ((tmp_path / "gone.csv", "gone.csv does not exist"), (tmp_path, "metadata.jsonl"), ([], "No file")):
        refused(word, read_votes, files)

    class Harm:
        def __reduce__(self) -> tuple[object, tuple[Path]]:
            return (Path.touch, (tmp_path / "harmed",))  # type: ignore[return-value]

    for name in ("plcifar10.pkl", "votes.csv"):
        refused(r"a pickle.* never loaded", read_votes, write(pickle.dumps(Harm()), name))
    assert not (tmp_path / "harmed").exists()
    votes = read_votes(write("item,label\n" + "".join(f"{i},{i}x\n" for i in range(50_000))))
    refused("50,000 different labels", votes.to_candidates)
    two = JSON_MIN.replace('"species":"newt"', '"species":"newt","sex":"m"')
    path = write(two, "min.json")
    refused(r"'species', 'sex'.*columns=\{'label'", read_votes, path)
    assert read_votes(path, columns={"label": "sex"}).class_names == ("m",)

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    path = write(LONG)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    refused(r"votes\.csv: .*Permission denied", read_votes, path)


def test_one_option_for_each_file(write: Write) -> None:
    files = [write(HEADER + "a,ann,größer\n", "u.csv"), write((HEADER + "b,ann,größer\n").encode("cp1252"), "w.csv")]
    assert read_votes(files, encoding=[None, "cp1252"]).class_names == ("größer",)
    refused(r"2 files .* found 1", read_votes, files, encoding=["cp1252"])
    second = write("photo,who,species\na.jpg,bob,frog\n", "second.csv")
    known = {"item": "photo", "annotator": "who", "label": "species"}
    assert read_votes([files[0], second], columns=[{}, known]).annotators == ("ann", "bob")
    refused(r"2 files .* 1 mappings", read_votes, [files[0], second], columns=[known])
