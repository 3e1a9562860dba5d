"""What unsure answers are worth, and what it says that somebody does not know.

An unsure answer is given as a sure one would be with a probability of the person's own (`trust_W`), and otherwise by nothing
but how frequent labels are. So it says the less the lower that is, and the same as a sure one where it is 1.

"Don't know" says nothing of the class but that the item may be hard. People say so at a rate of their own (`caution_W`), and at
`ratio` times that rate of hard items. Both are learned; a person of whom little is known is like everybody.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

TRUST_PSEUDO_COUNTS = (2.0, 2.0)
"""Of everybody together: as if two unsure answers had been as good as sure ones and two not at all."""
CAUTION_PSEUDO_COUNTS = (1.0, 9.0)
"""Of everybody together: as if one of ten had said that they do not know."""
PERSON_PSEUDO_COUNTS = 5.0
"""Unsure answers, or items that a person was asked about, by which a person begins as everybody is."""
RATIO_PRIOR = (2.0, 2.0)
"""Shape and rate of the Gamma prior of `ratio`: as many of hard items as of others, until the answers show otherwise.
Where people do not know by chance, a larger one takes for hard what is not."""


@dataclass(frozen=True)
class Unsure:
    """The symbols of unsure answers (U of all symbols S), and how far each person's are to be trusted."""

    symbol_U: np.ndarray
    place_S: np.ndarray  # the number of each symbol among them; -1 where the answer is sure
    annotator_U: np.ndarray
    base_U1: np.ndarray  # probability of the symbol where labels come as frequently as in all answers
    trust_W: np.ndarray
    as_sure_UC: tuple[np.ndarray, np.ndarray]  # that it was given as a sure one is: for easy and for hard items of each class

    @property
    def trust_U1(self) -> np.ndarray:
        trust_U1: np.ndarray = self.trust_W[self.annotator_U, None]
        return trust_U1

    def mixed(self, chance_EX: np.ndarray, symbol_E: np.ndarray) -> np.ndarray:
        """Probability of answers with these symbols, of one class each or of several, from that which they would have if they
        were sure."""
        unsure, place = self._unsure(symbol_E)
        shape = (-1, *[1] * (chance_EX.ndim - 1))
        trust_EX, base_EX = self.trust_U1[place].reshape(shape), self.base_U1[place].reshape(shape)
        chance_EX = chance_EX.copy()
        chance_EX[unsure] = trust_EX * chance_EX[unsure] + (1 - trust_EX) * base_EX
        return chance_EX

    def without_guesses(
        self, count_EX: np.ndarray, symbol_E: np.ndarray, hard: bool, class_E: np.ndarray | None = None
    ) -> np.ndarray:
        """Of what answers with these symbols count, for all classes or one each, that part which was given as sure ones are."""
        unsure, place = self._unsure(symbol_E)
        share_UC = self.as_sure_UC[hard]
        count_EX = count_EX.copy()
        count_EX[unsure] *= share_UC[place] if class_E is None else share_UC[place, class_E[unsure]]
        return count_EX

    def _unsure(self, symbol_E: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of the answers are unsure, and the numbers of their symbols among the unsure ones."""
        unsure = np.flatnonzero(self.place_S[symbol_E] >= 0)
        return unsure, self.place_S[symbol_E[unsure]]

    def drawn(self, symbol_E: np.ndarray, chance_E: np.ndarray, rng: np.random.Generator) -> tuple[Unsure, np.ndarray]:
        """Which of all answers were given as sure ones are, and what unsure ones are worth by that. `chance_E` is the
        probability of each answer if it were sure."""
        unsure, place = self._unsure(symbol_E)
        sure_E1 = self.trust_U1[place] * chance_E[unsure, None]
        drawn = rng.random(len(unsure)) * (sure_E1 + (1 - self.trust_U1[place]) * self.base_U1[place])[:, 0] < sure_E1[:, 0]
        as_sure_E = np.ones(len(symbol_E), dtype=bool)
        as_sure_E[unsure] = drawn
        given_W, sure_W = (np.bincount(self.annotator_U[place], part, minlength=len(self.trust_W)) for part in (None, drawn))
        prior_W = PERSON_PSEUDO_COUNTS * _everybody(sure_W, given_W, *TRUST_PSEUDO_COUNTS)
        trust_W = rng.beta(sure_W + prior_W, given_W - sure_W + PERSON_PSEUDO_COUNTS - prior_W)
        return replace(self, trust_W=trust_W), as_sure_E

    def as_sure(self, chance_SC: np.ndarray) -> np.ndarray:
        """Probability that an unsure answer was given as a sure one is, U x C."""
        sure_UC = self.trust_U1 * chance_SC[self.symbol_U]
        share_UC: np.ndarray = sure_UC / (sure_UC + (1 - self.trust_U1) * self.base_U1)
        return share_UC


def first_unsure(answers: Any, share_C: np.ndarray) -> Unsure | None:
    """Before anything has been learned; None where everybody is sure. `share_C` of the labels among all answers."""
    symbol_U = np.flatnonzero(~answers.sure_S)
    if not len(symbol_U):
        return None
    base_S = answers.members_SP @ share_C[answers.label_P]
    place_S = np.full(len(answers.sure_S), -1)
    place_S[symbol_U] = np.arange(len(symbol_U))
    trust = TRUST_PSEUDO_COUNTS[0] / sum(TRUST_PSEUDO_COUNTS)
    half_UC = np.full((len(symbol_U), answers.num_classes), trust)
    trust_W = np.full(answers.num_annotators, trust)
    return Unsure(symbol_U, place_S, answers.annotator_S[symbol_U], base_S[symbol_U, None], trust_W, (half_UC, half_UC))


def learned_unsure(before: Unsure, found_SC: tuple[np.ndarray, np.ndarray], chance_SC: tuple[np.ndarray, np.ndarray]) -> Unsure:
    """The M-step: `found_SC` is how often each symbol was given to easy and to hard items of each class, `chance_SC` its
    probability if everybody were sure."""
    as_sure_UC = before.as_sure(chance_SC[0]), before.as_sure(chance_SC[1])
    people = len(before.trust_W)
    given_W, sure_W = np.zeros(people), np.zeros(people)
    for count_SC, share_UC in zip(found_SC, as_sure_UC, strict=True):
        count_UC = count_SC[before.symbol_U]
        given_W += np.bincount(before.annotator_U, count_UC.sum(axis=1), minlength=people)
        sure_W += np.bincount(before.annotator_U, (count_UC * share_UC).sum(axis=1), minlength=people)
    return replace(before, trust_W=_shrunk(sure_W, given_W, *TRUST_PSEUDO_COUNTS), as_sure_UC=as_sure_UC)


@dataclass(frozen=True)
class Caution:
    """How often people say that they do not know, of easy items, and how much more often of hard ones."""

    unknown_N: np.ndarray  # how many people do not know
    unknown_W: np.ndarray
    asked_NW: Any  # scipy.sparse, 0 or 1: who answered or did not know; the last, unnamed person counts each time
    caution_W: np.ndarray
    ratio: float

    def log_hard_N1(self) -> np.ndarray:
        """By how much what people do not know makes each item likelier to be hard: the logarithm of the odds."""
        expected_N = self.asked_NW @ self.caution_W
        log_N1: np.ndarray = (self.unknown_N * np.log(self.ratio) - (self.ratio - 1) * expected_N)[:, None]
        return log_N1

    def learned(self, hard_N: np.ndarray) -> Caution:
        """The M-step: numbers of "don't know"s are taken for Poisson, with Gamma priors. They never make an item easier."""
        exposed_W = self.asked_NW.T @ (1 + (self.ratio - 1) * hard_N)
        caution_W = _shrunk(self.unknown_W, exposed_W, *CAUTION_PSEUDO_COUNTS)
        expected = float(hard_N @ (self.asked_NW @ caution_W))
        ratio = (float(self.unknown_N @ hard_N) + RATIO_PRIOR[0]) / (expected + RATIO_PRIOR[1])
        return replace(self, caution_W=caution_W, ratio=max(ratio, 1.0))

    def drawn(self, hard_N: np.ndarray, rng: np.random.Generator) -> Caution:
        """The same, drawn, where it is known which items are hard."""
        exposed_W = self.asked_NW.T @ np.where(hard_N, self.ratio, 1.0)
        prior = PERSON_PSEUDO_COUNTS * _everybody(self.unknown_W, exposed_W, *CAUTION_PSEUDO_COUNTS)
        caution_W = rng.gamma(self.unknown_W + prior) / (exposed_W + PERSON_PSEUDO_COUNTS)
        expected = float(hard_N @ (self.asked_NW @ caution_W))
        ratio = rng.gamma(float(self.unknown_N @ hard_N) + RATIO_PRIOR[0]) / (expected + RATIO_PRIOR[1])
        return replace(self, caution_W=caution_W, ratio=max(ratio, 1.0))


def first_caution(answers: Any) -> Caution | None:
    """Before anything has been learned; None where everybody knows."""
    unknown_NW = answers.unknown_NW
    if not unknown_NW.nnz:
        return None
    asked_NW = answers.asked_NW
    unknown_N, unknown_W = (np.asarray(unknown_NW.sum(axis=axis)).ravel() for axis in (1, 0))
    asked_W = np.asarray(asked_NW.sum(axis=0)).ravel()
    caution_W = _shrunk(unknown_W, asked_W, *CAUTION_PSEUDO_COUNTS)
    return Caution(unknown_N, unknown_W, asked_NW, caution_W, RATIO_PRIOR[0] / RATIO_PRIOR[1])


def _shrunk(part_W: np.ndarray, whole_W: np.ndarray, part: float, rest: float) -> np.ndarray:
    """Shares by person, of whom each begins as everybody is, and everybody with these pseudo-counts."""
    prior = PERSON_PSEUDO_COUNTS * _everybody(part_W, whole_W, part, rest)
    share_W: np.ndarray = (part_W + prior) / (whole_W + PERSON_PSEUDO_COUNTS)
    return share_W


def _everybody(part_W: np.ndarray, whole_W: np.ndarray, part: float, rest: float) -> float:
    return float((part_W.sum() + part) / (whole_W.sum() + part + rest))
