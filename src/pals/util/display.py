"""Progress on the command line: live bars in a terminal, plain lines at intervals elsewhere."""

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
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

MAX_RUN_LINES = 8  # plain lines per run
MIN_SHOWN_COUNT = 1000  # shorter counts get no line at each quarter
SECONDS_BETWEEN_LINES = 60.0

Words = Callable[[Mapping[str, Any]], str]


class Reporter:
    """Shows the records of epochs of one or several runs."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = console.is_terminal
        self.progress: Progress | None = None

    @contextmanager
    def showing(self) -> Iterator[Reporter]:
        """Live bars within the block, in a terminal."""
        if not self.live:
            yield self
            return
        columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(
            *columns, TimeRemainingColumn(), TextColumn("{task.fields[note]}"), console=self.console
        ) as self.progress:
            yield self

    def follow(self, name: str, records: Iterable[Mapping[str, Any]], total: int, done: int = 0) -> Mapping[str, Any] | None:
        """Shows all records of a run and returns the last."""
        display = self.begin(name, total, done)
        last = None
        for last in records:
            display.record(last)
        return last

    def begin(self, name: str, total: int, done: int = 0, words: Words | None = None) -> RunDisplay:
        """A display for a run of `total` epochs, of which `done` are done. `words` describes a record; default `note`."""
        task = None if self.progress is None else self.progress.add_task(name, total=total, completed=done, note="")
        return RunDisplay(self, name, total, task, words or note)

    def line(self, text: str) -> None:
        """Prints a permanent line, above the bars if there are any."""
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)


@dataclass(frozen=True)
class RunDisplay:
    """The bar or the lines of one run."""

    reporter: Reporter
    name: str
    total: int
    task: TaskID | None
    words: Words

    def record(self, record: Mapping[str, Any]) -> None:
        """Shows an epoch. Each phase of a method is counted by itself, since the number of later phases may be unknown."""
        phase, epoch, epochs = record["phase"], record["epoch"], record["epochs"]
        part = "" if phase == "main" else f" {phase}"
        if self.reporter.progress is not None and self.task is not None:
            title = f"{self.name}{part}"
            self.reporter.progress.update(self.task, description=title, completed=epoch, total=epochs, note=self.words(record))
        elif record["total_epoch"] % max(1, self.total // MAX_RUN_LINES) == 0 or epoch == epochs:
            words = self.words(record)
            self.reporter.line(f"{self.name}:{part} epoch {epoch}/{epochs}{', ' if words else ''}{words}")

    def end(self, text: str) -> None:
        """Replaces the bar by a permanent line."""
        if self.reporter.progress is not None and self.task is not None:
            self.reporter.progress.remove_task(self.task)
        self.reporter.line(text)


@contextmanager
def showing_bytes(console: Console, name: str) -> Iterator[Callable[[int, int | None], None]]:
    """Shows a download: yields a function to call with the bytes loaded and the bytes in all (None: unknown)."""
    if console.is_terminal:
        columns = (TextColumn("[bold]{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
            task = bar.add_task(name, total=None)
            yield lambda loaded, total: bar.update(task, completed=loaded, total=total)
        return
    last_tenth = -1

    def print_line(loaded: int, total: int | None) -> None:
        nonlocal last_tenth
        tenth = 10 * loaded // total if total else -1
        if tenth > last_tenth:
            last_tenth = tenth
            console.print(f"{name}: {loaded / 2**20:.0f} MiB, {10 * tenth}%", highlight=False)

    yield print_line


@contextmanager
def showing_count(console: Console, name: str, *, rate: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """Shows a count: yields a function to call with the number done and the total (None: unknown).

    Args:
        console: A terminal gets a bar from the first call on; any other console a line at each quarter of a long count, and
            each minute.
        name: What is counted.
        rate: Whether to show the number per second too; the number of the first call was then done by an earlier process.
    """
    count = _Count(rate)
    if console.is_terminal:
        columns: list[ProgressColumn] = [TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn()]
        columns += [TextColumn("{task.fields[rate]}"), TimeRemainingColumn()] if rate else [TimeRemainingColumn()]
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(name, total=None, visible=False, rate="")

            def update(done: int, total: int | None) -> None:
                if count.resumes(done):
                    bar.console.print(f"Resuming: {done:,} {name} are done", highlight=False)
                bar.update(task, completed=done, total=total, visible=True, rate=count.rate_of(done))

            yield update
        return

    def print_line(done: int, total: int | None) -> None:
        if count.resumes(done):
            console.print(f"Resuming: {done:,} {name} are done", highlight=False)
        if count.is_line_due(done, total):
            of = "" if total is None else f" of {total:,}"
            console.print(f"{name}: {done:,}{of}{count.rate_of(done)}", highlight=False)

    yield print_line


class _Count:
    """Number per second since the first call, and when the next plain line is due."""

    def __init__(self, rate: bool) -> None:
        self.rate = rate
        self.first: int | None = None
        self.quarter = 0
        self.start = self.last_line = time.monotonic()

    def resumes(self, done: int) -> bool:
        """Whether this is the first call and some were done before."""
        if self.first is not None:
            return False
        self.first, self.start = done, time.monotonic()
        self.last_line = self.start
        return self.rate and done > 0

    def rate_of(self, done: int) -> str:
        seconds = time.monotonic() - self.start
        new = done - (self.first or 0)
        return f", {new / seconds:,.0f}/s" if self.rate and seconds > 0 and new else ""

    def is_line_due(self, done: int, total: int | None) -> bool:
        quarter = 4 * done // total if total and total >= MIN_SHOWN_COUNT else 0
        now = time.monotonic()
        if (self.rate and done == self.first) or (quarter <= self.quarter and now - self.last_line < SECONDS_BETWEEN_LINES):
            return False
        self.quarter, self.last_line = quarter, now
        return True


def note(record: Mapping[str, Any]) -> str:
    """The main numbers of an epoch: accuracy, items selected, loss, recall of the neighbour search."""
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
