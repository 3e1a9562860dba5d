"""A class that is missing is named on the page, and the next update learns it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from _review import Client
from _toy import Answer

pytest.importorskip("starlette")

from pals import fit
from pals.review.orders import ItemOrder
from pals.review.session import ReviewSession

Pals = Callable[..., Answer]
KEYS = (f"key-{number:06d}" for number in count())


@pytest.fixture
def session(run: Path) -> Iterator[ReviewSession]:
    with closing(ReviewSession(run)) as found:
        yield found


def answer(client: Client, key: str, kind: str = "label", *labels: str) -> int:
    body = {"items": [key], "kind": kind, "labels": list(labels), "key": next(KEYS)}
    return client.post("answer", body).status


def test_a_class_is_named_for_all(session: ReviewSession) -> None:
    ana, ben, key = Client(session, "ana"), Client(session, "ben"), session.run_state().view.keys[5]
    assert answer(ana, key, "label", "owl") == 400
    assert ana.post("class", {"name": "  owl "}).json == {"name": "owl"}
    assert "owl" in ben.get(f"item/{key}").text and "<option>owl</option>" in ben.get("grid").text
    assert ben.get("choices").json[-1] == {"name": "owl", "depth": 0, "leaf": True}
    assert answer(ben, key, "label", "owl") == 200
    for name in ("OWL", "digit 1", "", "   ", "don't know", "owl?", "x" * 81, 3):
        refused = ana.post("class", {"name": name})
        assert refused.status == 400 and refused.json["error"].endswith(".")
    with closing(ReviewSession(session.run)) as again:
        assert again.new_classes() == ["owl"]


def test_a_new_class_does_not_contradict_none_of_these(session: ReviewSession) -> None:
    """Which others answered before there was that class; a label of theirs it does contradict."""
    ana, ben, keys = Client(session, "ana"), Client(session, "ben"), session.run_state().view.keys
    answer(ben, keys[5], "none-of-these")
    answer(ben, keys[6], "label", "digit 1")
    ana.post("class", {"name": "owl"})
    for key in keys[5:7]:
        assert answer(ana, key, "label", "owl") == 200
    assert session.run_state().progress.disagreements().tolist() == [6]
    assert session.verdict(5).label == "owl"


def test_items_of_a_missing_class(session: ReviewSession) -> None:
    """Those that are marked so, the first first, and those that the run takes for such: all on one page."""
    client, view = Client(session), session.run_state().view
    flagged = [item for item in range(len(view.items)) if view.labels["status"][item] == "none-of-these"]
    for item in (7, 3):
        answer(client, view.keys[item], "none-of-these")
    items, number = session.page("ana", ItemOrder("unlisted"))
    assert items[:2] == [7, 3] and set(items) == {7, 3, *flagged} and number == len(items)
    assert 'id="add-class"' in client.get("grid?order=unlisted").text
    assert "grid?order=unlisted" in client.get("overview").text


@pytest.mark.parametrize("named", [(), ("--classes", "0,1,2")], ids=("classes found", "classes named"))
def test_an_update_learns_it(tmp_path: Path, pals: Pals, named: tuple[str, ...]) -> None:
    """Threes that were called something else: some are answered on the page, the others are found by what they look like."""
    x, y = load_digits(return_X_y=True)
    rows = np.concatenate([np.flatnonzero(y == digit)[:25] for digit in range(4)])
    np.save(tmp_path / "x.npy", x[rows].astype(np.float32))
    truth = y[rows]
    rng = np.random.default_rng(0)
    lines = [
        f"{item},{who},{digit if digit < 3 else rng.integers(3)}" for item, digit in enumerate(truth) for who in ("al", "bo")
    ]
    (tmp_path / "votes.csv").write_text("item,annotator,label\n" + "\n".join(lines) + "\n")
    run = tmp_path / "run"
    done = pals("fit", tmp_path / "votes.csv", "--features", tmp_path / "x.npy", "--out", run, *named)
    assert done.code == 0, done.err
    threes = [str(item) for item in np.flatnonzero(truth == 3)]
    with closing(ReviewSession(run)) as session:
        client, view = Client(session), session.run_state().view
        assert client.post("class", {"name": "three"}).status == 200
        for item in threes[:10]:
            assert answer(client, view.keys[view.place[item]], "label", "three") == 200
        done = pals("update", run)
        assert done.code == 0, done.err
        assert session.run_state().round.number == 1 and session.new_classes() == []
        assert "three" in session.run_state().view.class_names
    labels = pd.read_csv(run / "labels.csv", dtype={"item": str, "label": str}).set_index("item")["label"]
    assert (labels[threes[:10]] == "three").all()
    assert (labels[threes[10:]] == "three").sum() >= 10  # of 15 that nobody could call so
    others = [item for item in labels.index if item not in threes]
    assert (labels[others] == "three").sum() <= 3
    assert set(pd.read_csv(run / "classes.csv", dtype=str)["class"]) == {"0", "1", "2", "three"}
    with closing(ReviewSession(run)) as session:
        client, view = Client(session), session.run_state().view
        answer(client, view.keys[view.place[threes[10]]], "label", "three")
    before = labels
    assert pals("update", run).code == 0
    after = pd.read_csv(run / "labels.csv", dtype={"item": str, "label": str}).set_index("item")["label"]
    assert (after[threes] == "three").sum() >= (before[threes] == "three").sum()


def test_not_in_a_tree(tmp_path: Path) -> None:
    (tmp_path / "votes.csv").write_text(
        "item,annotator,label\n" + "".join(f"{i},{w},{'ab'[i % 2]}\n" for i in range(12) for w in "xyz")
    )
    (tmp_path / "tree.csv").write_text("label,parent\nall,\na,all\nb,all\n")
    run = fit(None, tmp_path / "votes.csv", no_images=True, taxonomy=tmp_path / "tree.csv", out=tmp_path / "run").folder
    with closing(ReviewSession(run)) as session:
        client = Client(session)
        assert "--taxonomy" in client.post("class", {"name": "c"}).json["error"]
        assert 'id="add-class"' not in client.get("item?order=everything").text
