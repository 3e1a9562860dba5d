"""The picture of README.md: the report of a run and its review page, side by side. Needs chromium and selenium.

    python docs/_site/side_by_side.py runs/crowd docs/pictures/side-by-side.png

`runs/crowd` is that of docs/tutorial.md. The picture has a palette of 256 colours, so that it stays light.
"""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from pals.review.run_view import key_of

WIDTH, HEIGHT, GAP = 900, 840, 24
LOADED = """
const there = [...document.images].every((one) => one.complete || one.loading === "lazy");
return there && document.readyState === "complete";
"""
TO_THE_ITEMS = """
const top = document.querySelector("#shown").getBoundingClientRect().top + scrollY - 70;
scrollTo({ top, behavior: "instant" });
"""


@contextmanager
def browser(width: int = WIDTH, height: int = HEIGHT) -> Iterator[Chrome]:
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"):
        options.add_argument(flag)
    chrome = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    light = {"media": "screen", "features": [{"name": "prefers-color-scheme", "value": "light"}]}
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", light)
    try:
        yield chrome
    finally:
        chrome.quit()


@contextmanager
def review(run: Path) -> Iterator[str]:
    """The address of `pals review`, as long as it is needed."""
    command = (sys.executable, "-u", "-m", "pals", "review", str(run), "--no-browser", "--name", "ana")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            said = server.stdout.readline()
            found = re.search(r"http://\S+", said)
            if found is None:
                raise SystemExit(f"pals review did not start: {said}")
            yield found[0]
        finally:
            server.terminate()


def shot(chrome: Chrome, address: str, script: str = "") -> Image.Image:
    chrome.get(address)
    WebDriverWait(chrome, 60).until(lambda _: chrome.execute_script(LOADED))
    if script:
        chrome.execute_script(script)
        WebDriverWait(chrome, 60).until(lambda _: chrome.execute_script(LOADED))
    return Image.open(io.BytesIO(chrome.get_screenshot_as_png())).convert("RGB")


def surest_correction(run: Path) -> str:
    """The item whose label was changed against most people with the most confidence."""
    with (run / "labels.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["status"] == "corrected"]
    return max(rows, key=lambda row: float(row["confidence"]))["item"]


def side_by_side(run: Path, out: Path) -> None:
    with browser() as chrome, review(run) as address:
        left = shot(chrome, (run / "report.html").resolve().as_uri(), TO_THE_ITEMS)
        right = shot(chrome, f"{address}item/{key_of(surest_correction(run))}")
    both = Image.new("RGB", (2 * WIDTH + GAP, HEIGHT), "#b0bec5")
    both.paste(left, (0, 0))
    both.paste(right, (WIDTH + GAP, 0))
    both.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(out, optimize=True)


if __name__ == "__main__":
    side_by_side(Path(sys.argv[1]), Path(sys.argv[2]))
