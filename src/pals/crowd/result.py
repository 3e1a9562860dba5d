"""The result item by item and answer by answer: what every table is made from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pals.crowd.answers import sparse_shares, sparse_support
from pals.crowd.blocks import precision, values_at
from pals.crowd.novelty import PROBABLE
from pals.readers import Votes
from pals.readers.taxonomy_answers import node_of_groups
from pals.util.errors import InputError
from pals.util.words import in_brief, quoted

GOLD, AGREED, TIE_BROKEN, CORRECTED, UNSURE, NO_ANSWER, NONE_OF_THESE = range(7)
STATUS = ("gold", "agreed", "tie-broken", "corrected", "unsure", "no-answer", "none-of-these")


@dataclass(frozen=True)
class Result:
    """Probabilities of the classes beside the votes that they come from. N items, A answers, R rows (one per label of an
    answer). `unsure`: a label less likely than this is called so. `doubtful`: an answer more likely wrong than this is.
    `none_N`: how likely each item is of a class that is not among the classes, where that is known."""

    votes: Votes
    posterior_NC: np.ndarray
    unsure: float = 0.5
    doubtful: float = 0.5
    none_N: np.ndarray | None = None

    __repr__ = in_brief

    def __post_init__(self) -> None:
        shape = (len(self.votes.items), len(self.votes.class_names))
        posterior_NC = np.asarray(self.posterior_NC)
        if posterior_NC.dtype != precision(shape):  # of very many items, in single precision
            posterior_NC = posterior_NC.astype(np.float64)
        object.__setattr__(self, "posterior_NC", posterior_NC)
        if posterior_NC.shape != shape:
            raise InputError(
                f"The probabilities have shape {posterior_NC.shape}, but the votes are about {shape[0]} items "
                f"and {shape[1]} classes."
            )
        with np.errstate(invalid="ignore"):  # the least and the sum of a row show NaN and infinity, too
            bad_N = ~((posterior_NC.min(axis=1) >= 0) & (abs(posterior_NC.sum(axis=1) - 1) <= 1e-3))
        if bad_N.any():
            name = self.votes.items[int(bad_N.argmax())]
            raise InputError(f"The probabilities of item {quoted(name)} are not shares that sum to one.")

    # ---- items

    @cached_property
    def label_N(self) -> np.ndarray:
        """The likeliest class; the first of them where several are."""
        label_N: np.ndarray = self.posterior_NC.argmax(axis=1)
        return label_N

    @cached_property
    def confidence_N(self) -> np.ndarray:
        top_N: np.ndarray = self.posterior_NC.max(axis=1)
        return top_N

    @cached_property
    def answers_N(self) -> np.ndarray:
        """How many answers each item has."""
        return np.bincount(self.item_A, minlength=len(self.label_N))

    @cached_property
    def share_NC(self) -> Any:
        """Weighted share of each item's answers that a label got, an answer with several labels split evenly; CSR, without the
        labels that no answer names."""
        return sparse_shares(self.votes)

    @cached_property
    def support_NC(self) -> Any:
        """Weighted share of each item's answers that name a label, alone or with others: two answers "bird" count for a
        gull, and outnumber one "seal". CSR, as above."""
        return sparse_support(self.votes) if (self.size_A > 1).any() else self.share_NC

    @cached_property
    def top_share_N(self) -> np.ndarray:
        """The largest share of answers that name one label; zero where no answer weighs anything."""
        return np.asarray(self.support_NC.max(axis=1).todense()).ravel()

    @cached_property
    def leads_NC(self) -> np.ndarray:
        """Whether a label is named by most of an item's answers, alone or with others."""
        support_NC, size_N = self.support_NC, np.diff(self.support_NC.indptr)
        top_X = np.repeat(self.top_share_N, size_N)
        leads_NC = np.zeros(support_NC.shape, dtype=bool)
        item_X = np.repeat(np.arange(len(size_N)), size_N)
        leads_NC[item_X, support_NC.indices] = (support_NC.data >= top_X - 1e-9) & (top_X > 0)
        return leads_NC

    @cached_property
    def agreement_N(self) -> np.ndarray:
        """Weighted share of an item's answers that name the result; NaN without answers."""
        share_N = values_at(self.support_NC, np.arange(len(self.label_N)), self.label_N)
        return np.where(self.top_share_N > 0, share_N, np.nan)

    @cached_property
    def said_N(self) -> np.ndarray:
        """Whether an answer names the label that is the result."""
        equal_R = self.votes.label_R == self.label_N[self.votes.item_R]
        said_N: np.ndarray = np.bincount(self.votes.item_R[equal_R], minlength=len(self.label_N)) > 0
        return said_N

    @cached_property
    def status_N(self) -> np.ndarray:
        """Numbers of `STATUS`. Where several labels lead, none has most annotators: a label that an answer names breaks a
        tie."""
        leads_N, tied_N = self.leads_NC[np.arange(len(self.label_N)), self.label_N], self.leads_NC.sum(axis=1) > 1
        status_N = np.where(leads_N, AGREED, CORRECTED)
        status_N[tied_N & (self.agreement_N > 0)] = TIE_BROKEN
        status_N[self.confidence_N < self.unsure] = UNSURE
        if self.none_N is not None:
            status_N[self.none_N > PROBABLE] = NONE_OF_THESE
        status_N[self.top_share_N == 0] = NO_ANSWER
        status_N[self.votes.gold_I >= 0] = GOLD
        return status_N

    # ---- answers

    @cached_property
    def answer_R(self) -> np.ndarray:
        """The answer of each row, numbered without gaps."""
        return np.unique(self.votes.answer_R, return_inverse=True)[1]

    @cached_property
    def first_A(self) -> np.ndarray:
        """The first row of each answer."""
        return np.unique(self.answer_R, return_index=True)[1]

    @cached_property
    def size_A(self) -> np.ndarray:
        """How many labels each answer names."""
        return np.bincount(self.answer_R)

    @cached_property
    def node_A(self) -> np.ndarray:
        """The inner node of the taxonomy that each answer names; -1 for one of a single label, or of any others."""
        return node_of_groups(self.votes.taxonomy, self.votes.label_R, self.answer_R, len(self.first_A))

    @cached_property
    def item_A(self) -> np.ndarray:
        item_A: np.ndarray = self.votes.item_R[self.first_A]
        return item_A

    @cached_property
    def annotator_A(self) -> np.ndarray:
        annotator_A: np.ndarray = self.votes.annotator_R[self.first_A]
        return annotator_A

    @cached_property
    def inside_A(self) -> np.ndarray:
        """Probability that one of the labels of the answer is right."""
        return np.bincount(self.answer_R, self.posterior_NC[self.votes.item_R, self.votes.label_R], minlength=len(self.first_A))

    @cached_property
    def wrong_A(self) -> np.ndarray:
        """Probability that none of the labels of the answer is right."""
        wrong_A: np.ndarray = np.clip(1 - self.inside_A, 0.0, 1.0)
        return wrong_A

    @cached_property
    def agrees_A(self) -> np.ndarray:
        """Whether the result is among the labels of the answer."""
        equal_R = self.votes.label_R == self.label_N[self.votes.item_R]
        agrees_A: np.ndarray = np.bincount(self.answer_R, equal_R, minlength=len(self.first_A)) > 0
        return agrees_A

    @cached_property
    def part_R(self) -> np.ndarray:
        """What a row counts: an answer with several labels is split evenly."""
        part_R: np.ndarray = 1 / self.size_A[self.answer_R]
        return part_R
