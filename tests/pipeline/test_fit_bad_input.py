"""Everything that may be wrong with people's files, once through `pals fit`: a sentence that names file, place and remedy and
exit code 2, or a result with a warning; never a traceback, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from _kills import files_no_larger_than
from _pictures import CLASSES, make_pictures
from _slow import rest_slow
from _toy import Answer
from pals.util.files import read_json

Pals = Callable[..., Answer]
Change = Callable[[Path], tuple[str, ...]]  # spoils the data; gives further arguments
COLUMNS = ("--item-column", "picture", "--annotator-column", "who", "--label-column", "class")
QUICK = ("--epochs", "1", "--network", "small-cnn", "--folds", "0", "--set", "method.neighbors=5", "--device", "cpu")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Thirty pictures of three classes with three answers each."""
    monkeypatch.setenv("PALS_CACHE", str(tmp_path / "cache"))
    return make_pictures(tmp_path / "data", items=30)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fit(pals: Pals, data: Path, *more: str | Path) -> Answer:
    """The command; whatever comes of it, what the user gave stays as it is."""
    before = contents(data)
    answer = pals("fit", data / "images", data / "votes.csv", "--out", "run", *COLUMNS, *QUICK, *more)
    assert contents(data) == before and "Traceback" not in answer.out + answer.err
    return answer


def append(data: Path, text: str | bytes) -> tuple[str, ...]:
    with (data / "votes.csv").open("ab") as file:
        file.write(text.encode() if isinstance(text, str) else text)
    return ()


def replace_votes(data: Path, content: bytes) -> tuple[str, ...]:
    (data / "votes.csv").write_bytes(content)
    return ()


def picture(data: Path, name: str, content: bytes = b"") -> tuple[str, ...]:
    (data / "images" / name).parent.mkdir(parents=True, exist_ok=True)
    (data / "images" / name).write_bytes(content)
    return ()


def no_known_columns(data: Path) -> tuple[str, ...]:
    text = (data / "votes.csv").read_bytes()
    return replace_votes(data, text.replace(b"picture,who,class", b"colour,number,remark"))


def all_paths_lead_out(data: Path) -> tuple[str, ...]:
    lines = (data / "votes.csv").read_text().splitlines()
    return replace_votes(data, "\n".join([lines[0], *(f"../../{line}" for line in lines[1:])]).encode())


