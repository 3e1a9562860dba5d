"""docs/speed.md: each row stands in the file that it names."""

from __future__ import annotations

import re

import pytest

from test_docs import ROOT, table_rows

PAGE = ROOT / "docs" / "speed.md"
ROWS = list(table_rows(PAGE, "version"))


def test_there_is_one_table() -> None:
    assert PAGE.read_text(encoding="utf-8").count("\n|---") == 1
    assert len(ROWS) >= 5
    assert list(ROWS[0]) == ["version", "seconds", "commit", "file"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["version"][:30])
def test_the_file_has_the_seconds_and_the_commit(row: dict[str, str]) -> None:
    link = re.search(r"\]\(\.\./([^)#]+)", row["file"])
    assert link
    text = (ROOT / link[1]).read_text(encoding="utf-8")
    assert row["commit"].replace(" ", "") in text
    seconds = {f"{float(number):.2f}" for number in re.findall(r"(?<![\d.])\d+\.\d+(?![\d.])", text)}
    assert row["seconds"].strip("*") in seconds
