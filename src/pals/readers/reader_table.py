"""Answers of one file as columns (`Table`), as a reader returns them, not yet cleaned; `Records` collects them one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pals.readers.read_summary import MAX_EXAMPLES, Skipped
from pals.readers.times import durations_of, times_of

ROW_ARRAYS = ("answer_R", "weight_R", "gold_R", "sure_R", "time_R", "seconds_R", "rank_R", "percent_R", "audit_R")
"""Columns of a `Table` that may be None."""

IMPOSSIBLE = -1
"""Rank of a label that an answer excludes."""


def objects(values: Sequence[object] | np.ndarray) -> np.ndarray:
    """A one-dimensional array of Python objects, also of lists and texts."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


class Coded(NamedTuple):
    """A column of text: the number of each row's name, -1 where the cell is empty, and the names."""

    code_R: np.ndarray
    names: np.ndarray  # of str

    @classmethod
    def of(cls, values: Sequence[Any] | np.ndarray) -> Coded:
        """None becomes -1."""
        code_R, names = pd.factorize(objects(values))
        return cls(code_R.astype(np.int64), names)

    def take(self, index: np.ndarray) -> Coded:
        return Coded(self.code_R[index], self.names)

    def flags(self, flag_L: Iterable[bool], empty: bool = False) -> np.ndarray:
        """For every row the flag of its name; `empty` where the cell is empty."""
        flag_R: np.ndarray = np.array([*flag_L, empty], dtype=bool)[self.code_R]
        return flag_R

    def first_row(self, code: int) -> int:
        """The first row that holds this name."""
        return int((self.code_R == code).argmax())


class Grades(NamedTuple):
    """The labels of one answer or cell with the rank of each, 0 for none, and its probability, NaN for none."""

    names: list[str]
    rank: list[int]
    percent: list[float]


def no_annotators(rows: int) -> Coded:
    """The column of annotators where none is named."""
    return Coded(np.full(rows, -1, dtype=np.int64), np.empty(0, dtype=object))


@dataclass
class SkippedRows:
    """Counts of rows that are left out, by reason, with the first few places."""

    found: dict[str, tuple[int, list[str]]] = field(default_factory=dict)

    def add(self, reason: str, count: int, places: Iterable[str]) -> None:
        if count:
            before, examples = self.found.get(reason, (0, []))
            examples = examples + [place for place, _ in zip(places, range(MAX_EXAMPLES - len(examples)), strict=False)]
            self.found[reason] = (before + count, examples)

    def merge(self, other: SkippedRows) -> None:
        for reason, (count, examples) in other.found.items():
            self.add(reason, count, examples)

    def done(self) -> tuple[Skipped, ...]:
        return tuple(Skipped(reason, count, tuple(examples)) for reason, (count, examples) in self.found.items())


