"""Every format, read from the example that its documentation gives."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from _reader_examples import COCO, CVAT, DCIC, EXPECTED, JSON_MIN, LABEL_STUDIO, PEERANNOT, answers, mat_bytes
from scipy.sparse import csc_matrix

from _refused import refused
from pals.readers import READERS, read_votes
from pals.readers.formats.label_studio import clean_name

Write = Callable[..., Path]


def test_every_format_has_an_example_dcic_and_cvat(write: Write, tmp_path: Path) -> None:
    assert set(EXPECTED) | {"mat"} == set(READERS)
    votes = read_votes(write(DCIC, "annotations.json"))
    assert votes.items == ("Ponds/fold1/a01.png", "Ponds/fold1/a02.png") and votes.class_names == ("frog", "newt")
    (skipped,) = votes.summary.skipped
    assert (skipped.count, skipped.examples) == (1, ("annotations.json, set 1, annotation 2",))
    assert "1 item has no answer ('Ponds/fold1/a02.png')" in votes.summary.notes
    folder = tmp_path / "jobs of Zoë"
    folder.mkdir()
    meta = "<meta><job><labels><label><name>toad</name></label><label><name>newt</name></label></labels></job></meta>"
    (folder / "ann.xml").write_text(CVAT.replace("<version>", meta + "<version>"))
    (folder / "bob.xml").write_text(CVAT.replace('<tag label="newt"', '<tag label="frog"/><tag label="newt"'))
    votes = read_votes(folder)
    assert answers(votes) == [("a01.jpg", "ann", ("newt",)), ("a01.jpg", "bob", ("frog", "newt"))]
    assert votes.class_names == ("toad", "newt", "frog")
    assert votes.summary.notes == ("1 class that nobody chose ('toad')",)


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("by_name", [False, True])
def test_the_examples_of_the_formats(name: str, by_name: bool, write: Write) -> None:
    content, file, expected = EXPECTED[name]
    votes = read_votes(write(content, file), format=name if by_name else None)
    assert answers(votes) == expected
    assert votes.summary.format == (name if by_name or name != "cleanlab" else "wide")
    assert votes.summary.answers == votes.num_answers == len(expected)


def test_label_studio_cancelled_gold_repeated_and_several_questions(write: Write) -> None:
    votes = read_votes(write(LABEL_STUDIO, "a.json"))
    assert [s.reason for s in votes.summary.skipped] == ["cancelled by the annotator"]
    gold = LABEL_STUDIO.replace(
        '"completed_by":3,"was_cancelled":false,"ground_truth":false', '"completed_by":3,"ground_truth":true'
    )
    votes = read_votes(write(gold, "b.json"))
    assert votes.class_names[votes.gold_I[0]] == "newt"
    assert answers(votes) == [("ponds/a01.jpg", "b@example.org", ("newt", "frog"))]
    votes = read_votes(write(LABEL_STUDIO.replace('"id":71', '"id":70'), "c.json"))
    assert votes.summary.skipped[0].reason == "an annotation that was read before (same id)"
    middle = ',"to_name":"img","type":"choices","value":{"choices":'
    two = write(LABEL_STUDIO.replace(f'"species"{middle}["newt"]', f'"sex"{middle}["m"]'), "d.json")
    refused(r"several questions: 'sex', 'species'.*columns=\{'label'", read_votes, two)
    assert answers(read_votes(two, columns={"label": "sex"})) == [("ponds/a01.jpg", "3", ("m",))]


def test_label_studio_old_and_small_exports_and_names_of_images(write: Write) -> None:
    old = LABEL_STUDIO.replace('"annotations":', '"completions":').replace(
        '["newt","frog"]', '[["animal","newt"],["animal","frog"]]'
    )
    assert answers(read_votes(write(old, "a.json")))[1][2] == ("animal/newt", "animal/frog")
    expected = [("a01.jpg", "3", ("newt",)), ("a01.jpg", "5", ("newt", "frog"))]
    assert answers(read_votes(write(JSON_MIN, "min.json"))) == expected
    csv = pd.read_json(io.StringIO(JSON_MIN))
    csv["species"] = ["newt", '{"choices":["newt","frog"]}']
    assert answers(read_votes(write(csv.to_csv(index=False), "min.csv"))) == expected
    for value, name in {
        "/data/upload/3/1a2b3c4d-a01.jpg": "a01.jpg", "/data/upload/1a2b3c4d-my%20pond.jpg": "my pond.jpg",
        "/data/local-files/?d=ponds%2Fa01.jpg": "ponds/a01.jpg", "https://example.org/x/a01.jpg?size=3": "x/a01.jpg",
        "s3://bucket/x/a01.jpg": "x/a01.jpg", "ponds/a#1.jpg": "ponds/a#1.jpg",
        "http://[broken": "http://[broken",
    }.items():  # fmt: skip
        assert clean_name(value) == name
    two = JSON_MIN.replace("1a2b3c4d-a01.jpg", "99999999-a01.jpg", 1)  # two uploads of one name stay two items
    assert len(read_votes(write(two, "min.json")).items) == 2


def test_zooniverse_several_choices_surveys_and_gold(write: Write) -> None:
    rows = [
        ("ann", '[{"task":"T0","value":["Newt","Frog"]},{"task":"T1","value":[{"x":1,"y":2}]}]', "false"),
        ("bob", '[{"task":"T0","value":[{"choice":"NEWT","answers":{}}]}]', ""),
        ("", '[{"task":"T0","value":null}]', ""),
        ("eve", '[{"task":"T0","value":"Frog"}]', "true"),
    ]
    frame = pd.DataFrame(rows, columns=["user_name", "annotations", "gold_standard"])
    frame["subject_data"] = '{"901":{"retired":null,"#file name":"a 01.jpg"}}'
    votes = read_votes(write(frame.to_csv(index=False)))
    assert answers(votes) == [("a 01.jpg", "ann", ("Newt", "Frog")), ("a 01.jpg", "bob", ("NEWT",))]
    assert votes.class_names[votes.gold_I[0]] == "Frog"
    assert votes.summary.skipped[0].examples == ("votes.csv, row 4",)
    refused(r"no answer to task 'T9'. Found: 'T0'", read_votes, write(frame.to_csv(index=False)), columns={"label": "T9"})
    frame["workflow_id"] = "77"
    for blank in ("\n", "  \n", "," * (frame.columns.size - 1) + "\n"):
        with_blank = read_votes(write(frame.to_csv(index=False) + blank))
        assert answers(with_blank) == answers(votes) and with_blank.summary.notes == votes.summary.notes
        assert [skipped.examples for skipped in with_blank.summary.skipped] == [("votes.csv, row 6",), ("votes.csv, row 4",)]
    frame["annotations"] = '[{"task":"T0","value":"a"},{"task":"T1","value":"b"}]'
    refused("several tasks: 'T0', 'T1'", read_votes, write(frame.to_csv(index=False)))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_mat(sparse: bool, transposed: bool, write: Write) -> None:
    partial = np.array([[1, 0, 1, 0], [1, 1, 0, 1], [0, 1, 0, 1]], dtype=float)  # 3 classes, 4 items
    target = np.array([[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1]], dtype=float)
    arrays = [np.ascontiguousarray(a.T) if transposed else a for a in (partial, target)]
    both = [csc_matrix(a) if sparse else a for a in arrays]
    votes = read_votes(write(mat_bytes(data=np.zeros((4, 2)), partial_target=both[0], target=both[1]), "lost.mat"))
    assert answers(votes) == [("0", None, ("0", "1")), ("1", None, ("1", "2")), ("2", None, ("0",)), ("3", None, ("1", "2"))]
    assert votes.gold_I.tolist() == [0, 1, 0, 2]
    sets = votes.to_candidates()
    assert sets.allowed_NC.T.numpy().astype(float).tolist() == partial.tolist()


def test_peerannot_coco_huggingface_and_roles_of_version_0_2(write: Write, tmp_path: Path) -> None:
    write('{"name":"ponds","n_classes":4,"n_workers":41}', "metadata.json")
    votes = read_votes(write(PEERANNOT, "answers.json"))
    assert votes.class_names == ("0", "1", "2", "3")
    matched, report = votes.match(["train/pond-0.png", "train/pond-1.png"])
    assert report.by_name == 2 and matched.num_answers == 3
    sets = read_votes(write(COCO, "coco.json")).to_candidates()
    assert sets.class_names == ("frog", "newt") and sets.frequency_NC is not None
    assert sets.frequency_NC[0].tolist() == pytest.approx([0.4 / 1.3, 0.9 / 1.3])
    (tmp_path / "metadata.csv").write_text("file_name,candidates\na.jpg,newt|frog\n")
    assert answers(read_votes(tmp_path)) == [("a.jpg", None, ("newt", "frog"))]
    (tmp_path / "metadata.jsonl").write_text(
        '{"file_name":"a.jpg","votes":{"ann":"newt"}}\n{"file_name":"b.jpg","candidates":["frog"],"votes":[]}\n'
    )
    assert answers(read_votes(tmp_path)) == [("a.jpg", "ann", ("newt",)), ("b.jpg", None, ("frog",))]
    path = write("photo;who;species\na;ann;newt\n")
    with pytest.warns(DeprecationWarning, match="annotator"):
        votes = read_votes(path, columns={"item": "photo", "worker": "who", "label": "species"})
    assert votes.annotators == ("ann",)


def parquet(frame: pd.DataFrame) -> bytes:
    file = io.BytesIO()
    frame.to_parquet(file)
    return file.getvalue()


def test_parquet(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame(
        {"item": ["a.jpg", "a.jpg", "b.jpg"], "annotator": [1, 2, None], "label": [0.0, np.nan, 2.0], "weight": [1.0, 1.0, 0.5]}
    )
    votes = read_votes(write(parquet(frame), "votes.parquet"))
    assert answers(votes) == [("a.jpg", "1", ("0",)), ("b.jpg", None, ("2",))]
    assert votes.weight_R.tolist() == [1.0, 0.5]
    lists = pd.DataFrame({"file_name": ["a.jpg"], "candidates": [np.array(["newt", "frog"], dtype=object)], "image": [b"..."]})
    votes = read_votes(write(parquet(lists), "metadata.parquet"))
    assert answers(votes) == [("a.jpg", None, ("newt", "frog"))]
    assert votes.summary.notes == ("Columns not read: image",)
    for name in (None, "image"):
        frame = pd.DataFrame({"ann": [1, 0], "bob": [0, None]}, index=pd.Index(["a01.jpg", "a02.jpg"], name=name))
        votes = read_votes(write(parquet(frame), "frame.parquet"), format="cleanlab")
        assert answers(votes) == [("a01.jpg", "ann", ("1",)), ("a01.jpg", "bob", ("0",)), ("a02.jpg", "ann", ("0",))]
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused(r"pip install 'pals-learn\[parquet\]', or export the file as CSV", read_votes, write(b"PAR1...", "votes.parquet"))
