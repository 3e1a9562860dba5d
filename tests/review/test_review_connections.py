"""Whoever never finishes a request, breaks off, or holds the file of answers keeps nobody else out."""

from __future__ import annotations

import logging
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from _review import Client

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

import uvicorn

from pals.review import protocol
from pals.review.app import WebApp
from pals.review.session import ReviewSession
from pals.review.store import AnswerStore, LockedError, NewAnswer

Send = Callable[[bytes], socket.socket]
HALF = b"GET /token/item HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
BODY = (
    b"POST /token/answer HTTP/1.1\r\nHost: here\r\nOrigin: http://here\r\nContent-Type: application/json\r\n"
    b"Content-Length: 4000\r\n\r\n{"
)


@pytest.fixture
def session(run: Path) -> Iterator[ReviewSession]:
    session = ReviewSession(run)
    yield session
    session.close()


@pytest.fixture
def port(session: ReviewSession) -> Iterator[int]:
    """The application behind uvicorn, as `pals review` sets it up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number = listening.getsockname()[1]
        hosts = frozenset({"here", f"127.0.0.1:{number}"})
        app: Any = WebApp(session, "ana").app("token", hosts)
        config = uvicorn.Config(
            app, http=protocol.BoundedProtocol, ws="none", lifespan="off", log_config=None, limit_concurrency=256
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield number
        server.should_exit = True
        thread.join()


def status(port: int, path: str = "/token/static/icon.svg") -> int:
    with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


@pytest.fixture
def sending(port: int) -> Iterator[Send]:
    """A connection on which this was sent."""
    made: list[socket.socket] = []

    def send(data: bytes) -> socket.socket:
        made.append(socket.create_connection(("127.0.0.1", port), timeout=30))
        made[-1].sendall(data)
        return made[-1]

    yield send
    for one in made:
        one.close()


def closed(connection: socket.socket) -> bool:
    """Waits until it is."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass
    return True


def test_three_hundred_half_sent_heads_keep_nobody_out(port: int, sending: Send) -> None:
    held = [sending(HALF) for _ in range(300)]
    assert [status(port) for _ in range(3)] == [200] * 3
    assert closed(held[0])


@pytest.mark.parametrize("data", [b"", HALF, BODY])
def test_a_request_that_never_ends(data: bytes, port: int, sending: Send, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one whose bytes come one by one, and the second over the same connection."""
    monkeypatch.setattr(protocol, "MAX_REQUEST_SECONDS", 0.3)
    first = b"GET /token/static/icon.svg HTTP/1.1\r\nHost: here\r\n\r\n"
    started = time.monotonic()
    for connection in (sending(data), sending(first + (data or HALF))):
        assert closed(connection)
    assert time.monotonic() - started < 5
    assert status(port) == 200


def test_who_has_no_token_keeps_no_connection(sending: Send) -> None:
    connection = sending(b"POST /wrong/answer HTTP/1.1\r\nHost: here\r\nContent-Length: 4000\r\n\r\n{")
    assert b" 403 " in connection.recv(4096) and closed(connection)


def test_an_upload_that_breaks_off_prints_nothing(port: int, sending: Send, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    for _ in range(3):
        sending(BODY).close()
    assert status(port) == 200
    time.sleep(0.1)
    assert caplog.records == []


@pytest.fixture
def held(run: Path, session: ReviewSession) -> Iterator[Callable[[], None]]:
    """Another program writes to the file with the answers, until this is called."""
    other = sqlite3.connect(run / "review.sqlite", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    yield lambda: other.execute("COMMIT") and None
    other.close()


def test_answers_do_not_queue_up_while_another_program_writes(
    session: ReviewSession, held: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is told after a moment, pages are shown meanwhile, and the same answer sent again is saved once."""
    client, keys = Client(session), session.run_state().view.keys
    monkeypatch.setattr(session.store, "wait", 0.3)
    session.store._answers.execute("PRAGMA busy_timeout = 300")

    def answer(number: int) -> int:
        body = {"items": [keys[number]], "kind": "dont-know", "labels": [], "key": f"key-{number:06d}"}
        return client.post("answer", body).status

    started = time.monotonic()
    with ThreadPoolExecutor(10) as people:
        waiting = [people.submit(answer, number) for number in range(8)]
        time.sleep(0.05)
        began = time.monotonic()
        pages = [client.get(path).status for path in ("item", "overview", "answers.csv", "grid")]
        shown = time.monotonic() - began
        assert [one.result() for one in waiting] == [503] * 8
    assert time.monotonic() - started < 3  # 80 s before
    assert pages == [200] * 4 and shown < 2.5
    held()
    assert [answer(number) for number in range(8)] == [200] * 8
    assert len(session.store.current()) == 8


def test_a_command_waits_longer_and_says_why(run: Path, held: Callable[[], None]) -> None:
    store = AnswerStore(run, wait=0.1)
    with pytest.raises(LockedError, match="in use by another program"):
        store.add("ana", [NewAnswer("005.png", "dont-know")], "key")
    held()
    assert len(store.add("ana", [NewAnswer("005.png", "dont-know")], "key")) == 1
    store.close()
