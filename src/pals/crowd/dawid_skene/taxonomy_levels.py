"""What people know level by level of a taxonomy: "knows gulls, not which gull".

An answer is right on the levels that it shares with the true class, and wrong from there on. For a class, the labels that share
exactly m levels with it are its ring m: ring 0 is all other branches, ring L the class itself. People's skills say how often
answers fall into each ring, and what people in general do says which label of the ring it is. So who never misses the branch
still may not know the species, and it takes few answers to find that out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pals.crowd.answers import Answers, ratio
from pals.labels.taxonomy import Taxonomy

POPULATION_PSEUDO_COUNTS = (8.0, 2.0)
"""On each level, of people in general: as if eight of ten answers had been right."""
PERSON_PSEUDO_COUNTS = 10.0
"""Answers on each level that a person begins with: as people in general give them."""


@dataclass(frozen=True)
class Levels:
    """The skills of everybody on each of L levels: how often an answer is right there that is right on the levels above."""

    ring_CC: np.ndarray  # levels that two classes share, 0 to L
    skill_WL: np.ndarray
    population_L: np.ndarray

    @property
    def num_rings(self) -> int:
        return len(self.population_L) + 1

    @cached_property
    def open_CL(self) -> np.ndarray:
        """Whether one can err for a class on a level: its ring there is not empty."""
        rings = range(self.skill_WL.shape[1])
        open_CL: np.ndarray = np.stack([(self.ring_CC == ring).any(axis=1) for ring in rings], axis=1)
        return open_CL

    @cached_property
    def share_MWC(self) -> np.ndarray:
        """How often answers of a person with care fall into each ring of a class."""
        return self._shares(self.skill_WL)

    @cached_property
    def wrong_M1C(self) -> np.ndarray:
        """The same of people in general, of answers that are wrong."""
        wrong_M1C = self._shares(self.population_L[None])
        wrong_M1C[-1] = 0.0
        wrong_M1C /= wrong_M1C.sum(axis=0)
        return wrong_M1C

    def _shares(self, skill_WL: np.ndarray) -> np.ndarray:
        right_LWC = np.where(self.open_CL.T[:, None, :], skill_WL.T[:, :, None], 1.0)
        reached_MWC = np.cumprod(np.concatenate([np.ones_like(right_LWC[:1]), right_LWC]), axis=0)
        share_MWC: np.ndarray = reached_MWC.copy()
        share_MWC[:-1] *= 1 - right_LWC
        return share_MWC

    def within(self, count_CC: np.ndarray) -> np.ndarray:
        """Counts as shares of their ring: rows are the class, columns the label."""
        share_CC = np.zeros(count_CC.shape)
        for ring in range(self.num_rings):
            count = np.where(self.ring_CC == ring, count_CC, 0.0)
            share_CC += ratio(count, count.sum(axis=1, keepdims=True), otherwise=0.0)
        return share_CC

    def of_pairs(self, count_CC: np.ndarray, annotator_P: np.ndarray, label_P: np.ndarray) -> np.ndarray:
        """P x C: probability that a person with care gives the label to an item of each class."""
        class_C = np.arange(len(count_CC))
        of_pair_PC: np.ndarray = (
            self.share_MWC[self.ring_CC[:, label_P].T, annotator_P[:, None], class_C] * self.within(count_CC)[:, label_P].T
        )
        return of_pair_PC

    def of_people(self, count_CC: np.ndarray, weight_WC: np.ndarray) -> np.ndarray:
        """C x C: the sum over people with care of what they say, each with a weight for each class."""
        share_MC = (self.share_MWC * weight_WC).sum(axis=1)
        said_CC: np.ndarray = share_MC[self.ring_CC, np.arange(len(count_CC))[:, None]] * self.within(count_CC)
        return said_CC

    def wrong(self, count_CC: np.ndarray) -> np.ndarray:
        """C x C: which label a wrong answer gives."""
        class_C1 = np.arange(len(count_CC))[:, None]
        wrong_CC: np.ndarray = self.wrong_M1C[self.ring_CC, 0, class_C1] * self.within(count_CC)
        return wrong_CC

    def learned(self, answers: Answers, careful_PC: np.ndarray) -> Levels:
        """With the skills that follow from expected numbers of answers given with care."""
        ring_PC = self.ring_CC[:, answers.label_P].T
        right_WL, wrong_WL = np.zeros(self.skill_WL.shape), np.zeros(self.skill_WL.shape)
        for level in range(self.skill_WL.shape[1]):
            tried_PC = np.where(self.open_CL[:, level], careful_PC, 0.0)
            for total_WL, in_ring_PC in ((right_WL, ring_PC > level), (wrong_WL, ring_PC == level)):
                count_P = np.where(in_ring_PC, tried_PC, 0.0).sum(axis=1)
                total_WL[:, level] = np.bincount(answers.annotator_P, count_P, minlength=answers.num_annotators)
        good, bad = POPULATION_PSEUDO_COUNTS
        population_L = (right_WL.sum(axis=0) + good) / ((right_WL + wrong_WL).sum(axis=0) + good + bad)
        skill_WL = (right_WL + PERSON_PSEUDO_COUNTS * population_L) / (right_WL + wrong_WL + PERSON_PSEUDO_COUNTS)
        return replace(self, skill_WL=skill_WL, population_L=population_L)


def initial_levels(taxonomy: Taxonomy | None, people: int) -> Levels | None:
    """Before anything has been learned; None where there are no levels to tell apart."""
    if taxonomy is None or taxonomy.num_levels < 2:
        return None
    level_LC = taxonomy.level_LC
    ring_CC = (level_LC[:, :, None] == level_LC[:, None, :]).sum(axis=0)
    population_L = np.full(len(level_LC), POPULATION_PSEUDO_COUNTS[0] / sum(POPULATION_PSEUDO_COUNTS))
    return Levels(ring_CC, np.tile(population_L, (people, 1)), population_L)


class RingCounts:
    """Counts of (class, label) for every kind of answer, ring by ring, so that an answer's own part can be taken out."""

    def __init__(self, levels: Levels, answers: Answers, count_CC: np.ndarray, share_MXC: np.ndarray, least: float) -> None:
        self.share_MXC, self.least = share_MXC, least
        rings = [np.where(levels.ring_CC == ring, count_CC, 0.0) for ring in range(levels.num_rings)]
        self.count_MKC = np.stack([answers.of_kinds(ring_CC) for ring_CC in rings])
        self.total_MC = np.stack([ring_CC.sum(axis=1) for ring_CC in rings])

    def of_all(self, kind_S: np.ndarray, who_S: np.ndarray) -> np.ndarray:
        """S x C: probability of these kinds, said by `who_S` (rows of the shares)."""
        of_ring_MKC = ratio(self.count_MKC, self.total_MC[:, None, :], otherwise=0.0)
        chance_SC = np.zeros((len(kind_S), self.total_MC.shape[1]))
        for share_XC, of_ring_KC in zip(self.share_MXC, of_ring_MKC, strict=True):
            chance_SC += share_XC[who_S] * of_ring_KC[kind_S]
        return chance_SC

    def at(self, kind_T: np.ndarray, who_T: np.ndarray, class_T: np.ndarray) -> np.ndarray:
        """Probability of each of these kinds, said by `who_T`, for an item of a class. Kinds and people are given with the
        class, as places in tables."""
        chance_T: np.ndarray = np.sum([part_T for *_, part_T in self._terms(kind_T, who_T, class_T)], axis=0)
        return chance_T

    def without(self, kind_T: np.ndarray, who_T: np.ndarray, class_T: np.ndarray, own_T: np.ndarray) -> np.ndarray:
        """The same, without their own part of the counts."""
        terms = self._terms(kind_T, who_T, class_T)
        whole_T = np.sum([part_T for *_, part_T in terms], axis=0)
        chance_T = np.zeros(own_T.shape)
        for share_T, count_T, total_T, part_T in terms:
            gone_T = own_T * ratio(part_T, whole_T, otherwise=0.0)
            left_T = np.maximum(count_T - gone_T, np.where(count_T > 0, self.least, 0.0))
            chance_T += share_T * ratio(left_T, total_T - gone_T, otherwise=0.0)
        return chance_T

    def _terms(self, kind_T: np.ndarray, who_T: np.ndarray, class_T: np.ndarray) -> list[tuple[np.ndarray, ...]]:
        """Ring by ring: how often people's answers fall into it, counts of the kinds and of all labels there, and what that
        makes the kinds' probability."""
        terms: list[tuple[np.ndarray, ...]] = []
        for share_XC, count_KC, total_C in zip(self.share_MXC, self.count_MKC, self.total_MC, strict=True):
            share_T, count_T, total_T = share_XC.ravel()[who_T], count_KC.ravel()[kind_T], total_C[class_T]
            terms.append((share_T, count_T, total_T, share_T * ratio(count_T, total_T, otherwise=0.0)))
        return terms
