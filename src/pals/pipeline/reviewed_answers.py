"""The answers given in `pals review`, for an update: added to the run's own, of which they replace some."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from pals.pipeline.finished_run import NEEDED, TAXONOMY, data_of, read_columns, read_table
from pals.pipeline.progress import Monitor
from pals.readers import Source
from pals.review.answer_log import ReviewAnswer
from pals.review.answers_csv import answers_csv
from pals.review.store import AnswerStore, has_answers
from pals.runs.rounds import GIVEN, run_of
from pals.util.csv_text import csv_text
from pals.util.errors import InputError
from pals.util.words import how_many


class Review(NamedTuple):
    """The answers given in `pals review` of a run.

    Args:
        run: The run.
        upto: The last row of review.sqlite.
        standing: Standing answers, with "none of these" but without skipped items.
        trusted: Annotators all of whose answers are trusted, in the run as well.
        trusts_answers: Whether the answers of the review are trusted, by any annotator.
    """

    run: Path
    upto: int = 0
    standing: tuple[ReviewAnswer, ...] = ()
    trusted: tuple[str, ...] = ()
    trusts_answers: bool = True

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
            return cls(
                run,
                last,
                tuple(answer for answer in standing if answer.kind != "skip"),
                store.trusted(),
                store.trusts_answers(),
            )

    @property
    def none_of_these(self) -> frozenset[str]:
        """The items that are marked as none of the classes."""
        return frozenset(answer.item for answer in self.standing if answer.kind == "none-of-these")

    def classes_beyond(self, names: Collection[str]) -> tuple[str, ...]:
        """The classes that the answers name and that are not among these."""
        return tuple(dict.fromkeys(label for answer in self.answers for label in answer.labels if label not in names))

    def choose_trust(self, chosen: bool | None) -> bool:
        """Whether the answers are trusted. A choice is stored with the review, for later updates; None: as stored."""
        if chosen is None or not has_answers(self.run):
            return self.trusts_answers if chosen is None else chosen
        with closing(AnswerStore(self.run)) as store:
            store.trust_answers(chosen)
        return chosen

    def rows_for(self, place: Path, earlier: Path, monitor: Monitor) -> int:
        """The last row whose answers an update into the folder `place` uses: the last of all or, if the update was begun
        before with the answers `earlier`, the one that it began with."""
        begun = data_of(place)
        before = begun.get("reviewed", 0)
        if begun.get("earlier") != str(earlier) or not isinstance(before, int):
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
    """State how many answers were given in `pals review` after `run`, a round of that review, was computed: it lacks them."""
    base, before = run_of(run), data_of(run).get("reviewed", 0)
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
        trusted: Item and annotator of each trusted answer.
        settled: Items about which an answer of the review settled a disagreement.
        new_classes: Classes that trusted answers of the review brought.
    """

    sources: list[Path | Source]
    reviewed: int = 0
    class_names: tuple[str, ...] = ()
    trusted: tuple[tuple[str, str], ...] = ()
    settled: frozenset[str] = frozenset()
    new_classes: tuple[str, ...] = ()

    @classmethod
    def of(cls, votes: Path, upto: int, separator: str | None, trust_review: bool = False) -> Earlier:
        """The answers of a run, and of its review up to a row of review.sqlite. An answer there replaces the same annotator's
        earlier answer to the item.

        Args:
            votes: votes.csv of the run.
            upto: The last row of review.sqlite that is used; 0: none.
            separator: Text between the labels in a cell of votes.csv.
            trust_review: Whether the answers of the review are trusted.
        """
        run, before = votes.parent, _trusted_before(votes)
        review = Review.of(run_of(run) or run, upto) if upto else Review(run)
        if not review.standing:
            return cls([votes], trusted=tuple(before))
        sources = _without(votes, review.standing, review.none_of_these if trust_review else frozenset())
        if review.answers:
            sources.append(_in_memory(review.run / "review.sqlite", answers_csv(review.answers, separator)))
        names = () if (run / TAXONOMY).is_file() else tuple(read_columns(run, "classes.csv")["class"])
        replaced = {(answer.item, answer.annotator) for answer in review.standing}
        new = review.classes_beyond(names) if trust_review and names else ()
        trusted, settled = [pair for pair in before if pair not in replaced], frozenset[str]()
        if trust_review:
            settled = frozenset(answer.item for answer in review.standing if answer.settles)
            trusted = [pair for pair in trusted if pair[0] not in settled]
            trusted += [(answer.item, answer.annotator) for answer in review.answers]
        return cls(sources, len(review.answers), names, tuple(trusted), settled, new)


def marked_none_of_these(earlier: str | None, reviewed: int, trust_review: bool) -> frozenset[str]:
    """The items that trusted answers of reviews mark as none of the classes: in the review of the run that an update begins
    with, and in those before it, unless a later one answers the item.

    Args:
        earlier: votes.csv of that run.
        reviewed: The last row of its review.sqlite that is used.
        trust_review: Whether the answers of its review are trusted.
    """
    if earlier is None:
        return frozenset()
    run = Path(earlier).parent
    data = data_of(run)
    used = 0 if Path(earlier).name == GIVEN else data.get("reviewed", 0)  # that file is without the review
    before = marked_none_of_these(data.get("earlier"), used, data.get("trust_review", False))
    if not (reviewed and trust_review):
        return before
    review = Review.of(run_of(run) or run, reviewed)
    return (before - {answer.item for answer in review.standing}) | review.none_of_these


def _trusted_before(votes: Path) -> list[tuple[str, str]]:
    """Item and annotator of the answers of a run that are trusted and not gold."""
    with votes.open(encoding="utf-8-sig") as file:
        if "trusted" not in file.readline():
            return []
    table = read_columns(votes.parent, votes.name, NEEDED["votes.csv"])
    rows = zip(table["item"], table["annotator"], table.get("trusted", ()), strict=False)
    return [(item, annotator) for item, annotator, trusted in rows if trusted.casefold() == "true"]


def _without(votes: Path, reviewed: Sequence[ReviewAnswer], not_gold: Collection[str]) -> list[Path | Source]:
    """The run's own answers that were not replaced in the review, and its gold labels but those of the items `not_gold`."""
    table = read_table(votes.parent, votes.name, NEEDED["votes.csv"])
    replaced = {(answer.item, answer.annotator) for answer in reviewed}
    rows = zip(table["item"], table["annotator"], table["is_gold"], strict=True)
    keep = [
        (item, annotator) not in replaced and not (item in not_gold and gold.casefold() in ("true", "1"))
        for item, annotator, gold in rows
    ]
    if all(keep):
        return [votes]
    return [_in_memory(votes, csv_text(table[keep]))] if any(keep) else []


def _in_memory(path: Path, text: str) -> Source:
    return Source(path, data=text.encode("utf-8"))
