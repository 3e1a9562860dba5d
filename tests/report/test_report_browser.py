"""report.html in a real browser: nothing complains, filters and tables work, it fits the screen, and no name is ever run."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from _report import HOSTILE, empty, report
from _slow import rest_slow
from pals.report import heatmap
from pals.report.render import render

pytest.importorskip("selenium")

from selenium.common.exceptions import NoAlertPresentException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
PAGE = 24  # cards drawn at a time
LONG = [f"Chroicocephalus novaehollandiae scopulinus ({number}. Red-billed Gull, tarāpunga)" for number in range(20)]
REPORTS = {
    "plain": report(60, 4, 20), "hostile": report(30, 9, 9, names=HOSTILE, tree=True),
    "bare": report(5, 2, 1, images=False), "many": report(3, 60, 40, tree=True),
    "long": report(12, 20, 4, names=tuple(LONG)), "empty": empty(),
}  # fmt: skip
CUT = """
const beyond = (one, style) => style.overflowX !== "visible" && one.scrollWidth > one.clientWidth;
const cut = (one, style) => style.textOverflow === "ellipsis" || beyond(one, style);
return [...document.querySelectorAll(".name, .class-key li, td, th")]
  .filter((one) => one.getClientRects().length && cut(one, getComputedStyle(one))).map((one) => one.textContent);
