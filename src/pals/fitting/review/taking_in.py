"""Taking the answers in: `pals update RUN` without files, which is also what the button on the page runs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pals.fitting.api import update
from pals.fitting.findings import Findings
from pals.fitting.folder import TAXONOMY, read_columns, separator_of
from pals.fitting.relabel import read_table
from pals.fitting.review.export import answers_csv
from pals.fitting.review.loop import FOLDER
from pals.fitting.review.store import Answer, Store
from pals.util.errors import InputError
from pals.util.files import write_text
from pals.util.locks import FolderLock
from pals.util.tables import csv_text

KEPT_ROUNDS = 2


def update_from_review(run: Path, *, out: Path | None = None, trust: Sequence[str] = (), **options: Any) -> Findings:
    """Take in all that was answered on the page: the run's own answers, and beside them what stands in the store now. Always
    from the run itself, so that an answer that was replaced leaves no trace. The result is a round of the run
    (RUN/reviewed/...) that the page then shows, unless `out` says where to put it."""
    store, started = Store(run), time.perf_counter()
    try:
        with FolderLock(run / FOLDER):
            upto, answers = store.snapshot()
            number = max((done.number for done in store.rounds()), default=0) + 1
            place = out or _free_place(run, number)
            said = [answer for answer in answers if answer.kind in ("label", "dont-know")]
            if not said:
                raise InputError(f"There is nothing to update {run} with: nobody has answered on its review page yet.")
            path = run / FOLDER / f"answers-{number}.csv"
            write_text(path, answers_csv(said, separator_of(run)))
            trusted = tuple(dict.fromkeys((*store.trusted(), *trust)))
            found = update(run, [path], out=place, trust=trusted, **_without_replaced(run, answers, number), **options)
            if out is None:
                noise, seconds = found.noise, time.perf_counter() - started
                store.add_round(place.name, upto, seconds, (1 - noise.labels_wrong, 1 - noise.high, 1 - noise.low))
                _forget_old(run, store)
            return found
    finally:
        store.close()


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
    classes = read_columns(run, "classes.csv")["class"]
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
