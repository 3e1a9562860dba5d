"""Answers given in `pals review` are final: no update overrules them, and where they differ the item is left to settle."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from _review import Client
from _toy import Answer

pytest.importorskip("starlette")

from pals.pipeline.trusted_answers import TrustedItems
from pals.readers import Source, read_votes
from pals.review.orders import ItemOrder
from pals.review.session import ReviewSession
from pals.review.store import STORE_SCHEMA, AnswerStore, NewAnswer

Pals = Callable[..., Answer]
KEYS = (f"key-{number:06d}" for number in count())
CLASSES = {"digit 1", "digit 2"}  # the third has a hostile name


@pytest.fixture
def session(run: Path) -> Iterator[ReviewSession]:
    with closing(ReviewSession(run)) as found:
        yield found


@pytest.fixture
def more(run: Path) -> Path:
    """A second file of answers, which contradicts ana's answer to 005.png."""
    path = run.parent / "more.csv"
    path.write_text("item,annotator,label\n005.png,zoe,digit 2\n005.png,yan,digit 2\n006.png,zoe,digit 2\n")
    return path


def give(run: Path, person: str, item: str, *labels: str, kind: str = "label", **marks: bool) -> None:
    with closing(AnswerStore(run)) as store:
        store.add(person, [NewAnswer(item, kind, labels, **marks)], next(KEYS))  # type: ignore[arg-type]


def labels_of(folder: Path | str) -> pd.DataFrame:
    return pd.read_csv(Path(folder) / "labels.csv").set_index("item")


def doubted(folder: Path | str) -> set[tuple[str, str]]:
    table = pd.read_csv(Path(folder) / "doubtful.csv")
    return set(zip(table["item"], table["annotator"], strict=True))


def contradicted(run: Path) -> dict[str, str]:
    """Items on whose label dan, eve and the result agree, each with another class."""
    table = labels_of(run)
    table = table[(table["agreement"] == 1) & table["label"].isin(CLASSES)]
    return {item: (CLASSES - {label}).pop() for item, label in table["label"].items()}


def test_an_answer_is_never_overruled(run: Path, more: Path, pals: Pals) -> None:
    """Against all others and the images, in every kind of update and in one that follows it."""
    given = contradicted(run)
    for item, label in given.items():
        give(run, "ana", item, label)
    by_dan, *owls = [item for item in labels_of(run).index if item not in {*given, "005.png"}][:4]
    give(run, "ana", "005.png", "digit 1")
    give(run, "dan", by_dan, "digit 1")  # who answered before the review as well: those answers are not trusted
    Path("owls.txt").write_text("\n".join(owls) + "\n")
    updates = ((), (more, "--out", "with-file"), ("--add-class", "owl", "--items", "owls.txt", "--out", "with-owls"))
    for options in updates:
        done = pals("update", run, *options)
        assert done.code == 0, done.err
    assert pals("update", "with-file", more, "--out", "again").code == 0
    for folder in (run / "rounds" / "1", "with-file", "with-owls", "again"):
        table = labels_of(folder)
        expected = {**given, "005.png": "digit 1", by_dan: "digit 1"} | (
            dict.fromkeys(owls, "owl") if folder == "with-owls" else {}
        )
        assert {item: table.loc[item, "label"] for item in expected} == expected
        assert set(table.loc[list(expected), "status"]) == {"gold"} and table["status"].nunique() > 1
        assert not {(item, "ana") for item in expected} & doubted(folder)
        gallery = json.loads((Path(folder) / "report.json").read_text())["gallery"]
        assert not any(doubt["annotator"] == "ana" for row in gallery for doubt in row["doubtful"])