"""
SHOWN = "return [document.getElementById('shown').innerText, document.querySelectorAll('.card > .path').length]"


class Browser:
    def __init__(self, chrome: Chrome, folder: Path) -> None:
        self.chrome, self.folder = chrome, folder

    def open(self, name: str, address: str = "") -> None:
        self.chrome.get("about:blank")  # else only the address within the page would change
        self.chrome.get((self.folder / f"{name}.html").as_uri() + address)
        self.until(lambda: self.run("return location.protocol === 'file:' && document.readyState === 'complete'"))

    def until(self, condition: Callable[[], bool]) -> None:
        WebDriverWait(self.chrome, 60, poll_frequency=0.05).until(lambda _: condition())

    def screen(self, width: int, *, phone: bool = False) -> None:
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": phone}
        self.chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def media(self, scheme: str = "light", kind: str = "screen") -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}]
        self.chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": kind, "features": features})

    def run(self, script: str, *arguments: Any) -> Any:
        return self.chrome.execute_script(script, *arguments)

    def find(self, selector: str) -> WebElement:
        return self.chrome.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        return self.run("return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)", selector)

    @property
    def items(self) -> list[str]:
        return self.texts(".card > .path")

    @property
    def address(self) -> str:
        """As the page itself has it: the browser hears of a change only later."""
        return self.run("return location.href")

    def shown(self) -> int:
        """How many items fit, as the page says; the cards must agree. Read at one moment: a page that follows a link is drawn
        anew whenever it likes."""
        words, cards = self.run(SHOWN)
        found, _, total = words.removesuffix(" items").partition(" of ")
        assert total == str(len(REPORTS["plain"]["gallery"])) and cards == min(PAGE, int(found))
        return int(found)

    def fire(self, selector: str, event: str) -> None:
        script = "document.querySelector(arguments[0]).dispatchEvent(new Event(arguments[1], { bubbles: true }))"
        self.run(script, selector, event)


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    options = ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = Chrome(options=options, service=Service(DRIVER))
    yield chrome
    chrome.quit()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for name, data in REPORTS.items():
        (folder / f"{name}.html").write_text(render(data), encoding="utf-8")
    return folder


@pytest.fixture
def browser(chrome: Chrome, folder: Path) -> Iterator[Browser]:
    """A desktop screen in light colours. Whatever a test does, the browser must have nothing to complain about."""
    browser = Browser(chrome, folder)
    browser.screen(1280)
    browser.media()
    yield browser
    assert chrome.get_log("browser") == []


def fitting(**wanted: Any) -> list[dict[str, Any]]:
    """The items of the plain report that a filter must show, straight from the data."""

    def wants(key: str, value: str) -> bool:
        return wanted.get(key, value) == value

    def fits(entry: dict[str, Any]) -> bool:
        asked = [(one["annotator"], one["answer"], one["probability_wrong"]) for one in entry["doubtful"]]
        asked = asked or [(vote["annotator"], vote["label"], 0.0) for vote in entry["votes"]]
        return (
            wants("result", entry["label"])
            and wants("status", entry["status"])
            and any(wants("person", who) and wants("answer", what) and p >= wanted.get("least", 0) for who, what, p in asked)
        )

    return [entry for entry in REPORTS["plain"]["gallery"] if fits(entry)]


@pytest.mark.parametrize(
    "wanted",
    rest_slow(2, [{"result": "class 0", "answer": "class 1", "least": 0.5}, {"person": "person 9", "status": "agreed"},
     {"result": "class 1"}, {"answer": "class 2"}, {"person": "person 3"}, {"status": "unsure"}, {"least": 0.6}]),
    ids=lambda wanted: " ".join(wanted),
)  # fmt: skip
def test_filters_show_what_the_data_say(browser: Browser, wanted: dict[str, Any]) -> None:
    browser.open("plain")
    assert browser.shown() == 60
    for key, value in wanted.items():
        if key == "least":
            browser.run("document.getElementById('f-least').value = arguments[0]", round(100 * value))
            browser.fire("#f-least", "input")
        else:
            field = Select(browser.find(f"#f-{key}"))
            field.select_by_visible_text(f"{value} ({len(fitting(**{key: value}))})")
    expected = fitting(**wanted)
    assert 0 < browser.shown() == len(expected) < 60
    assert browser.items == [entry["item"] for entry in expected][:PAGE]
    address = browser.address.partition("#")[2]
    browser.open("plain", f"#{address}")  # somebody else opens what was shared
    assert browser.shown() == len(expected)
    browser.find("#filters button[type=reset]").click()
    browser.until(lambda: browser.shown() == 60)
    assert browser.address.endswith("#doubtful")


def test_search_sorting_and_more_cards(browser: Browser) -> None:
    browser.open("plain")
    field = browser.find("#f-text")
    field.send_keys("IMG/01")
    assert browser.shown() == 10
    field.send_keys("xyz")
    assert browser.shown() == 0
    assert browser.find("#nothing").is_displayed() and not browser.find("#copy-items").is_enabled()
    entries = REPORTS["plain"]["gallery"]
    for order, key in (("confidence", 1), ("sure", -1)):
        browser.open("plain", f"#doubtful?sort={order}")
        expected = sorted(entries, key=lambda entry: key * entry["confidence"])
        assert browser.items == [entry["item"] for entry in expected][:PAGE]
    Select(browser.find("#f-sort")).select_by_value("item")
    assert browser.items == sorted(entry["item"] for entry in entries)[:PAGE]
    Select(browser.find("#f-sort")).select_by_value("doubt")
    assert browser.items == [entry["item"] for entry in entries][:PAGE]
    browser.open("plain")
    more = browser.find("#more")
    for drawn, words in ((24, "Show 24 more (36 left)"), (48, "Show 12 more (12 left)")):
        assert len(browser.items) == drawn and more.text == words
        more.send_keys(Keys.ENTER)
    assert len(browser.items) == 60 and not more.is_displayed()


def test_a_card_says_what_people_and_the_model_say(browser: Browser) -> None:
    browser.open("plain")
    card = browser.find(".card").text
    said = ("class 0", "50.0% sure", "corrected", "person 1", "class 1", "person 0", "99.0% likely wrong", "90.0%", "0.94")
    for words in said:
        assert words in card
    read = "return [...document.images].map((one) => [one.naturalWidth, getComputedStyle(one).imageRendering])"
    sizes: list[tuple[int, str]] = []

    def as_they_should_be() -> bool:  # the page hears of a picture only after it is complete
        sizes[:] = browser.run(read)
        return all((way == "pixelated") == (size < 64) for size, way in sizes)

    browser.until(as_they_should_be)
    assert {8, 32, 100} == {size for size, _ in sizes}


def test_links_set_the_filter(browser: Browser) -> None:
    browser.open("plain")
    browser.find('#class-table a[href*="class+2"]').click()
    browser.until(lambda: browser.shown() == len(fitting(result="class 2")))
    assert browser.run("return document.activeElement.id") == "doubtful-title"
    assert abs(browser.run("return document.getElementById('doubtful').getBoundingClientRect().top")) < 100
    browser.fire(".cells rect[class^=d]", "click")
    browser.until(lambda: "answer=" in browser.address)


LISTEN = """
const button = document.getElementById(arguments[0]);
window.said = []; // whatever it says from now on, if only for a moment
new MutationObserver(() => window.said.push(button.innerText)).observe(button, { childList: true, subtree: true });
"""


def test_the_list_can_be_copied_or_is_shown(browser: Browser) -> None:
    browser.open("plain", "#doubtful?status=unsure")
    expected = [entry["item"] for entry in fitting(status="unsure")]
    keep = "{ value: { writeText: async (text) => { window.copied = text; } } }"
    browser.run(f"Object.defineProperty(navigator, 'clipboard', {keep})")
    browser.run(LISTEN, "copy-items")
    browser.find("#copy-items").click()
    browser.until(lambda: "Copied" in browser.run("return window.said"))
    assert browser.run("return window.copied").split("\n") == expected
    browser.open("plain", "#doubtful?status=unsure")
    browser.run("Object.defineProperty(navigator, 'clipboard', { value: undefined }); document.execCommand = () => false")
    browser.find("#copy-items").click()
    browser.until(lambda: browser.find("#by-hand").is_displayed())
    listed = browser.run("return document.getElementById('by-hand-text').value").split("\n")
    assert listed == [entry["item"] for entry in fitting(status="unsure")]


def column(browser: Browser, number: int) -> list[str]:
    return browser.texts(f"#people-table tbody tr:not(.beyond) > :nth-child({number})")


def test_tables_sort_show_all_and_can_be_searched(browser: Browser) -> None:
    browser.open("plain")
    people = REPORTS["plain"]["annotators"]
    head = browser.find("#people-table thead th:nth-child(2)")
    button = head.find_element(By.TAG_NAME, "button")
    button.click()
    assert head.get_attribute("aria-sort") == "descending"
    assert column(browser, 2) == [str(n) for n in sorted((row["answers"] for row in people), reverse=True)][:15]
    button.send_keys(Keys.ENTER)
    assert head.get_attribute("aria-sort") == "ascending"
    assert column(browser, 2) == [str(n) for n in sorted(row["answers"] for row in people)][:15]
    browser.find("#people-table thead th:first-child button").send_keys(Keys.SPACE)
    assert head.get_attribute("aria-sort") == "none"
    assert [words.split(" mix")[0] for words in column(browser, 1)] == [f"person {k}" for k in range(15)]  # 2 before 10
    browser.open("plain")
    assert len(column(browser, 1)) == 15
    browser.find('[data-all="people-table"]').click()
    assert len(column(browser, 1)) == 20
    browser.find('[data-search="people-table"]').send_keys("Person 1")
    assert len(column(browser, 1)) == 11


def test_the_heat_map_of_one_person(browser: Browser) -> None:
    browser.open("plain", "#confusion?" + urlencode({"person": "person 2"}))
    counts, everybody = (
        heatmap.matrix(cells, 4) for cells in (REPORTS["plain"]["annotators"][2]["confusion"], REPORTS["plain"]["confusion"])
    )
    shares = [100 * n / sum(row) for row in counts for n in row if n]
    assert [float(words) for words in browser.texts(".cells text")] == pytest.approx(shares, abs=0.0501)
    assert Select(browser.find("#whose")).first_selected_option.text == "person 2"
    browser.fire(".cells rect[class^=a]", "pointerover")
    words = browser.find("#readout").text
    assert words.startswith("Result ") and f" of {sum(counts[0]):.0f} answers (" in words
    Select(browser.find("#whose")).select_by_index(0)
    assert browser.texts(".cells text") == [f"{100 * n / sum(row):.1f}" for row in everybody for n in row if n]


def test_hostile_names_are_text(browser: Browser) -> None:
    browser.open("hostile")
    page = browser.run("return document.body.textContent")
    for name in HOSTILE:
        assert name in page
        expected = [entry["item"] for entry in REPORTS["hostile"]["gallery"] if entry["label"] == name]
        browser.run("location.hash = arguments[0]", "doubtful?" + urlencode({"result": name}))
        browser.until(lambda: browser.items == expected)  # noqa: B023 (used at once)
        assert browser.texts(".card h3") == [name] * len(expected)
        browser.run("location.hash = arguments[0]", "confusion?" + urlencode({"person": name}))
        browser.until(lambda: browser.run("return document.getElementById('whose').value") == name)  # noqa: B023
    assert browser.run("return document.scripts.length") == 2
    assert browser.run("return document.querySelectorAll('[onerror], [style*=javascript]').length") == 0
    with pytest.raises(NoAlertPresentException):
        _ = browser.chrome.switch_to.alert.text


@pytest.mark.parametrize("name", rest_slow(2, REPORTS))
def test_the_page_never_scrolls_sideways(browser: Browser, name: str) -> None:
    for width, phone in ((1280, False), (390, True)):
        browser.screen(width, phone=phone)
        browser.open(name)
        assert browser.run("return document.documentElement.scrollWidth") <= width
        browser.run("window.scrollTo(500, 0)")
        assert browser.run("return window.scrollX") == 0


@pytest.mark.parametrize("width", [1280, 390])
def test_long_names_are_whole(browser: Browser, width: int) -> None:
    browser.screen(width, phone=width < 500)
    browser.open("long")
    assert browser.run(CUT) == [] and browser.texts(".class-key li") == LONG
    assert browser.texts(".heat.rows text") == [f"{number}{name}" for number, name in enumerate(LONG, start=1)]  # and its title
    assert all(name in browser.find(".card").text or name in browser.find("#cards").text for name in LONG[:4])


CONTRASTS = """
const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
const over = (top, below) => top.slice(0, 3).map((value, k) => value * (top[3] ?? 1) + below[k] * (1 - (top[3] ?? 1)));
const light = (colour) => colour.slice(0, 3).map((value) => value / 255)
  .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
  .reduce((sum, value, k) => sum + value * [0.2126, 0.7152, 0.0722][k], 0);
