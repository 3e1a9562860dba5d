"""Replay of finished data: answers arrive one by one, and a rule chooses the item that the next annotator is asked about."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from pals.crowd.fusion import Fusion
from pals.crowd.next_answer import WORTH, Answerer, decide, standing_of, typical_annotator
from pals.readers import Votes

STEP = 0.1
"""Answers for each item, on average, between two estimates."""
SECOND = 0.05
"""Share of the items that get two answers at first: where nobody agrees or disagrees with anybody, nothing tells how often
people are right."""

SETTLED = 0.002
"""Share of the items that may still be worth an answer where the rule says enough: they trickle in for long."""

Fit = Callable[[Votes], Fusion]


class Point(NamedTuple):
    """Where a replay stands: how many answers have been asked for, what they come to, and whether the rule would stop here."""

    answers: int
    fusion: Fusion
    enough: bool


def count_answers(votes: Votes) -> np.ndarray:
    """How many answers each item (N) has, whatever they weigh."""
    first_A = np.unique(votes.answer_R, return_index=True)[1]
    return np.bincount(votes.item_R[first_A], minlength=len(votes.items))


class Arrivals:
    """The answers of finished data in a random order, item by item."""

    def __init__(self, votes: Votes, rng: np.random.Generator) -> None:
        self.votes = votes
        self.answer_R = np.unique(votes.answer_R, return_inverse=True)[1]
        self.item_A = votes.item_R[np.unique(self.answer_R, return_index=True)[1]]
        self.total_N = np.bincount(self.item_A, minlength=len(votes.items))
        order = np.lexsort((rng.random(len(self.item_A)), self.item_A))
        before_N = np.cumsum(self.total_N) - self.total_N
        self.place_A = np.empty(len(self.item_A), dtype=np.int64)  # of an answer among those to its item
        self.place_A[order] = np.arange(len(order)) - np.repeat(before_N, self.total_N)

    def first(self, count_N: np.ndarray) -> Votes:
        """The votes when so many answers to each item have arrived."""
        return self.votes.take(np.flatnonzero(self.place_A[self.answer_R] < count_N[self.votes.item_R]))


def by_the_rule(
    votes: Votes, fit: Fit, *, worth: float = WORTH, step: float = STEP, second: float = SECOND, seed: int = 0
) -> Iterator[Point]:
    """One answer to each item and a second one to a few at random, then always the answers that are worth most. Once all items
    have enough, the rest of the answers is played as well, in the same order."""
    rng = np.random.default_rng(seed)
    arrivals = Arrivals(votes, rng)
    items = np.count_nonzero(arrivals.total_N)
    asked = max(1, round(step * items))
    count_N = np.minimum(arrivals.total_N, 1)
    count_N[rng.permutation(np.flatnonzero(arrivals.total_N > 1))[: math.ceil(second * items)]] += 1
    enough = False
    while True:
        fusion = fit(arrivals.first(count_N))
        crowd = Answerer(
            "", 1.0, (typical_annotator(fusion),), np.zeros(len(count_N), dtype=np.int64), arrivals.total_N - count_N
        )
        found = decide(standing_of(fusion), [crowd], worth)
        left = rng.permutation(np.flatnonzero(count_N < arrivals.total_N))  # ties are broken at random
        left = left[np.argsort(-found.rate_N[left], kind="stable")]
        worthy = int(np.count_nonzero(found.kind_N))
        enough = enough or worthy <= int(SETTLED * items)
        yield Point(int(count_N.sum()), fusion, enough)
        if not len(left):
            return
        count_N[left[: asked if enough else min(asked, worthy)]] += 1


def everyone_equally(votes: Votes, fit: Fit, *, step: float = STEP, seed: int = 0) -> Iterator[Point]:
    """One answer to each item, then a second one to all, in a random order, and so on."""
    rng = np.random.default_rng(seed)
    arrivals = Arrivals(votes, rng)
    items = np.count_nonzero(arrivals.total_N)
    item_A = arrivals.item_A[np.lexsort((rng.random(len(arrivals.item_A)), arrivals.place_A))]
    asked = max(1, round(step * items))
    for answers in [*range(items, len(item_A), asked), len(item_A)]:
        count_N = np.bincount(item_A[:answers], minlength=len(arrivals.total_N))
        yield Point(answers, fit(arrivals.first(count_N)), answers == len(item_A))