REFUSED: dict[str, tuple[Change, tuple[str, ...]]] = {
    "unknown columns": (no_known_columns, ("votes.csv", "'picture'", "colour")),
    "mixed encodings": (lambda data: append(data, b"000.png,Zo\xeb,dark\n"), ("votes.csv", "line 92", "UTF-8", "cp1252")),
    "an empty file": (lambda data: replace_votes(data, b""), ("votes.csv", "empty")),
    "a header and nothing else": (lambda data: replace_votes(data, b"picture,who,class\n"), ("votes.csv",)),
    "a truncated JSON": (
        lambda data: replace_votes(data, b'[{"picture": "001.png", "who": "ann", "class": "dark"}, {"picture": "00'),
        ("votes.csv", "JSON"),
    ),
    "a 0-byte picture": (lambda data: picture(data, "empty.png"), ("'empty.png'", "empty", "--skip-bad")),
    "no path within the folder": (all_paths_lead_out, ("votes.csv", "images", "--item-column")),
    "a name without an end": (
        lambda data: replace_votes(data, b"picture,who,class\n%s,ann,dark\n" % (b"x" * 9999)),
        ("votes.csv", "'xxx", "xxx...xxx"),
    ),
    "one fold": (lambda _: ("--folds", "1"), ("--folds 1", "give 2 to 30", "0 for no cross-fitting")),
    "more folds than items": (lambda _: ("--folds", "31"), ("--folds 31", "give 2 to 30", "0 for no cross-fitting")),
    "one class only": (lambda data: replace_votes(data, b"picture,who,class\n001.png,ann,dark\n"), ("class",)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_one_sentence_and_nothing_written(case: str, pals: Pals, data: Path) -> None:
    spoil, words = REFUSED[case]
    answer = fit(pals, data, *spoil(data))
    assert answer.code == 2, answer
    (line,) = answer.err.splitlines()
    assert line.startswith("Error: ") and line.endswith((".", "?")) and len(line) < 500
    for word in words:
        assert word in line, line
    assert not Path("run").exists()


def with_bom(data: Path) -> tuple[str, ...]:
    return replace_votes(data, b"\xef\xbb\xbf" + (data / "votes.csv").read_bytes())


def odd_names(data: Path) -> tuple[str, ...]:
    shutil.copy(data / "images" / "001.png", data / "images" / "ein Bild, grün – №1.png")
    append(data, '"ein Bild, grün – №1.png",Zoë Müller,dark\n')
    return ()


def one_annotator(data: Path) -> tuple[str, ...]:
    text = (data / "votes.csv").read_text()
    return replace_votes(data, text.replace("bob", "ann").replace("cho", "ann").encode())


def hundred_megapixels(data: Path) -> tuple[str, ...]:
    Image.new("1", (10_000, 10_000)).save(data / "images" / "vast.png")
    return append(data, "vast.png,ann,dark\n")


def unanswered(data: Path) -> tuple[str, ...]:
    shutil.copy(data / "images" / "001.png", data / "images" / "new.png")
    return ()


def bad_picture(data: Path) -> tuple[str, ...]:
    picture(data, "empty.png")
    picture(data, "torn.png", (data / "images" / "001.png").read_bytes()[:60])
    append(data, "empty.png,ann,dark\n")
    return ("--skip-bad",)


SCRIPT = "<script>alert(1)</script>"


def label_of_another_kind(data: Path) -> tuple[str, ...]:
    return replace_votes(data, (data / "votes.csv").read_text().replace("dark", SCRIPT).encode())


# What is done, what is said aloud, and how many items and answers there are in the end.
DONE: dict[str, tuple[Change, tuple[str, ...], int, int]] = {
    "a byte order mark": (with_bom, (), 30, 90),
    "duplicate answers": (
        lambda data: append(data, b"".join((data / "votes.csv").read_bytes().splitlines(keepends=True)[1:3])),
        ("2 skipped: the same person's same answer again", "row 92"), 30, 90,
    ),
    "an answer for a missing picture": (
        lambda data: append(data, "nowhere.png,ann,dark\n"), ("1 item of the votes has no image", "'nowhere.png'"),
        30, 90,
    ),
    "a path that leaves the folder": (
        lambda data: append(data, "../../etc/passwd,ann,dark\n/etc/passwd,ann,dark\n"),
        ("leads out of the image folder", "'../../etc/passwd'"), 30, 90,
    ),
    "a picture without answers": (unanswered, ("no answer",), 31, 90),
    "a class nobody chose": (lambda _: ("--classes", ",".join((*CLASSES, "spotted"))), ("4 classes",), 30, 90),
    "one annotator only": (one_annotator, ("1 annotator",), 30, 0),
    "a picture of 100 megapixels": (hundred_megapixels, (), 31, 91),
    "bad pictures left out": (bad_picture, ("Left out: empty.png: ", "Left out: torn.png: "), 30, 90),
    "spaces and other alphabets": (odd_names, (), 31, 91),
    "a label that is a script": (label_of_another_kind, (), 30, 90),
}  # fmt: skip


@pytest.mark.parametrize("case", rest_slow(3, DONE))
def test_a_result_and_a_warning(case: str, pals: Pals, data: Path) -> None:
    spoil, words, items, answers = DONE[case]
    answer = fit(pals, data, *spoil(data))
    assert answer.code == 0, answer.err
    assert answer.err == ""
    report = read_json(Path("run/report.json"))
    for word in words:
        assert word in answer.out, answer.out
        assert word in "\n".join([*report["summary"], *report["warnings"]])  # and the page says so too
    labels = pd.read_csv("run/labels.csv", keep_default_na=False)
    assert len(labels) == items
    assert (labels["votes"].sum() == answers) or not answers
    assert (labels["label"] != "").all()
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert "alert(1)</script>" not in page
    assert (SCRIPT in set(labels["label"])) == (case == "a label that is a script")


def test_a_truth_that_is_not_whole_grades_what_it_knows(pals: Pals, data: Path) -> None:
    """The same shares as with the whole truth, counted by hand over the items that are known."""
    lines = (data / "truth.csv").read_text().splitlines(keepends=True)
    (data / "truth.csv").write_text("".join([lines[0], *lines[11:]]))  # not the first items: rows must not be mixed up
    answer = fit(pals, data, "--truth", data / "truth.csv")
    assert answer.code == 0, answer.err
    assert "of the labels of 20 items with a known label are right (majority " in answer.out
    grades = read_json(Path("run/summary.json"))["grades"]
    known = pd.read_csv(data / "truth.csv").set_index("image")["label"]
    labels = pd.read_csv("run/labels.csv").set_index("item")["label"]
    assert grades["labels"] == (labels[known.index] == known).mean()
    doubtful = pd.read_csv("run/doubtful.csv")
    doubtful = doubtful[doubtful["item"].isin(known.index)]
    assert grades["first_100_doubtful"] == pytest.approx((doubtful["answer"] != doubtful["item"].map(known)).mean())
    assert grades["doubtful"] == len(doubtful) and (grades["items"], grades["doubtful"]) == (20, len(doubtful))


def test_a_truth_of_other_items_and_too_little_to_learn_from(pals: Pals, data: Path) -> None:
    two = ("truth.csv has two true labels for '001.png', 'bright' and 'dark'",)
    for rows, words in {
        "elsewhere.png,dark\n": ("truth.csv has no label for any item with answers", "'001.png'"),
        "001.png,dark\n001.png,bright\n": two,
        "001.png,dark|bright\n": two,
        "001.png,spotted\n": ("row 2: Unknown label 'spotted'", "--classes"),
    }.items():
        (data / "truth.csv").write_text("image,label\n" + rows)
        answer = fit(pals, data, "--truth", data / "truth.csv")
        assert answer.code == 2 and all(word in answer.err for word in words)
        assert not Path("run").exists()
    for rows, words in {
        "001.png,ann,dark\n002.png,bob,dark\n": ("all answers are 'dark'", "--classes"),
        "001.png,ann,dark\n001.png,bob,None\n": ("all answers are 'dark' (1 skipped: no answer", "--classes"),
        "001.png,ann,dark\n001.png,bob,bright\n": ("only '001.png' has an answer", "at least two items"),
        "001.png,ann,dark,0\n002.png,bob,bright,0\n": ("every answer has the weight 0",),
    }.items():
        weight = ",weight" if rows.endswith(",0\n") else ""
        (data / "votes.csv").write_text(f"image,annotator,label{weight}\n{rows}")
        answer = pals("fit", data / "images", data / "votes.csv", "--out", "run", *QUICK, code=2)
        assert all(word in answer.err for word in words) and not Path("run").exists()


def test_a_folder_whose_settings_are_not_those_of_a_fit(pals: Pals, data: Path) -> None:
    Path("run").mkdir()
    for config, words in {
        "": ("config.yaml does not belong to a run of `pals fit`", "another --out", "from a copy"),
        "data:\n  name: digits\n": ("config.yaml does not belong to a run of `pals fit`",),
        "bogus: 3\n": ("config.yaml", "Unknown section 'bogus'"),
        "data: [1\n": ("config.yaml, line 2", "from a copy"),
    }.items():
        Path("run/config.yaml").write_text(config)
        answer = fit(pals, data)
        assert answer.code == 2 and all(word in answer.err for word in words)
        assert [path.name for path in Path("run").iterdir()] == ["config.yaml"]


def test_the_tables_keep_what_nobody_chose_and_who_is_alone(pals: Pals, data: Path) -> None:
    one_annotator(data)
    assert fit(pals, data, "--classes", ",".join((*CLASSES, "spotted"))).code == 0
    classes = pd.read_csv("run/classes.csv").set_index("class")
    assert list(classes.index) == [*CLASSES, "spotted"]
    assert classes.loc["spotted", ["items", "answers"]].tolist() == [0, 0]
    assert pd.read_csv("run/annotators.csv")["annotator"].tolist() == ["ann"]


@contextmanager
def nobody() -> Iterator[None]:
    """Without the rights of root, for whom nothing is forbidden."""
    before = os.geteuid()
    os.seteuid(before or 65534)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="needs the users of Unix")
@pytest.mark.parametrize("closed", ["images", "images/sub", "votes.csv"])
def test_no_permission_to_read(closed: str, pals: Pals, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o777)
        monkeypatch.chdir(place)
        monkeypatch.setenv("PALS_CACHE", str(place / "cache"))
        shutil.copytree(data, place / "data")
        (place / "data" / closed).chmod(0)
        with nobody():
            answer = pals("fit", "data/images", "data/votes.csv", "--out", "run", *COLUMNS, *QUICK)
        (place / "data" / closed).chmod(0o755)
        assert answer.code == 2, answer
        (line,) = answer.err.splitlines()
        assert closed in line and "ermission" in line and not Path("run").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="needs the limits of Unix")