const behind = (element) => element === null ? [255, 255, 255]
  : over(parse(getComputedStyle(element).backgroundColor), behind(element.parentElement));
const low = [];
const walker = document.createTreeWalker(document.querySelector(arguments[0]), NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || !element.getClientRects().length) continue;
  if (element.closest("title, script, .skip")) continue;
  const style = getComputedStyle(element);
  let below = behind(element);
  if (element.matches(".cells text")) {
    const square = getComputedStyle(element.previousSibling);
    below = over([...parse(square.fill).slice(0, 3), Number(square.fillOpacity)], below);
  }
  const ink = over(parse(element.closest("svg") ? style.fill : style.color), below);
  const [a, b] = [light(ink), light(below)].sort((one, two) => two - one);
  const contrast = (a + 0.05) / (b + 0.05);
  if (contrast < 4.5) low.push([walker.currentNode.data.trim().slice(0, 30), element.getAttribute("class"), contrast]);
}
return low;
"""


RECOLOUR = """
for (const square of document.querySelectorAll(".cells rect:not(.frame)")) {
  square.setAttribute("class", arguments[0]);
  square.nextSibling.setAttribute("class", `on-${arguments[0]}`);
}
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read(browser: Browser, scheme: str) -> None:
    """Contrast of at least 4.5 for every text, also on the cells of the heat map, here with all shades."""
    browser.media(scheme)
    browser.open("plain")
    assert (browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 24)") == (scheme == "dark")
    assert browser.run(CONTRASTS, "body") == []
    for shade in (f"{letter}{level}" for letter in "ad" for level in range(1, 8)):
        browser.run(RECOLOUR, shade)
        assert browser.run(CONTRASTS, ".cells") == [], shade


def test_printing(browser: Browser) -> None:
    browser.media("dark", "print")
    browser.open("plain")
    for selector in ("nav", "#filters", "#toolbar", "#more", ".table-tools"):
        assert not browser.find(selector).is_displayed()
    visible = "return [...document.querySelectorAll(arguments[0])].filter((one) => one.getClientRects().length).length"
    assert browser.run(visible, ".card") == 12 and browser.run(visible, "#people-table tbody tr") == 20
    assert browser.run("return getComputedStyle(document.body).color") == "rgb(26, 30, 35)"  # dark ink on paper
    assert browser.find("#printed").text == "Printed: 12 of 60 items. All are in labels.csv."
    browser.media(kind="")  # or the browser would print what is made for the screen
    pdf = base64.b64decode(browser.chrome.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert pdf.startswith(b"%PDF") and len(pdf) > 20_000