def test_the_page_shows_final_answers(run: Path, session: ReviewSession) -> None:
    """As the item's label at once, and never as probably wrong; confirming the item confirms them."""
    item, label = next(iter(contradicted(run).items()))
    view, ana = session.run_state().view, Client(session)
    key = view.keys[view.place[item]]
    before = ana.get(f"item/{key}").text
    assert f'id="card" data-key="{key}" data-label="{label}"' not in before and "final answer<" not in before
    assert ana.post("answer", {"items": [key], "kind": "label", "labels": [label], "key": next(KEYS)}).status == 200
    for client in (ana, Client(session, "ben")):
        page = client.get(f"item/{key}").text
        assert f'id="card" data-key="{key}" data-label="{label}"' in page
        assert "final answer<" in page and "Why you see it" not in page
    tile = ana.get("grid?order=answered").text
    assert f"<b>{label}</b>" in tile and "final</span>" in tile
    ben = Client(session, "ben")
    ben.post("answer", {"items": [key], "kind": "as-suggested", "key": next(KEYS)})
    assert {answer.labels for answer in session.store.of(item)} == {(label,)}


def test_trust_is_a_choice_that_stays(run: Path, more: Path, pals: Pals, session: ReviewSession) -> None:
    """Made on the page, by `pals review` or by `pals update`; all updates follow it."""
    item, label = next(iter(contradicted(run).items()))
    give(run, "ana", item, label)
    client = Client(session)
    assert "are final" in client.get("item").text
    assert client.post("trust", {"trusted": "no"}).status == 400
    assert client.post("trust", {"trusted": False}).json == {"trusted": False}
    assert "count like any others" in client.get("item").text
    assert pals("update", run, more, "--out", "counted").code == 0
    assert labels_of("counted").loc[item, "status"] != "gold"
    assert pals("update", run, "--trust-review", "--out", "trusted").code == 0
    assert labels_of("trusted").loc[item, ["label", "status"]].tolist() == [label, "gold"]
    assert session.store.trusts_answers()
    assert pals("update", run, more, "--no-trust", "--out", "again").code == 0
    assert labels_of("again").loc[item, "status"] != "gold" and not session.store.trusts_answers()
    with closing(ReviewSession(run)) as again:
        assert not again.store.trusts_answers()
    with closing(ReviewSession(run, trust_review=True)) as again:
        assert again.store.trusts_answers()


def test_a_disagreement_is_left_to_settle(run: Path, more: Path, pals: Pals, session: ReviewSession) -> None:
    """It comes first, on the page and in the queue, and is no gold until an answer settles it."""
    given = contradicted(run)
    item, label = list(given.items())[-1]
    other = '<img src=x onerror="document.title=1">'  # neither of these is the label that dan and eve gave
    view, cho = session.run_state().view, Client(session, "cho")
    key = view.keys[view.place[item]]
    give(run, "ana", item, label)
    assert "A disagreement to settle" not in cho.get(f"item/{key}").text
    give(run, "ben", item, other)

    def first(client: Client) -> str:
        return client.get("item").text

    for client in (cho, Client(session, "ana")):
        assert f'data-key="{key}"' in first(client) and "A disagreement to settle" in first(client)
        client.post("answer", {"items": [view.keys[-1]], "kind": "skip", "key": next(KEYS)})
        session.store._claims.execute("DELETE FROM claims")
    assert "1 disagreement to settle" in cho.get("overview").text
    assert session.page("cho", ItemOrder("disagreement")) == ([view.place[item]], 1)
    for options in ((), (more, "--out", "with-file")):
        assert pals("update", run, *options).code == 0
    assert pals("update", "with-file", more, "--out", "again").code == 0  # of a run that has no review of its own
    for folder in (run / "rounds" / "1", "with-file", "again"):
        row = labels_of(folder).loc[item]
        assert row["status"] == "disagreement" and row["label"] in (label, other)
        assert not {(item, "ana"), (item, "ben")} & doubted(folder)
        assert pals("relabel", folder, "--out", "queue.csv").code == 0
        queue = pd.read_csv("queue.csv")
        assert queue.loc[0, "item"] == item and "differ" in queue.loc[0, "reason"]
    session.store._claims.execute("DELETE FROM claims")
    assert f'data-key="{key}"' in first(cho) and "A disagreement to settle" in first(cho)
    cho.post("answer", {"items": [key], "kind": "label", "labels": [label], "settles": True, "key": next(KEYS)})
    assert f'data-key="{key}"' not in first(cho) and "disagreement to settle" not in cho.get("overview").text
    assert pals("update", run).code == 0
    assert labels_of(run).loc[item, ["label", "status"]].tolist() == [label, "gold"]
    cho.post("undo", {"key": next(KEYS)})
    assert {answer.annotator for answer in session.store.of(item)} == {"ana", "ben"}
    assert pals("update", run).code == 0
    assert labels_of(run).loc[item, "status"] == "disagreement"


