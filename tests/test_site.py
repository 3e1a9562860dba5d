"""The documentation site: builds strictly, loads nothing from the network, and its search works from plain files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make docs` builds it, elsewhere."""
    for module in ("material", "mkdocstrings", "latex2mathml"):
        pytest.importorskip(module)
    folder = tmp_path_factory.mktemp("site")
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").replace("build/", f"{folder}/")
    config = config.replace("paths: [src]", f"paths: [{ROOT}/src]")
    (folder / "mkdocs.yml").write_text(config.replace("docs/_site/", f"{ROOT}/docs/_site/"), encoding="utf-8")
    subprocess.run((sys.executable, "docs/_site/stage.py", str(folder / "docs")), cwd=ROOT, check=True)
    command = (sys.executable, "-m", "mkdocs", "build", "--quiet", "--config-file", str(folder / "mkdocs.yml"))
    subprocess.run(command, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    return folder / "site"


def test_pages_load_nothing_from_the_network(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    loaded = re.compile(r"<(?:script|img|iframe)[^>]* src=\"https?:|<link[^>]* rel=\"stylesheet\"[^>]* href=\"https?:")
    assert [page.name for page in pages if loaded.search(page.read_text(encoding="utf-8"))] == []


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if not (CHROMIUM and DRIVER):
        pytest.skip("needs chromium and chromedriver")
    pytest.importorskip("selenium")
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("profile")
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,900", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    browser = Chrome(options=options, service=Service(DRIVER))
    yield browser
    browser.quit()


def test_search_works_from_plain_files(site: Path, chrome: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    chrome.get((site / "docs" / "howto.html").as_uri())
    wait = WebDriverWait(chrome, 60)
    wait.until(lambda _: chrome.find_element("css selector", ".md-search__input").is_displayed())
    chrome.find_element("css selector", ".md-search__input").send_keys("taxonomy")
    wait.until(lambda _: chrome.find_elements("css selector", ".md-search-result__item"))


def test_pages_fit_on_a_phone(site: Path, chrome: Any) -> None:
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    wide = []
    for page in [site / "index.html", *sorted((site / "docs").rglob("*.html")), *sorted((site / "reference").rglob("*.html"))]:
        chrome.get(page.as_uri())
        if chrome.execute_script("return document.documentElement.scrollWidth") > 390:
            wide.append(page.name)
    assert wide == []
