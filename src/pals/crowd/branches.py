"""Classes of an item that no answer tells apart, with a taxonomy: all answers name a branch that the classes share.

The regression on images must not learn from such an item which of the classes it is. Of a branch that most annotators leave
undivided, the class that is ahead by a little would soon have all items, whatever the few answers say that name a class. So
what an item teaches is evened out within each group of such classes, by the shares of the classes.

Symbols: N items, C classes, X pairs of an item and such a class, G groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix

from pals.crowd.dawid_skene.answer_table import FIRST, AnswerTable
from pals.readers import Votes


@dataclass(frozen=True)
class Branches:
    """Groups of classes by item.

    Args:
        item_X: Item of each pair.
        class_X: Class of each pair.
        group_X: Group of each pair.
        part_X: Share of the group that the class gets.
    """

    item_X: np.ndarray
    class_X: np.ndarray
    group_X: np.ndarray
    part_X: np.ndarray

    @classmethod
    def none(cls) -> Branches:
        """No groups: without a taxonomy sets of labels show more together than each alone."""
        return cls(*(np.zeros(0, dtype=np.int64),) * 3, np.zeros(0))

    @classmethod
    def of(cls, votes: Votes, table: AnswerTable) -> Branches:
        """The groups of items that have an answer with several labels."""
        if votes.taxonomy is None:
            return cls.none()
        several_N = np.zeros(table.num_items, dtype=bool)
        several_N[table.item_A[table.count_A4[:, FIRST] > 1]] = True
        open_R = (several_N & (table.gold_N < 0))[table.item_R]
        # Classes with the same sum of random marks are named by the same answers.
        mark_A = np.random.default_rng(0).integers(1, 2**40, size=len(table.item_A))
        cells = table.item_R[open_R], table.label_R[open_R]
        marked_NC = csr_matrix((mark_A[table.answer_R[open_R]], cells), shape=(table.num_items, table.num_classes)).tocoo()
        frame = pd.DataFrame({"item": marked_NC.row, "named_by": marked_NC.data, "class": marked_NC.col})
        frame = frame[frame.duplicated(["item", "named_by"], keep=False)]
        class_X, group_X = frame["class"].to_numpy(), frame.groupby(["item", "named_by"]).ngroup().to_numpy()
        share_X = table.class_share_C[class_X]
        return cls(frame["item"].to_numpy(), class_X, group_X, share_X / np.bincount(group_X, share_X)[group_X])

    def even(self, posterior_NC: np.ndarray) -> np.ndarray:
        """The posterior, evened out within each group."""
        if not len(self.item_X):
            return posterior_NC
        mass_G = np.bincount(self.group_X, posterior_NC[self.item_X, self.class_X])
        even_NC = posterior_NC.copy()
        even_NC[self.item_X, self.class_X] = mass_G[self.group_X] * self.part_X
        return even_NC
