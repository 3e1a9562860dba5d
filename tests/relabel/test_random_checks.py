"""A share of the queue is a fair sample of all items, marked as such until it is in votes.csv."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from _crowd import write_vectors
from _toy import Answer
from pals import fit, read_votes
from pals.pipeline.item_order import with_audit
from pals.relabel.relabel_queue import relabel_queue
from pals.util.errors import InputError

Pals = Callable[..., Answer]
KEYS = (f"key-{number:06d}" for number in count())


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_vectors(tmp_path_factory.mktemp("vectors"), 60)
    return fit(None, folder / "votes.csv", features=folder / "x.npy", out=folder / "run").folder


@pytest.fixture
def run(fitted: Path, tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(fitted, tmp_path / "run"))


def test_a_mixed_queue_by_hand() -> None:
    order, everything = np.arange(40), np.arange(40)
    found, drawn_M = with_audit(order, everything, 20, 0.25, number=3)
    drawn = found[drawn_M]
    assert len(found) == len(set(found.tolist())) == 20 and len(drawn) == 5
    assert found[~drawn_M].tolist() == [item for item in range(40) if item not in drawn][:15]
    for start in range(0, 20, 4):  # evenly mixed
        assert drawn_M[start : start + 4].sum() == 1
    assert not drawn_M[0]
    assert (with_audit(order, everything[::-1], 20, 0.25, number=3)[0] == found).all()
    longer, longer_M = with_audit(order, everything, 40, 0.25, number=3)
    assert set(drawn) < set(longer[longer_M]) and len(longer) == 40
    assert with_audit(order, everything, 20, 0.0, number=3)[0].tolist() == list(range(20))
    fixed = with_audit(order, everything, 20, 0.25, number=3, fixed=10)[0]
    assert fixed[:10].tolist() == list(range(10)) and len(set(fixed.tolist())) == 20


def test_the_sample_is_fair() -> None:
    """Whatever their place in the order, items are drawn equally often."""
    times = np.zeros(50)
    for number in range(2000):
        found, drawn_M = with_audit(np.arange(50), np.arange(50), 40, 0.25, number)
        times[found[drawn_M]] += 1
    assert times.sum() == 20_000 and (abs(times - 400) < 5 * np.sqrt(400 * 0.8)).all()


def test_queue_and_page_draw_the_same(run: Path) -> None:
    pytest.importorskip("starlette")
    from pals.review.orders import ItemOrder
    from pals.review.session import ReviewSession

    with closing(ReviewSession(run)) as session:
        state = session.run_state()
        queue = state.orders.items(ItemOrder("queue"))
        drawn = {state.view.items[item] for item in queue[state.orders.audit_N[queue]]}
    assert 0 < len(drawn) < len(queue)
    table = relabel_queue(run, len(queue), audit=0.25)
    assert set(table.loc[table["audit"], "item"]) == drawn
    assert set(table.loc[table["audit"], "reason"]) == {"random check"}
    other = relabel_queue(run, len(queue), audit=0.5)
    assert drawn < set(other.loc[other["audit"], "item"])
    with pytest.raises(InputError, match="--audit 1"):
        relabel_queue(run, 10, audit=1)


def audited(votes: Path) -> set[str]:
    found = read_votes(votes)
    assert found.audit_I.any()
    return {found.items[item] for item in np.flatnonzero(found.audit_I)}


def test_answers_to_the_queue_keep_the_mark(run: Path, pals: Pals) -> None:
    assert pals("relabel", run, "--top", "20", "--out", "queue.csv").code == 0
    queue = pd.read_csv("queue.csv", dtype={"item": str})
    assert queue["audit"].sum() == 5
    queue.assign(label=queue["suggestion"], annotator="eve").to_csv("queue.csv", index=False)
    done = pals("update", run, "queue.csv", "--trust", "eve")
    assert done.code == 0, done.err
    drawn = set(queue.loc[queue["audit"], "item"])
    assert audited(run / "votes.csv") == drawn
    table = pd.read_csv(run / "votes.csv", dtype={"item": str})
    assert set(table.loc[table["audit"] & table["is_gold"], "item"]) == drawn
    again = relabel_queue(run, 20, audit=0.25)  # of the next round: another draw, of what is not known
    assert again["audit"].sum() == 5 and not set(again["item"]) & drawn


def test_answers_of_the_page_keep_the_mark(run: Path, pals: Pals) -> None:
    pytest.importorskip("starlette")
    from pals.review.session import ReviewSession
    from pals.review.store import NewAnswer

    with closing(ReviewSession(run)) as session:
        state = session.run_state()
        queue = [state.view.items[item] for item in state.orders.queue]
        drawn = {item for item in queue if state.orders.audit_N[state.view.place[item]]}
        for item in queue:
            label = str(state.view.label_N[state.view.place[item]])
            session.answer("ana", [NewAnswer(item, "label", (label,))], next(KEYS))
        Path("page.csv").write_text(session.export())
    for options in ((), (Path("page.csv"), "--no-trust", "--out", "other")):  # the file is recognised as well
        done = pals("update", run, *options)
        assert done.code == 0, done.err
    assert audited(run / "votes.csv") == audited(Path("other/votes.csv")) == drawn
