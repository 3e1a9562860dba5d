"""For those who answer: an address that stays, instructions, their own answers, who else answers and whether they agree."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from _review import Client, Server
from _toy import Answer

pytest.importorskip("starlette")

from pals.review.address import ADDRESS_FILE, store_address, stored_address
from pals.review.answer_log import ReviewAnswer
from pals.review.reviewers import Reviewers
from pals.review.session import ReviewSession
from pals.review.store import AnswerStore, NewAnswer

KEYS = (f"key-{number:06d}" for number in count())


@pytest.fixture
def session(run: Path) -> Iterator[ReviewSession]:
    with closing(ReviewSession(run)) as found:
        yield found


def test_the_address_stays(run: Path) -> None:
    """Over a restart, also after a kill, in a file that nobody else can read."""
    first = Server(run)
    first.kill()
    path = run / ADDRESS_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    second = Server(run)
    assert second.address == first.address and b"PALS review" in second.read("who")
    third = Server(run)  # beside it: another port, the same token
    assert third.address != first.address and third.address.split("/")[3] == first.address.split("/")[3]
    for server in (second, third):
        server.kill()


def test_a_stored_address_that_is_not_secret(run: Path) -> None:
    token, port = stored_address(run)
    assert port == 0
    store_address(run, token, 4321)
    assert stored_address(run) == (token, 4321)
    path = run / ADDRESS_FILE
    path.chmod(0o644)
    assert stored_address(run)[0] != token
    path.chmod(0o600)
    for text in ("{}", "no JSON", '{"token": "short", "port": 1}', f'{{"token": "{token}", "port": 70000}}'):
        path.write_text(text)
        assert stored_address(run)[1] == 0 and stored_address(run)[0] != token


INSTRUCTIONS = """# How to label

Look at the **shape**. See [the guide](https://example.org/guide), not [this](javascript:alert(1)).

## Odd ones

<script>alert(1)</script> ![a picture](https://example.org/x.png)

| digit | has |
|---|---|
| 1 | a stroke |
"""


def test_instructions_beside_the_item(run: Path, session: ReviewSession, pals: object) -> None:
    """From Markdown, with headings below those of the page, and without HTML, pictures or scripts of its own."""
    client = Client(session)
    key = session.run_state().view.keys[4]
    assert 'id="instructions"' not in client.get(f"item/{key}").text
    (run / "instructions.md").write_text(INSTRUCTIONS)
    page = client.get(f"item/{key}").text
    assert "<strong>shape</strong>" in page and "<td>a stroke</td>" in page and "<h3>How to label</h3>" in page
    assert "<h4>Odd ones</h4>" in page and "<script>alert" not in page and "&lt;script&gt;" in page
    assert "javascript:alert" not in page.replace("](javascript:alert(1))", "") and '<img src="https' not in page
    (run / "instructions.md").write_bytes(b"\xff\xfe\xff")
    assert client.get(f"item/{key}").status == 200


def test_a_file_of_instructions_is_kept(run: Path) -> None:
    (run.parent / "guide.md").write_text("Look **twice**.")
    server = Server(run, "--instructions", str(run.parent / "guide.md"), "--name", "ana")
    server.kill()
    assert (run / "instructions.md").read_text() == "Look **twice**."


def test_instructions_that_cannot_be_read(run: Path, pals: object) -> None:
    answer: Answer = pals("review", run, "--no-browser", "--instructions", run.parent / "none.md")  # type: ignore[operator]
    assert answer.code == 2 and "--instructions: cannot read" in " ".join(answer.err.split())


def test_your_answers_from_every_page(session: ReviewSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of their own, as long as there are any; without the button that would replace them by suggestions."""
    client, view = Client(session), session.run_state().view
    monkeypatch.setattr("pals.review.session.GRID_ITEMS", 4)
    monkeypatch.setattr("pals.review.app.GRID_ITEMS", 4)
    assert "No answers yet" in client.get("grid?order=answered").text
    for key in view.keys[:10]:
        client.post("answer", {"items": [key], "kind": "dont-know", "key": next(KEYS)})
    for page in ("item?order=everything", "grid?order=everything", "overview", "changes"):
        assert 'href="/secret-token/grid?order=answered"' in client.get(page).text
    shown = []
    for start, links in ((0, ["4"]), (4, ["0", "8"]), (8, ["4"])):
        text = client.get(f"grid?order=answered&from={start}").text
        shown += [
            part.partition('"')[0] for part in text.split('class="tile"')[1:] for part in [part.partition('data-key="')[2]]
        ]
        assert [part.partition('"')[0] for part in text.split("&amp;from=")[1:]] == links
        assert 'id="confirm"' not in text and 'id="take-back"' in text
    assert shown == list(reversed(view.keys[:10]))
    oldest = view.keys[0]
    assert 'id="take-back"' in client.get(f"item/{oldest}").text
    undone = client.post("undo", {"items": [oldest], "key": next(KEYS)}).json["undone"]
    assert undone == {"key": oldest, "said": "don't know"}
    assert 'id="take-back"' not in client.get(f"item/{oldest}").text


def _given(*answers: str) -> list[ReviewAnswer]:
    """ "ana:p", "ben:p|q", "cho:p?" (unsure), "dan:-" (none of these), "eve:?" (don't know), "fay:" (skipped)."""
    found = []
    for number, text in enumerate(answers):
        who, _, label = text.partition(":")
        kind = {"-": "none-of-these", "?": "dont-know", "": "skip"}.get(label, "label")
        labels = tuple(label.rstrip("?").split("|")) if kind == "label" else ()
        found.append(ReviewAnswer(number, "item", who, kind, labels, not label.endswith("?"), 0.0))
    return found


def test_agreement_by_hand() -> None:
    by_item = [
        _given("ana:p", "ben:p"),
        _given("ana:p", "ben:q"),
        _given("ana:p|q", "ben:q"),  # allow one class
        _given("ana:-", "ben:-"),
        _given("ana:-", "ben:p"),
        _given("ana:p?", "ben:q"),
        _given("ana:?", "ben:q"),
        _given("ana:p", "ben:"),
        _given("cho:p", "ben:p"),
    ]
    found = Reviewers.of(by_item, lambda name: [name])
    assert found.counts == [("ana", 8), ("ben", 8), ("cho", 1)]
    assert found.pairs == [("ana", "ben", 5, 3), ("ben", "cho", 1, 1)]


def test_agreement_counts_what_was_settled(run: Path, session: ReviewSession) -> None:
    store = AnswerStore(run)
    for who, label, settles in (("ana", "digit 1", False), ("ben", "digit 2", False), ("cho", "digit 1", True)):
        store.add(who, [NewAnswer("005.png", "label", (label,), settles=settles)], next(KEYS))
    store.close()
    assert set(session.overview("ana")["reviewers"].pairs) == {
        ("ana", "ben", 1, 0), ("ana", "cho", 1, 1), ("ben", "cho", 1, 0),
    }  # fmt: skip
    page = Client(session).get("overview").text
    assert "agree on 1 of 1 item (100%)" in page and "agree on 0 of 1 item (0%)" in page
