"""The rows of all tables together, from which repeated, unknown and right answers are taken out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pals.readers.reader_table import SkippedRows, Table
from pals.readers.votes import ROW_COLUMNS

OTHER_COLUMNS = ("gold_R", "audit_R", "joint_R", "unknown_R", "table_R", "row_R")
REPEATED_ANSWER = "the same person's same answer again"
UNKNOWN_AND_ANSWER = '"don\'t know" of a person who does give an answer'
GOLD_UNCLEAR = "a gold answer with several labels, or against another one for the same item"
GOLD_UNSURE = "a gold answer that is marked as unsure"


class JoinedRows:
    """The rows of all tables with their places; methods that leave rows out count them in `skipped`."""

    sure_R: np.ndarray
    weight_R: np.ndarray
    time_R: np.ndarray
    seconds_R: np.ndarray
    gold_R: np.ndarray
    rank_R: np.ndarray
    percent_R: np.ndarray
    audit_R: np.ndarray
    joint_R: np.ndarray

    def __init__(
        self,
        tables: Sequence[Table],
        item: list[np.ndarray],
        annotator: list[np.ndarray],
        label: list[np.ndarray],
        skipped: SkippedRows,
    ) -> None:
        rows = [len(code_R) for code_R in item]
        answers = [table.answer_R for table in tables if table.answer_R is not None]
        first = np.cumsum([0, *(int(answer_R.max(initial=-1)) + 1 for answer_R in answers)])
        self.tables, self.skipped = tables, skipped
        self.item_R, self.annotator_R, self.label_R = (np.concatenate(codes) for codes in (item, annotator, label))
        self.answer_R = np.concatenate([answer_R + start for answer_R, start in zip(answers, first, strict=False)])
        for name, default in (
            ("weight_R", 1.0),
            ("time_R", np.nan),
            ("seconds_R", np.nan),
            ("gold_R", False),
            ("sure_R", True),
            ("rank_R", 0),
            ("percent_R", np.nan),
            ("audit_R", False),
            ("joint_R", False),
        ):
            columns = [getattr(table, name) for table in tables]
            full = [np.full(n, default) if column is None else column for column, n in zip(columns, rows, strict=True)]
            setattr(self, name, np.concatenate(full))
        self.unknown_R = np.concatenate([table.unknown_R for table in tables if table.unknown_R is not None]) & ~self.gold_R
        self.table_R = np.repeat(np.arange(len(tables)), rows)
        self.row_R = np.concatenate([np.arange(n) for n in rows])
        self.may_repeat = len(tables) > 1 or not all(table.grouped for table in tables)

    def keep(self, mask_R: np.ndarray) -> None:
        for name in (*ROW_COLUMNS, *OTHER_COLUMNS):
            setattr(self, name, getattr(self, name)[mask_R])

    def add_labels(self, row_E: np.ndarray, label_E: np.ndarray) -> None:
        """Add to the answers of these rows labels without a rank."""
        for name in (*ROW_COLUMNS, *OTHER_COLUMNS):
            setattr(self, name, np.append(getattr(self, name), getattr(self, name)[row_E]))
        rows = len(self.label_R) - len(row_E)
        self.label_R[rows:], self.rank_R[rows:], self.percent_R[rows:], self.joint_R[rows:] = label_E, 0, np.nan, False

    def drop(self, mask_R: np.ndarray, reason: str) -> None:
        """Leave these rows out and count them."""
        dropped = mask_R.nonzero()[0]
        if len(dropped):
            self.skipped.add(reason, len(dropped), (self.tables[self.table_R[i]].place(self.row_R[i]) for i in dropped))
            self.keep(~mask_R)

    def number_annotators(self, annotators: Sequence[str]) -> tuple[list[str], list[str]]:
        """Number the annotators who have a row, in their order. Returns their names, and those of the others."""
        active_W = np.bincount(self.annotator_R[self.annotator_R >= 0], minlength=len(annotators)) > 0
        self.annotator_R = np.append(np.cumsum(active_W) - 1, -1)[self.annotator_R]
        names = np.array(annotators, dtype=object)
        return names[active_W].tolist(), names[~active_W].tolist()

    def take_unknown(self) -> np.ndarray:
        """Take out the rows of "don't know".

        Beside a label in the same answer, "don't know" makes the label unsure. It does not count if the annotator has another
        answer for the item.

        Returns:
            Item and annotator of each "don't know", U x 2.
        """
        if not self.unknown_R.any():
            return np.empty((0, 2), dtype=np.int64)
        self.sure_R = self.sure_R & ~np.isin(self.answer_R, self.answer_R[self.unknown_R])
        self.keep(~(self.unknown_R & np.isin(self.answer_R, self.answer_R[~self.unknown_R])))
        self.drop(self.unknown_R & np.isin(self._pair_R, self._pair_R[~self.unknown_R]), UNKNOWN_AND_ANSWER)
        self.drop(self.unknown_R & pd.Series(self._pair_R).duplicated().to_numpy(), REPEATED_ANSWER)
        unknown_U2: np.ndarray = np.stack([self.item_R, self.annotator_R], axis=1)[self.unknown_R]
        self.keep(~self.unknown_R)
        return unknown_U2

    @property
    def _pair_R(self) -> np.ndarray:
        """A number for each pair of item and annotator; every row without a name has one of its own."""
        annotators = self.annotator_R.max(initial=-1) + 1
        pair_R = self.item_R * annotators + self.annotator_R
        key_R: np.ndarray = np.where(self.annotator_R < 0, -1 - np.arange(len(self.item_R)), pair_R)
        return key_R

    def drop_times_of_items(self) -> bool:
        """Remove times that belong to the items, as when a photo was taken: all annotators of an item have the same one."""
        known = np.flatnonzero(~np.isnan(self.time_R) & (self.annotator_R >= 0))
        by_item = pd.DataFrame({"annotator": self.annotator_R[known], "time": self.time_R[known]}).groupby(self.item_R[known])
        found = by_item.nunique()
        shared = found.loc[found["annotator"] > 1, "time"]
        if not len(shared) or (shared > 1).any():
            return False
        self.time_R = np.full_like(self.time_R, np.nan)
        return True

    def take_gold(self, items: int, classes: int) -> np.ndarray:
        """Take out the rows of known right labels. Returns the right label of each item, or -1."""
        gold_I = np.full(items, -1, dtype=np.int64)
        if self.gold_R.any():
            self.drop(self.gold_R & ~self.sure_R, GOLD_UNSURE)
            gold = self.gold_R.nonzero()[0]
            pair = np.unique(self.item_R[gold] * classes + self.label_R[gold])
            labels_I = np.bincount(pair // classes, minlength=items)
            gold_I[pair // classes] = pair % classes
            gold_I[labels_I > 1] = -1
            self.drop(self.gold_R & (labels_I > 1)[self.item_R], GOLD_UNCLEAR)
            self.keep(~self.gold_R)
        return gold_I

    def drop_repeats(self, classes: int) -> None:
        """Leave out a label twice in one answer, and an annotator's whole answer twice; what remains is sure if one was."""
        self.sure_R = self._sure_once(self.answer_R * classes + self.label_R)
        self.drop(pd.Series(self.answer_R * classes + self.label_R).duplicated().to_numpy(), REPEATED_ANSWER)
        if self.may_repeat and len(self.answer_R):
            _, first, answer_R = np.unique(self.answer_R, return_index=True, return_inverse=True)
            hash_A = np.zeros(len(first), dtype=np.uint64)
            written_R = self.label_R
            if self.rank_R.any() or not np.isnan(self.percent_R).all():
                frame = pd.DataFrame({"label": self.label_R, "rank": self.rank_R, "percent": self.percent_R})
                written_R = frame.groupby(list(frame), dropna=False).ngroup().to_numpy()
            np.add.at(hash_A, answer_R, _hash(written_R))
            answers = pd.DataFrame({"item": self.item_R[first], "annotator": self.annotator_R[first], "labels": hash_A})
            again_A = (answers.duplicated() & (answers["annotator"] >= 0)).to_numpy()
            group_A = np.where(answers["annotator"] < 0, -1 - np.arange(len(first)), answers.groupby(list(answers)).ngroup())
            self.sure_R = self._sure_once(group_A[answer_R] * classes + self.label_R)
            self.drop(again_A[answer_R], REPEATED_ANSWER)

    def _sure_once(self, key_R: np.ndarray) -> np.ndarray:
        """Per row, whether any with the same key is sure."""
        return self.sure_R if self.sure_R.all() else pd.Series(self.sure_R).groupby(key_R).transform("any").to_numpy()

    def items_with_several_answers(self) -> np.ndarray:
        """The items for which one annotator gave different answers."""
        if not self.may_repeat:
            return np.empty(0, dtype=np.int64)
        pairs = pd.DataFrame({"item": self.item_R, "annotator": self.annotator_R, "answer": self.answer_R}).drop_duplicates()
        pairs = pairs[pairs["annotator"] >= 0]
        return np.unique(pairs.loc[pairs.duplicated(["item", "annotator"]), "item"].to_numpy())


def _hash(label_R: np.ndarray) -> np.ndarray:
    """64 bits for each label, such that the sums over different sets of labels differ (splitmix64)."""
    z = (label_R.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
