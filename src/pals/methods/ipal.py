"""IPAL: confidences spread over a graph whose edges rebuild each item from its neighbours. Nothing is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.bases.feature_based import FLOOR, Features, FromFeatures
from pals.methods.method import Problem
from pals.methods.parts.nnls import solve_nnls
from pals.pseudo_labels import vote
from pals.pseudo_labels.knn import nearest, nearest_to
from pals.util.config import STRICT

BLOCK = 2**28
"""Bytes of neighbours' features held at once."""


class IPAL(FromFeatures):
    """Each training item is rebuilt from its neighbours, x = sum_a w_a x_a with w >= 0. Confidences F, at first the same for
    all candidates (P), go round along these weights and back into the candidate sets:

        F <- alpha T F + (1 - alpha) P,    then F_ic <- F_ic [c in S_i], scaled to sum to one

    The label of an item is its most confident candidate once every class has the mass that P gave it. A new item gets the
    class whose neighbours alone rebuild it best.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config:
        neighbors: int = Field(default=10, ge=1)
        "K: number of neighbours that reconstruct an item."
        alpha: float = Field(default=0.95, ge=0, lt=1)
        "alpha: the neighbours' share of a confidence; the rest is the item's own."
        iterations: int = Field(default=100, ge=0)
        "Maximum number of rounds..."
        tolerance: float = Field(default=1e-4, ge=0)
        "... unless a round changes the matrix of confidences by less than this (spectral norm)."
        correct_mass: bool = True
        "Before choosing labels, rescale each class to its initial mass."
        features: Features = "input"
        "Features to compare: the inputs as in the eval view, or those of a network that is not trained."
        unit_norm: bool = True
        "Scale features to unit length first."

    reference: ClassVar[str] = "Zhang and Yu, IJCAI 2015"
    config: Config

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.label_N: Tensor
        self.register_buffer("label_N", torch.zeros(self.num_items, dtype=torch.int64))
        self.rounds = 0  # of the one epoch, for the log

    def fit(self) -> Tensor:
        c, features_ND = self.config, self._scaled(self.features_ND)
        index_NK = nearest(features_ND, c.neighbors, include_self=False, metric="euclidean").index_NK
        weight_NK = torch.empty(index_NK.shape, dtype=features_ND.dtype, device=features_ND.device)
        for part, query_BD, near_BKD in in_blocks(features_ND, features_ND, index_NK):
            weight_NK[part] = rebuild(query_BD, near_BKD)
        start_NC = start(self.allowed_NC)
        final_NC, self.rounds = propagate(
            index_NK, transition(weight_NK), start_NC, alpha=c.alpha, iterations=c.iterations, tolerance=c.tolerance
        )
        if c.correct_mass:
            final_NC = corrected(final_NC, start_NC)
        self.label_N = final_NC.argmax(dim=1)
        self.confidence_NC = (final_NC / final_NC.sum(dim=1, keepdim=True)).float()
        return self.label_N

    def answer(self, features_BD: Tensor) -> Tensor:
        query_BD, features_ND = self._scaled(features_BD), self._scaled(self.features_ND)
        index_BK = nearest_to(query_BD, features_ND, self.config.neighbors, metric="euclidean").index_NK
        residual_BC = query_BD.new_empty(len(query_BD), self.num_classes)
        for part, some_RD, near_RKD in in_blocks(query_BD, features_ND, index_BK):
            label_RK = self.label_N[index_BK[part]]
            residual_BC[part] = residuals(some_RD, near_RKD, rebuild(some_RD, near_RKD), label_RK, self.num_classes)
        return -residual_BC.clamp_min(FLOOR).log().float()  # as probabilities: (1 / r_c) / (sum of all 1 / r)

    def _scaled(self, features_ND: Tensor) -> Tensor:
        features_ND = features_ND.double()
        return F.normalize(features_ND, dim=1) if self.config.unit_norm else features_ND

    def statistics(self) -> Mapping[str, float]:
        return {"rounds": self.rounds}


def in_blocks(query_MD: Tensor, features_ND: Tensor, index_MK: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Which queries, the queries, and the features of their neighbours: a block of them at a time."""
    rows = max(1, BLOCK // (features_ND.element_size() * features_ND.shape[1] * index_MK.shape[1]))
    for first in range(0, len(query_MD), rows):
        part = slice(first, first + rows)
        yield part, query_MD[part], features_ND[index_MK[part]]


def rebuild(query_BD: Tensor, near_BKD: Tensor) -> Tensor:
    """The weights, none below zero, with which the neighbours add up to the item as nearly as they can."""
    return solve_nnls(near_BKD @ near_BKD.mT, (near_BKD @ query_BD[:, :, None]).squeeze(2))


def transition(weight_NK: Tensor) -> Tensor:
    """Weights that sum to one in each row; a row of zeros stays."""
    total_N1 = weight_NK.sum(dim=1, keepdim=True)
    return weight_NK / torch.where(total_N1 > 0, total_N1, 1.0)


def start(allowed_NC: Tensor) -> Tensor:
    """All candidates alike."""
    return allowed_NC.double() / allowed_NC.sum(dim=1, keepdim=True)


def propagate(
    index_NK: Tensor, transition_NK: Tensor, start_NC: Tensor, *, alpha: float, iterations: int, tolerance: float
) -> tuple[Tensor, int]:
    """The confidences in the end, and after how many rounds. Candidates are where `start_NC` is above zero."""
    now_NC = start_NC
    for count in range(1, iterations + 1):
        next_NC = vote(index_NK, transition_NK, now_NC).mul_(alpha).add_(start_NC, alpha=1 - alpha).mul_(start_NC > 0)
        next_NC /= next_NC.sum(dim=1, keepdim=True)
        if spectral_norm(next_NC - now_NC) < tolerance:
            return next_NC, count
        now_NC = next_NC
    return now_NC, iterations


def spectral_norm(change_NC: Tensor) -> float:
    """The largest singular value of a tall matrix."""
    return float(torch.linalg.eigvalsh(change_NC.T @ change_NC)[-1].clamp_min(0.0).sqrt())


def corrected(final_NC: Tensor, start_NC: Tensor) -> Tensor:
    """Every class scaled to the mass that it had at the start; one without any mass stays."""
    before_C, after_C = start_NC.sum(dim=0), final_NC.sum(dim=0)
    return final_NC * torch.where(after_C > 0, before_C / after_C, 1.0)


def residuals(query_BD: Tensor, near_BKD: Tensor, weight_BK: Tensor, label_BK: Tensor, num_classes: int) -> Tensor:
    """For each class, how far the item is from what its neighbours of this class add up to; |x| for a class that has none."""
    same_BKK = label_BK[:, :, None] == label_BK[:, None, :]
    # One sum per neighbour, of its whole class: never more than K of them, however many classes there are.
    sum_BKD = (same_BKK * weight_BK[:, None, :]) @ near_BKD
    residual_BK: Tensor = torch.linalg.vector_norm(sum_BKD.neg_().add_(query_BD[:, None, :]), dim=2)
    length_B1: Tensor = torch.linalg.vector_norm(query_BD, dim=1, keepdim=True)
    return length_B1.repeat(1, num_classes).scatter_(1, label_BK, residual_BK)
