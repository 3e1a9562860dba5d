"""The user's answers, matched to the user's items before any image is opened."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from pals.pipeline.new_class import add_classes, set_aside
from pals.pipeline.reviewed_answers import Earlier, marked_none_of_these
from pals.pipeline.stages.images import names_in
from pals.pipeline.stages.vectors import row_names
from pals.readers import NO_ANSWER, Match, Votes, read_votes
from pals.readers.read_summary import some, unanswered
from pals.runs.run_config import VotesConfig
from pals.util.errors import InputError
from pals.util.words import how_many, quoted

IN_MEMORY = "the votes given"


@dataclass(frozen=True)
class MatchedVotes:
    """Votes about the user's items. Items with an answer come first, so that the training data are contiguous in memory.

    Args:
        votes: The answers.
        lines: What was read, what was skipped and why, what did not match.
        warnings: Those of the lines that belong in the report.
    """

    votes: Votes
    lines: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def answered(votes: Votes) -> np.ndarray:
    """Per item (N), whether it has an answer that counts or a known label."""
    counted = np.bincount(votes.item_R, weights=votes.weight_R, minlength=len(votes.items)) > 0
    known: np.ndarray = counted | (votes.gold_I >= 0)
    return known


def match_votes(config: VotesConfig, given: Votes | None = None) -> MatchedVotes:
    """The answers of all files, matched to the images or to the rows of the feature table.

    Args:
        config: Settings of the data.
        given: Answers in memory, in place of files.

    Raises:
        InputError: A file cannot be read, no item matches, or there are too few answers or classes.
    """
    earlier = None
    if config.earlier is not None and given is None:
        earlier = Earlier.of(Path(config.earlier), config.reviewed, config.separator, config.trust_review)
    before = None if earlier is None else _read(replace(config, votes=()), earlier)
    votes = _with_news(_read(config, earlier), before, config) if given is None else given
    votes = votes.trusting(
        config.trusted,
        () if earlier is None else earlier.trusted,
        settled=() if earlier is None else earlier.settled,
        unsettled=marked_none_of_these(config.earlier, config.reviewed, config.trust_review),
    )
    if config.answers_only:
        _refuse_too_little(config, votes)
        (read, *remarks) = votes.summary.lines()
        return MatchedVotes(answered_first(votes), (read, *_of_review(earlier), *remarks), tuple(remarks))
    names = names_in(config.images) if config.images is not None else row_names(config, votes)
    matched, report = votes.match(names)
    _refuse_strangers(config, votes, report)
    if before is not None:
        _refuse_another_runs(config, before, votes, matched, report)
    matched = add_classes(matched, config.added, config.earlier)
    if earlier is not None and config.earlier is not None:
        for name in earlier.new_classes:
            matched = set_aside(matched, name, Path(config.earlier).parent)
    _refuse_too_little(config, matched)
    where = how_many(len(names), *(("image",) if config.images is not None else ("row of features", "rows of features")))
    (read, *remarks), (found, *strangers) = votes.summary.lines(), report.lines()
    if report.unanswered:  # which are these items, too, and those that no file of answers names
        silent = np.flatnonzero((np.bincount(votes.item_R, minlength=len(votes.items)) == 0) & (votes.gold_I < 0))
        repeated = unanswered([votes.items[i] for i in silent], "item has", "items have")
        remarks = [line for line in remarks if line != repeated]
    lines = (read, *_of_review(earlier), *remarks, where, found, *strangers)
    return MatchedVotes(answered_first(matched), lines, (*remarks, *strangers))


def _of_review(earlier: Earlier | None) -> list[str]:
    return [f"Including {how_many(earlier.reviewed, 'answer')} given in `pals review`"] if earlier and earlier.reviewed else []


def _read(config: VotesConfig, begins: Earlier | None) -> Votes:
    earlier = [] if begins is None else begins.sources
    votes = read_votes(
        [*earlier, *config.votes],
        format=None if earlier else config.format,
        columns=[*({} for _ in earlier), *(config.columns for _ in config.votes)],
        class_names=config.class_names,
        no_answer=NO_ANSWER.union(config.dont_know),
        separator=config.separator,
        notation=config.notation,
        encoding=[*(None for _ in earlier), *(config.encoding for _ in config.votes)],
        taxonomy=config.taxonomy,
    )
    if begins is None or config.class_names is not None or votes.taxonomy is not None:
        return votes
    return replace(votes, class_names=(*votes.class_names, *_beyond(begins.class_names, votes.class_names)))


def _with_news(votes: Votes, before: Votes | None, config: VotesConfig) -> Votes:
    """With a remark on new classes that further answers brought, which may be typing errors; and, with answers alone, on new
    items, which may belong to another run."""
    if before is None:
        return votes
    remarks, classes, items = list[str](), _beyond(votes.class_names, before.class_names), _beyond(votes.items, before.items)
    if classes and config.class_names is None:
        count = how_many(len(classes), "class is", "classes are")
        remarks.append(f"{count} new ({some(classes, len(classes))}); fix the file if that is a mistake")
    if items and config.answers_only:
        count = how_many(len(items), "item is", "items are")
        remarks.append(f"{count} new ({some(items, len(items))}); fix the file if it belongs to another run")
    return replace(votes, summary=replace(votes.summary, notes=(*votes.summary.notes, *remarks))) if remarks else votes


def _beyond(names: Sequence[str], known: Sequence[str]) -> list[str]:
    before = set(known)
    return [name for name in names if name not in before]


def votes_of_frame(frame: pd.DataFrame, config: VotesConfig) -> Votes:
    """A data frame, read like the same table in a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "votes.csv"
        frame.to_csv(path, index=False)
        votes = _read(replace(config, votes=(str(path),), encoding=None), None)
    return replace(votes, summary=replace(votes.summary, files=(IN_MEMORY,)))


