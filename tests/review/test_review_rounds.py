"""Every update is a round: the run shows the newest, the others stay, and a killed process leaves one round or the other."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from _kills import dying_at, in_a_child
from _review import Client
from _toy import Answer

pytest.importorskip("starlette")

from pals import update
from pals.pipeline.label_changes import LEARNED, label_changes
from pals.readers import read_votes
from pals.review.session import ReviewSession
from pals.review.store import AnswerStore, NewAnswer
from pals.runs import rounds as run_rounds
from pals.runs.rounds import Round, add_round, complete_rounds, current_round, keep_first, run_of, use_round
from pals.util.errors import InputError

Pals = Callable[..., Answer]
KEYS = (f"key-{number:06d}" for number in count())


@pytest.fixture
def session(run: Path) -> Iterator[ReviewSession]:
    with closing(ReviewSession(run)) as found:
        yield found


def give(run: Path, item: str, label: str, person: str = "ana") -> None:
    with closing(AnswerStore(run)) as store:
        store.add(person, [NewAnswer(item, "label", (label,))], next(KEYS))


def shown(folder: Path) -> dict[str, bytes]:
    """The files of a fit, as they are read in a folder."""
    return {name: (folder / name).read_bytes() for name in sorted(run_rounds.FIT_FILES) if (folder / name).is_file()}


def label_of(folder: Path, item: str) -> str:
    return str(pd.read_csv(folder / "labels.csv").set_index("item").loc[item, "label"])


def other_label(run: Path, item: str) -> str:
    return ({"digit 1", "digit 2"} - {label_of(run, item)}).pop()


def sentences(answer: Answer) -> str:
    return " ".join(answer.out.split())


def test_the_run_shows_the_newest_round(run: Path, pals: Pals, session: ReviewSession) -> None:
    """Labels, report, prediction and page; the rounds before stay and can be made current again."""
    fit_files, item = shown(run), "005.png"
    label = other_label(run, item)
    (run / "notes.txt").write_text("of the user")
    give(run, item, label)
    done = pals("update", run)
    assert done.code == 0, done.err
    assert "round 1 (1 answer of the review)" in sentences(done) and done.out.rstrip().endswith(f"pals review {run}")
    assert label_of(run, item) == label and shown(run / "rounds" / "0") == fit_files
    assert shown(run) == shown(run / "rounds" / "1") != fit_files
    assert f"Report on {run.name}, round 1" in (run / "report.html").read_text()
    assert session.run_state().round.number == 1 and Client(session).get("report").text == (run / "report.html").read_text()
    changes = pd.read_csv(run / "changes.csv")
    assert changes.loc[0].tolist()[:3] == [item, label_of(run / "rounds" / "0", item), label] and "ana" in changes["why"][0]
    page = Client(session).get("changes").text
    assert "What round 1 changed" in page and page.count("<li>") >= len(changes) and "1 answer of the review" in page

    say = pals("rounds", run, "--use", "0")
    assert say.code == 0 and "* 0: first fit" in say.out and "  1: 1 answer of the review" in say.out
    assert shown(run) == fit_files and session.run_state().round.number == 0 and not (run / "changes.csv").exists()
    client = Client(session)
    assert client.post("round", {"round": 1}).json == {"round": 1}
    assert shown(run) == shown(run / "rounds" / "1") and session.run_state().round.number == 1
    assert client.post("round", {"round": 7}).status == client.post("round", {"round": "x"}).status == 400
    assert pals("rounds", run, "--use", "7").code == 2
    assert (run / "notes.txt").read_text() == "of the user"


def test_rounds_build_on_files_and_follow_the_page(run: Path, pals: Pals) -> None:
    """A file or a class stays in all later rounds; an answer of the page that is undone leaves no trace."""
    more = run.parent / "more.csv"
    more.write_text("item,annotator,label\n006.png,zoe,digit 2\n")
    with closing(AnswerStore(run)) as store:
        store.trust_answers(False)
    give(run, "005.png", "digit 1")
    give(run, "007.png", "digit 1", "dan")
    first = read_votes(run / "votes.csv").num_answers
    done = pals("update", run, more)
    assert done.code == 0, done.err
    assert "2 answers given in `pals review`" in done.out and "round 1 (2 answers of the review, more.csv)" in sentences(done)
    more.unlink()
    Path("owls.txt").write_text("010.png\n011.png\n")
    assert pals("update", run, "--add-class", "owl", "--items", "owls.txt").code == 0
    Path("owls.txt").unlink()
    with closing(AnswerStore(run)) as store:
        store.undo("ana", "undo-ana")
        store.undo("dan", "undo-dan")
    give(run, "008.png", "digit 1", "cho")
    done = pals("update", run)
    assert done.code == 0, done.err
    assert current_round(run) == complete_rounds(run)[-1] and current_round(run).base == 2
    assert [one.news for one in complete_rounds(run)[1:]] == [
        "2 answers of the review, more.csv",
        "no new answers of the review (2 in all), class owl",
        "1 answer of the review",
    ]
    votes = pd.read_csv(run / "votes.csv")
    answers = {(item, who, label) for item, who, label in zip(votes["item"], votes["annotator"], votes["label"], strict=True)}
    assert ("006.png", "zoe", "digit 2") in answers and ("008.png", "cho", "digit 1") in answers
    assert not [row for row in answers if row[1] == "ana"]
    before = pd.read_csv(run / "rounds" / "0" / "votes.csv")
    dans = before[(before["item"] == "007.png") & (before["annotator"] == "dan")]["label"].tolist()
    assert [label for item, who, label in answers if (item, who) == ("007.png", "dan")] == dans
    assert read_votes(run / "votes.csv").num_answers == first + 2
    assert {label_of(run, item) for item in ("010.png", "011.png")} == {"owl"}
    whys = pd.read_csv(run / "rounds" / "2" / "changes.csv").set_index("item")["why"]
    assert "new: owl (known)" in whys["010.png"]


def test_a_round_is_no_run_of_its_own(run: Path, pals: Pals) -> None:
    give(run, "005.png", "digit 1")
    assert pals("update", run).code == 0
    place = run / "rounds" / "1"
    assert run_of(place) == run.resolve() and run_of(run) is None
    for command in (("review", place, "--no-browser"), ("update", place)):
        refused = pals(*command)
        assert refused.code == 2 and "is a round of" in refused.err
    report = (run / "report.html").read_bytes()
    (place / "report.html").write_text("old")
    assert pals("report", run).code == 0
    assert (place / "report.html").read_bytes() == report and (run / "report.html").is_symlink()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked and killed")
@pytest.mark.parametrize("earlier", [0, 1], ids=("first update", "second update"))
def test_a_killed_update_leaves_one_round_or_the_other(run: Path, earlier: int) -> None:
    """All files of one round: the old one until the new one is complete. The next update goes on from there."""
    for number in range(earlier):
        give(run, f"00{number + 4}.png", "digit 1")
        update(run)
    give(run, "007.png", other_label(run, "007.png"))
    old, killed, number = shown(run), True, 0
    while killed and number < 400:
        number += 1

        def work(at: int = number) -> None:
            with pytest.MonkeyPatch.context() as patch:
                dying_at("file in place", at, patch)
                _switch_to(run, earlier + 1)

        killed = in_a_child(work)
        now = shown(run)
        assert now == old or now == shown(run / "rounds" / str(earlier + 1))
    assert number > 2 and not killed and current_round(run).number == earlier + 1


def _switch_to(run: Path, number: int) -> None:
    """What an update does but for its computation: a round with other files."""
    keep_first(run)
    place = run / "rounds" / str(number)
    if not (place / "round.json").exists():
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(run / "rounds" / str(number - 1), place)
        (place / "round.json").unlink(missing_ok=True)
        for name in ("labels.csv", "votes.csv", "report.html", "model.safetensors"):
            (place / name).write_bytes((place / name).read_bytes() + b"\n")
    add_round(run, Round(number, before=number - 1))


def test_a_killed_computation_is_discarded(run: Path) -> None:
    give(run, "007.png", other_label(run, "007.png"))
    old = shown(run)

    def work() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("pals.pipeline.new_round.label_changes", lambda *_: os._exit(0))
            update(run)

    in_a_child(work)
    assert (run / "rounds" / "1" / "summary.json").exists() and shown(run) == old
    update(run)
    assert current_round(run).number == 1 and shown(run) != old


def test_without_links_files_are_copied(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that has none, or in a run that was copied by a program that follows them."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError

    old = shown(run)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "symlink_to", refuse)
        _switch_to(run, 1)
        assert not any(path.is_symlink() for path in run.rglob("*"))
        assert current_round(run).number == 1 and shown(run) == shown(run / "rounds" / "1") != old
        use_round(run, 0)
        assert shown(run) == old
    use_round(run, 1)
    copy = Path(shutil.copytree(run, run.with_name("copy")))
    assert not any(path.is_symlink() for path in copy.rglob("*")) and current_round(copy).number == 1
    use_round(copy, 0)
    assert shown(copy) == old and (copy / "labels.csv").is_symlink() and shown(run) != old


def test_old_rounds_are_reduced(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To labels, changes and report; not those that later rounds begin with."""
    monkeypatch.setattr("pals.runs.rounds.KEPT_WHOLE", 2)
    _switch_to(run, 1)
    add_round(run, Round(1, base=1))
    for number in (2, 3, 4, 5):
        _switch_to(run, number)
        add_round(run, Round(number, base=1 if number < 5 else 0, before=number - 1))
    whole = [one.number for one in complete_rounds(run) if (run / "rounds" / str(one.number) / "config.yaml").exists()]
    assert whole == [0, 1, 4, 5] and (run / "rounds" / "2" / "labels.csv").exists()
    with pytest.raises(InputError, match="only labels, changes and report are kept"):
        use_round(run, 2)


