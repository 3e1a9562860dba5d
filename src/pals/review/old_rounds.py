"""The updates that version 0.2 made of a reviewed run, in RUN/reviewed: taken over as rounds of the run."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

from pals.review.store import AnswerStore, has_answers
from pals.runs.rounds import ROUNDS, Round, add_round, keep_first

OLD_FOLDER = "reviewed"


def adopt_old_rounds(run: Path) -> None:
    """Move what is left of RUN/reviewed to RUN/rounds; the newest becomes current, as the page of version 0.2 showed it. The
    caller has locked the rounds."""
    if not (run / OLD_FOLDER).is_dir() or not has_answers(run):
        return
    with closing(AnswerStore(run)) as store:
        found = store.old_rounds()
    from pals.pipeline.label_changes import label_changes  # loads pandas, which the page does without

    keep_first(run)
    before = 0
    for number, name, upto, seconds in found:
        old, place = run / OLD_FOLDER / Path(str(name)).name, run / ROUNDS / str(number)
        if (old / "summary.json").is_file():
            shutil.rmtree(place, ignore_errors=True)
            old.replace(place)
        if (place / "summary.json").is_file():
            changes = label_changes(run / ROUNDS / str(before), place)
            changes.to_csv(place / "changes.csv", index=False)
            add_round(run, Round(number, 0, before, upto, "the review", len(changes), float(seconds)))
            before = number
    shutil.rmtree(run / OLD_FOLDER)
