"""The labels that answers name, one by one: what is drawn of answers that name several."""

from __future__ import annotations

import numpy as np

from pals.crowd.answers import Answers

TINY = 1e-300


class Named:
    """The labels that answers (entries E of `given_NS`) name, K in all."""

    def __init__(self, answers: Answers) -> None:
        symbol_E, members_SP = answers.given_NS.indices, answers.members_SP
        size_E = np.diff(members_SP.indptr)[symbol_E]
        self.first_E = np.cumsum(size_E) - size_E
        self.entry_K = np.repeat(np.arange(len(symbol_E)), size_E)
        place_K = members_SP.indptr[symbol_E][self.entry_K] + np.arange(len(self.entry_K)) - self.first_E[self.entry_K]
        self.pair_K: np.ndarray = members_SP.indices[place_K]
        self.label_K = answers.label_P[self.pair_K]
        self.item_K = answers.item_E[self.entry_K]
        self.annotator_E = answers.annotator_S[symbol_E]
        self.several = np.flatnonzero((answers.count_N > 1)[answers.item_E])  # answers beside others
        self.gold = np.flatnonzero((answers.gold_N >= 0) & answers.answered_N)

    def right_share(self, class_N: np.ndarray) -> float:
        """The share of the answers that name the class of their item, where it has one (not -1)."""
        class_K = class_N[self.item_K]
        return _distinct(self.entry_K[class_K == self.label_K]) / max(_distinct(self.entry_K[class_K >= 0]), 1)

    def pick_pair(
        self, chance_PC: tuple[np.ndarray, np.ndarray], class_N: np.ndarray, hard_N: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """One pair per answer: of several labels, one that the person meant."""
        if len(self.pair_K) == len(self.first_E):
            return self.pair_K
        class_K = class_N[self.item_K]
        easy_K, hard_K = (chance[self.pair_K, class_K] for chance in chance_PC)
        score_K = rng.standard_exponential(len(self.pair_K)) / (np.where(hard_N[self.item_K], hard_K, easy_K) + TINY)
        best_K = score_K == np.minimum.reduceat(score_K, self.first_E)[self.entry_K]
        picked_E = np.zeros(len(self.first_E), dtype=self.pair_K.dtype)
        picked_E[self.entry_K[best_K]] = self.pair_K[best_K]
        return picked_E


def _distinct(sorted_X: np.ndarray) -> int:
    """How many different numbers there are, of numbers in order."""
    return int(np.count_nonzero(sorted_X[1:] != sorted_X[:-1])) + min(len(sorted_X), 1)
