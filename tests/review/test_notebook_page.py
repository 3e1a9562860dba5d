"""`pals.review(found)` in a notebook: the page answers until it is closed."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pandas as pd
import pytest

import pals
from pals.util.errors import InputError

pytest.importorskip("uvicorn")


@pytest.mark.slow
def test_the_page_opens_and_closes(tmp_path: Path) -> None:
    rows = [(str(item), who, "ab"[item % 2]) for item in range(12) for who in ("ann", "bob")]
    answers = pd.DataFrame(rows, columns=["item", "annotator", "label"])
    found = pals.fit(None, answers, out=tmp_path / "run", no_images=True)
    with pals.review(found, browser=False, name="ana") as page:
        assert page.address in page._repr_html_() and page.address in repr(page)
        with urllib.request.urlopen(page.address) as answer:
            assert b"<title>" in answer.read()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(page.address)


@pytest.mark.slow
def test_a_run_that_is_not_finished(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="run"):
        pals.review(tmp_path / "run", browser=False)


def test_the_package_is_still_a_package() -> None:
    from pals.review import store

    assert store is pals.review.store and callable(pals.review)
