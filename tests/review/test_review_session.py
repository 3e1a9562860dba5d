"""At the page: which item comes next and for whom, what a page says of it, and what an update makes of the answers."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
import pytest
from PIL import Image

from _review import HOSTILE_LABEL, Client
from _toy import Answer

pytest.importorskip("starlette")

from pals import read_votes, update
from pals.data.shards.stream import SHARD_TYPES
from pals.pipeline.item_order import item_order
from pals.relabel.relabel_queue import relabel_queue
from pals.review.image_files import NoImageError
from pals.review.image_shards import SHARD_ENDINGS, ImageShards, is_of_shards
from pals.review.orders import ORDER_KINDS, ItemOrder
from pals.review.run_view import RunView
from pals.review.session import ReviewSession
from pals.review.store import AnswerStore, NewAnswer
from pals.review.template_values import own_digits
from pals.util.errors import InputError

KEYS = iter(f"key-{number:08d}" for number in range(10_000))


@pytest.fixture
def session(run: Path) -> Iterator[ReviewSession]:
    session = ReviewSession(run)
    yield session
    session.close()


def answer(client: Client, item: str, kind: str = "label", *labels: str, **more: Any) -> None:
    body = {"items": [item], "kind": kind, "labels": list(labels), "key": next(KEYS), **more}
    reply = client.post("answer", body)
    assert reply.status == 200, reply.body


def shown(client: Client, path: str = "item") -> str:
    """The key of the item on a page; "" where there is none."""
    page = client.get(path, x_part="card").text
    return page.partition('data-key="')[2].partition('"')[0]


# ---- what is said of an item


def test_an_answer_is_doubted_not_its_person(run: Path) -> None:
    """Unnamed answers, and several of one person, shared a key, and what was right was called wrong beside them."""
    item, right, wrong, other = "000<b>&'.png", "digit 1", "digit 2", HOSTILE_LABEL
    given = (("", right), ("", right), ("", wrong), ("dan", right), ("dan", wrong), ("dan", f"{wrong}|{other}"), ("", other))
    votes = [[item, who, label, "1.0", "False", f"a{number}"] for number, (who, label) in enumerate(given)]
    (run / "summary.json").write_text("{}")  # which says how many rows the fit wrote
    doubts = [("(unnamed)", wrong, 0.9), ("dan", wrong, 0.9), ("dan", f"{other} + {wrong}", 0.8), ("(unnamed)", other, 0.7)]
    with (run / "votes.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["item", "annotator", "label", "weight", "is_gold", "answer_id"], *votes])
    with (run / "doubtful.csv").open("w", newline="") as file:
        rows = ([n, item, who, said, right, wrong, 0.9, "", ""] for n, (who, said, wrong) in enumerate(doubts, start=1))
        names = "rank,item,annotator,answer,suggestion,probability_wrong,confidence,others,neighbors"
        csv.writer(file).writerows([names.split(","), *rows])
    shown = RunView(run)
    said = shown.facts(shown.place[item])["said"]
    assert [one["wrong"] for one in said] == [None, None, 0.9, None, 0.9, 0.8, 0.7]


# ---- which item


def test_the_queue_is_that_of_relabel_without_what_is_enough(session: ReviewSession, run: Path) -> None:
    state = session.run_state()
    everything, queue = (state.orders.items(ItemOrder(kind)) for kind in ("everything", "queue"))  # type: ignore[arg-type]
    assert [state.view.items[item] for item in everything] == relabel_queue(run, len(everything))["item"].tolist()
    assert (everything == item_order(state.view.labels)).all()
    assert 0 < len(queue) < len(everything)
    asked = [item for item in everything if state.view.decision_N[item] != "enough"]
    drawn_N = state.orders.audit_N
    assert [item for item in queue if not drawn_N[item]] == [item for item in asked if not drawn_N[item]]
    assert drawn_N.sum() == round(0.25 * round(len(asked) / 0.75)) and set(asked) <= set(queue.tolist())
    with closing(ReviewSession(run, audit=0)) as plain:
        assert plain.run_state().orders.items(ItemOrder("queue")).tolist() == asked


def test_the_reasons_are_those_of_relabel(session: ReviewSession, run: Path) -> None:
    shown = session.run_state().view
    for row in relabel_queue(run, 24).to_dict("records"):
        assert shown.facts(shown.place[row["item"]])["reason"] == row["reason"]


def test_the_other_orders(session: ReviewSession) -> None:
    state = session.run_state()
    items, tables = state.view.items, state.view

    def names(kind: str, value: str = "") -> list[str]:
        return [items[item] for item in state.orders.items(ItemOrder.read(kind, value))]

    assert names("doubtful") == list(dict.fromkeys(tables.doubtful["item"]))
    assert {tables.label_N[tables.place[item]] for item in names("class", "digit 1")} == {"digit 1"}
    eves = [item for item, who in zip(tables.doubtful["item"], tables.doubtful["annotator"], strict=True) if who == "eve"]
    assert names("annotator", "eve")[: len(eves)] == eves and sorted(names("annotator", "eve")) == sorted(items)
    assert names("search", "02") == [item for item in names("everything") if "02" in item]
    alike = state.orders.items(ItemOrder("alike", tables.keys[5]))
    assert alike[0] == 5
    assert alike[1:9].tolist() == tables.neighbors.neighbor_NK[5].tolist() and len(set(alike.tolist())) == len(alike)
    assert set(ORDER_KINDS) > {"queue", "alike"}
    with pytest.raises(InputError, match="Unknown order"):
        names("nonsense")


def test_two_people_are_never_asked_the_same(session: ReviewSession) -> None:
    ana, ben = Client(session, "ana"), Client(session, "ben")
    seen: dict[str, list[str]] = {"ana": [], "ben": []}
    while True:
        left = False
        for name, client in (("ana", ana), ("ben", ben)):
            item = shown(client, "item?order=everything")
            if item:
                left = True
                seen[name].append(item)
        for name, client in (("ana", ana), ("ben", ben)):
            if seen[name]:
                answer(client, seen[name][-1], "dont-know")
        if not left:
            break
    both = seen["ana"] + seen["ben"]
    assert len(seen["ana"]) > 1 and len(seen["ben"]) > 1 and len(both) == len(set(both))
    assert len(both) == 24
    assert "Nothing left here" in ana.get("item").text


def test_what_somebody_looks_at_is_not_shown_to_others(session: ReviewSession) -> None:
    ana, ben = Client(session, "ana"), Client(session, "ben")
    first = shown(ana)
    assert shown(ana) == first  # until it is answered
    assert shown(ben) != first
    grid = ben.get("grid?order=everything").text
    assert f'data-key="{first}"' not in grid and grid.count('class="tile"') == 23  # ben's own item is there, too
    assert "Others are looking at the rest" in ana.get(f"item?after={first}").text or shown(ana, f"item?after={first}")


def test_later_goes_on_and_skip_is_not_asked_again(session: ReviewSession) -> None:
    ana = Client(session)
    first = shown(ana)
    second = shown(ana, f"item?after={first}")
    assert second not in ("", first)
    answer(ana, first, "skip")
    assert shown(ana) == second
    assert first not in [shown(ana, f"item?after={key}") for key in (second, first)]
    assert session.overview("ana")["answers"] == 0  # a skip is no answer


def test_undo_goes_back_to_the_item(session: ReviewSession) -> None:
    ana = Client(session)
    first = shown(ana)
    answer(ana, first, "label", "digit 1", sure=False)
    assert shown(ana) != first
    undone = ana.post("undo", {"key": next(KEYS)}).json["undone"]
    assert undone["key"] == first and undone["said"] == "digit 1?"
    assert shown(ana) == first
    assert ana.post("undo", {"key": next(KEYS)}).json == {"undone": None}


# ---- what a page says


def test_a_page_says_all_that_is_known(session: ReviewSession) -> None:
    ana, ben, tables = Client(session, "ana"), Client(session, "ben"), session.run_state().view
    drawn_N = session.run_state().orders.audit_N
    item = next(place for name in tables.doubtful["item"] if not drawn_N[place := tables.place[name]])
    page = ana.get(f"item/{tables.keys[item]}").text
    for words in ("dan", "eve", "likely wrong", "Predicted without seeing the answers", "Most similar items", "Why you see it"):
        assert words in page, words
    answer(ben, tables.keys[item], "label", "digit 1", "digit 2")
    answer(ben, tables.keys[item], "label", "digit 2")
    page = ana.get(f"item/{tables.keys[item]}").text
    assert "on this page" in page and "1 earlier answer" in page and "digit 1 + digit 2" in page
    assert "You answered <b>digit 2</b>" in ben.get(f"item/{tables.keys[item]}").text


def test_the_grid_confirms_many_at_once(session: ReviewSession) -> None:
    ana, tables = Client(session), session.run_state().view
    keys = [tables.keys[item] for item in session.page("ana", ItemOrder("class", "digit 1"))[0]]
    body = {"items": keys, "kind": "as-suggested", "key": next(KEYS)}
    assert len(ana.post("answer", body).json["saved"]) == len(keys) > 2
    assert ana.post("answer", body).status == 200  # sent again
    said = {answer.item: answer.labels for answer in session.store.current()}
    assert said == {tables.items[tables.number[key]]: ("digit 1",) for key in keys}
    assert "Nothing left here" in ana.get("grid?order=class&value=digit+1").text
    assert ana.get("grid?order=answered").text.count("you: digit 1") == len(keys)


def test_your_answers_are_shown_the_last_first(session: ReviewSession) -> None:
    client, shown_items = Client(session), session.run_state().view
    keys = [shown_items.keys[item] for item in (20, 5, 11)]
    for key in keys:
        answer(client, key, "label", "digit 1")
    answer(client, keys[1], "label", "digit 2")
    assert session.page("ana", ItemOrder("answered"))[0] == [5, 11, 20]
    client.post("undo", {"key": "undo-0001"})
    assert session.page("ana", ItemOrder("answered"))[0] == [11, 5, 20]
    for _ in range(2):
        client.post("undo", {"key": f"undo-more-{_}"})
    assert session.page("ana", ItemOrder("answered"))[0] == [20]
    assert session.page("dan", ItemOrder("answered")) == ([], 0)


@pytest.mark.parametrize(
    ("name", "column"), [("doubtful.csv", "probability_wrong"), ("votes.csv", "weight"), ("labels.csv", "confidence")]
)
def test_a_table_with_a_damaged_number(name: str, column: str, run: Path, pals: Any) -> None:
    table = pd.read_csv(run / name, dtype=str)
    table.loc[0, column] = "many"
    table.to_csv(run / name, index=False)
    opened: Answer = pals("review", run, "--no-browser")
    assert opened.code == 2 and f"The {column} of " in opened.err and "is 'many', not a number" in opened.err


def test_a_search_finds_what_has_an_answer(session: ReviewSession) -> None:
    ana, tables = Client(session), session.run_state().view
    answer(ana, tables.keys[0], "label", "digit 1")
    name = quote(tables.items[0])
    assert "See what was found" in ana.get(f"item?order=search&value={name}").text
    found = ana.get(f"grid?order=search&value={name}").text
    assert found.count('class="tile"') == 1 and "you: digit 1" in found and "1 item</span>" in found


def test_two_grids_show_different_items(session: ReviewSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pals.review.session.GRID_ITEMS", 10)
    pages = [session.page(name, ItemOrder("everything"))[0] for name in ("ana", "ben", "ana", "cho")]
    assert [len(page) for page in pages] == [10, 10, 10, 4]
    assert pages[0] == pages[2] and len({item for page in pages for item in page}) == 24


def test_keys_of_classes() -> None:
    assert own_digits(["digit 7", "digit 0", "grade 3"]) == "703"
    assert own_digits(["a1", "b1"]) == own_digits(["a", "b"]) == own_digits(["a12", "b3"]) == ""


def test_who_is_asked_first(session: ReviewSession) -> None:
    client = Client(session, "")
    assert client.get("item").headers["location"] == "/secret-token/who"
    assert client.post("answer", {"items": [session.run_state().view.keys[0]], "kind": "skip", "key": next(KEYS)}).status == 400
    form = {"origin": "http://127.0.0.1:80", "content-type": "application/x-www-form-urlencoded"}
    assert "Enter a name" in client.ask("POST", "/secret-token/who", form, b"name=+").text
    named = client.ask("POST", "/secret-token/who", form, b"name=J%C3%B6+B")
    cookie = named.headers["set-cookie"].partition(";")[0]
    assert "Jö B" in client.get("overview", cookie=cookie).text


def test_thumbnails_are_made_once_and_kept(session: ReviewSession, monkeypatch: pytest.MonkeyPatch) -> None:
    client, key = Client(session), session.run_state().view.keys[4]
    first = client.get(f"thumbnail/{key}")
    assert first.headers["content-type"] == "image/png" and len(first.body) > 50
    monkeypatch.setattr("pals.review.image_files.read_image", None)
    assert client.get(f"thumbnail/{key}").body == first.body


def test_pictures_that_have_moved_are_one_sentence(run: Path) -> None:
    config = run / "config.yaml"
    images = next(line for line in config.read_text().splitlines() if "images:" in line)
    config.write_text(config.read_text().replace(images, "  images: /nowhere/at/all"))
    session = ReviewSession(run)
    client = Client(session)
    assert "is no longer in /nowhere/at/all" in client.get("item").text
    assert client.get(f"image/{session.run_state().view.keys[0]}").status == 404
    session.close()


def test_the_live_line(session: ReviewSession) -> None:
    ana = Client(session)
    answer(ana, shown(ana), "dont-know")
    stream = ana.get("events")
    assert stream.headers["content-type"].startswith("text/event-stream")
    state = json.loads(stream.text.partition("data: ")[2].partition("\n\n")[0])
    assert state == {"round": 0, "waiting": 1, "update": "idle", "lines": []}


# ---- updates


def test_the_loop(run: Path) -> None:
    """Answers go in, the queue is made anew, what was said meanwhile waits, and an answer that was replaced leaves no trace."""
    session = ReviewSession(run, trust=["ana"], trust_review=False)
    ana, tables = Client(session), session.run_state().view
    queue = session.run_state().orders.items(ItemOrder("everything")).tolist()[:9]
    for item in queue[:-2]:
        answer(ana, tables.keys[item], "label", "digit 1")
    answer(ana, tables.keys[queue[0]], "label", "digit 2")
    dan = Client(session, "dan")  # who answered before the review, too
    for item in (queue[1], queue[-2]):
        answer(dan, tables.keys[item], "label", "digit 2")
    found = update(run)
    answer(dan, tables.keys[queue[-1]], "label", "digit 2")
    after = session.run_state()
    assert after.round.number == 1 and after.view.folder == found.folder == run / "rounds" / "1"
    labels = {item: str(after.view.label_N[after.view.place[tables.items[item]]]) for item in queue}
    assert labels[queue[0]] == "digit 2" and {labels[item] for item in queue[2:-2]} == {"digit 1"}
    votes = read_votes(found.folder / "votes.csv")
    said = zip(votes.item_R.tolist(), votes.annotator_R.tolist(), votes.label_R.tolist(), strict=True)
    of_dan = [
        label for item, who, label in said if votes.items[item] == tables.items[queue[1]] and votes.annotators[who] == "dan"
    ]
    assert [votes.class_names[label] for label in of_dan] == ["digit 2"]
    numbers = session.overview("ana")
    assert numbers["waiting"] == 1 and [row["number"] for row in numbers["rounds"]] == [0, 1]
    assert numbers["decisions"]["enough"] > 0
    page = ana.get("overview").text
    assert "Labels right" in page and "before" in page and "Have enough answers" in page
    answered = [after.view.place[tables.items[item]] for item in queue]
    assert not set(answered[:-2]) & set(_open(session, "ben", "everything"))  # ana is trusted: it is known
    assert answered[-2] in _open(session, "ben", "everything")  # somebody else may be asked after an update
    assert answered[-2] not in _open(session, "dan", "everything")
    assert answered[-1] not in _open(session, "ben", "everything")  # but not of what waits for one
    session.close()
    again = ReviewSession(run)  # a restart shows the same
    assert again.run_state().view.folder == found.folder
    again.close()
    with pytest.raises(InputError, match="Review that run instead"):
        ReviewSession(found.folder)


def _open(session: ReviewSession, person: str, order: Any = "queue") -> list[int]:
    state = session.run_state()
    items = state.orders.items(ItemOrder(order))
    return [int(item) for item in items[~state.progress.done_N(person)[items]]]


def test_the_command(run: Path, pals: Any) -> None:
    assert pals("update", run).code == 2  # nobody has answered: files are needed
    AnswerStore(run).close()
    empty: Answer = pals("update", run)
    assert empty.code == 2 and "no answer has been given in `pals review`" in empty.err
    AnswerStore(run).add("ana", [NewAnswer("005.png", "label", ("digit 1",))], "k")
    done: Answer = pals("update", run)
    assert done.code == 0, done.err
    assert "round 1 (1 answer of the review)" in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("nowhere",), "is not a run folder"),
        (("RUN", "--port", "TAKEN"), "is in use"),
        (("RUN", "--host", "256.1.1.1"), "Cannot listen"),
    ],
    ids=("no run", "port taken", "no host"),
)
def test_bad_input_is_one_sentence(run: Path, pals: Any, options: tuple[str, ...], words: str) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        values = {"RUN": str(run), "TAKEN": str(taken.getsockname()[1])}
        answer: Answer = pals("review", *(values.get(option, option) for option in options), "--no-browser")
    assert answer.code == 2 and words in " ".join(answer.err.split()) and "Traceback" not in answer.err


def test_a_folder_that_cannot_be_written(run: Path, pals: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        import sqlite3

        raise sqlite3.OperationalError("attempt to write a readonly database")

    monkeypatch.setattr("pals.review.store.sqlite3.connect", refuse)
    answer: Answer = pals("review", run, "--no-browser")
    assert answer.code == 2 and "Make the folder writable" in " ".join(answer.err.split())


def test_without_the_extra_it_is_one_sentence(run: Path, pals: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "uvicorn", None)
    answer: Answer = pals("review", run, "--no-browser")
    assert answer.code == 2 and "pip install 'pals-learn[review]'" in " ".join(answer.err.split())


def test_the_page_loads_no_library_for_learning(run: Path) -> None:
    """A server that is ready at once: whatever an update needs is loaded by the process that makes it."""
    code = """if True:
        import sys
        from pathlib import Path
        import pals.cli, pals.review.serve, uvicorn
        from pals.review.app import WebApp
        from pals.review.session import ReviewSession
        from pals.review.orders import ItemOrder
        from pals.review.template_values import card_values
        web = WebApp(ReviewSession(Path(sys.argv[1])), "ana")
        web.app("token", frozenset())
        card_values(web.session, web.session.next("ana", ItemOrder("everything")).item, "ana")
        heavy = {"torch", "torchvision", "timm", "scipy", "sklearn", "pandas", "pyarrow", "pydantic"}
        print(sorted(heavy & set(sys.modules)))"""
    found = subprocess.run([sys.executable, "-c", code, str(run)], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_a_wrong_address_is_a_page_with_a_way_back(session: ReviewSession) -> None:
    """For a browser; whoever asks otherwise has the sentence. It is there also when nothing else is."""
    client = Client(session)
    for path, status, words in (
        ("item/abc", 404, "no such item"),
        ("item?order=nonsense", 400, "Unknown order &#39;nonsense&#39;"),
        ("nowhere", 404, "There is no such page."),
    ):
        answer = client.get(path, accept="text/html,*/*")
        assert answer.status == status and words in answer.text and 'href="/secret-token/item"' in answer.text
        assert "<html" not in client.get(path).text
    session.store.path.unlink()
    assert "deleted since" in client.get("item", accept="text/html").text


def test_a_search_that_finds_nothing_says_so(session: ReviewSession) -> None:
    client = Client(session)
    assert "No item has <b>a&amp;b</b> in its name" in client.get("item?order=search&value=a%26b").text
    assert "no such items" in client.get("item?order=class&value=unheard-of").text
    everything = list(session.run_state().view.keys)
    assert client.post("answer", {"items": everything, "kind": "as-suggested", "key": next(KEYS)}).status == 200
    assert "You have gone through this whole list" in client.get("item?order=everything").text


def test_pictures_in_shards_are_shown(fitted: Path, tmp_path: Path) -> None:
    """By the names that the items have; each is taken out alone, and a small copy is kept."""
    folder = fitted.parent / "images"
    with tarfile.open(tmp_path / "some.tar", "w") as tar:
        for number in range(3, 6):
            tar.add(folder / f"{number:03d}.png", f"{number:03d}.png")
    assert set(SHARD_ENDINGS) == {*SHARD_TYPES, ".arrow"}  # and the folders of Hugging Face datasets
    for images in (tmp_path / "some.tar", tmp_path):
        assert is_of_shards(images, "003") and not is_of_shards(folder, "003.png")
        pictures = ImageShards(images, tmp_path / "run")
        name = next(iter(pictures._look_up()[1]))
        assert pictures.there and pictures.full(name) == ((folder / "003.png").read_bytes(), "image/png")
        small = Image.open(io.BytesIO(pictures.thumbnail(name).data))
        assert small.size == (8, 8) and len(list((tmp_path / "run").rglob("*.img"))) == 1
        with pytest.raises(NoImageError, match="no longer in"):
            pictures.full("unheard-of")
    (tmp_path / "some.tar").unlink()
    with pytest.raises(NoImageError, match="no longer in"):
        ImageShards(tmp_path, tmp_path / "run").full("003")
