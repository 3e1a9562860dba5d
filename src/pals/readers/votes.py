"""What people answered, column by column (`Votes`), and the candidate sets that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from pals.labels.candidates import CandidateSets, OnEmpty
from pals.labels.cells import DONT_KNOW, MISSING, UNSURE_WEIGHT, join_labels, split_labels
from pals.labels.taxonomy import Taxonomy
from pals.readers.matching import Match, match_names
from pals.readers.nodes import node_of_groups
from pals.readers.summary import ReadSummary
from pals.readers.times import LATEST, written
from pals.readers.unsure import unmarked
from pals.util.errors import InputError, unknown
from pals.util.words import quoted

COLUMNS = ("item_R", "worker_R", "label_R", "answer_R", "weight_R", "sure_R", "time_R", "seconds_R")
LARGEST_TABLE = 2_000_000_000  # items times classes; beyond it the label column is surely the wrong one


def _nothing() -> np.ndarray:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Votes:
    """Everyone's answers, one row (R) per label. An answer that names several labels has as many rows, which share its
    number in `answer_R`. Items that nobody answered for are in `items`, without rows.

    "Don't know" is an answer without a label (U of them), and has no row: it counts neither as a vote nor as an answer, but
    tells how hard an item is and how cautious a person."""

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
        """Whether it is known of any answer when it was given, or how long it took."""
        return not (np.isnan(self.time_R).all() and np.isnan(self.seconds_R).all())

    def take(self, rows: np.ndarray) -> Votes:
        """Only these rows; items, people and "don't know"s stay."""
        columns = {name: getattr(self, name)[rows] for name in COLUMNS}
        return replace(self, **{**columns, "answer_R": np.unique(columns["answer_R"], return_inverse=True)[1]})

    def to_candidates(self, *, on_empty: OnEmpty = "error", use_gold: bool = False) -> CandidateSets:
        """A label that someone chose is a candidate; its frequency is its weighted share of the item's answers. An answer
        with several labels gives each the same part of its weight; one that is unsure counts half. With `use_gold` a known
        right label is the only candidate of its item."""
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
        return count.reshape(items, classes).astype(np.float64)  # numpy counts in whole numbers where there is nothing

    def to_frame(self, separator: str | None = "|") -> pd.DataFrame:
        """As a table with an answer per row, which `read_votes` with the same separator (and taxonomy) reads back: item,
        worker, label, weight, is_gold. The several labels of one answer stand in one cell, "newt|frog"; in rows of their own
        with None, or where their weights, marks or times differ; those below a node of the taxonomy under the name of the node.
        A column answer_id is there if item and annotator do not tell which rows are one answer, a column sure if any answer is
        unsure, or a name looks as if it had a mark or were none, columns time and seconds if any is known. Who does not know
        has "don't know" for a label."""
        names, items = np.array(self.class_names, dtype=object), np.array(self.items, dtype=object)
        workers = np.array([*self.workers, ""], dtype=object)  # the last for -1
        first, cells = self._cells(separator)
        votes = {
            "item": items[self.item_R[first]],
            "worker": workers[self.worker_R[first]],
            "label": cells,
            "weight": self.weight_R[first],
            "is_gold": False,
        }
        known = (self.gold_I >= 0).nonzero()[0]
        gold = {"item": items[known], "worker": "", "label": names[self.gold_I[known]], "weight": 1.0, "is_gold": True}
        if separator is not None:
            gold["label"] = np.array([join_labels([name], separator) for name in gold["label"]], dtype=object)
        unknown = {**gold, "item": items[self.unknown_item_U], "worker": workers[self.unknown_worker_U], "label": DONT_KNOW}
        unknown["is_gold"] = False
        if self._needs_ids(first):
            votes["answer_id"] = self.answer_R[first].astype(str).astype(object)
            gold["answer_id"] = unknown["answer_id"] = ""
        if not self.sure_R.all() or any(map(unmarked, self.class_names)) or not MISSING.isdisjoint(self.class_names):
            votes["sure"], gold["sure"], unknown["sure"] = self.sure_R[first], True, True
        if not np.isnan(self.time_R).all():
            votes["time"], gold["time"], unknown["time"] = written(self.time_R[first]), "", ""
        if not np.isnan(self.seconds_R).all():
            votes["seconds"], gold["seconds"], unknown["seconds"] = self.seconds_R[first], np.nan, np.nan
        return pd.concat([pd.DataFrame(part) for part in (votes, unknown, gold)], ignore_index=True)

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
        times = (np.nan_to_num(column_R, nan=-1) for column_R in (self.time_R, self.seconds_R))
        for column_R in (self.weight_R, self.sure_R.astype(np.int64), *times):
            by_answer = pd.Series(column_R).groupby(self.answer_R)
            apart_R |= (by_answer.transform("max") > by_answer.transform("min")).to_numpy()
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
        rows = pd.DataFrame({"item": self.item_R, "worker": self.worker_R, "answer": self.answer_R}).iloc[first]
        unnamed = rows["worker"] < 0
        split_up = rows.loc[unnamed, "answer"].duplicated().any()
        several = rows[~unnamed].drop_duplicates().duplicated(["item", "worker"]).any()
        return bool(split_up or several)

    def trusting(self, people: Sequence[str]) -> Votes:
        """The same with the one label that all sure answers of these people to an item have in common as what is right (gold),
        and these answers no longer as votes. Where they have none or several in common they stay votes; what was known to be
        right before gives way to them."""
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
        only one file and one item have it. The answers of items without a file are left out of the votes, not of the report.
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
