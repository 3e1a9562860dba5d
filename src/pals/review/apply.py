"""Apply the answers of a review: `pals update RUN` without files, which is also what the button on the page does."""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from pals.pipeline.api import update
from pals.pipeline.stages.findings import Findings
from pals.review.rounds import ROUNDS_FOLDER
from pals.review.store import AnswerStore
from pals.util.locks import FolderLock

KEPT_ROUNDS = 2


def update_from_review(run: Path, **options: Any) -> Findings:
    """Take in all that was answered on the page. Always from the run itself, so that an answer that was replaced leaves no
    trace. The result is a round of the run (RUN/reviewed/...) that the page then shows."""
    started = time.perf_counter()
    with FolderLock(run / ROUNDS_FOLDER), closing(AnswerStore(run)) as store:
        number = max((done.number for done in store.rounds()), default=0) + 1
        place = _free_place(run, number)
        found = update(run, out=place, **options)
        noise, seconds = found.noise, time.perf_counter() - started
        right = (1 - noise.labels_wrong, 1 - noise.high, 1 - noise.low)
        store.add_round(place.name, found.trained.plan.data.reviewed, seconds, right)
        _forget_old(run, store)
        return found


def _free_place(run: Path, number: int) -> Path:
    """The folder of a round. What an update that was killed left there is removed."""
    place = run / ROUNDS_FOLDER / f"{run.resolve().name}-{number}"
    if place.is_dir():
        shutil.rmtree(place)
    return place


def _forget_old(run: Path, store: AnswerStore) -> None:
    """Of all rounds the last two are kept; each follows from the run and the answers."""
    for done in store.rounds()[:-KEPT_ROUNDS]:
        shutil.rmtree(run / ROUNDS_FOLDER / done.folder, ignore_errors=True)
