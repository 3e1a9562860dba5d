"""The whole loop in a real browser: sixty pictures, two people, undo, a restart, an update, a phone, the dark, a screen reader.

With PALS_PICTURES=docs/pictures the same steps write the pictures of docs/review.md.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import pytest

from _review import Page, Server, make_digits

pytest.importorskip("selenium")
pytest.importorskip("starlette")

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.keys import Keys

from pals import fit, update
from pals.review.store import AnswerStore, NewAnswer
from pals.runs.rounds import current_round

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver"),
]
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
SIDEWAYS = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
AXE = """
const done = arguments[arguments.length - 1];
axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] })
  .then((found) => done(found.violations.map((one) => [one.id, one.nodes.map((node) => node.html)])));
"""

NOWHERE = "item/nowhere"

Browsers = Callable[[], Page]
Serve = Callable[..., Server]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_digits(tmp_path_factory.mktemp("sixty"), 60)
    fit(
        folder / "images",
        folder / "votes.csv",
        out=folder / "digits",
        encoder="patches",
        settings={"data": {"mirror": False}, "engine": {"device": "cpu"}},
    )
    return folder / "digits"


@pytest.fixture
def run(digits: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(digits, tmp_path / "digits"))


@pytest.fixture
def browsers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsers]:
    """As many as there are people. None of them may have anything to complain about in the end."""
    opened: list[Chrome] = []

    def browser() -> Page:
        options = ChromeOptions()
        options.binary_location = CHROMIUM or ""
        for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        opened.append(Chrome(options=options, service=Service(DRIVER)))
        page = Page(opened[-1])
        page.screen(1280, 900)
        page.colours("light")
        return page

    yield browser
    complaints = [entry["message"] for chrome in opened for entry in chrome.get_log("browser")]
    for chrome in opened:
        chrome.quit()
    expected = ("net::ERR_", "events", NOWHERE)  # of servers that were killed
    assert [words for words in complaints if not any(one in words for one in expected)] == []


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Servers that are gone after the test, however it ends."""
    started: list[Server] = []

    def server(run: Path) -> Server:
        started.append(Server(run, "--name", "ana"))
        return started[-1]

    yield server
    for one in started:
        if one.process.poll() is None:
            one.kill()


def pictured(page: Page, name: str) -> None:
    """A picture for the docs, if anybody wants them."""
    if os.environ.get("PALS_PICTURES"):
        page.picture(Path(os.environ["PALS_PICTURES"]).resolve() / f"review-{name}.png")


