"""Trusted answers in the result: none is overruled, none is called wrong, and where they differ the item is left to settle.

A trusted answer of one label is gold before the fit (`Votes.trusting`). Here are the rest of them: an item's label is the
likeliest class that all its sure trusted answers allow. Where they have no class in common, it is the likeliest class that any
of them allows, and the item's status is `DISAGREEMENT`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pandas as pd

from pals.crowd import Doubts, Result
from pals.pipeline.item_order import DISAGREEMENT
from pals.readers import Votes


class TrustedItems(NamedTuple):
    """Items without a gold label that have sure trusted answers (M of them), and those marked as none of the classes.

    Args:
        item_M: Numbers of the items.
        allowed_MC: The classes that may be their labels.
        disagree_M: Whether the answers have no class in common.
        none: Numbers of the items that are marked as none of the classes and have no such answer.
    """

    item_M: np.ndarray
    allowed_MC: np.ndarray
    disagree_M: np.ndarray
    none: np.ndarray

    @classmethod
    def of(cls, votes: Votes, none_of_these: Collection[str] = ()) -> TrustedItems:
        """Collect them.

        Args:
            votes: The answers, with `trusted_R`.
            none_of_these: Items that trusted answers mark as none of the classes; a label given as well is a disagreement.
        """
        sure_R = np.bincount(votes.answer_R, votes.sure_R)[votes.answer_R] > 0 if len(votes.answer_R) else votes.sure_R
        row = np.flatnonzero(votes.trusted_R & sure_R & (votes.gold_I[votes.item_R] < 0))
        item_M, place = np.unique(votes.item_R[row], return_inverse=True)
        named_MC = np.zeros((len(item_M), len(votes.class_names)))
        pairs = pd.DataFrame({"item": place, "label": votes.label_R[row], "answer": votes.answer_R[row]}).drop_duplicates()
        np.add.at(named_MC, (pairs["item"], pairs["label"]), 1)
        answers_M1 = np.bincount(pairs.drop_duplicates(["item", "answer"])["item"], minlength=len(item_M))[:, None]
        common_MC = named_MC == answers_M1
        names = frozenset(none_of_these)
        marked_N = np.array([name in names for name in votes.items], dtype=bool) & (votes.gold_I < 0)
        disagree_M = ~common_MC.any(axis=1)
        allowed_MC = np.where(disagree_M[:, None], named_MC > 0, common_MC)
        return cls(item_M, allowed_MC, disagree_M | marked_N[item_M], np.setdiff1d(np.flatnonzero(marked_N), item_M))

    def restrict(self, posterior_NC: np.ndarray) -> np.ndarray:
        """The posterior (N x C) without the classes that trusted answers exclude."""
        if not len(self.item_M):
            return posterior_NC
        inside_MC = np.where(self.allowed_MC, np.maximum(posterior_NC[self.item_M], 1e-12), 0)
        posterior_NC = posterior_NC.copy()
        posterior_NC[self.item_M] = inside_MC / inside_MC.sum(axis=1, keepdims=True)
        return posterior_NC

    def mark_none(self, none_N: np.ndarray | None) -> np.ndarray | None:
        """The probability that the class is missing (N), one for the items that are marked so; None stays None."""
        if none_N is None or not len(self.none):
            return none_N
        none_N = none_N.copy()
        none_N[self.none] = 1.0
        return none_N

    def mark_statuses(self, labels: pd.DataFrame) -> pd.DataFrame:
        """labels.csv with the statuses of items to settle and of items marked as none of the classes."""
        status = labels["status"].to_numpy(dtype=object, copy=True)
        status[self.item_M[self.disagree_M]] = DISAGREEMENT
        status[self.none] = "none-of-these"
        return labels.assign(status=status)


def without_trusted(doubts: Doubts, result: Result) -> Doubts:
    """The doubtful answers that are not trusted."""
    keep_M = ~result.votes.trusted_R[result.first_A[doubts.answer_M]]
    return Doubts(*(column[keep_M] for column in doubts))