@pytest.mark.parametrize(("size", "what"), rest_slow(1, [(20_000, "cache"), (120_000, "run/")]), ids=["pictures", "results"])
def test_a_full_disk_and_going_on_when_there_is_room(size: int, what: str, pals: Pals, data: Path) -> None:
    """Decoded pictures take 92 kB, the checkpoint more than 120. With room the same command goes on from where it was."""
    with files_no_larger_than(size):
        answer = fit(pals, data)
    assert answer.code == 2, answer
    (line,) = answer.err.splitlines()
    assert what in line and "room" in line and fit(pals, data).code == 0
    assert len(pd.read_csv("run/labels.csv")) == 30


def test_nothing_but_gold(pals: Pals, data: Path) -> None:
    """Right labels and no opinions: there is nobody to weigh, and still something to learn."""
    truth = pd.read_csv(data / "truth.csv")
    truth.assign(is_gold=True).to_csv(data / "votes.csv", index=False)
    pals("fit", data / "images", data / "votes.csv", "--out", "run", *QUICK, code=0)
    labels = pd.read_csv("run/labels.csv").set_index("item")
    assert (labels["status"] == "gold").all()
    assert (labels.loc[truth["image"], "label"].to_numpy() == truth["label"].to_numpy()).all()
    assert pd.read_csv("run/doubtful.csv").empty