def test_a_reviewed_run_of_version_0_2(run: Path, pals: Pals) -> None:
    """Its updates lie in RUN/reviewed, known by a table of review.sqlite; the newest is shown, as it was by that version."""
    give(run, "005.png", other_label(run, "005.png"))
    assert pals("update", run, "--out", run / "reviewed" / "run-2").code == 0
    old = shown(run)
    before, after = (
        pd.read_csv(folder / "labels.csv", index_col="item")["label"] for folder in (run, run / "reviewed" / "run-2")
    )
    changed = int((before != after.reindex(before.index)).sum())
    with closing(sqlite3.connect(run / "review.sqlite")) as store:
        for number in (1, 2):  # the first was forgotten
            store.execute("INSERT INTO rounds VALUES (?, ?, 1, 1.0, 2.5, 0.9, 0.8, 0.95)", (number, f"run-{number}"))
        store.commit()
    new = shown(run / "reviewed" / "run-2")
    with closing(ReviewSession(run)) as session:
        assert session.run_state().round == Round(2, 0, 0, 1, "the review", changed, 2.5)
        assert session.run_state().progress.num_fresh() == 0
        assert changed and f"{changed} label" in Client(session).get("overview").text
    assert shown(run) == new and shown(run / "rounds" / "0") == old and not (run / "reviewed").exists()
    assert pals("update", run).code == 0 and current_round(run).number == 3


