"""What people answered, column by column (`Votes`), and the candidate sets that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from pals.labels.candidates import CandidateSets, OnEmpty
from pals.readers.matching import Match, match_names
from pals.readers.summary import ReadSummary
from pals.util.errors import InputError

LARGEST_TABLE = 2_000_000_000  # items times classes; beyond it the label column is surely the wrong one


@dataclass(frozen=True)
class Votes:
    """Everyone's answers, one row (R) per label. An answer that names several labels has as many rows, which share its
    number in `answer_R`. Items that nobody answered for are in `items`, without rows."""

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

    def __post_init__(self) -> None:
        rows = len(self.item_R)
        for name, low, high in (
            ("item_R", 0, len(self.items)),
            ("worker_R", -1, len(self.workers)),
            ("label_R", 0, len(self.class_names)),
            ("answer_R", 0, rows),
            ("gold_I", -1, len(self.class_names)),
        ):
            values = np.asarray(getattr(self, name), dtype=np.int64)
            object.__setattr__(self, name, values)
            count = len(self.items) if name == "gold_I" else rows
            if values.shape != (count,) or (count and not low <= values.min() <= values.max() < high):
                raise InputError(f"{name} of the votes must hold {count} numbers from {low} to {high - 1}.")
        weight_R = np.asarray(self.weight_R, dtype=np.float64)
        object.__setattr__(self, "weight_R", weight_R)
        if weight_R.shape != (rows,) or not (np.isfinite(weight_R) & (weight_R >= 0)).all():
            raise InputError(f"The weights of votes must be {rows} finite numbers that are not negative.")

    @property
    def num_answers(self) -> int:
        return int(np.count_nonzero(np.bincount(self.answer_R)))

    def to_candidates(self, *, on_empty: OnEmpty = "error", use_gold: bool = False) -> CandidateSets:
        """A label that someone chose is a candidate; its frequency is its weighted share of the item's answers. An answer
        with several labels gives each the same part of its weight. With `use_gold` a known right label is the only
        candidate of its item."""
        count_NC = torch.from_numpy(self._counts())
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
                f"{self.class_names[0]!r} look like free text or names of items: check which column holds the label."
            )
        size_A = np.bincount(self.answer_R)
        part_R = self.weight_R / size_A[self.answer_R]
        top = part_R.max(initial=0)
        part_R = part_R / top if top > 0 else part_R  # so that enormous weights add up to a finite number
        count = np.bincount(self.item_R * classes + self.label_R, weights=part_R, minlength=items * classes)
        return count.reshape(items, classes).astype(np.float64)  # numpy counts in whole numbers where there is nothing

    def to_frame(self, separator: str | None = "|") -> pd.DataFrame:
        """As a table with an answer per row, which `read_votes` reads back: item, worker, label, weight, is_gold. The several
        labels of one answer stand in one cell, "newt|frog"; with None, where labels may hold any character, in rows of their
        own."""
        names = np.array(self.class_names, dtype=object)
        if separator is None:
            first_A, label_A = np.arange(len(self.item_R)), names[self.label_R]
        else:
            first_A = np.unique(self.answer_R, return_index=True)[1]
            label_A = pd.Series(names[self.label_R]).groupby(self.answer_R).agg(separator.join).to_numpy(dtype=object)
        workers = np.array([*self.workers, ""], dtype=object)  # the last for -1
        items = np.array(self.items, dtype=object)
        votes = {
            "item": items[self.item_R[first_A]],
            "worker": workers[self.worker_R[first_A]],
            "label": label_A,
            "weight": self.weight_R[first_A],
            "is_gold": False,
        }
        known = (self.gold_I >= 0).nonzero()[0]
        gold = {"item": items[known], "worker": "", "label": names[self.gold_I[known]], "weight": 1.0, "is_gold": True}
        return pd.concat([pd.DataFrame(votes), pd.DataFrame(gold)], ignore_index=True)

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
        _, answer_R = np.unique(self.answer_R[kept], return_inverse=True)
        votes = replace(
            self,
            items=names,
            item_R=file_R[kept],
            worker_R=self.worker_R[kept],
            label_R=self.label_R[kept],
            answer_R=answer_R,
            weight_R=self.weight_R[kept],
            gold_I=gold_F,
        )
        return votes, found.with_unanswered(names, np.bincount(file_R[kept], minlength=len(names)) == 0)