def test_a_folder_that_is_no_finished_run(pals: Pals, tmp_path: Path) -> None:
    Path("half").mkdir()
    Path("votes.csv").touch()
    for command in ("report half", "update half votes.csv", "relabel half --out q.csv", "predict half images --out p.csv"):
        answer = pals(*command.split(), code=2)
        assert "half" in answer.err and "`pals fit" in answer.err and "finish" in answer.err


def test_pictures_where_answers_belong_and_names_without_vectors(pals: Pals, data: Path) -> None:
    images, votes, vectors = data / "images", data / "votes.csv", data / "x.npy"
    np.save(vectors, np.zeros((30, 2)))
    answer = pals("fit", votes, images, "--out", "run", *COLUMNS)
    assert answer.code == 2 and f"{votes} is a file, and {images} a folder without answers: swap them" in answer.err
    for instead in (("--features", vectors), ("--no-images",)):
        answer = pals("fit", images, votes, *instead, "--out", "run", *COLUMNS)
        assert answer.code == 2 and f"{images} is a folder without answers. With {instead[0]}" in answer.err
    assert not Path("run").exists()
    (data / "names.txt").write_text("000.png\n")
    answer = fit(pals, data, "--names", data / "names.txt")
    assert answer.code == 2 and f"{data / 'names.txt'}" in answer.err and "--features" in answer.err
    answer = pals("fit", data / "votes.csv", "--no-images", "--names", data / "names.txt", "--out", "run", *COLUMNS)
    assert answer.code == 2 and "leave out names" in answer.err
