"""For the tests of the review page: pictures of digits with two people's answers, the server as a process, a browser."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import re
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

HOSTILE_LABEL = '<img src=x onerror="document.title=1">'


def make_digits(folder: Path, items: int = 60, *, classes: int = 10, hostile: bool = False, seed: int = 0) -> Path:
    """`folder/images/*.png`, `votes.csv` (dan is mostly right, eve less so) and `truth.json`."""
    (folder / "images").mkdir(parents=True)
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    chosen = [row for row in rng.permutation(len(y)).tolist() if y[row] < classes][:items]
    names = [f"digit {digit}" for digit in range(classes)]
    if hostile:
        names[0] = HOSTILE_LABEL
    truth = {}
    with (folder / "votes.csv").open("w", newline="") as file:
        answers = csv.writer(file)
        answers.writerow(["item", "annotator", "label"])
        for number, row in enumerate(chosen):
            name = f"{number:03d}<b>&'.png" if hostile and number < 3 else f"{number:03d}.png"
            Image.fromarray((255 - 15.9 * x[row].reshape(8, 8)).astype(np.uint8)).save(folder / "images" / name)
            truth[name] = int(y[row])
            for who, looks in (("dan", 0.85), ("eve", 0.7)):
                answers.writerow([name, who, names[y[row] if rng.random() < looks else rng.integers(classes)]])
    (folder / "truth.json").write_text(json.dumps(truth))
    return folder


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Asks the application directly, byte by byte as one likes: no library tidies an address up first."""

    def __init__(self, session: Any, person: str = "ana", host: str = "127.0.0.1:80", token: str = "secret-token") -> None:
        from pals.review.app import WebApp, allowed_hosts

        self.host, self.token = host, token
        self.app = WebApp(session, person).app(token, allowed_hosts(("127.0.0.1", "localhost"), 80))

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", f"/{self.token}/{path}", headers)

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        own = {"origin": f"http://{self.host}", "content-type": "application/json"}
        return self.ask("POST", f"/{self.token}/{path}", own | headers, json.dumps(body).encode())

    def ask(self, method: str, raw: str, headers: Mapping[str, str], *bodies: bytes) -> Answer:
        """`raw`: the path with what follows it, as a browser sends it; `bodies`: what is sent, piece by piece."""
        path, _, query = raw.partition("?")
        named = {"host": self.host} | {name.replace("_", "-"): value for name, value in headers.items()}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": urllib.parse.unquote(path), "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in named.items()],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        pieces = [{"type": "http.request", "body": body, "more_body": True} for body in bodies]
        pieces.append({"type": "http.request", "body": b"", "more_body": False})
        sent: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            if pieces:
                return pieces.pop(0)
            while not any(message.get("body") for message in sent):  # a stream is left once it has said something
                await asyncio.sleep(0.01)
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        asyncio.run(self.app(scope, receive, send))
        found = {name.decode().lower(): value.decode("latin-1") for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:]))


class Server:
    """`pals review` as people start it. `kill` ends it without a word of warning."""

    def __init__(self, run: Path, *options: str) -> None:
        command = [sys.executable, "-m", "pals", "review", run.name, "--no-browser", *options]
        self.process = subprocess.Popen(
            command,
            cwd=run.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdout is not None
        self.words = self.process.stdout.readline()
        found = re.search(r"http://\S+", self.words)
        assert found is not None, self.words + self.process.stdout.read()
        self.address = found[0]

    def read(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self.address}{path}", timeout=30) as answer:
            return bytes(answer.read())

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def stop(self) -> str:
        """As Ctrl-C does; what it said last."""
        self.process.send_signal(signal.SIGINT)
        return str(self.process.communicate(timeout=60)[0])


class Page:
    """One person's browser."""

    def __init__(self, chrome: Any) -> None:
        self.chrome = chrome

    def open(self, address: str) -> None:
        self.chrome.get(address)
        self.until(lambda: self.run("return document.readyState") == "complete")

    def until(self, condition: Callable[[], Any]) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.chrome, 90, poll_frequency=0.05).until(lambda _: condition())

    def run(self, script: str, *arguments: Any) -> Any:
        return self.chrome.execute_script(script, *arguments)

    def find(self, selector: str) -> Any:
        return self.chrome.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector))

    @property
    def item(self) -> str:
        """The item on show; "" where there is none."""
        return self.text("#card figcaption .path")

    def press(self, keys: str) -> None:
        """A key, as pressed wherever the focus is; waits until the next item is there."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.chrome).send_keys(keys).perform()

    def answer(self, keys: str) -> str:
        """Press a key that answers; the item that it was about."""
        before = self.item
        self.press(keys)
        self.until(lambda: self.item != before)
        return before

    def screen(self, width: int, height: int = 800, *, phone: bool = False) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def colours(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}]
        self.chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": features})

    def picture(self, path: Path) -> None:
        """What is on the screen, once all pictures are there."""
        self.until(lambda: self.run("return [...document.images].every((one) => one.complete || one.loading === 'lazy')"))
        self.chrome.save_screenshot(str(path))