def test_annotators_trusted_by_name_differ_from_the_page(run: Path, pals: Pals) -> None:
    item, label = next(iter(contradicted(run).items()))
    give(run, "ana", item, label)
    assert pals("update", run, "--trust", "dan", "--out", "differ").code == 0
    assert labels_of("differ").loc[item, "status"] == "disagreement"
    give(run, "ana", item, label, settles=True)
    assert pals("update", run, "--trust", "dan", "--out", "settled").code == 0
    assert labels_of("settled").loc[item, ["label", "status"]].tolist() == [label, "gold"]


def test_candidates_none_of_these_and_maybe(run: Path, pals: Pals) -> None:
    """Candidates leave the label among them; "none of these" is a status, and contradicts a label; "maybe" is no last word."""
    (several, label), (none, _), (both, second), (maybe, third) = list(contradicted(run).items())[:4]
    hostile = '<img src=x onerror="document.title=1">'
    give(run, "ana", several, label, hostile)
    give(run, "ana", none, kind="none-of-these")
    give(run, "ana", both, kind="none-of-these")
    give(run, "ben", both, second)
    give(run, "ana", maybe, third, sure=False)
    assert pals("update", run, "--out", "first").code == 0
    assert pals("update", "first", "--add-class", "owl", "--items", _list(none), "--out", "second").code == 0
    for folder in ("first", "second"):
        table = labels_of(folder)
        assert table.loc[several, "label"] in (label, hostile) and table.loc[several, "status"] != "gold"
        assert table.loc[both, "status"] == "disagreement"
        assert table.loc[maybe, "status"] not in ("gold", "disagreement")
        assert not {(item, "ana") for item in (several, none, both, maybe)} & doubted(folder)
    assert labels_of("first").loc[none, "status"] == "none-of-these"
    assert labels_of("second").loc[none, ["label", "status"]].tolist() == ["owl", "gold"]


def _list(item: str) -> Path:
    path = Path("items.txt")
    path.write_text(f"{item}\n")
    return path


def test_all_items_are_answered(run: Path, pals: Pals) -> None:
    for item in labels_of(run).index:
        give(run, "ana", item, "digit 1" if item < "012" else "digit 2")
    done = pals("update", run)
    assert done.code == 0, done.err
    assert set(labels_of(run / "rounds" / "1")["status"]) == {"gold"}


def test_trusted_items_by_hand() -> None:
    """a: one class in common; b: none in common; c: candidates; d: unsure; e: marked as none; f: that and a label."""
    rows = ["a,x,p|q", "a,y,q|r", "a,z,p", "b,x,p", "b,y,q", "b,z,r", "c,x,p|r", "c,z,q", "d,x,p?", "d,z,q", "e,z,p", "f,x,p"]
    text = "item,annotator,label\n" + "\n".join(rows) + "\n"
    votes = read_votes([Source(Path("votes.csv"), data=text.encode())])
    trusted = votes.trusting((), [(item, who) for item in "abcdg" for who in "xy"] + [("f", "x")], unsettled=["e", "f"])
    assert trusted.gold_I.tolist() == [1, -1, -1, -1, -1, -1]
    found = TrustedItems.of(trusted, ["e", "f"])
    assert found.item_M.tolist() == [1, 2, 5] and found.disagree_M.tolist() == [True, False, True]
    assert found.allowed_MC.tolist() == [[True, True, False], [True, False, True], [True, False, False]]
    assert found.none.tolist() == [4]
    posterior_NC = np.tile([0.1, 0.8, 0.1], (6, 1))
    expected = [[1 / 9, 8 / 9, 0], [0.5, 0, 0.5], [1, 0, 0]]
    np.testing.assert_allclose(found.restrict(posterior_NC)[[1, 2, 5]], expected)
    assert (found.restrict(posterior_NC)[[0, 3, 4]] == posterior_NC[0]).all()
    again = read_votes([Source(Path("votes.csv"), data=trusted.to_frame().to_csv(index=False).encode())])
    assert again.num_answers == trusted.num_answers  # the column `trusted` is not read as an answer
    assert not TrustedItems.of(votes).item_M.size


