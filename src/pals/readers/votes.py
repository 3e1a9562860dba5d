"""What people answered, column by column (`Votes`), and the candidate sets that follow from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from pals.labels.candidates import CandidateSets, OnEmpty
from pals.labels.cells import DONT_KNOW, MISSING, UNSURE_WEIGHT, join_labels, split_labels
from pals.labels.taxonomy import Taxonomy
from pals.readers.column_types import WHOLE
from pals.readers.matching import Match, match_names
from pals.readers.read_summary import ReadSummary
from pals.readers.taxonomy_answers import node_of_groups
from pals.readers.times import LATEST, written
from pals.readers.unsure_answers import unmarked
from pals.util.errors import InputError, unknown
from pals.util.words import in_brief, quoted

COLUMNS = ("item_R", "worker_R", "label_R", "answer_R", "weight_R", "sure_R", "time_R", "seconds_R")
LARGEST_TABLE = 2_000_000_000  # items times classes; beyond it the label column is surely the wrong one


def _nothing() -> np.ndarray:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Votes:
    """Everyone's answers, one row (R) per label. An answer that names several labels has as many rows, which share its
    number in `answer_R`. Items that nobody answered for are in `items`, without rows.

    "Don't know" is an answer without a label (U of them), and has no row: it counts neither as a vote nor as an answer, but
    shows how hard an item is and how cautious a person."""

    items: tuple[str, ...]
    workers: tuple[str, ...]
    class_names: tuple[str, ...]
    item_R: np.ndarray
    worker_R: np.ndarray  # -1 where the annotator is not named
    label_R: np.ndarray
    answer_R: np.ndarray
    weight_R: np.ndarray  # what the answer weighs
    gold_I: np.ndarray  # the right label of each item, -1 where it is not known; never a vote
    summary: ReadSummary
    taxonomy: Taxonomy | None = None  # whose leaves the classes are
    sure_R: np.ndarray = field(default_factory=_nothing)  # False where the label is marked as unsure; all are sure if empty
    unknown_item_U: np.ndarray = field(default_factory=_nothing)  # of which somebody said "don't know"
    unknown_worker_U: np.ndarray = field(default_factory=_nothing)  # who did; -1 where the annotator is not named
    time_R: np.ndarray = field(default_factory=_nothing)  # seconds since 1970; NaN where not known; none is known if empty
    seconds_R: np.ndarray = field(default_factory=_nothing)  # that the answer took; NaN where not known

    __repr__ = in_brief

    def __post_init__(self) -> None:
        if self.taxonomy is not None and self.taxonomy.leaves != tuple(self.class_names):
            raise InputError("The classes of the votes are not the leaves of their taxonomy, in its order.")
        rows, unknown_rows = len(self.item_R), len(self.unknown_item_U)
        for name, count, low, high in (
            ("item_R", rows, 0, len(self.items)),
            ("worker_R", rows, -1, len(self.workers)),
            ("label_R", rows, 0, len(self.class_names)),
            ("answer_R", rows, 0, rows),
            ("gold_I", len(self.items), -1, len(self.class_names)),
            ("unknown_item_U", unknown_rows, 0, len(self.items)),
            ("unknown_worker_U", unknown_rows, -1, len(self.workers)),
        ):
            values = np.asarray(getattr(self, name), dtype=np.int64)
            object.__setattr__(self, name, values)
            if values.shape != (count,) or (count and not low <= values.min() <= values.max() < high):
                raise InputError(f"{name} of the votes must hold {count} numbers from {low} to {high - 1}.")
        weight_R = np.asarray(self.weight_R, dtype=np.float64)
        object.__setattr__(self, "weight_R", weight_R)
        if weight_R.shape != (rows,) or not (np.isfinite(weight_R) & (weight_R >= 0)).all():
            raise InputError(f"The weights of votes must be {rows} finite numbers that are not negative.")
        sure_R = np.asarray(self.sure_R, dtype=bool) if len(self.sure_R) else np.ones(rows, dtype=bool)
        object.__setattr__(self, "sure_R", sure_R)
        if sure_R.shape != (rows,):
            raise InputError(f"sure_R of the votes must say of {rows} rows whether they are sure; it has shape {sure_R.shape}.")
        time_R = np.asarray(self.time_R, dtype=np.float64) if len(self.time_R) else np.full(rows, np.nan)
        object.__setattr__(self, "time_R", time_R)
        if time_R.shape != (rows,) or not (np.isnan(time_R) | ((time_R >= 0) & (time_R < LATEST))).all():
            raise InputError(f"time_R of the votes must hold {rows} times in seconds since 1970, NaN where it is not known.")
        seconds_R = np.asarray(self.seconds_R, dtype=np.float64) if len(self.seconds_R) else np.full(rows, np.nan)
        object.__setattr__(self, "seconds_R", seconds_R)
        if seconds_R.shape != (rows,) or not (np.isnan(seconds_R) | ((seconds_R >= 0) & (seconds_R < np.inf))).all():
            raise InputError(f"seconds_R of the votes must hold {rows} numbers of seconds, NaN where it is not known.")

    @property
    def num_answers(self) -> int:
        return int(np.count_nonzero(np.bincount(self.answer_R)))

    @property
    def marked(self) -> bool:
        """Whether there is any unsure answer or "don't know"."""
        return not self.sure_R.all() or len(self.unknown_item_U) > 0

    @property
    def timed(self) -> bool:
        """Whether the time or the seconds of any answer are known."""
        return not (np.isnan(self.time_R).all() and np.isnan(self.seconds_R).all())

    def take(self, rows: np.ndarray) -> Votes:
        """Only these rows; items, people and "don't know"s stay."""
        columns = {name: getattr(self, name)[rows] for name in COLUMNS}
        return replace(self, **{**columns, "answer_R": np.unique(columns["answer_R"], return_inverse=True)[1]})

    def to_candidates(self, *, on_empty: OnEmpty = "error", use_gold: bool = False) -> CandidateSets:
        """Every label that someone chose is a candidate; its frequency is its weighted share of the item's answers. An answer
        with several labels splits its weight evenly among them; an unsure answer counts half. With `use_gold`, a gold label
        is the only candidate of its item."""
        try:
            count_NC = torch.from_numpy(self._counts())
        except MemoryError:
            raise InputError(
                f"A table of {len(self.items):,} items and {len(self.class_names):,} classes does not fit into memory. "
                f"Check which column holds the label, or read fewer files."
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
        items, classes = len(self.items), len(self.class_names)
        if items * classes > LARGEST_TABLE:
            raise InputError(
                f"{items:,} items with {classes:,} different labels are too many for one table. Labels such as "
                f"{quoted(self.class_names[0])} look like free text or names of items: check which column holds the label."
            )
        size_A = np.bincount(self.answer_R)
        part_R = self.weight_R * np.where(self.sure_R, 1.0, UNSURE_WEIGHT) / size_A[self.answer_R]
        top_I = np.zeros(items)
        np.maximum.at(top_I, self.item_R, part_R)
        # In parts of the item's largest: sums of enormous weights stay finite, and those of one item never hide another's.
        part_R = np.divide(part_R, top_I[self.item_R], out=np.zeros(len(part_R)), where=part_R > 0)
        part_R = np.where(self.weight_R > 0, np.maximum(part_R, 1e-300), 0)  # whoever answered is never rounded away
        count = np.bincount(self.item_R * classes + self.label_R, weights=part_R, minlength=items * classes)
        # numpy counts in whole numbers where there is nothing
        return count.reshape(items, classes).astype(np.float64, copy=False)

    def to_frame(self, separator: str | None = "|") -> pd.DataFrame:
        """As a table with one answer per row, which `read_votes` with the same separator (and taxonomy) reads back: item,
        worker, label, weight, is_gold. If an answer has several labels, they share a cell, "newt|frog"; with the separator
        None, or if their weights, marks or times differ, each has a row. The labels below a node of the taxonomy appear under
        the name of the node. There is a column answer_id if item and annotator do not show which rows form one answer, a
        column sure if any answer is unsure or a name looks as if it had a mark, were missing or were a whole number with a
        point, and columns time and seconds if any are known. Someone who does not know has the label "don't know"."""
        return pd.concat(list(self.frames(separator)), ignore_index=True)

    def frames(self, separator: str | None = "|", rows: int | None = None) -> Iterator[pd.DataFrame]:
        """The same in parts of so many rows."""
        names, items = np.array(self.class_names, dtype=object), np.array(self.items, dtype=object)
        workers = np.array([*self.workers, ""], dtype=object)  # the last for -1
        known = (self.gold_I >= 0).nonzero()[0]
        gold = {"item": items[known], "annotator": "", "label": names[self.gold_I[known]], "weight": 1.0, "is_gold": True}
        if separator is not None:
            gold["label"] = np.array([join_labels([name], separator) for name in gold["label"]], dtype=object)
        unknown = {**gold, "item": items[self.unknown_item_U], "annotator": workers[self.unknown_worker_U], "label": DONT_KNOW}
        unknown["is_gold"] = False
        every, cells = self._cells(separator)
        odd = any(name in MISSING or unmarked(name) or WHOLE.match(name) for name in self.class_names)
        ids, marks = self._needs_ids(every), odd or not self.sure_R.all()
        times, seconds = (not np.isnan(column_R).all() for column_R in (self.time_R, self.seconds_R))
        for there, column, value in (
            (ids, "answer_id", ""),
            (marks, "sure", True),
            (times, "time", ""),
            (seconds, "seconds", np.nan),
        ):
            if there:
                gold[column] = unknown[column] = value
        rows = rows or max(len(every), 1)
        for start in range(0, max(len(every), 1), rows):
            first = every[start : start + rows]
            votes = {
                "item": items[self.item_R[first]],
                "annotator": workers[self.worker_R[first]],
                "label": cells[start : start + rows],
                "weight": self.weight_R[first],
                "is_gold": False,
            }
            if ids:
                votes["answer_id"] = self.answer_R[first].astype(str).astype(object)
            if marks:
                votes["sure"] = self.sure_R[first]
            if times:
                votes["time"] = written(self.time_R[first])
            if seconds:
                votes["seconds"] = self.seconds_R[first]
            yield pd.DataFrame(votes)
        yield pd.DataFrame(unknown)
        yield pd.DataFrame(gold)

    def _cells(self, separator: str | None) -> tuple[np.ndarray, np.ndarray]:
        """The cells with labels, and the first row that each of them stands for."""
        place_R = self._places(separator)
        _, first, size = np.unique(place_R, return_index=True, return_counts=True)
        node = node_of_groups(self.taxonomy, self.label_R, place_R, len(first))
        cells = self._written(self.class_names, separator)[self.label_R[first]]
        if self.taxonomy is not None:
            cells = np.where(node >= 0, self._written((*self.taxonomy.nodes, ""), separator)[node], cells)
        rest_R = (size > 1)[place_R] & (node < 0)[place_R]
        for place, labels in pd.Series(self.label_R[rest_R]).groupby(place_R[rest_R]):
            cells[place] = join_labels([self.class_names[label] for label in labels], separator or "")
        return first, cells

    @staticmethod
    def _written(names: Sequence[str], separator: str | None) -> np.ndarray:
        """Names as each would stand alone in a cell."""
        return np.array([name if separator is None else join_labels([name], separator) for name in names], dtype=object)

    def _places(self, separator: str | None) -> np.ndarray:
        """The number of each row's cell: that of its answer, unless the answer cannot stand in one."""
        rows, answers = len(self.item_R), int(self.answer_R.max(initial=-1)) + 1
        apart_R = np.zeros(rows, dtype=bool)
        several = np.flatnonzero((np.bincount(self.answer_R) > 1)[self.answer_R])
        times = (np.nan_to_num(column_R, nan=-1) for column_R in (self.time_R[several], self.seconds_R[several]))
        for column in (self.weight_R[several], self.sure_R[several].astype(np.int64), *times):
            by_answer = pd.Series(column).groupby(self.answer_R[several])
            apart_R[several] |= (by_answer.transform("max") > by_answer.transform("min")).to_numpy()
        if separator is None:  # nothing but the name of a node stands for several labels
            apart_R = apart_R | (node_of_groups(self.taxonomy, self.label_R, self.answer_R, answers) < 0)[self.answer_R]
            first = np.unique(self.answer_R, return_index=True)[1]
            return np.unique(np.where(apart_R, np.arange(rows), first[self.answer_R]), return_inverse=True)[1]
        if len(separator) > 1:  # "a|" and "b" with "||" between them would come back as "a" and "|b"
            labels = pd.Series([self.class_names[label] for label in self.label_R]).groupby(self.answer_R).agg(list)
            odd = [split_labels(join_labels(found, separator), separator) != found for found in labels]
            apart_R = apart_R | pd.Series(odd, index=labels.index, dtype=bool)[self.answer_R].to_numpy()
        key_R = np.where(apart_R, rows + np.arange(rows), self.answer_R)
        return np.asarray(np.unique(key_R, return_inverse=True)[1], dtype=np.int64)

    def _needs_ids(self, first: np.ndarray) -> bool:
        """Whether, with one row for each of these, the rows of an item and annotator are not just those of one answer."""
        named = self.worker_R[first] >= 0
        if pd.Series(self.answer_R[first[~named]]).duplicated().any():
            return True
        first = first[named]
        code, answer = self.item_R[first] * len(self.workers) + self.worker_R[first], self.answer_R[first]
        order = np.lexsort((answer, code))
        return bool(((np.diff(code[order]) == 0) & (np.diff(answer[order]) != 0)).any())

    def trusting(self, people: Sequence[str]) -> Votes:
        """The same votes with the answers of these people as gold: if all their sure answers to an item have exactly one label
        in common, that label becomes the item's gold label, replacing any earlier one, and these answers are no longer votes.
        Otherwise they stay votes."""
        for name in people:
            if name not in self.workers:
                raise unknown("annotator", name, self.workers)
        sure_R = np.bincount(self.answer_R, self.sure_R)[self.answer_R] > 0
        trusted = np.flatnonzero(np.isin(self.worker_R, [self.workers.index(name) for name in people]) & sure_R)
        rows = {"item": self.item_R[trusted], "label": self.label_R[trusted], "answer": self.answer_R[trusted]}
        said = pd.DataFrame(rows)
        shared = said.groupby(["item", "label"], as_index=False)["answer"].nunique()
        shared = shared[shared["answer"] == shared["item"].map(said.groupby("item")["answer"].nunique())]
        shared = shared.drop_duplicates("item", keep=False)
        gold_I = self.gold_I.copy()
        gold_I[shared["item"]] = shared["label"]
        kept = np.delete(np.arange(len(self.item_R)), trusted[np.isin(rows["item"], shared["item"])])
        return replace(self.take(kept), gold_I=gold_I)

    def match(self, files: Sequence[str | Path]) -> tuple[Votes, Match]:
        """These votes with the image files as their items, in the order of `files`, and a report on what did not match.

        `files` are paths relative to the image folder. An item is found by its relative path, else by its base name if
        only one file and one item have it. Answers to items without a file are dropped, but counted in the report.
        """
        names = tuple(file.as_posix() if isinstance(file, Path) else file for file in files)
        found = match_names(self.items, names)
        file_R = found.file_I[self.item_R]
        kept = (file_R >= 0).nonzero()[0]
        gold_F = np.full(len(names), -1, dtype=np.int64)
        matched = (found.file_I >= 0).nonzero()[0]
        gold_F[found.file_I[matched]] = self.gold_I[matched]
        unknown_U = found.file_I[self.unknown_item_U]
        votes = replace(
            self.take(kept),
            items=names,
            item_R=file_R[kept],
            gold_I=gold_F,
            unknown_item_U=unknown_U[unknown_U >= 0],
            unknown_worker_U=self.unknown_worker_U[unknown_U >= 0],
        )
        return votes, found.with_unanswered(names, (np.bincount(file_R[kept], minlength=len(names)) == 0) & (gold_F < 0))
