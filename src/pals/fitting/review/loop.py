"""Taking the answers in: `pals update RUN` without files, and the button on the page, which runs that very command."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pals.fitting.relabel import read_table, separator_of
from pals.fitting.review.export import answers_csv
from pals.fitting.review.store import FILE_NAME, Answer, Round, Store
from pals.fitting.tables import csv_text
from pals.fitting.votes import TAXONOMY
from pals.util.errors import InputError
from pals.util.files import write_text
from pals.util.locks import FolderLock
from pals.util.plugins import plugin_files

if TYPE_CHECKING:
    from pals.fitting import Findings

FOLDER = "reviewed"
"""In the run's folder: the runs that came of updates, and the answers that each took in."""
KEPT_ROUNDS = 2
LINES = 200  # of an update's words that are kept for the page
State = Literal["idle", "running", "failed", "done"]


def has_answers(run: Path) -> bool:
    """Whether anybody has been at the page of this run."""
    return (run / FILE_NAME).is_file()


def base_of(run: Path) -> Path | None:
    """The run that was reviewed where this one came of; None of any other."""
    above = run.resolve().parent
    return above.parent if above.name == FOLDER and has_answers(above.parent) else None


def newest(run: Path, store: Store) -> tuple[Path, Round | None]:
    """The run to be shown: that of the last update that is still there, or the run itself."""
    for done in reversed(store.rounds()):
        if (run / FOLDER / done.folder / "summary.json").is_file():
            return run / FOLDER / done.folder, done
    return run, None


def update_from_review(run: Path, *, out: Path | None = None, trust: Sequence[str] = (), **options: Any) -> Findings:
    """Take in all that was answered on the page: the run's own answers, and beside them what stands in the store now. Always
    from the run itself, so that an answer that was replaced leaves no trace. The result is a round of the run
    (RUN/reviewed/...) that the page then shows, unless `out` says where to put it."""
    from pals.fitting import update  # the page itself trains nothing

    store, started = Store(run), time.perf_counter()
    try:
        with FolderLock(run / FOLDER):
            upto, answers = store.snapshot()
            number = max((done.number for done in store.rounds()), default=0) + 1
            place = out or _free_place(run, number)
            _refuse_nothing(run, answers)
            path = run / FOLDER / f"answers-{number}.csv"
            write_text(path, answers_csv(answers, separator_of(run)))
            trusted = tuple(dict.fromkeys((*store.trusted(), *trust)))
            found = update(run, [path], out=place, trust=trusted, **_without_replaced(run, answers, number), **options)
            if out is None:
                noise, seconds = found.noise, time.perf_counter() - started
                store.add_round(place.name, upto, seconds, (1 - noise.labels_wrong, 1 - noise.high, 1 - noise.low))
                _forget_old(run, store)
            return found
    finally:
        store.close()


def _refuse_nothing(run: Path, answers: Sequence[Answer]) -> None:
    if not any(answer.kind in ("label", "dont-know") for answer in answers):
        raise InputError(f"Nothing to update {run} with: nobody has answered anything on its page yet.")


def _without_replaced(run: Path, answers: Sequence[Answer], number: int) -> dict[str, Any]:
    """Where people of the run have answered again on the page: the run's answers without what they said before, and its
    classes, in case nobody is left who named one of them."""
    votes = read_table(run, "votes.csv")
    replaced = {(answer.item, answer.person) for answer in answers if answer.kind != "skip"}
    keep = [pair not in replaced for pair in zip(votes["item"], votes["worker"], strict=True)]
    if all(keep):
        return {}
    path = run / f"votes-before-{number}.csv"  # beside the features that go with it
    write_text(path, csv_text(votes[keep]))
    classes = read_table(run, "classes.csv", ("class",))["class"].tolist()
    return {"earlier": path} | ({} if (run / TAXONOMY).is_file() else {"classes": classes})


def _free_place(run: Path, number: int) -> Path:
    """The folder of a round. What an update that was killed left there is removed."""
    place = run / FOLDER / f"{run.resolve().name}-{number}"
    if place.is_dir():
        shutil.rmtree(place)
    return place


def _forget_old(run: Path, store: Store) -> None:
    """Of all rounds the last two are kept; each follows from the run and the answers."""
    for done in store.rounds()[:-KEPT_ROUNDS]:
        shutil.rmtree(run / FOLDER / done.folder, ignore_errors=True)


class Update:
    """The command as a process of its own, while people go on answering."""

    def __init__(self, run: Path, on_end: Callable[[], object]) -> None:
        self.run, self._on_end = run, on_end
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self.state: State = "idle"
        self.lines: deque[str] = deque(maxlen=LINES)
        self.version = 0
        "Goes up with everything that there is to tell."

    def start(self) -> bool:
        """False if one is running already."""
        with self._lock:
            if self.state == "running":
                return False
            self.lines.clear()
            self.state, self.version = "running", self.version + 1
            plugins = [word for file in plugin_files() for word in ("--plugin", str(file))]
            command = [sys.executable, "-m", "pals", "update", str(self.run), *plugins]
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, encoding="utf-8"
            )
            threading.Thread(target=self._follow, args=(self._process,), daemon=True).start()
            return True

    def stop(self) -> None:
        """When the server ends: an update that is under way leaves nothing behind that counts."""
        with self._lock:
            process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            process.wait()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.lines.append(line.rstrip())
                self.version += 1
        failed = process.wait() != 0
        if not failed:
            self._on_end()
        self.state = "failed" if failed else "done"
        self.version += 1
