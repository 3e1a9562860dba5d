"""Answers and results level by level of a taxonomy: who is right how far down, and how far apart mix-ups are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pals.crowd.result import Result
from pals.labels.taxonomy import NO_NODE, Taxonomy


class AnswerLevels(NamedTuple):
    """For each answer (A) and level (L): whether it names one branch there, and whether that is the result's branch."""

    claims_AL: np.ndarray
    right_AL: np.ndarray

    def accuracy(self, group_A: np.ndarray, groups: int) -> np.ndarray:
        """G x L: the share that is right of what the answers of each group claim; NaN where they claim nothing."""
        levels = self.claims_AL.shape[1]
        code_AL = group_A[:, None] * levels + np.arange(levels)
        claimed, right = (
            np.bincount(code_AL[mask_AL], minlength=groups * levels).reshape(groups, levels)
            for mask_AL in (self.claims_AL, self.right_AL)
        )
        found_GL: np.ndarray = np.divide(right, claimed, out=np.full(claimed.shape, np.nan), where=claimed > 0)
        return found_GL


class NodeCounts(NamedTuple):
    """For each node: items with a result there or below, items that are rolled up to it, answers that name it, and of the
    answers to its items that determine whether they belong to it, how many and how many are right."""

    items_T: np.ndarray
    rolled_up_T: np.ndarray
    answers_T: np.ndarray
    claims_T: np.ndarray
    right_T: np.ndarray


def answer_levels(result: Result, taxonomy: Taxonomy) -> AnswerLevels:
    """An answer counts on a level if all its labels are of one branch there."""
    level_LC, answers = taxonomy.level_LC, len(result.first_A)
    first_AL = level_LC[:, result.votes.label_R[result.first_A]].T
    differs_RL = first_AL[result.answer_R] != level_LC[:, result.votes.label_R].T
    claims_AL = np.ones((answers, len(level_LC)), dtype=bool)
    row, level = differs_RL.nonzero()
    claims_AL[result.answer_R[row], level] = False
    return AnswerLevels(claims_AL, claims_AL & (first_AL == level_LC[:, result.label_N[result.item_A]].T))


def node_counts(result: Result, taxonomy: Taxonomy, sure: float) -> NodeCounts:
    """All counts of a tree."""
    nodes, span_T2 = len(taxonomy.nodes), taxonomy.span_T2
    low_A, high_A = _ends(result)
    answered_A = np.where(result.node_A >= 0, result.node_A, np.where(result.size_A == 1, taxonomy.leaf_C[low_A], NO_NODE))
    node_N, node_A = taxonomy.leaf_C[result.label_N], taxonomy.leaf_C[result.label_N[result.item_A]]
    items_T, claims_T, right_T = (np.zeros(nodes, dtype=np.int64) for _ in range(3))
    parent_T = np.array((*taxonomy.parents, NO_NODE))  # the last for NO_NODE itself
    while (node_N >= 0).any():
        items_T += np.bincount(node_N[node_N >= 0], minlength=nodes)
        inside_A = (low_A >= span_T2[node_A, 0]) & (high_A <= span_T2[node_A, 1]) & (node_A >= 0)
        above_A = (low_A <= span_T2[node_A, 0]) & (high_A >= span_T2[node_A, 1])
        claims_T += np.bincount(node_A[(node_A >= 0) & (inside_A | ~above_A)], minlength=nodes)
        right_T += np.bincount(node_A[inside_A], minlength=nodes)
        node_N, node_A = parent_T[node_N], parent_T[node_A]
    rolled_N = taxonomy.roll_up(result.posterior_NC, sure).node_N
    return NodeCounts(
        items_T=items_T,
        rolled_up_T=np.bincount(rolled_N[rolled_N >= 0], minlength=nodes),
        answers_T=np.bincount(answered_A[answered_A >= 0], minlength=nodes),
        claims_T=claims_T,
        right_T=right_T,
    )


def _ends(result: Result) -> tuple[np.ndarray, np.ndarray]:
    """The first label of each answer in the order of the classes, and the one after the last."""
    low_A, high_A = np.full(len(result.first_A), np.iinfo(np.int64).max), np.zeros(len(result.first_A), dtype=np.int64)
    np.minimum.at(low_A, result.answer_R, result.votes.label_R)
    np.maximum.at(high_A, result.answer_R, result.votes.label_R + 1)
    return low_A, high_A
