"""The answers given in `pals review`, as an update takes them in: beside the run's own, less those that they replace."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from pals.pipeline.finished_run import TAXONOMY, data_of, read_columns, read_table
from pals.pipeline.progress import Monitor
from pals.readers import Source
from pals.review.answers_csv import answers_csv
from pals.review.rounds import has_answers
from pals.review.store import AnswerStore, ReviewAnswer
from pals.util.csv_text import csv_text
from pals.util.errors import InputError


class Review(NamedTuple):
    """What was said in `pals review` of a run."""

    run: Path
    upto: int = 0
    "The last row of review.sqlite."
    said: tuple[ReviewAnswer, ...] = ()
    'All that holds there, "none of these" too; who skipped an item said nothing.'
    trusted: tuple[str, ...] = ()

    @property
    def answers(self) -> list[ReviewAnswer]:
        """Those with a label, or "don't know": what an update takes in."""
        return [answer for answer in self.said if answer.kind in ("label", "dont-know")]

    @classmethod
    def of(cls, run: Path, upto: int | None = None) -> Review:
        """What holds now, or held at row `upto`."""
        if not has_answers(run):
            return cls(run)
        with closing(AnswerStore(run)) as store:
            last, standing = store.snapshot(upto)
            return cls(run, last, tuple(answer for answer in standing if answer.kind != "skip"), store.trusted())

    def rows_for(self, place: Path, monitor: Monitor) -> int:
        """Up to which row an update into the folder `place` takes the answers in: the last one; if it was begun before, the one
        that it began with."""
        begun = data_of(place)
        before = begun.get("reviewed", 0)
        if begun.get("earlier") != str((self.run / "votes.csv").resolve()) or not isinstance(before, int):
            return self.upto if self.said else 0
        if Review.of(self.run, before).said == self.said:
            return before
        if (place / "summary.json").exists():
            raise InputError(
                f"{place} was made before the latest answers in `pals review`. Choose another --out to take them in, or delete "
                "that folder."
            )
        monitor.say(f"Answers given in `pals review` since {place} was begun are left for another update.")
        return before


class Earlier(NamedTuple):
    """The answers that an update begins with."""

    sources: list[Path | Source]
    reviewed: int = 0
    "How many of them were given in `pals review`."
    class_names: tuple[str, ...] = ()
    "Classes of the run; perhaps nobody is left who named one of them."

    @classmethod
    def of(cls, votes: Path, upto: int, separator: str | None) -> Earlier:
        """Those of a run, and what was said in `pals review` up to a row of its review.sqlite. Whoever answered an item there
        replaced what they had said of it before."""
        run = votes.parent
        review = Review.of(run, upto) if upto else Review(run)
        if not review.said:
            return cls([votes])
        sources = _without(votes, review.said)
        if review.answers:
            sources.append(_in_memory(votes.with_name("review.sqlite"), answers_csv(review.answers, separator)))
        names = () if (run / TAXONOMY).is_file() else tuple(read_columns(run, "classes.csv")["class"])
        return cls(sources, len(review.answers), names)


def _without(votes: Path, said: Sequence[ReviewAnswer]) -> list[Path | Source]:
    """The run's own answers that nobody has replaced."""
    table = read_table(votes.parent, votes.name)
    replaced = {(answer.item, answer.annotator) for answer in said}
    keep = [pair not in replaced for pair in zip(table["item"], table["annotator"], strict=True)]
    if all(keep):
        return [votes]
    return [_in_memory(votes, csv_text(table[keep]))] if any(keep) else []


def _in_memory(path: Path, text: str) -> Source:
    return Source(path, data=text.encode("utf-8"))
