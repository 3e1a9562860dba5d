"""What the command line shows while it works: a live bar in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

LINES = 8  # plain lines per run
SECONDS_BETWEEN_LINES = 60.0  # at least, where how many there are is not known

Words = Callable[[Mapping[str, Any]], str]


class Reporter:
    """Shows records of epochs as they come."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = console.is_terminal
        self.progress: Progress | None = None

    @contextmanager
    def showing(self) -> Iterator[Reporter]:
        if not self.live:
            yield self
            return
        columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(
            *columns, TimeRemainingColumn(), TextColumn("{task.fields[note]}"), console=self.console
        ) as self.progress:
            yield self

    def follow(self, name: str, records: Iterable[Mapping[str, Any]], total: int, done: int = 0) -> Mapping[str, Any] | None:
        """Go through all records of a run and show them; gives the last."""
        shown = self.begin(name, total, done)
        last = None
        for last in records:
            shown.record(last)
        return last

    def begin(self, name: str, total: int, done: int = 0, words: Words | None = None) -> Shown:
        """A run of which records will come; several may be shown at once. `words`: what is said of a record, if not its
        numbers."""
        task = None if self.progress is None else self.progress.add_task(name, total=total, completed=done, note="")
        return Shown(self, name, total, task, words or note)

    def line(self, text: str) -> None:
        """A line that stays, above the bars if there are any."""
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)


@dataclass(frozen=True)
class Shown:
    """One run on display."""

    reporter: Reporter
    name: str
    total: int
    task: TaskID | None
    words: Words

    def record(self, record: Mapping[str, Any]) -> None:
        """In a method with several phases each is counted by itself: how many there will be it may not know yet."""
        phase, epoch, epochs = record["phase"], record["epoch"], record["epochs"]
        part = "" if phase == "main" else f" {phase}"
        if self.reporter.progress is not None and self.task is not None:
            shown = {"description": f"{self.name}{part}", "completed": epoch, "total": epochs, "note": self.words(record)}
            self.reporter.progress.update(self.task, **shown)
        elif record["total_epoch"] % max(1, self.total // LINES) == 0 or epoch == epochs:
            said = self.words(record)
            self.reporter.line(f"{self.name}:{part} epoch {epoch}/{epochs}{', ' if said else ''}{said}")

    def end(self, text: str) -> None:
        """Take the bar away; a line stays in its place."""
        if self.reporter.progress is not None and self.task is not None:
            self.reporter.progress.remove_task(self.task)
        self.reporter.line(text)


@contextmanager
def showing_bytes(console: Console, name: str) -> Iterator[Callable[[int, int | None], None]]:
    """A function to tell how much of a download is there, of how much."""
    if console.is_terminal:
        columns = (TextColumn("[bold]{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
            task = bar.add_task(name, total=None)
            yield lambda there, total: bar.update(task, completed=there, total=total)
        return
    told = -1

    def tell(there: int, total: int | None) -> None:
        nonlocal told
        tenth = 10 * there // total if total else -1
        if tenth > told:
            told = tenth
            console.print(f"{name}: {there / 2**20:.0f} MiB, {10 * tenth}%", highlight=False)

    yield tell


@contextmanager
def showing_count(console: Console, name: str) -> Iterator[Callable[[int, int], None]]:
    """A function to tell how many are done, of how many; it says nothing where there is nothing to wait for."""
    if console.is_terminal:
        columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(name, total=None, visible=False)
            yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)
        return
    told = 0

    def tell(done: int, total: int) -> None:
        nonlocal told
        quarter = 4 * done // max(total, 1)
        if quarter > told and total >= 1000:
            told = quarter
            console.print(f"{name}: {done:,} of {total:,}", highlight=False)

    yield tell


@contextmanager
def showing_pace(console: Console, name: str) -> Iterator[Callable[[int, int | None], None]]:
    """A function to tell how many are done, and of how many, if that is known; how many a second is added. What is told first
    was done before."""
    pace = _Pace()
    if console.is_terminal:
        columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[pace]}"))
        with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
            task = bar.add_task(name, total=None, visible=False, pace="")

            def show(done: int, total: int | None) -> None:
                if pace.begins(done) and done:
                    bar.console.print(f"Resuming: {done:,} {name} are done", highlight=False)
                bar.update(task, completed=done, total=total, visible=True, pace=pace.words(done))

            yield show
        return

    def tell(done: int, total: int | None) -> None:
        if pace.begins(done) and done:
            console.print(f"Resuming: {done:,} {name} are done", highlight=False)
        if pace.is_news(done, total):
            of = "" if total is None else f" of {total:,}"
            console.print(f"{name}: {done:,}{of}{pace.words(done)}", highlight=False)

    yield tell


class _Pace:
    """How many a second since the first call, and when a plain line is due: each quarter of a long count, and each minute."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.quarter = 0

    def begins(self, done: int) -> bool:
        if self.first is not None:
            return False
        self.first, self.since = done, time.monotonic()
        self.told = self.since
        return True

    def words(self, done: int) -> str:
        seconds = time.monotonic() - self.since
        return f", {(done - (self.first or 0)) / seconds:,.0f}/s" if seconds > 0 and done != self.first else ""

    def is_news(self, done: int, total: int | None) -> bool:
        quarter = 4 * done // total if total and total >= 1000 else 0
        now = time.monotonic()
        if done == self.first or (quarter <= self.quarter and now - self.told < SECONDS_BETWEEN_LINES):
            return False
        self.quarter, self.told = quarter, now
        return True


def note(record: Mapping[str, Any]) -> str:
    """The numbers of an epoch in a few words."""
    words = []
    if record.get("test_accuracy") is not None:
        words.append(f"accuracy {100 * record['test_accuracy']:.2f}")
    if "correct" in record:
        words.append(f"selected {record['selected']:,}, right {record['correct']:,}")
    elif "selected" in record:
        words.append(f"selected {record['selected']:,}")
    if record.get("loss") is not None:
        words.append(f"loss {record['loss']:.3f}")
    if "recall" in record:
        words.append(f"neighbours found {100 * record['recall']:.1f}%")
    return ", ".join(words)