@dataclass(frozen=True)
class Table:
    """The answers in one file, one row (R) per label, as written there.

    Args:
        path: The file.
        unit: What `place_R` counts, for messages: "row", "line", ...
        place_R: Place of each row in the file.
        item: Item of each row.
        annotator: Annotator of each row; -1 where none is named.
        label: Label of each row; -1 is no answer.
        answer_R: Number of each row's answer. If it is None, or -1 for a row, rows of one item and annotator are one answer.
        weight_R: Weight of each row; None: 1.
        gold_R: True where the row is a known right label and not an annotator's answer.
        sure_R: False where a mark beside the label makes it unsure.
        time_R: When the answer was given, in seconds since 1970; NaN if unknown.
        seconds_R: How many seconds the answer took; NaN if unknown.
        rank_R: Rank of each label, 0 for none, `IMPOSSIBLE` for one that is excluded.
        percent_R: Probability that the annotator states for the label; NaN if none.
        audit_R: True where the item was drawn at random to be checked.
        classes: Classes that the file declares.
        lone_items: Items that the file names without any row.
        splits: Whether one cell may hold several labels with a separator between them.
        as_written: Whether labels stand for themselves, because unsure labels are marked in another column.
        skipped: What the reader left out.
        notes: Warnings for the user.

    >>> from pathlib import Path
    >>> source = pals.Source(Path("votes.csv"), data=b"item,annotator,label\\na.jpg,ann,newt\\n")
    >>> table = pals.READERS["long"](source, {})
    >>> table.place(0), table.annotator.names.tolist()
    ('votes.csv, row 2', ['ann'])
    """

    path: Path
    unit: str
    place_R: np.ndarray
    item: Coded
    annotator: Coded
    label: Coded
    answer_R: np.ndarray | None = None
    weight_R: np.ndarray | None = None
    gold_R: np.ndarray | None = None
    sure_R: np.ndarray | None = None
    time_R: np.ndarray | None = None
    seconds_R: np.ndarray | None = None
    rank_R: np.ndarray | None = None
    percent_R: np.ndarray | None = None
    audit_R: np.ndarray | None = None
    classes: tuple[str, ...] | None = None
    lone_items: tuple[str, ...] = ()
    splits: bool = False
    as_written: bool = False
    skipped: SkippedRows = field(default_factory=SkippedRows)
    notes: tuple[str, ...] = ()

    grouped: bool = False  # set by `build` where `answer_R` was None
    joint_R: np.ndarray | None = None  # set by `build` where labels share a percentage
    unknown_R: np.ndarray | None = None  # set by `build` where the label was one of the words for "don't know"

    def take(self, index: np.ndarray) -> Table:
        """These rows.

        Args:
            index: Numbers of rows.
        """
        arrays = {name: getattr(self, name)[index] for name in ROW_ARRAYS if getattr(self, name) is not None}
        columns = {name: getattr(self, name).take(index) for name in ("item", "annotator", "label")}
        return replace(self, place_R=self.place_R[index], **columns, **arrays)

    def with_gold(self, item: Coded, gold: Coded, place_R: np.ndarray) -> Table:
        """With one more row for every item and known right label.

        Args:
            item: The items, with the table's names.
            gold: The right label of each.
            place_R: The place of each in the file.
        """
        pairs = pd.DataFrame({"item": item.code_R, "gold": gold.code_R}).drop_duplicates()
        named_R = gold.flags(bool(str(name).strip()) for name in gold.names)
        row_G = pairs.index.to_numpy()[named_R[pairs.index.to_numpy()]]
        rows, more = len(self.place_R), len(row_G)
        defaults = {"weight_R": 1.0, "sure_R": True, "time_R": np.nan, "seconds_R": np.nan}
        defaults |= {"rank_R": 0, "percent_R": np.nan, "audit_R": False}
        arrays: dict[str, Any] = {
            name: np.append(getattr(self, name), np.full(more, value))
            for name, value in defaults.items()
            if getattr(self, name) is not None
        }
        if self.answer_R is not None:
            arrays["answer_R"] = np.append(self.answer_R, self.answer_R.max(initial=-1) + 1 + np.arange(more))
        gold_R = np.zeros(rows, dtype=bool) if self.gold_R is None else self.gold_R
        label_R = np.append(self.label.code_R, gold.code_R[row_G] + len(self.label.names))
        return replace(
            self,
            place_R=np.append(self.place_R, place_R[row_G]),
            item=Coded(np.append(self.item.code_R, item.code_R[row_G]), item.names),
            annotator=Coded(np.append(self.annotator.code_R, np.full(more, -1)), self.annotator.names),
            label=Coded(label_R, np.append(self.label.names, gold.names)),
            gold_R=np.append(gold_R, np.ones(more, dtype=bool)),
            **arrays,
        )

    def place(self, row: int) -> str:
        """Where a row is in the file, for messages.

        Args:
            row: Number of the row, from 0.
        """
        return f"{self.path.name}, {self.unit} {self.place_R[row]}"