def test_why_a_label_changed(tmp_path: Path) -> None:
    """a: a new answer; b: one that was replaced; c: none; d: as before; e: a new item that is known."""
    header = "item,label,confidence,second,votes,agreement,status\n"
    for name, labels, votes in (
        ("old", ("a,p", "b,p", "c,p", "d,p"), ("a,x,p,1,False", "b,x,p,1,False", "c,x,p,1,False", "d,x,p,1,False")),
        (
            "new",
            ("c,q", "a,q", "b,q", "d,p", "e,q"),
            (
                "a,x,p,1,False",
                "a,,q,1,True",
                "b,x,q,1,False",
                "c,x,p,1,False",
                "d,,q,1,False",
                "e,,q,1,True",
            ),
        ),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "labels.csv").write_text(header + "".join(f"{row},1,,1,1,agreed\n" for row in labels))
        (tmp_path / name / "votes.csv").write_text("item,annotator,label,weight,is_gold\n" + "\n".join(votes) + "\n")
    assert label_changes(tmp_path / "old", tmp_path / "new", {"a": "ana and ben"}).to_numpy().tolist() == [
        ["a", "p", "q", "new: q by ana and ben"],
        ["b", "p", "q", "new: q by x; gone: p by x"],
        ["e", "", "q", "new: q (known)"],
        ["c", "p", "q", LEARNED],
    ]


def test_a_damaged_record(run: Path) -> None:
    _switch_to(run, 1)
    (run / "rounds" / "1" / "round.json").write_text(json.dumps({"number": "one"}))
    with pytest.raises(InputError, match="is damaged"):
        current_round(run)
