"""The server is killed without warning while people answer, again and again: what was confirmed is there afterwards."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from _review import Server

pytest.importorskip("starlette")

from pals.review.run_view import RunView
from pals.review.store import AnswerStore

FEWEST = 8  # answers that are confirmed before each kill


def _answering(
    server: Server, person: str, items: list[str], confirmed: list[tuple[str, str, str]], stop: threading.Event
) -> None:
    """Answer as fast as the server takes it; note down what it has confirmed."""
    place = urlsplit(server.address)
    while not stop.is_set():
        item, label = random.choice(items), random.choice(["digit 1", "digit 2"])
        body = {"items": [item], "kind": "label", "labels": [label], "key": f"{uuid.uuid4()}"}
        request = urllib.request.Request(
            f"{server.address}answer",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "Origin": f"http://{place.netloc}", "Cookie": f"annotator={person}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                saved = json.loads(answer.read())["saved"]
        except (OSError, HTTPException, ValueError):  # it is gone, perhaps in the middle of a word
            return
        confirmed.append((person, item, f"{saved[0]} {label}"))


def _kill_and_look(run: Path, kills: int) -> None:
    shown = RunView(run)
    keys = dict(zip(shown.keys, shown.items, strict=True))
    confirmed: list[tuple[str, str, str]] = []
    for turn in range(kills):
        server, stop, before = Server(run), threading.Event(), len(confirmed)
        people = [
            threading.Thread(target=_answering, args=(server, f"p{k}", list(keys)[:5], confirmed, stop)) for k in range(3)
        ]
        for person in people:
            person.start()
        while len(confirmed) < before + FEWEST and any(person.is_alive() for person in people):
            time.sleep(0.01)  # however slow the machine is
        time.sleep(random.Random(turn).uniform(0.0, 0.4))
        server.kill()
        stop.set()
        for person in people:
            person.join()
        store = AnswerStore(run)
        kept = {(row.annotator, row.item, f"{row.id} {row.labels[0]}") for item in keys.values() for row in store.history(item)}
        store.close()
        lost = [one for one in confirmed if (one[0], keys[one[1]], one[2]) not in kept]
        assert lost == []
    assert len(confirmed) >= FEWEST * kills and len({one[0] for one in confirmed}) == 3
    store = AnswerStore(run)
    last = {(row.annotator, row.item): row.labels[0] for row in store.current()}
    for person, item, said in confirmed:  # the later ones overwrite the earlier ones
        number, _, label = said.partition(" ")
        newer = [row for row in store.history(keys[item]) if row.annotator == person and row.id > int(number)]
        assert newer or last[person, keys[item]] == label
    store.close()


@pytest.mark.slow
def test_kills_of_the_server_lose_nothing(run: Path) -> None:
    _kill_and_look(run, 20)


WRITING = """
import sys
from http.client import HTTPException
from pathlib import Path
from pals.review.store import NewAnswer, AnswerStore
store = AnswerStore(Path(sys.argv[1]))
for number in range(100_000):
    ids = store.add("ana", [NewAnswer(f"{number % 7}.png", "label", (str(number),))], f"{sys.argv[2]}-{number}")
    print(ids[0], number, flush=True)
"""


def test_a_writer_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    """The same without the web, and quickly: whatever was said to be saved is there."""
    told: dict[int, str] = {}
    for turn in range(12):
        command = [sys.executable, "-c", WRITING, str(tmp_path), str(turn)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(30):
                number, _, label = process.stdout.readline().partition(" ")
                told[int(number)] = label.strip()
            process.kill()
            for line in process.stdout.read().splitlines():  # what it said before it heard of that
                if line.count(" ") == 1 and not line.endswith(" "):
                    told.setdefault(int(line.partition(" ")[0]), "")
    store = AnswerStore(tmp_path)
    kept = {row.id: row.labels[0] for number in range(7) for row in store.history(f"{number}.png")}
    assert len(told) >= 90 and set(told) <= set(kept)
    assert all(kept[number] == label for number, label in told.items() if label)
    assert len(store.current()) == 7


@pytest.mark.slow
def test_a_polite_end_is_quick_and_says_where_the_answers_are(run: Path) -> None:
    server = Server(run)
    place = urlsplit(server.address)
    connection = HTTPConnection(place.netloc)
    live = urllib.request.urlopen(f"{server.address}events", timeout=30)  # a browser that stays
    assert live.readline().startswith(b"data:")
    taken = []
    for _ in range(20):  # over one connection, as a browser does
        start = time.perf_counter()
        connection.request("GET", f"{place.path}static/icon.svg")
        connection.getresponse().read()
        taken.append(time.perf_counter() - start)
    assert min(taken) < 0.03  # nobody waits for an acknowledgement
    started = time.perf_counter()
    assert "All answers are in" in server.stop()
    assert time.perf_counter() - started < 10 and server.process.returncode == 0
    live.close()
    connection.close()
