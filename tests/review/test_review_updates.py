"""`pals update` takes in what was answered in `pals review`, whatever else it is given."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from _review import Client
from _toy import Answer

pytest.importorskip("starlette")

from pals.readers import Votes, read_votes
from pals.review.session import ReviewSession
from pals.review.store import AnswerStore, NewAnswer

Pals = Callable[..., Answer]


@pytest.fixture
def more(run: Path) -> Path:
    """A second file of answers, whose columns have other names."""
    path = run.parent / "more.csv"
    path.write_text("photo,who,says\n005.png,zoe,digit 1\n006.png,zoe,digit 2\n")
    return path


COLUMNS = ("--item-column", "photo", "--annotator-column", "who", "--label-column", "says")


def say(run: Path, person: str, label: str, *items: str) -> None:
    """An answer that counts like any other."""
    store = AnswerStore(run)
    store.trust_answers(False)
    store.add(person, [NewAnswer(item, "label", (label,)) for item in items], f"{person}-{label}-{'-'.join(items)}")
    store.close()


def given(folder: Path) -> set[tuple[str, str, str]]:
    votes: Votes = read_votes(folder / "votes.csv")
    rows = zip(votes.item_R.tolist(), votes.annotator_R.tolist(), votes.label_R.tolist(), strict=True)
    return {(votes.items[item], votes.annotators[annotator], votes.class_names[label]) for item, annotator, label in rows}


def content(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


def test_a_file_of_answers_comes_beside_those_of_the_page(run: Path, more: Path, pals: Pals) -> None:
    """An answer of the page replaces what the same person said before; with --out the run is as it was."""
    say(run, "ana", "digit 1", "005.png", "007.png")
    say(run, "dan", "digit 2", "007.png")
    said_before = {row for row in given(run) if row[:2] != ("007.png", "dan")}
    before = content(run)
    done = pals("update", run, more, *COLUMNS, "--out", "elsewhere")
    assert done.code == 0, done.err
    assert "3 answers given in `pals review`" in done.out
    news = {("005.png", "ana", "digit 1"), ("007.png", "ana", "digit 1"), ("007.png", "dan", "digit 2")}
    expected = said_before | news | {("005.png", "zoe", "digit 1"), ("006.png", "zoe", "digit 2")}
    assert given(Path("elsewhere")) == expected
    assert content(run) == before
    assert pals("update", run, more, *COLUMNS).code == 0
    assert given(run) == expected and given(run / "rounds" / "0") > said_before
    AnswerStore(run).undo("dan", "undone")
    again = pals("update", run, more, *COLUMNS, "--out", "elsewhere")
    assert again.code == 2


def test_a_new_class_and_the_answers_of_the_page(run: Path, pals: Pals) -> None:
    say(run, "ana", "digit 1", "005.png")
    Path("owls.txt").write_text("010.png\n011.png\n012.png\n")
    done = pals("update", run, "--add-class", "owl", "--items", "owls.txt", "--out", "with-owls")
    assert done.code == 0, done.err
    assert "1 answer given in `pals review`" in done.out
    assert ("005.png", "ana", "digit 1") in given(Path("with-owls"))
    assert set(pd.read_csv("with-owls/labels.csv").set_index("item").loc[["010.png", "011.png"], "label"]) == {"owl"}


def test_a_round_elsewhere_leaves_the_run_alone(run: Path, pals: Pals) -> None:
    say(run, "ana", "digit 1", "005.png")
    before = content(run)
    done = pals("update", run, "--trust", "ana", "--out", "elsewhere")
    assert done.code == 0, done.err
    assert content(run) == before
    labels = pd.read_csv("elsewhere/labels.csv").set_index("item")
    assert labels.loc["005.png", "status"] == "gold"


def test_classes_that_nobody_names_any_more_stay(run: Path, more: Path, pals: Pals) -> None:
    """Who had named one changed their mind; a class that a file brings is new all the same."""
    last = sorted({label for _, _, label in given(run)})[-1]
    for item, who, label in given(run):
        if label == last:
            say(run, who, "digit 1", item)
    more.write_text(more.read_text().replace("digit 2", "owl"))
    classes = set(pd.read_csv(run / "classes.csv")["class"])
    done = pals("update", run, more, *COLUMNS)
    assert done.code == 0, done.err
    assert last not in {label for _, _, label in given(run)}
    assert set(pd.read_csv(run / "classes.csv")["class"]) == classes | {"owl"}


def test_all_answers_were_replaced(run: Path, pals: Pals) -> None:
    for item, who, _ in given(run):
        say(run, who, "digit 1" if int(item[:3]) % 2 else "digit 2", item)
    done = pals("update", run, "--out", "elsewhere")
    assert done.code == 0, done.err
    assert {label for _, _, label in given(Path("elsewhere"))} == {"digit 1", "digit 2"}


def test_an_update_that_was_begun_goes_on_with_the_answers_of_then(run: Path, more: Path, pals: Pals) -> None:
    """With --out: the folder keeps its settings. A round of the run begins anew, with all answers."""
    say(run, "ana", "digit 1", "005.png")
    out = Path("out")
    assert pals("update", run, more, *COLUMNS, "--out", out).code == 0
    whole = content(out)
    (out / "summary.json").unlink()  # as if it had been killed
    say(run, "ana", "digit 2", "005.png")
    done = pals("update", run, more, *COLUMNS, "--out", out)
    assert done.code == 0, done.err
    assert "left for another update" in done.out
    assert content(out)["votes.csv"] == whole["votes.csv"] and content(out)["labels.csv"] == whole["labels.csv"]
    shutil.copytree(out, run / "rounds" / "1")
    assert pals("update", run, more, *COLUMNS).code == 0
    assert ("005.png", "ana", "digit 2") in given(run)


def test_an_update_of_a_round_names_the_answers_that_came_later(run: Path, more: Path, pals: Pals) -> None:
    """They are saved beside the reviewed run, of which the round is a part, and were left out without a word."""
    say(run, "ana", "digit 1", "005.png")
    assert pals("update", run).code == 0
    round_1 = run / "rounds" / "1"
    assert "Not included" not in pals("update", round_1, more, *COLUMNS, "--out", "first").out
    say(run, "ana", "digit 1", "007.png")
    done = pals("update", round_1, more, *COLUMNS, "--out", "second")
    assert done.code == 0, done.err
    assert "Not included: 1 answer given in `pals review`" in " ".join(done.out.split())


def test_before_and_after_are_estimated_by_one_model(run: Path, pals: Pals) -> None:
    """Each by its own, labels that got better seemed to get worse."""
    assert json.loads((run / "summary.json").read_text())["earlier_labels_wrong"] is None
    first = pd.read_csv(run / "labels.csv")
    unsure = first.sort_values("confidence").head(4)
    for item, second in zip(unsure["item"], unsure["second"], strict=True):
        say(run, "ana", second, item)
    done = pals("update", run, "--trust", "ana")
    assert done.code == 0, done.err
    found = json.loads((run / "summary.json").read_text())
    low, high = found["earlier_labels_wrong_interval"]
    assert low <= found["earlier_labels_wrong"] <= high
    assert found["earlier_labels_wrong"] >= 4 / len(first) + found["labels_wrong"] - 0.02  # those four are known to be wrong
    assert "before the update" in " ".join(done.out.split()) and "By the same estimate" in " ".join(found["sentences"])
    with closing(ReviewSession(run)) as session:
        rows = session.overview("ana")["rounds"]
        page = Client(session).get("overview").text
    then = 1 - json.loads((run / "rounds" / "0" / "summary.json").read_text())["labels_wrong"]
    assert [row["right"][0] for row in rows] == [then, 1 - found["labels_wrong"]]
    assert rows[1]["earlier"][0] == 1 - found["earlier_labels_wrong"] < rows[1]["right"][0]
    agrees = 1 - high <= then <= min(1 - low, rows[1]["right"][0])
    assert (rows[1]["then"] and rows[1]["then"][0]) == (None if agrees else then)
    assert ("was estimated at" in page) == (not agrees)
    report = (run / "report.html").read_text()
    for text, words in ((" ".join(done.out.split()), "estimated then"), (report, "was too low")):
        assert (words in text) == (not low <= 1 - then <= high)
