"""The answers given in `pals review`, for an update: added to the run's own, of which they replace some."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from pals.pipeline.finished_run import TAXONOMY, data_of, read_columns, read_table
from pals.pipeline.progress import Monitor
from pals.readers import Source
from pals.review.answers_csv import answers_csv
from pals.review.rounds import base_of, has_answers
from pals.review.store import AnswerStore, ReviewAnswer
from pals.util.csv_text import csv_text
from pals.util.errors import InputError
from pals.util.words import how_many


class Review(NamedTuple):
    """The answers given in `pals review` of a run.

    Args:
        run: The run.
        upto: The last row of review.sqlite.
        standing: Standing answers, with "none of these" but without skipped items.
        trusted: Annotators who are never overruled.
    """

    run: Path
    upto: int = 0
    standing: tuple[ReviewAnswer, ...] = ()
    trusted: tuple[str, ...] = ()

    @property
    def answers(self) -> list[ReviewAnswer]:
        """Those with a label or "don't know", which an update uses."""
        return [answer for answer in self.standing if answer.kind in ("label", "dont-know")]

    @classmethod
    def of(cls, run: Path, upto: int | None = None) -> Review:
        """The answers that stand now, or stood at row `upto`."""
        if not has_answers(run):
            return cls(run)
        with closing(AnswerStore(run)) as store:
            last, standing = store.snapshot(upto)
            return cls(run, last, tuple(answer for answer in standing if answer.kind != "skip"), store.trusted())

    def rows_for(self, place: Path, monitor: Monitor) -> int:
        """The last row whose answers an update into the folder `place` uses: the last of all or, if the update was begun
        before, the one that it began with."""
        begun = data_of(place)
        before = begun.get("reviewed", 0)
        if begun.get("earlier") != str((self.run / "votes.csv").resolve()) or not isinstance(before, int):
            return self.upto if self.standing else 0
        if Review.of(self.run, before).standing == self.standing:
            return before
        if (place / "summary.json").exists():
            raise InputError(
                f"{place} was made before the latest answers in `pals review`. Choose another --out to take them in, or delete "
                "that folder."
            )
        monitor.say(f"Answers given in `pals review` since {place} was begun are left for another update.")
        return before


def warn_of_later_answers(run: Path, monitor: Monitor) -> None:
    """Say how many answers were given in `pals review` after `run`, a round of that review, was computed: it lacks them."""
    base, before = base_of(run), data_of(run).get("reviewed", 0)
    if base is None or not isinstance(before, int):
        return
    later = len(set(Review.of(base).answers) - set(Review.of(base, before).answers))
    if later:
        monitor.say(
            f"Not included: {how_many(later, 'answer')} given in `pals review` after {run} was computed. "
            f"`pals update {base}` includes all of them."
        )


class Earlier(NamedTuple):
    """The answers that an update begins with.

    Args:
        sources: The run's own answers, and those of its review.
        reviewed: Number of answers of the review.
        class_names: Classes of the run, also those that no answer names any more.
    """

    sources: list[Path | Source]
    reviewed: int = 0
    class_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, votes: Path, upto: int, separator: str | None) -> Earlier:
        """The answers of a run, and of its review up to a row of review.sqlite. An answer there replaces the same annotator's
        earlier answer to the item."""
        run = votes.parent
        review = Review.of(run, upto) if upto else Review(run)
        if not review.standing:
            return cls([votes])
        sources = _without(votes, review.standing)
        if review.answers:
            sources.append(_in_memory(votes.with_name("review.sqlite"), answers_csv(review.answers, separator)))
        names = () if (run / TAXONOMY).is_file() else tuple(read_columns(run, "classes.csv")["class"])
        return cls(sources, len(review.answers), names)


def _without(votes: Path, reviewed: Sequence[ReviewAnswer]) -> list[Path | Source]:
    """The run's own answers that were not replaced in the review."""
    table = read_table(votes.parent, votes.name)
    replaced = {(answer.item, answer.annotator) for answer in reviewed}
    keep = [pair not in replaced for pair in zip(table["item"], table["annotator"], strict=True)]
    if all(keep):
        return [votes]
    return [_in_memory(votes, csv_text(table[keep]))] if any(keep) else []


def _in_memory(path: Path, text: str) -> Source:
    return Source(path, data=text.encode("utf-8"))