def classes_of(config: VotesConfig) -> tuple[str, ...] | None:
    """The classes of a run with those that were added; None if they were not named."""
    names = config.class_names
    return names and (*names, *(name for name in config.added if name not in names))


def _named(config: VotesConfig) -> str:
    return ", ".join(config.votes) or IN_MEMORY


def _refuse_strangers(config: VotesConfig, votes: Votes, report: Match) -> None:
    if (report.file_I >= 0).any():
        return
    place = config.images or config.features
    raise InputError(
        f"No item of {_named(config)} is in {place} (the first of {len(votes.items):,} is "
        f"{quoted(votes.items[0])}). Check that they belong together and which column names the item (--item-column)."
    )


def _refuse_another_runs(config: VotesConfig, before: Votes, votes: Votes, matched: Votes, report: Match) -> None:
    """Further answers that are all about unknown items, as those of another project are."""
    strangers, missing = _beyond(votes.items, before.items), {*report.missing, *report.ambiguous, *report.refused}
    if strangers and missing.issuperset(strangers) and _size(matched) == _size(before.match(matched.items)[0]):
        raise InputError(
            f"No item of {_named(config)} is in {config.images or config.features} (the first of {len(strangers):,} is "
            f"{quoted(strangers[0])}). Check that its answers are about the items of this run."
        )


def _size(votes: Votes) -> tuple[int, int, int]:
    return len(votes.item_R), len(votes.unknown_item_U), int((votes.gold_I >= 0).sum())


def _refuse_too_little(config: VotesConfig, votes: Votes) -> None:
    """At least two items with answers and two classes are needed."""
    files, classes, answered_N = _named(config), votes.class_names, answered(votes)
    if len(classes) < 2:
        skipped = "".join(f" ({kind})" for kind in votes.summary.skipped[:1])
        raise InputError(
            f"{files}: all answers are {quoted(classes[0])}{skipped}. Give answers with two or more classes, or name all with "
            f"--classes."
        )
    if answered_N.sum() < 2:
        if len(votes.item_R) and not answered_N.any():
            raise InputError(f"{files}: every answer has the weight 0. Give the answers that count a larger one.")
        only = votes.items[int(answered_N.argmax())]
        raise InputError(f"{files}: only {quoted(only)} has an answer. Give answers for at least two items.")


def answered_first(votes: Votes) -> Votes:
    """The same votes, items with answers first."""
    has_N = np.bincount(votes.item_R, minlength=len(votes.items)) > 0
    order = np.argsort(~(has_N | (votes.gold_I >= 0)), kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    items = tuple(votes.items[i] for i in order.tolist())
    unknown_item_U = place[votes.unknown_item_U]
    return replace(
        votes,
        items=items,
        item_R=place[votes.item_R],
        gold_I=votes.gold_I[order],
        audit_I=votes.audit_I[order],
        unknown_item_U=unknown_item_U,
    )


def fingerprint(votes: Votes) -> str:
    """A digest of these items and answers."""
    digest = hashlib.sha256("\0".join((*votes.items, "", *votes.annotators, "", *votes.class_names)).encode())
    for column in (votes.item_R, votes.annotator_R, votes.label_R, votes.answer_R, votes.weight_R, votes.gold_I):
        digest.update(np.ascontiguousarray(column).tobytes())
    if votes.taxonomy is not None:
        digest.update(votes.taxonomy.to_csv().encode())
    if votes.marked:
        for column in (votes.sure_R, votes.unknown_item_U, votes.unknown_annotator_U):
            digest.update(np.ascontiguousarray(column).tobytes())
    for column in (votes.trusted_R, votes.rank_R, votes.audit_I):
        if column.any():
            digest.update(np.ascontiguousarray(column).tobytes())
    for column in (votes.time_R, votes.seconds_R, votes.percent_R):
        if not np.isnan(column).all():
            digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()[:16]
