"""What a foreign page, a foreign name, a clever address or a hostile file may try, and does not get."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from _review import HOSTILE_LABEL, Client

pytest.importorskip("starlette")

from pals.review.image_files import ImageFiles, NoImageError
from pals.review.security import MAX_BODY_BYTES
from pals.review.session import ReviewSession


class Tags(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))


ANSWER = {"kind": "skip", "key": "k" * 16}


@pytest.fixture(scope="module")
def session(fitted: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReviewSession]:
    """Nobody gets anything written here."""
    session = ReviewSession(Path(shutil.copytree(fitted, tmp_path_factory.mktemp("attacked") / "run")))
    yield session
    assert session.store.current() == []
    session.close()


@pytest.fixture(scope="module")
def client(session: ReviewSession) -> Client:
    return Client(session)


@pytest.fixture(scope="module")
def key(session: ReviewSession) -> str:
    return session.run_state().view.keys[0]


@pytest.mark.parametrize(
    "path",
    ["/", "/item", "/wrong-token/item", "/secret-toke/item", "/secret-token2/item", "//secret-token/item", "/favicon.ico"],
)
def test_without_the_token_there_is_nothing(client: Client, path: str) -> None:
    answer = client.ask("GET", path, {})
    assert answer.status == 403 and b"pals review" in answer.body and b"digit" not in answer.body


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1:81", "127.0.0.1.evil.example", "", "127.0.0.1@evil.example"]
)
def test_a_foreign_name_that_points_here(client: Client, host: str) -> None:
    """DNS rebinding: the page of evil.example, whose name now leads to this machine."""
    assert client.get("item", host=host).status == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://127.0.0.1.evil.example"},
        {"origin": "http://127.0.0.1:81"},
        {"origin": "http://127.0.0.1:80", "sec_fetch_site": "cross-site"},
    ],
    ids=lambda headers: " ".join(headers.values()) or "none",
)
@pytest.mark.parametrize("path", ["answer", "undo", "update", "who"])
def test_a_foreign_page_cannot_send_anything(client: Client, key: str, path: str, headers: dict[str, str]) -> None:
    assert client.post(path, {"items": [key], **ANSWER}, **headers).status == 403


def test_a_form_of_a_foreign_page_is_no_json(client: Client, key: str) -> None:
    assert client.post("answer", {"items": [key], **ANSWER}, content_type="text/plain").status == 415


def test_bodies_are_bounded(client: Client, key: str) -> None:
    origin = {"origin": "http://127.0.0.1:80", "content-type": "application/json"}
    big = b"[" + b" " * MAX_BODY_BYTES + b"]"
    assert client.ask("POST", "/secret-token/answer", origin | {"content-length": str(len(big))}, big).status == 413
    pieces = [b" " * 10_000] * 20  # whose length nobody announced
    assert client.ask("POST", "/secret-token/answer", origin, *pieces).status == 413
    assert client.ask("POST", "/secret-token/answer", origin | {"content-length": "-1"}, b"{}").status == 413
    assert client.post("answer", {"items": [key] * 501, **ANSWER}).status == 400
    nested = b"[" * 30_000
    assert client.ask("POST", "/secret-token/answer", origin, nested).status == 400


@pytest.mark.parametrize(
    "body",
    [
        {}, [], 3, {"items": "x"}, {"items": []}, {"items": [1], **ANSWER}, {"items": ["0" * 16], **ANSWER},
        {"items": ["KEY"], "kind": "undo", "key": "k" * 16}, {"items": ["KEY"], "kind": "skip"},
        {"items": ["KEY"], "kind": "skip", "key": "k" * 5000},
        {"items": ["KEY"], "kind": "label", "labels": [], "key": "k" * 16},
        {"items": ["KEY"], "kind": "label", "labels": ["no class"], "key": "k" * 16},
        {"items": ["KEY"], "kind": "label", "labels": ["digit 1", "digit 1"], "key": "k" * 16},
        {"items": ["KEY"], "kind": "skip", "labels": ["digit 1"], "key": "k" * 16},
        {"items": ["KEY"], "kind": "label", "labels": {"digit 1": 1}, "key": "k" * 16},
    ],
    ids=str,
)  # fmt: skip
def test_nonsense_is_refused_in_a_sentence(client: Client, key: str, body: object) -> None:
    if isinstance(body, dict) and body.get("items") == ["KEY"]:
        body = {**body, "items": [key]}
    answer = client.post("answer", body)
    assert answer.status == 400 and re.search(r"\.$", answer.json["error"])


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE", "OPTIONS"])
def test_other_methods_do_nothing(client: Client, method: str) -> None:
    answer = client.ask(method, "/secret-token/item", {"origin": "http://127.0.0.1:80"})
    assert answer.status == 405 and "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        "image/../../config.yaml", "image/..%2f..%2fconfig.yaml", "image/%2e%2e%2f%2e%2e%2fconfig.yaml",
        "image/%252e%252e%252fconfig.yaml", "image//etc/passwd", "image/%2fetc%2fpasswd", "image/000.png",
        "image/KEY%00", "image/KEY/../../x", "image/..\\..\\config.yaml", "thumbnail/..%2f..%2fvotes.csv",
        "static/../render.py", "static/..%2frender.py", "static/%2fetc%2fpasswd", "item/..%2f..%2fconfig.yaml",
    ],
)  # fmt: skip
def test_no_address_leads_to_another_file(client: Client, key: str, path: str) -> None:
    answer = client.get(path.replace("KEY", key))
    assert answer.status == 404 and b"votes" not in answer.body and b"root:" not in answer.body


@pytest.mark.parametrize(
    "item",
    ["../secret.png", "a/../../secret.png", "/etc/passwd", "", ".", "x\0.png", "out.png", "deep/out/secret.png", "pipe.png"],
)
def test_no_item_leads_out_of_the_picture_folder(tmp_path: Path, item: str) -> None:
    """Whatever the table of items says: by dots, from the root, through links to files and folders."""
    images = tmp_path / "images"
    (images / "deep").mkdir(parents=True)
    Image.new("RGB", (9, 9)).save(tmp_path / "secret.png")
    Image.new("RGB", (9, 9)).save(images / "fine.png")
    (images / "out.png").symlink_to(tmp_path / "secret.png")
    (images / "deep" / "out").symlink_to(tmp_path)
    (images / "in.png").symlink_to(images / "fine.png")
    os.mkfifo(images / "pipe.png")
    pictures = ImageFiles(images, tmp_path / "run")
    for read in (pictures.full, pictures.thumbnail):
        with pytest.raises(NoImageError):
            read(item)
        assert read("fine.png").media_type == read("in.png").media_type == "image/png"
    if item == "out.png":
        assert ImageFiles(images, tmp_path / "run", follow_links=True).full(item).data


def test_a_file_that_is_no_picture_is_not_sent(tmp_path: Path) -> None:
    (tmp_path / "page.png").write_bytes(b"<html><script>alert(1)</script>")
    (tmp_path / "drawing.png").write_bytes(b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>")
    pictures = ImageFiles(tmp_path, tmp_path)
    for name in ("page.png", "drawing.png"):
        for read in (pictures.full, pictures.thumbnail):
            with pytest.raises(NoImageError):
                read(name)


@pytest.mark.parametrize(
    "path", ["item", "grid?order=everything", "overview", "who", "answers.csv", "static/item.js", "image/KEY", "missing"]
)
def test_every_answer_carries_the_policy(client: Client, key: str, path: str) -> None:
    answer = client.get(path.replace("KEY", key))
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "*" not in policy and "data:" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize("path", ["item?order=everything", "grid?order=everything", "overview", "who"])
def test_pages_hold_no_script_or_style_of_their_own(client: Client, path: str) -> None:
    tags = Tags()
    tags.feed(client.get(path).text)
    assert len(tags.found) > 20
    for tag, attributes in tags.found:
        assert tag != "style" and not [name for name in attributes if name == "style" or name.startswith("on")]
        assert tag != "script" or attributes["src"].startswith("/secret-token/static/")
        for name in ("src", "href", "action"):  # nothing from elsewhere
            assert attributes.get(name, "").startswith(("/secret-token/", "#")) or not attributes.get(name)


def test_names_are_text(client: Client, session: ReviewSession) -> None:
    shown = session.run_state().view
    pages = [client.get(f"item/{key}").text for key in shown.keys] + [client.get("grid?order=everything").text]
    for page in pages:
        assert HOSTILE_LABEL not in page and "<b>&'.png" not in page
        assert "&lt;img src=x onerror=" in page
    odd = next(item for item in shown.items if "<b>" in item)
    assert "&lt;b&gt;&amp;&#39;.png" in client.get(f"item/{shown.keys[shown.place[odd]]}").text
    search = client.get("item?order=search&value=%22%3E%3Cscript%3Ealert(1)%3C/script%3E").text
    assert "<script>alert" not in search
    name = client.get("?name=%3Cscript%3Ealert(1)%3C/script%3E%0d%0aSet-Cookie:%20x=1")
    assert name.status == 303 and "\n" not in name.headers["set-cookie"] and "<" not in name.headers["set-cookie"]


def test_the_cookie_is_for_this_page_alone(client: Client) -> None:
    cookie = client.get("?name=ana").headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "path=/secret-token/" in cookie
