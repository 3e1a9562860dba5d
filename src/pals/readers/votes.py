"""Answers column by column (`Votes`), and the candidate sets that follow from them."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pals.labels.cells import UNSURE_WEIGHT
from pals.labels.taxonomy import Taxonomy
from pals.readers.answer_frames import answer_frames
from pals.readers.graded_answers import shares_of_labels
from pals.readers.matching import Match, match_names
from pals.readers.read_summary import ReadSummary
from pals.readers.times import MAX_TIME
from pals.util.errors import InputError, unknown
from pals.util.words import in_brief, quoted

if TYPE_CHECKING:
    from pals.labels.candidates import CandidateSets, OnEmpty

ROW_COLUMNS = (
    *("item_R", "annotator_R", "label_R", "answer_R", "weight_R"),
    *("sure_R", "time_R", "seconds_R", "rank_R", "percent_R"),
)
OLD_ARRAYS = {"workers": "annotators", "worker_R": "annotator_R", "unknown_worker_U": "unknown_annotator_U"}
"""Attributes of `Votes` by their names in version 0.2."""
MAX_TABLE_CELLS = 2_000_000_000
"""Items times classes; with more, the column of the labels is the wrong one."""


def _empty() -> np.ndarray:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Votes:
    """All answers, one row (R) per label. An answer with several labels has as many rows, which share its number in `answer_R`.

    "Don't know" (U of them) is an answer without a label and has no row: it is neither a vote nor an answer, but shows how hard
    an item is and how cautious an annotator.

    Args:
        items: Names of the I items; those without answers, too.
        annotators: Names of the annotators.
        class_names: Names of the C classes.
        item_R: Item of each row.
        annotator_R: Annotator of each row; -1 where none is named.
        label_R: Class of each row.
        answer_R: Number of each row's answer.
        weight_R: Weight of each row's answer.
        gold_I: Known right label of each item, -1 where there is none; never a vote.
        summary: What was read.
        taxonomy: Tree whose leaves are the classes.
        sure_R: False where the label is marked as unsure; empty: all are sure.
        unknown_item_U: Item of each "don't know".
        unknown_annotator_U: Annotator of each "don't know"; -1 where none is named.
        time_R: When the answer was given, in seconds since 1970; NaN if unknown; empty: all unknown.
        seconds_R: How many seconds the answer took; NaN if unknown; empty: all unknown.
        trusted_R: True where the answer is trusted (`trusting`): it is never called wrong; empty: none is.
        rank_R: 1 where the label is the answer's first choice, 2 for the second, ...; 0 for a possible label without a rank;
            empty: all 0. Labels may share a rank.
        percent_R: Probability, 0 to 1, that the annotator stated for the label; NaN if none; empty: all NaN.
        audit_I: True where the item was drawn at random to be checked; empty: none was.

    Raises:
        InputError: An array has another length or a value out of its range.

    >>> from pathlib import Path
    >>> text = b"item,annotator,label\\na.jpg,ann,newt|frog\\na.jpg,bob,newt\\n"
    >>> votes = pals.read_votes([pals.Source(Path("votes.csv"), data=text)])
    >>> votes.class_names, votes.num_answers, votes.label_R.tolist()
    (('frog', 'newt'), 2, [1, 0, 1])
    >>> votes.to_candidates().frequency_NC.tolist()
    [[0.25, 0.75]]
    """

    items: tuple[str, ...]
    annotators: tuple[str, ...]
    class_names: tuple[str, ...]
    item_R: np.ndarray
    annotator_R: np.ndarray
    label_R: np.ndarray
    answer_R: np.ndarray
    weight_R: np.ndarray
    gold_I: np.ndarray
    summary: ReadSummary
    taxonomy: Taxonomy | None = None
    sure_R: np.ndarray = field(default_factory=_empty)
    unknown_item_U: np.ndarray = field(default_factory=_empty)
    unknown_annotator_U: np.ndarray = field(default_factory=_empty)
    time_R: np.ndarray = field(default_factory=_empty)
    seconds_R: np.ndarray = field(default_factory=_empty)
    trusted_R: np.ndarray = field(default_factory=_empty)
    rank_R: np.ndarray = field(default_factory=_empty)
    percent_R: np.ndarray = field(default_factory=_empty)
    audit_I: np.ndarray = field(default_factory=_empty)

    __repr__ = in_brief

    def __post_init__(self) -> None:
        if self.taxonomy is not None and self.taxonomy.leaves != tuple(self.class_names):
            raise InputError("The classes of the votes are not the leaves of their taxonomy, in its order.")
        rows, unknown_rows = len(self.item_R), len(self.unknown_item_U)
        if not len(self.rank_R):
            object.__setattr__(self, "rank_R", np.zeros(rows))
        for name, count, low, high in (
            ("item_R", rows, 0, len(self.items)),
            ("annotator_R", rows, -1, len(self.annotators)),
            ("label_R", rows, 0, len(self.class_names)),
            ("answer_R", rows, 0, rows),
            ("gold_I", len(self.items), -1, len(self.class_names)),
            ("rank_R", rows, 0, len(self.class_names) + 1),
            ("unknown_item_U", unknown_rows, 0, len(self.items)),
            ("unknown_annotator_U", unknown_rows, -1, len(self.annotators)),
        ):
            values = np.asarray(getattr(self, name), dtype=np.int64)
            object.__setattr__(self, name, values)
            if values.shape != (count,) or (count and not low <= values.min() <= values.max() < high):
                raise InputError(f"{name} of the votes must hold {count} numbers from {low} to {high - 1}.")
        for name, count, default in (("sure_R", rows, True), ("trusted_R", rows, False), ("audit_I", len(self.items), False)):
            given = np.asarray(getattr(self, name), dtype=bool)
            marks = given if len(given) and (name != "audit_I" or given.any()) else np.full(count, default)
            object.__setattr__(self, name, marks)
            if marks.shape != (count,):
                raise InputError(f"{name} of the votes must hold {count} times true or false; it has shape {marks.shape}.")
        for name, end, what in (
            ("weight_R", np.inf, "finite numbers that are not negative"),
            ("time_R", MAX_TIME, "times in seconds since 1970, NaN where it is not known"),
            ("seconds_R", np.inf, "numbers of seconds, NaN where it is not known"),
            ("percent_R", np.nextafter(1, 2), "probabilities from 0 to 1, NaN where none is stated"),
        ):
            required = name == "weight_R"
            given = getattr(self, name)
            values = np.asarray(given, dtype=np.float64) if required or len(given) else np.full(rows, np.nan)
            object.__setattr__(self, name, values)
            known = values if required else values[~np.isnan(values)]
            if values.shape != (rows,) or not ((known >= 0) & (known < end)).all():
                raise InputError(f"{name} of the votes must hold {rows} {what}.")

    def __getattr__(self, name: str) -> Any:
        if name not in OLD_ARRAYS:
            raise AttributeError(f"'Votes' object has no attribute {name!r}")
        warnings.warn(f"Votes: {name} is called {OLD_ARRAYS[name]}", DeprecationWarning, stacklevel=2)
        return getattr(self, OLD_ARRAYS[name])

    @property
    def num_answers(self) -> int:
        return int(np.count_nonzero(np.bincount(self.answer_R)))

    @property
    def marked(self) -> bool:
        """Whether there is any unsure answer or "don't know"."""
        return not self.sure_R.all() or len(self.unknown_item_U) > 0

    @property
    def graded(self) -> bool:
        """Whether any label has a rank or a stated probability."""
        return bool(self.rank_R.any()) or not np.isnan(self.percent_R).all()

    @property
    def timed(self) -> bool:
        """Whether the time or the seconds of any answer are known."""
        return not (np.isnan(self.time_R).all() and np.isnan(self.seconds_R).all())

    def take(self, rows: np.ndarray) -> Votes:
        """Only these rows; all items, annotators and "don't know"s stay.

        Args:
            rows: Numbers of rows, or a mask.
        """
        columns = {name: getattr(self, name)[rows] for name in (*ROW_COLUMNS, "trusted_R")}
        return replace(self, **{**columns, "answer_R": np.unique(columns["answer_R"], return_inverse=True)[1]})

    def to_candidates(self, *, on_empty: OnEmpty = "error", use_gold: bool = False) -> CandidateSets:
        """Every label of an item as a candidate; its frequency is its weighted share of the item's answers.

        An answer with several labels splits its weight among them: stated probabilities as they are, and what they leave over
        in proportion to 1 / rank. Labels of one rank share its part evenly, those without a rank that of the next rank. An
        unsure label counts half.

        Args:
            on_empty: For an item without answers: "error", "all" classes as candidates, or "drop" the item.
            use_gold: Whether a known right label is the only candidate of its item.

        Returns:
            The candidate sets, with `frequency_NC`.

        Raises:
            InputError: An item has no answers, or the table of items and classes is too large.
        """
        import torch  # takes seconds to load, and reading answers does not need it

        from pals.labels.candidates import CandidateSets

        try:
            count_NC = torch.from_numpy(self._counts())
        except MemoryError:
            raise InputError(
                f"No memory for {len(self.items):,} items x {len(self.class_names):,} classes. Check the label column."
            ) from None
        if use_gold:
            gold_I = torch.from_numpy(self.gold_I)
            known = (gold_I >= 0).nonzero().flatten()
            count_NC[known] = torch.nn.functional.one_hot(gold_I[known], len(self.class_names)).to(count_NC.dtype)
        total_N1 = count_NC.sum(dim=1, keepdim=True)
        sets = CandidateSets.from_matrix(count_NC > 0, class_names=self.class_names, ids=self.items, on_empty=on_empty)
        empty = (total_N1[:, 0] == 0).nonzero().flatten()
        frequency_NC = count_NC.div_(total_N1.clamp_min(1e-300)).to(torch.float32)
        if on_empty == "all":
            frequency_NC[empty] = 1 / sets.num_classes
        elif len(empty):
            frequency_NC = frequency_NC[(total_N1[:, 0] > 0).nonzero().flatten()]
        return replace(sets, frequency_NC=frequency_NC)

    def _counts(self) -> np.ndarray:
        """Weighted number of answers per item and class, as a part of the largest of the item."""
        items, classes = len(self.items), len(self.class_names)
        if items * classes > MAX_TABLE_CELLS:
            raise InputError(
                f"{items:,} items with {classes:,} different labels are too many for one table. Labels such as "
                f"{quoted(self.class_names[0])} look like free text or names of items: check which column holds the label."
            )
        part_R = self.weight_R * np.where(self.sure_R, 1.0, UNSURE_WEIGHT)
        if self.graded:
            part_R = part_R * shares_of_labels(self.answer_R, self.rank_R, self.percent_R)
        else:
            part_R = part_R / np.bincount(self.answer_R)[self.answer_R]
        top_I = np.zeros(items)
        np.maximum.at(top_I, self.item_R, part_R)
        # As a part of the item's largest: sums of enormous weights stay finite, and an item's own never hide another's.
        part_R = np.divide(part_R, top_I[self.item_R], out=np.zeros(len(part_R)), where=part_R > 0)
        part_R = np.where(self.weight_R > 0, np.maximum(part_R, 1e-300), 0)  # an answer is never rounded to zero
        count = np.bincount(self.item_R * classes + self.label_R, weights=part_R, minlength=items * classes)
        return count.reshape(items, classes).astype(np.float64, copy=False)  # bincount of nothing has whole numbers

    def to_frame(self, separator: str | None = "|") -> pd.DataFrame:
        """As a table with one answer per row, which `read_votes` with the same separator and taxonomy reads back.

        If an answer has several labels, they share a cell, "newt|frog"; without a separator, or if their weights, marks, ranks
        or times differ or they have percentages, each has a row. The leaves below a node of the taxonomy are written as the
        node. "Don't know" is the label "don't know".

        Args:
            separator: Text between the labels in one cell; None: one label per row.

        Returns:
            The columns item, annotator, label, weight and is_gold; answer_id if item and annotator do not show which rows are
            one answer; sure if any answer is unsure or has ranks or percentages, or a name could be read as something else;
            trusted, time, seconds, rank, percent and audit if any answer, label or item has one.
        """
        return pd.concat(list(self.frames(separator)), ignore_index=True)

    def frames(self, separator: str | None = "|", rows: int | None = None) -> Iterator[pd.DataFrame]:
        """The table of `to_frame` in parts.

        Args:
            separator: Text between the labels in one cell; None: one label per row.
            rows: Rows of answers in each part; None: all in one.
        """
        return answer_frames(self, separator, rows)

    def trusting(
        self,
        annotators: Sequence[str] = (),
        answers: Iterable[tuple[str, str]] = (),
        *,
        settled: Collection[str] = (),
        unsettled: Collection[str] = (),
    ) -> Votes:
        """The same votes with trusted answers as gold.

        If all sure trusted answers to an item have exactly one label in common, that label becomes the item's gold label,
        replacing any earlier one, and the answers are no longer votes. Otherwise they stay votes, marked in `trusted_R`, and an
        earlier gold label that not all of them allow is removed.

        Args:
            annotators: Names of annotators all of whose answers are trusted.
            answers: Item and annotator of single answers that are trusted; pairs without an answer have no effect.
            settled: Items whose trusted answers are those of `answers` alone: they settle a disagreement.
            unsettled: Items that get no gold label.

        Raises:
            InputError: There is no annotator of this name.
        """
        for name in annotators:
            if name not in self.annotators:
                raise unknown("annotator", name, self.annotators)
        named_R = np.isin(self.annotator_R, [self.annotators.index(name) for name in annotators])
        trusted_R = self._rows_of(answers) | (named_R & ~self._rows_about(settled))
        sure_R = (np.bincount(self.answer_R, self.sure_R)[self.answer_R] > 0) & ~self._rows_about(unsettled)
        trusted = np.flatnonzero(trusted_R & sure_R)
        frame = pd.DataFrame({name: getattr(self, f"{name}_R")[trusted] for name in ("item", "label", "answer")})
        shared = frame.groupby(["item", "label"], as_index=False)["answer"].nunique()
        shared = shared[shared["answer"] == shared["item"].map(frame.groupby("item")["answer"].nunique())]
        gold_I, answered = self.gold_I.copy(), frame["item"].unique()
        allowed = (shared["item"] * len(self.class_names) + shared["label"]).to_numpy()
        gold_I[answered[~np.isin(answered * len(self.class_names) + gold_I[answered], allowed)]] = -1
        shared = shared.drop_duplicates("item", keep=False)
        gold_I[shared["item"]] = shared["label"]
        kept = np.delete(np.arange(len(self.item_R)), trusted[frame["item"].isin(shared["item"])])
        return replace(self, trusted_R=trusted_R, gold_I=gold_I).take(kept)

    def _rows_of(self, answers: Iterable[tuple[str, str]]) -> np.ndarray:
        """The rows (mask) of answers that are given by item and annotator."""
        place, annotator = ({name: number for number, name in enumerate(names)} for names in (self.items, self.annotators))
        wanted = [
            place[item] * len(annotator) + annotator[name] for item, name in answers if item in place and name in annotator
        ]
        return np.isin(self.item_R * len(annotator) + self.annotator_R, wanted) & (self.annotator_R >= 0)

    def _rows_about(self, items: Collection[str]) -> np.ndarray:
        """The rows (mask) of these items."""
        names = frozenset(items)
        return np.isin(self.item_R, [number for number, name in enumerate(self.items) if name in names])

    def match(self, files: Sequence[str | Path]) -> tuple[Votes, Match]:
        """The votes with the image files as their items, in the order of `files`.

        An item is matched by its relative path, else by its base name if only one file and one item have it. Answers to items
        without a file are left out and counted.

        Args:
            files: Paths relative to the image folder.

        Returns:
            The votes, and a report on what was not matched.
        """
        names = tuple(file.as_posix() if isinstance(file, Path) else file for file in files)
        found = match_names(self.items, names)
        file_R = found.file_I[self.item_R]
        kept = (file_R >= 0).nonzero()[0]
        gold_F = np.full(len(names), -1, dtype=np.int64)
        matched = (found.file_I >= 0).nonzero()[0]
        gold_F[found.file_I[matched]] = self.gold_I[matched]
        audit_F = np.zeros(len(names), dtype=bool)
        audit_F[found.file_I[matched]] = self.audit_I[matched]
        unknown_U = found.file_I[self.unknown_item_U]
        votes = replace(
            self.take(kept),
            items=names,
            item_R=file_R[kept],
            gold_I=gold_F,
            audit_I=audit_F,
            unknown_item_U=unknown_U[unknown_U >= 0],
            unknown_annotator_U=self.unknown_annotator_U[unknown_U >= 0],
        )
        return votes, found.with_unanswered(names, (np.bincount(file_R[kept], minlength=len(names)) == 0) & (gold_F < 0))
