"""The store: nothing is lost, nothing is counted twice, two people are not asked the same, and what goes out can be read."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from pals import read_votes
from pals.review import store as store_module
from pals.review.answers_csv import answers_csv, none_of_these
from pals.review.store import STORE_FILE, AnswerStore, NewAnswer
from pals.util.errors import InputError


@pytest.fixture
def store(tmp_path: Path) -> AnswerStore:
    return AnswerStore(tmp_path)


def say(store: AnswerStore, person: str, item: str, *labels: str, sure: bool = True) -> int:
    return store.add(person, [NewAnswer(item, "label", labels, sure)], f"{person}{item}{labels}{sure}")[0]


def standing(store: AnswerStore) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(answer.item, answer.annotator, answer.labels) for answer in store.current()]


def test_a_second_answer_replaces_the_first_and_the_history_stays(store: AnswerStore) -> None:
    say(store, "ana", "a.png", "cat")
    say(store, "ben", "a.png", "cat")
    say(store, "ana", "a.png", "dog")
    assert standing(store) == [("a.png", "ben", ("cat",)), ("a.png", "ana", ("dog",))]
    assert [answer.labels for answer in store.history("a.png")] == [("cat",), ("cat",), ("dog",)]


def test_undo_brings_back_what_was_there_before(store: AnswerStore) -> None:
    say(store, "ana", "a.png", "cat")
    say(store, "ana", "a.png", "dog")
    say(store, "ben", "b.png", "cat")
    (undone,) = store.undo("ana", "u1")
    assert undone.labels == ("dog",)
    assert store.undo("ana", "u1") == [undone]  # sent again
    assert standing(store) == [("a.png", "ana", ("cat",)), ("b.png", "ben", ("cat",))]
    assert len(store.undo("ana", "u2")) == 1
    assert store.undo("ana", "u3") == []
    assert standing(store) == [("b.png", "ben", ("cat",))]
    assert len(store.history("a.png")) == 4  # two answers, and that they were taken back


def test_an_answer_that_is_sent_again_is_one_answer(store: AnswerStore) -> None:
    said = [NewAnswer("a.png", "label", ("cat",)), NewAnswer("b.png", "skip")]
    assert store.add("ana", said, "k") == store.add("ana", said, "k")
    assert len(store.history("a.png")) == 1
    assert len(store.add("ben", said, "k")) == 2 == len(store.history("a.png"))  # somebody else's key is another


def test_what_was_sent_together_is_taken_back_together(store: AnswerStore) -> None:
    say(store, "ana", "a.png", "cat")
    store.add("ana", [NewAnswer(item, "label", ("dog",)) for item in ("a.png", "b.png", "c.png")], "many")
    say(store, "ben", "b.png", "cat")
    assert [answer.item for answer in store.undo("ana", "u")] == ["a.png", "b.png", "c.png"]
    assert standing(store) == [("a.png", "ana", ("cat",)), ("b.png", "ben", ("cat",))]


def test_many_answers_are_all_written_or_none(store: AnswerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(write: sqlite3.Connection, row: tuple[object, ...]) -> int:
        if row[0] == "b.png":
            raise sqlite3.OperationalError("database or disk is full")
        return insert(write, row)

    insert = store_module._insert
    monkeypatch.setattr(store_module, "_insert", full)
    with pytest.raises(InputError, match="Make room"):
        store.add("ana", [NewAnswer("a.png", "skip"), NewAnswer("b.png", "skip")], "1")
    assert store.current() == []
    say(store, "ana", "a.png", "cat")  # and it goes on


def test_another_process_sees_it_at_once(store: AnswerStore, tmp_path: Path) -> None:
    other = AnswerStore(tmp_path)
    first = say(store, "ana", "a.png", "cat")
    assert standing(other) == [("a.png", "ana", ("cat",))]
    assert other.undo("ana", "u1")
    last, changed = store.changes(first)
    assert (last, changed) == (first + 1, {"a.png": []})


def test_an_item_is_kept_for_one_person(store: AnswerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.claim(["a", "b"], "ana") == ["a", "b"]
    assert store.claim(["b", "c"], "ben") == ["c"]
    assert store.claim(["a"], "ana") == ["a"]  # again
    assert store.claimed(but="ben") == {"a": "ana", "b": "ana"}
    say(store, "ana", "a", "cat")  # is done with it
    assert store.claimed(but="ben") == {"b": "ana"}
    monkeypatch.setattr("pals.review.store.time.time", lambda: 4e9)  # has gone home
    assert store.claim(["b"], "ben") == ["b"]


def test_many_at_once_never_get_the_same_item(store: AnswerStore, tmp_path: Path) -> None:
    got: dict[str, list[str]] = {}

    def take(person: str, own: AnswerStore) -> None:
        got[person] = [item for number in range(40) for item in own.claim([str(number)], person)]

    people = [threading.Thread(target=take, args=(f"p{k}", AnswerStore(tmp_path) if k % 2 else store)) for k in range(4)]
    for person in people:
        person.start()
    for person in people:
        person.join()
    assert sorted((item for items in got.values() for item in items), key=int) == [str(number) for number in range(40)]


@pytest.mark.parametrize("separator", ["|", None])
def test_what_goes_out_is_read_back_exactly(store: AnswerStore, tmp_path: Path, separator: str | None) -> None:
    say(store, "ana", "=1+1.png", "red|black", "blue\\")
    say(store, "ana", 'b, "c".png', "blue\\", sure=False)
    say(store, "ben", "=1+1.png", "=cmd")
    say(store, "ben", "d.png", "red|black")
    store.add("ana", [NewAnswer("d.png", "dont-know"), NewAnswer("e.png", "none-of-these"), NewAnswer("f.png", "skip")], "1")
    path = tmp_path / "answers.csv"
    path.write_text(answers_csv(store.current(), separator), encoding="utf-8")
    votes = read_votes(path, separator=separator)
    rows = zip(votes.item_R, votes.annotator_R, votes.label_R, votes.sure_R, strict=True)
    read = sorted((votes.items[i], votes.annotators[w], votes.class_names[c], bool(sure)) for i, w, c, sure in rows)
    assert read == [
        ("=1+1.png", "ana", "blue\\", True),
        ("=1+1.png", "ana", "red|black", True),
        ("=1+1.png", "ben", "=cmd", True),
        ('b, "c".png', "ana", "blue\\", False),
        ("d.png", "ben", "red|black", True),
    ]
    assert votes.num_answers == 4
    assert [votes.items[i] for i in votes.unknown_item_U] == ["d.png"]
    assert none_of_these(store.current()) == ["e.png"]
    assert not [cell for line in path.read_text().splitlines() for cell in line.split(",") if cell.startswith(("=", "+", "@"))]


def test_nothing_is_confirmed_that_goes_into_a_deleted_file(store: AnswerStore) -> None:
    """An open file outlives its name: what is written then is lost with the process."""
    say(store, "ana", "a.png", "cat")
    aside = store.path.with_suffix(".aside")
    store.path.rename(aside)
    with pytest.raises(InputError, match="moved, replaced or deleted"):
        say(store, "ana", "b.png", "cat")
    store.path.write_bytes(b"")
    with pytest.raises(InputError, match="Put it back"):
        store.undo("ana", "undo-1")
    aside.replace(store.path)
    say(store, "ana", "c.png", "dog")
    assert standing(store) == [("a.png", "ana", ("cat",)), ("c.png", "ana", ("dog",))]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("labels", value) for value in (None, 5, b"\xff", "", "[1]", '"cat"', "{}", "[")),
        *(("at", value) for value in ("soon", 1e300, None)),
        *(("item", b"\xff"), ("person", b"\xff"), ("kind", "whim"), ("undoes", "x")),
    ],
)
def test_a_damaged_row_is_one_sentence(column: str, value: object, store: AnswerStore, tmp_path: Path) -> None:
    store.add("ana", [NewAnswer("a.png", "label", ("cat",))], "k")
    with sqlite3.connect(store.path) as other:
        other.execute("CREATE TABLE copy AS SELECT * FROM answers")
        other.execute("DROP TABLE answers")  # the constraints, too
        other.execute("ALTER TABLE copy RENAME TO answers")
        other.execute(f"UPDATE answers SET {column} = ?", (value,))
    other.close()
    again = AnswerStore(tmp_path)
    with pytest.raises(InputError, match=r"review\.sqlite is damaged \(row 1 of its answers is malformed\)"):
        again.current()
    again.close()


def test_bad_files_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / STORE_FILE).write_bytes(b"no database at all" * 100)
    with pytest.raises(InputError, match="is damaged"):
        AnswerStore(tmp_path)
    (tmp_path / STORE_FILE).unlink()
    with sqlite3.connect(tmp_path / STORE_FILE) as file:
        file.execute("PRAGMA user_version = 99")
    with pytest.raises(InputError, match="newer PALS"):
        AnswerStore(tmp_path)
    with pytest.raises(InputError, match="Make the folder writable"):
        AnswerStore(tmp_path / "missing")
