"""How many items are done, how many a second, and what was done before."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from pals.util import display
from pals.util.display import showing_count


def lines(monkeypatch: pytest.MonkeyPatch, calls: list[tuple[float, int, int | None]], **options: bool) -> list[str]:
    """What is shown of these calls: (second, done, total)."""
    clock = iter([0.0])
    monkeypatch.setattr(display.time, "monotonic", lambda: clock.__next__())
    file = io.StringIO()
    with showing_count(Console(file=file, width=120, **options), "items", rate=True) as tell:  # type: ignore[arg-type]
        for second, done, total in calls:
            clock = iter([second] * 9)
            tell(done, total)
    return file.getvalue().splitlines()


@pytest.mark.parametrize(
    ("calls", "shown"),
    [
        (  # a line at each quarter
            [(0.0, 0, 4000), (1.0, 500, 4000), (2.0, 1000, 4000), (3.0, 1500, 4000), (4.0, 4000, 4000)],
            ["items: 1,000 of 4,000, 500/s", "items: 4,000 of 4,000, 1,000/s"],
        ),
        # a line each minute where the number is unknown
        ([(0.0, 0, None), (30.0, 300, None), (61.0, 610, None), (90.0, 900, None)], ["items: 610, 10/s"]),
        ([(0.0, 0, 5), (1.0, 5, 5)], []),  # little is not worth a line
    ],
)
def test_lines(calls: list[tuple[float, int, int | None]], shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines(monkeypatch, calls) == shown


def test_what_was_done_before_and_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = lines(monkeypatch, [(0.0, 3000, 4000), (2.0, 3500, 4000), (4.0, 4000, 4000)])
    assert (shown[0], shown[-1]) == ("Resuming: 3,000 items are done", "items: 4,000 of 4,000, 250/s")
    file = io.StringIO()
    with showing_count(Console(file=file, width=120, force_terminal=True), "items", rate=True) as tell:
        tell(256, None)
        tell(512, None)
    assert "Resuming: 256 items are done" in file.getvalue() and "512/?" in file.getvalue()
