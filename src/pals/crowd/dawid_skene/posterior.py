"""What the answers say of the items: the probability of every class for each, and what is counted of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pals.crowd.answers import Answers
from pals.crowd.blocks import in_parallel, precision, product, row_blocks


class Posterior(Protocol):
    """What the M-step asks of what is known of the items."""

    def counts(self, answers: Answers, out: Any = None) -> Any:
        """P x C: how often each pair occurs with easy items of each class, all answers being pairs; into `out` if given."""

    def said_of_hard(self, answers: Answers) -> np.ndarray:
        """How often each label was given to hard items of each class: rows are the class."""

    def sums(self, use_N: np.ndarray) -> np.ndarray:
        """How many of these items are of each class."""

    def hard_sums(self, use_N: np.ndarray) -> np.ndarray:
        """How many of these items are of each class and hard."""

    @property
    def hard_N(self) -> np.ndarray:
        """How likely each item is hard."""


@dataclass(frozen=True)
class ItemPosterior:
    """What the answers say of the items: probabilities of (class, easy) and (class, hard) that sum to one per item."""

    easy_NC: np.ndarray
    hard_NC: np.ndarray
    evidence_N: np.ndarray  # log-likelihood of each item's answers
    moved: float = np.inf  # share of the probability that is elsewhere than before

    @classmethod
    def empty(cls, shape: tuple[int, int], hard: bool) -> ItemPosterior:
        """To be filled; without hard items their table takes no memory."""
        kind = precision(shape)
        hard_NC = np.empty(shape, kind) if hard else np.broadcast_to(kind(0), shape)
        return cls(np.empty(shape, kind), hard_NC, np.empty(shape[0]))

    @classmethod
    def held(cls, share_NC: np.ndarray, hard: bool) -> ItemPosterior:
        """What is held of the items before their answers are weighed; that some are hard comes to light later."""
        found = cls.empty(share_NC.shape, hard)
        found.easy_NC[:] = share_NC
        if hard:
            found.hard_NC[:] = 0
        found.evidence_N[:] = 0
        return found

    @property
    def posterior_NC(self) -> np.ndarray:
        """To be read only: without hard items it is the table of the easy ones."""
        return self.rows(slice(None))

    def rows(self, items: np.ndarray | slice) -> np.ndarray:
        """The probabilities of the classes for these items, to be read only."""
        easy_BC: np.ndarray = self.easy_NC[items]
        return easy_BC + self.hard_NC[items] if self.hard_NC.strides[0] else easy_BC

    def sums(self, use_N: np.ndarray) -> np.ndarray:
        """How many of these items are of each class."""
        items, classes = self.easy_NC.shape

        def add(part: slice) -> np.ndarray:
            rows_BC = self.rows(part)
            used_BC = rows_BC if use_N[part].all() else rows_BC[use_N[part]]
            items_C: np.ndarray = used_BC.sum(axis=0, dtype=np.float64)
            return items_C

        return sum(in_parallel(add, row_blocks(np.arange(items + 1), classes)), np.zeros(classes))

    def hard_sums(self, use_N: np.ndarray) -> np.ndarray:
        hard_C: np.ndarray = self.hard_NC.sum(axis=0, dtype=np.float64, where=use_N[:, None])
        return hard_C

    @property
    def hard_N(self) -> np.ndarray:
        hard_N: np.ndarray = self.hard_NC.sum(axis=1, dtype=np.float64)
        return hard_N

    def counts(self, answers: Answers, out: Any = None) -> Any:
        shape = len(answers.label_P), answers.num_classes
        return product(answers.given_SN, self.easy_NC, np.empty(shape, precision(shape)) if out is None else out)

    def said_of_hard(self, answers: Answers) -> np.ndarray:
        """Where every answer names one label, it does not matter who gave it."""
        given_CN = answers.given_NK.T.tocsr()
        said_CC: np.ndarray = product(given_CN, self.hard_NC, np.empty((given_CN.shape[0], answers.num_classes)))
        return said_CC.T


def class_shares(found: Posterior, known_N: np.ndarray) -> np.ndarray:
    """How frequent the classes are among the items of which something is known; a class that nobody chose keeps a little."""
    items_C = found.sums(known_N)
    share_C: np.ndarray = (items_C + 1 / len(items_C)) / (known_N.sum() + 1)
    return share_C
