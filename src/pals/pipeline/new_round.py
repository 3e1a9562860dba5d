"""An update of a run: what it begins with, and the round that comes of it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pals.pipeline.fit_settings import refuse_sure_without_taxonomy, update_settings
from pals.pipeline.label_changes import label_changes
from pals.pipeline.new_class import refuse_without_features
from pals.pipeline.progress import Monitor
from pals.pipeline.reviewed_answers import Review, warn_of_later_answers
from pals.pipeline.stages.findings import Findings
from pals.pipeline.stages.read_answers import match_votes
from pals.pipeline.tables.result_tables import write_csv
from pals.review.answer_log import ReviewAnswer
from pals.review.old_rounds import adopt_old_rounds
from pals.review.store import AnswerStore, has_answers
from pals.runs.rounds import (
    GIVEN,
    Round,
    add_round,
    current_round,
    given_answers,
    keep_first,
    next_place,
    round_folder,
    rounds_lock,
    run_of,
)
from pals.runs.run_config import UNTRAINED
from pals.util.config import merge, read_yaml
from pals.util.csv_text import CSV_BLOCK_ROWS
from pals.util.errors import InputError
from pals.util.words import how_many


class Update:
    """One update of a run.

    Args:
        run: Folder of the run.
        votes: Files with new answers.
        given: Settings by section.
        added: New class to the file with its items.
        monitor: Receives progress.
        apart: Whether the result is a run of its own, not a round of this one.

    Raises:
        InputError: Nothing is new, or the folder is a round of a run and the result would be another.
    """

    def __init__(
        self,
        run: Path,
        votes: Sequence[str],
        given: Mapping[str, Any],
        added: Mapping[str, str],
        monitor: Monitor,
        *,
        apart: bool,
    ) -> None:
        whole = run_of(run)
        if whole is not None and not apart:
            raise InputError(f"{run} is a round of {whole}. Update that run, or give --out for a separate one.")
        self.run, self.votes, self.given, self.added, self.monitor = run, votes, given, added, monitor
        self.started, self.review = time.perf_counter(), Review.of(run)
        if not added and not votes and not self.review.answers:
            none = "no answer has been given in `pals review` yet; " if has_answers(run) else ""
            raise InputError(f"Nothing to update {run} with: {none}give files with new answers, or --add-class and --items.")

    def settings(self, place: Path) -> dict[str, Any]:
        """The settings of the update into the folder `place`."""
        current = current_round(self.run)
        base = round_folder(self.run, current.base)
        earlier = (self.run / "votes.csv").resolve() if base == self.run else given_answers(base)
        values = update_settings(base, earlier, self.votes, self.given)
        warn_of_later_answers(self.run, self.monitor)
        rows = self.review.rows_for(place, earlier, self.monitor)
        names = values["data"]["class_names"]
        changes = {
            "class_names": names and (*names, *self.review.classes_beyond(names)),
            "before": str((round_folder(self.run, current.number) / "votes.csv").resolve()),
            "trusted": tuple(dict.fromkeys((*self.review.trusted, *values["data"]["trusted"]))),
            "added": self.added,
            "reviewed": rows,
            "trust_review": self.review.choose_trust(self.given["data"].get("trust_review")) and rows > 0,
        }
        values = merge(values, {"data": changes})
        refuse_sure_without_taxonomy(self.given, values["data"])
        if self.added:
            refuse_without_features(base, values)
        return values

    @contextmanager
    def next_round(self) -> Iterator[Path]:
        """The folder of the next round, which is locked. What a killed update left there is used if it had begun to train a
        network for the same answers, and else removed.

        Raises:
            InputError: The run is not finished.
        """
        with rounds_lock(self.run):
            adopt_old_rounds(self.run)
            keep_first(self.run)
            place = next_place(self.run)
            if place.exists() and not self._resumes(place):
                shutil.rmtree(place)
            yield place

    def _resumes(self, place: Path) -> bool:
        path = place / "config.yaml"
        begun = read_yaml(path) if path.exists() else {}
        if begun.get("method", {}).get("name", next(iter(UNTRAINED))) in UNTRAINED:
            return False
        data, base = begun.get("data", {}), round_folder(self.run, current_round(self.run).base)
        same = {"earlier": str(given_answers(base)), "votes": list(self.votes), "added": dict(self.added)}
        return all(data.get(key) == value for key, value in same.items())

    def finished(self, found: Findings) -> Findings:
        """Make the round whose files are written the current one."""
        place, before, data = found.folder, current_round(self.run), found.trained.plan.data
        is_base = bool(self.votes or self.added or set(self.given["data"]) - {"trusted", "trust_review"})
        if self.given["data"].get("trusted"):
            with closing(AnswerStore(self.run)) as store:
                store.trust(data.trusted)
        if is_base and (data.reviewed or data.trusted):
            given = match_votes(replace(data, reviewed=0, trust_review=False, trusted=())).votes
            write_csv(place / GIVEN, given.frames(data.separator, CSV_BLOCK_ROWS))
        answers = Review.of(self.run, data.reviewed).answers if data.reviewed else []
        by_item: dict[str, list[str]] = {}
        for answer in answers if data.trust_review else ():
            by_item.setdefault(answer.item, []).append(answer.annotator)
        final = {item: " and ".join(names) for item, names in by_item.items()}
        changes = label_changes(round_folder(self.run, before.number), place, final)
        write_csv(place / "changes.csv", changes)
        number = int(place.name)
        record = Round(
            number=number,
            base=number if is_base else before.base,
            before=before.number,
            upto=data.reviewed,
            news=self._news(answers, before),
            changed=len(changes),
            seconds=round(time.perf_counter() - self.started, 1),
        )
        add_round(self.run, record)
        return found

    def _news(self, answers: Sequence[ReviewAnswer], before: Round) -> str:
        """What was new, in words."""
        count = how_many(len(answers), "answer")
        new = len(set(answers) - set(Review.of(self.run, before.upto).answers if before.upto else ()))
        page = f"{count} of the review"
        if new < len(answers):
            page = f"{how_many(new, 'new answer')} of the review ({len(answers):,} in all)"
        names = [*(Path(path).name for path in self.votes), *(f"class {name}" for name in self.added)]
        return ", ".join([page] * bool(answers) + names)