def test_gold_that_a_trusted_answer_excludes_is_removed() -> None:
    text = "item,annotator,label,is_gold\na,,p,1\na,x,q|r,0\nb,,p,1\nb,x,p|q,0\nc,,r,1\nc,x,p,0\nc,y,q,0\n"
    votes = read_votes([Source(Path("votes.csv"), data=text.encode())])
    assert votes.trusting(["x", "y"]).gold_I.tolist() == [-1, 0, -1]


def test_any_answer_can_be_undone(session: ReviewSession) -> None:
    """In "Your answers", one or several; what the annotator answered before stands again, and others keep theirs."""
    client, view = Client(session), session.run_state().view
    keys = [view.keys[item] for item in (20, 5, 11)]
    for key, label in zip((*keys, keys[0]), ("digit 1", "digit 1", "digit 1", "digit 2"), strict=True):
        client.post("answer", {"items": [key], "kind": "label", "labels": [label], "key": next(KEYS)})
    Client(session, "ben").post("answer", {"items": keys, "kind": "dont-know", "key": next(KEYS)})
    assert 'id="take-back"' in client.get("grid?order=answered").text
    assert 'id="take-back"' not in client.get("grid").text
    body = {"items": keys[:2], "key": next(KEYS)}
    for _ in range(2):  # sent again
        assert client.post("undo", body).json["undone"]["said"] == "2 answers"
    assert session.page("ana", ItemOrder("answered"))[0] == [11, 20]
    assert {answer.annotator: answer.labels for answer in session.store.of(view.items[20])} == {"ana": ("digit 1",), "ben": ()}
    assert [answer.annotator for answer in session.store.of(view.items[5])] == ["ben"]
    assert client.post("undo", {"items": ["nonsense"], "key": next(KEYS)}).status == 400


def test_skipping_takes_no_answer_back(run: Path, session: ReviewSession) -> None:
    give(run, "ana", "005.png", "digit 1")
    give(run, "ana", "005.png", kind="skip")
    assert [answer.labels for answer in session.store.of("005.png")] == [("digit 1",)]
    give(run, "ben", "005.png", "digit 2")
    give(run, "cho", "005.png", kind="skip")
    item = session.run_state().view.place["005.png"]
    assert not session.run_state().progress.done_N("dan")[item]
    assert session.run_state().progress.done_N("cho")[item]  # who does not want to settle it


def test_a_store_of_an_earlier_version(run: Path) -> None:
    path = run / "review.sqlite"
    with closing(sqlite3.connect(path)) as old:
        schema = "".join(
            line for line in STORE_SCHEMA.splitlines(keepends=True) if not {"settles", "audit"} & set(line.split())
        )
        old.executescript(schema)
        old.execute("INSERT INTO answers VALUES (1, '005.png', 'ana', 'label', '[\"digit 1\"]', 1, 1.0, 'ana/k', NULL)")
        old.execute("PRAGMA user_version = 1")
        old.commit()
    for _ in range(2):
        with closing(AnswerStore(run)) as store:
            assert [answer.labels for answer in store.current()] == [("digit 1",)]
            assert store.trusts_answers()