def accessible(page: Page) -> None:
    page.run(files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    assert page.chrome.execute_async_script(AXE) == []
    assert not page.run(SIDEWAYS)


def test_the_whole_loop(run: Path, digits: Path, browsers: Browsers, serve: Serve) -> None:
    server = serve(run)
    ana, ben = browsers(), browsers()
    ana.open(server.address)
    pictured(ana, "item")
    ben.open(f"{server.address}who")
    ben.find("#name").clear()
    ben.find("#name").send_keys("ben", Keys.ENTER)
    ben.until(lambda: ben.item)
    assert ben.text(".who a") == "ben" and ana.text(".who a") == "ana"

    truth = {item: str(digit) for item, digit in json.loads((digits.parent / "truth.json").read_text()).items()}

    asked: dict[str, list[str]] = {"ana": [], "ben": []}
    for _ in range(5):
        asked["ana"].append(ana.answer(truth[ana.item]))
        asked["ben"].append(ben.answer(truth[ben.item]))
    asked["ana"] += [ana.answer(Keys.ENTER), ana.answer("d")]  # as suggested, don't know
    assert not set(asked["ana"]) & set(asked["ben"])

    shown = ana.item
    ana.press("?")
    ana.until(lambda: ana.find("#help").is_displayed())
    ana.press("d")  # not an answer while the help is open
    ana.press(Keys.ESCAPE)
    ana.until(lambda: not ana.find("#help").is_displayed())
    ana.find("details.orders summary").click()
    assert ana.find(".order-list").is_displayed()
    ana.press(Keys.ESCAPE)
    assert not ana.find(".order-list").is_displayed()
    ana.press("mc")
    ana.until(lambda: ana.find("#several-hint").is_displayed())
    ana.press(Keys.ESCAPE)
    ana.until(lambda: not ana.find("#several-hint").is_displayed())
    assert ana.find("#unsure").get_attribute("aria-pressed") == "false"

    wrong = ana.answer("2")
    assert wrong == shown
    ana.press("u")
    ana.until(lambda: ana.item == wrong)
    ana.press("m")
    ana.until(lambda: ana.find("#unsure").get_attribute("aria-pressed") == "true")
    assert ana.answer(truth[wrong]) == wrong
    ana.find("#several").click()  # which leaves the focus there
    ana.until(lambda: ana.find("#several-hint").is_displayed())
    ana.press("45")
    several = ana.answer(Keys.ENTER)
    none, skipped, later = ana.answer("n"), ana.answer("s"), ana.answer(Keys.ARROW_RIGHT)
    ana.press(Keys.ARROW_LEFT)
    ana.until(lambda: ana.item == later)

    owl = ana.item
    ana.press("w")
    ana.until(lambda: ana.find("#new-class").is_displayed())
    accessible(ana)
    ana.press("owl")
    ana.answer(Keys.ENTER)
    ana.press("u")
    ana.until(lambda: ana.item == owl)
    assert "owl" in ana.text(".choices")

    server.kill()  # in the middle of it
    ana.press("6")
    ana.until(lambda: "Not saved yet" in ana.text("#notice"))
    server = serve(run)
    ana.until(lambda: ana.item != later)  # the same address: the answer is saved, the page goes on
    ana.press("u")
    ana.until(lambda: ana.item == later and not ana.find("#notice").is_displayed())
    ana.press(Keys.ARROW_RIGHT)
    ana.until(lambda: ana.item != later)
    store = AnswerStore(run)
    said = {(one.item, one.annotator): (one.kind, one.labels, one.sure) for one in store.current()}
    assert said[wrong, "ana"] == ("label", (f"digit {truth[wrong]}",), False)
    assert said[several, "ana"] == ("label", ("digit 4", "digit 5"), True)
    assert said[none, "ana"][0] == "none-of-these" and said[skipped, "ana"][0] == "skip"
    assert all(said[item, "ben"] == ("label", (f"digit {truth[item]}",), True) for item in asked["ben"])
    assert (later, "ana") not in said and ana.item not in (wrong, several, none, skipped)

    ana.open(f"{server.address}grid?order=class&value=digit+1")
    tiles = len(ana.run("return document.querySelectorAll('.tile')"))
    ana.find(".tile").click()
    assert ana.text("#chosen") == "1 selected"
    ana.find("#all").click()
    pictured(ana, "grid")
    ana.find("#confirm").click()
    ana.until(lambda: "Nothing left here" in ana.text("main"))
    assert sum(one.labels == ("digit 1",) for one in store.current() if one.annotator == "ana") >= tiles > 3

    ana.open(f"{server.address}overview")
    assert ana.text("#waiting") != "0"
    ana.find("#update").click()
    ana.until(lambda: "Closed form" in ana.text("#log"))  # live
    meanwhile = ben.answer(truth[ben.item])  # people go on
    ana.until(lambda: ana.run("return document.body.dataset.round") == "1")
    rounds = ana.run("return [...document.querySelectorAll('#rounds th')].map((one) => one.textContent)")
    assert rounds == ["1", "0"]
    assert ana.text("#waiting") == "1"  # what ben said meanwhile
    ana.until(lambda: ana.text("#update-state") == "Done.")
    pictured(ana, "overview")
    ben.until(lambda: ben.run("return document.querySelector('#live').textContent") == "1 item waiting")
    assert current_round(run).upto < max(one.id for one in store.of(meanwhile))
    ana.find("#after-update a[href$=changes]").click()
    ana.until(lambda: "What round 1 changed" in ana.text("h1") and ana.find(".changes li"))
    ana.find("a[href$=report]").click()
    ana.until(lambda: "Report on digits, round 1" in ana.chrome.title)
    ana.until(lambda: ana.run("return document.querySelectorAll('#cards > *').length"))  # its script
    ana.open(f"{server.address}overview")
    ana.find("button[data-use='0']").click()
    ana.until(lambda: ana.run("return document.body.dataset.round") == "0")
    ana.open(f"{server.address}item")
    assert ana.item
    store.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_can_be_read_by_everybody(run: Path, browsers: Browsers, serve: Serve, scheme: str) -> None:
    """Roles, names and contrast by axe; nothing beyond the edge, from a phone to a wall."""
    (run / "instructions.md").write_text("# Digits\n\nWhich digit is it?\n\n## Odd ones\n\n- a **7** has a bar\n")
    server, page = serve(run), browsers()
    page.colours(scheme)
    page.open(server.address)
    answered = page.answer("1")
    with closing(AnswerStore(run)) as store:
        store.add("ben", [NewAnswer(answered, "label", ("digit 2",))], "from-ben")
    update(run)
    paths = ("item", "grid?order=everything", "grid?order=answered", "overview", "changes", "who")
    for name, width, height in (("phone", 390, 844), ("session", 1280, 900), ("wall", 2560, 1440)):
        page.screen(width, height, phone=name == "phone")
        for path in (*paths, "item?order=search&value=nothing-like-this", NOWHERE):
            page.open(f"{server.address}{path}")
            accessible(page)
            if path == "item" and name == "phone":
                pictured(page, f"phone-{scheme}")
            if path == "item" and name == "session" and scheme == "dark":
                pictured(page, "dark")
    page.screen(1280, 900)
    page.open(f"{server.address}item")
    page.press("?")
    page.until(lambda: page.find("#help").is_displayed())
    accessible(page)


def test_many_classes_are_found_by_typing(tmp_path: Path, browsers: Browsers, serve: Serve) -> None:
    """A taxonomy: any node can be named, and the keys are for typing."""
    folder = make_digits(tmp_path, 40)
    tree = [
        "label,parent",
        "digits,",
        "even,digits",
        "odd,digits",
        *(f"digit {k},{'odd' if k % 2 else 'even'}" for k in range(10)),
    ]
    (folder / "tree.csv").write_text("\n".join(tree))
    out = folder / "run"
    fit(
        folder / "images",
        folder / "votes.csv",
        out=out,
        taxonomy=folder / "tree.csv",
        encoder="patches",
        settings={"data": {"mirror": False}},
    )
    server, page = serve(out), browsers()
    page.open(server.address)
    first = page.item
    page.press("eve")
    page.until(lambda: page.text("#found li[aria-selected=true]") == "even")
    accessible(page)
    pictured(page, "search")
    assert page.answer(Keys.ENTER) == first
    second = page.answer("D")  # with Shift: don't know
    page.press("/u")
    assert page.run("return document.activeElement.id") == "find"
    page.until(lambda: page.text("#found") == "No class has “u” in its name")
    accessible(page)
    page.press(Keys.ARROW_DOWN + Keys.ENTER)  # nothing to choose
    page.press(Keys.ESCAPE)
    page.until(lambda: page.run("return document.activeElement.id") != "find")
    page.press("u")
    page.until(lambda: page.item == second)
    store = AnswerStore(out)
    assert [(one.item, one.labels) for one in store.current()] == [(first, ("even",))]
    store.close()


def test_without_pictures_the_names_do(tmp_path: Path, browsers: Browsers, serve: Serve) -> None:
    import numpy as np
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    np.save(tmp_path / "x.npy", x[:40].astype(np.float32))
    rows = [f"{item},{who},digit {y[item] if (item + len(who)) % 4 else 3}" for item in range(40) for who in ("dan", "evelyn")]
    (tmp_path / "votes.csv").write_text("\n".join(["item,annotator,label", *rows]))
    fit(None, tmp_path / "votes.csv", features=tmp_path / "x.npy", out=tmp_path / "run")
    server, page = serve(tmp_path / "run"), browsers()
    assert "has no images" in server.process.stdout.readline() if server.process.stdout else False
    page.open(f"{server.address}item?order=everything")
    assert "This run has no images" in page.text(".no-image") and "Most similar items" in page.text("#card")
    accessible(page)
    page.answer("3")
    page.open(f"{server.address}grid?order=everything")
    accessible(page)