@dataclass
class Records:
    """Collects answers one by one.

    Args:
        path: The file.
        unit: What the places count, for messages: "row", "line", ...

    >>> from pathlib import Path
    >>> records = pals.Records(Path("answers.txt"), "line")
    >>> records.add("a.jpg", "ann", ["newt", "frog"], place=1)
    >>> records.table().label.names.tolist()
    ['newt', 'frog']
    """

    path: Path
    unit: str
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    lone: list[str] = field(default_factory=list)
    "Items that the file names, also if they have no answer."
    skipped: SkippedRows = field(default_factory=SkippedRows)
    answers: int = 0
    by_id: dict[tuple[str, str | None, str], int] = field(default_factory=dict)

    def add(
        self,
        item: str,
        annotator: str | None,
        labels: Sequence[str | None],
        place: int | str,
        *,
        weight: float = 1.0,
        weights: Sequence[float] | None = None,
        gold: bool = False,
        sure: bool | Sequence[bool] = True,
        time: object = None,
        seconds: object = None,
        joins: bool = False,
        answer_id: str | None = None,
        graded: Grades | None = None,
    ) -> None:
        """Add one answer as written in the file.

        Args:
            item: Name of the item.
            annotator: Name of the annotator; None if unknown.
            labels: All labels of the answer. An empty list, or None in it, is no answer.
            place: Where it stands in the file, for messages.
            weight: Weight of the answer.
            weights: Weight of each label, instead of `weight`.
            gold: Whether these labels are known to be right, and no annotator's answer.
            sure: Whether the answer, or each label, is sure.
            time: When it was given, as written.
            seconds: How many seconds it took, as written.
            joins: Whether it belongs to the annotator's other rows for the item.
            answer_id: With `joins`: only to the rows with the same id.
            graded: Ranks and probabilities of the labels.
        """
        answer = -1 if joins else self.answers
        if joins and answer_id:
            answer = self.by_id.setdefault((item, annotator, answer_id), self.answers)
        for number, label in enumerate(labels or [None]):
            label_weight = weight if weights is None else weights[number]
            label_sure = sure if isinstance(sure, bool) else sure[number]
            grade = (
                (0, np.nan) if graded is None or number >= len(graded.names) else (graded.rank[number], graded.percent[number])
            )
            self.rows.append((item, annotator, label, answer, label_weight, gold, label_sure, time, seconds, place, *grade))
        self.answers += 1

    def skip(self, reason: str, place: int | str, item: str | None = None) -> None:
        """Count an answer that is left out.

        Args:
            reason: Why.
            place: Where it is in the file.
            item: Its item, if that has to be among the items even without an answer.
        """
        self.skipped.add(reason, 1, [f"{self.path.name}, {self.unit} {place}"])
        if item is not None:
            self.lone.append(item)

    def table(
        self,
        *,
        classes: Sequence[str] | None = None,
        notes: Iterable[str] = (),
        splits: bool = False,
        require_times: bool = False,
    ) -> Table:
        """All answers that were added.

        Args:
            classes: Classes that the file declares.
            notes: Warnings for the user.
            splits: Whether one label may be several with a separator between them.
            require_times: Whether a time that is not understood is an error.
        """
        columns = list(zip(*self.rows, strict=True)) or [()] * 12
        items, annotators, labels, answers, weights, golds, sures, times, seconds, places, ranks, percents = columns

        def place(row: int) -> str:
            return f"{self.path}, {self.unit} {places[row]}"

        time_R, time_notes = times_of(times, place, required=require_times)
        seconds_R, seconds_notes = durations_of(seconds, place)
        return Table(
            path=self.path,
            unit=self.unit,
            place_R=np.array(places, dtype=object),
            item=Coded.of(items),
            annotator=Coded.of(annotators),
            label=Coded.of(labels),
            answer_R=np.array(answers, dtype=np.int64),
            weight_R=np.array(weights, dtype=np.float64),
            gold_R=np.array(golds, dtype=bool),
            sure_R=np.array(sures, dtype=bool),
            rank_R=np.array(ranks) if any(ranks) else None,
            percent_R=None if np.isnan(percents).all() else np.array(percents),
            time_R=time_R,
            seconds_R=seconds_R,
            classes=None if classes is None else tuple(classes),
            lone_items=tuple(dict.fromkeys(self.lone)),
            splits=splits,
            skipped=self.skipped,
            notes=(*notes, *time_notes, *seconds_notes),
        )
