"""IPAL: label propagation on a graph whose edges reconstruct each item from its neighbours. Nothing is trained.

    min |x_i - sum_{a in N_i} w_ia x_a|^2,  w >= 0                    non-negative least squares
    F <- alpha W F + (1 - alpha) P,  F_ic <- F_ic [c in S_i],  rows normalised         until F changes by less than `tolerance`
    y_i = argmax_c F_ic sum_j P_jc / sum_j F_jc                       every class gets the mass that P gives it
    new item: argmin_c |x - sum_{a in N: y_a = c} w_a x_a|            the class whose neighbours reconstruct it best

Symbols: N_i the K nearest items; W rows of w, normalised; P uniform on the candidates S; F posterior.
Reference: Zhang and Yu, IJCAI 2015. Differences between paper and authors' code: docs/methods/ipal.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.bases.feature_based import MIN_SCORE, FeatureMethod, Features
from pals.methods.method import Problem
from pals.pseudo_labels import vote
from pals.pseudo_labels.knn import nearest, nearest_to
from pals.pseudo_labels.simplex import normalize_rows
from pals.util.config import STRICT

NEAR_BLOCK_BYTES = 2**28
"""Size of a block of neighbours' features."""
MAX_NNLS_STEPS = 30
"""Steps of an active-set search per neighbour; two or three are usual."""


class IPAL(FeatureMethod):
    """Propagate candidate labels along reconstruction weights.

    Args:
        config: options.
        problem: candidates and networks.
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
        self.label_N: Tensor = nn.Buffer(torch.zeros(self.num_items, dtype=torch.int64))
        self.rounds = 0  # of the propagation, for the log

    def fit(self) -> Tensor:
        c, features_ND = self.config, self._scaled(self.features_ND)
        index_NK = nearest(features_ND, c.neighbors, include_self=False, metric="euclidean").index_NK
        weight_NK = torch.empty(index_NK.shape, dtype=features_ND.dtype, device=features_ND.device)
        for part, query_BD, near_BKD in in_blocks(features_ND, features_ND, index_NK):
            weight_NK[part] = reconstruct(query_BD, near_BKD)
        initial_NC = normalize_rows(self.allowed_NC.double())
        final_NC, self.rounds = propagate(
            index_NK, normalize_rows(weight_NK), initial_NC, alpha=c.alpha, iterations=c.iterations, tolerance=c.tolerance
        )
        if c.correct_mass:
            final_NC = correct_mass(final_NC, initial_NC)
        self.label_N = final_NC.argmax(dim=1)
        self.confidence_NC = normalize_rows(final_NC).float()
        return self.label_N

    def log_scores(self, features_BD: Tensor) -> Tensor:
        query_BD, features_ND = self._scaled(features_BD), self._scaled(self.features_ND)
        index_BK = nearest_to(query_BD, features_ND, self.config.neighbors, metric="euclidean").index_NK
        residual_BC = query_BD.new_empty(len(query_BD), self.num_classes)
        for part, some_RD, near_RKD in in_blocks(query_BD, features_ND, index_BK):
            label_RK = self.label_N[index_BK[part]]
            residual_BC[part] = residuals(some_RD, near_RKD, reconstruct(some_RD, near_RKD), label_RK, self.num_classes)
        return -residual_BC.clamp_min(MIN_SCORE).log().float()  # as probabilities: (1 / r_c) / (sum of all 1 / r)

    def _scaled(self, features_ND: Tensor) -> Tensor:
        features_ND = features_ND.double()
        return F.normalize(features_ND, dim=1) if self.config.unit_norm else features_ND

    def statistics(self) -> Mapping[str, float]:
        return {"rounds": self.rounds}


def in_blocks(query_MD: Tensor, features_ND: Tensor, index_MK: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Blocks of queries with the features of their neighbours.

    Args:
        query_MD: queries.
        features_ND: features of all items.
        index_MK: neighbours of each query.

    Yields:
        Rows of the queries, the queries, and the features of their neighbours, B x K x D.
    """
    rows = max(1, NEAR_BLOCK_BYTES // (features_ND.element_size() * features_ND.shape[1] * index_MK.shape[1]))
    for first in range(0, len(query_MD), rows):
        part = slice(first, first + rows)
        yield part, query_MD[part], features_ND[index_MK[part]]


def reconstruct(query_BD: Tensor, near_BKD: Tensor) -> Tensor:
    """The non-negative weights with which the neighbours reconstruct each query best, in the least-squares sense.

    Args:
        query_BD: queries.
        near_BKD: features of their neighbours.

    Returns:
        float64, B x K, on the device of the queries; computed on the host.

    >>> reconstruct(torch.tensor([[1.0, 2.0]]), torch.tensor([[[1.0, 0.0], [0.0, -1.0]]])).tolist()
    [[1.0, 0.0]]
    """
    from scipy.optimize import nnls  # here because its import takes long

    pairs = zip(near_BKD.double().cpu().numpy(), query_BD.double().cpu().numpy(), strict=True)
    weights = [nnls(near_KD.T, query_D, maxiter=MAX_NNLS_STEPS * len(near_KD))[0] for near_KD, query_D in pairs]
    return torch.from_numpy(np.array(weights).reshape(near_BKD.shape[:2])).to(query_BD.device)


def propagate(
    index_NK: Tensor, weight_NK: Tensor, initial_NC: Tensor, *, alpha: float, iterations: int, tolerance: float
) -> tuple[Tensor, int]:
    """Propagate F along the weights until it converges.

    Args:
        index_NK: neighbours.
        weight_NK: W, rows sum to one.
        initial_NC: P; candidates are where it is positive.
        alpha: share of the neighbours.
        iterations: maximum number of rounds.
        tolerance: stop if the spectral norm of the change of F is smaller.

    Returns:
        F, and the number of rounds.
    """
    now_NC = initial_NC
    for count in range(1, iterations + 1):
        next_NC = vote(index_NK, weight_NK, now_NC).mul_(alpha).add_(initial_NC, alpha=1 - alpha).mul_(initial_NC > 0)
        next_NC = normalize_rows(next_NC)
        change_NC = next_NC - now_NC
        if float(torch.linalg.eigvalsh(change_NC.T @ change_NC)[-1].clamp_min(0.0).sqrt()) < tolerance:
            return next_NC, count
        now_NC = next_NC
    return now_NC, iterations


def correct_mass(final_NC: Tensor, initial_NC: Tensor) -> Tensor:
    """Scale every class of F to its mass in P.

    Args:
        final_NC: F.
        initial_NC: P.

    Returns:
        N x C; a class without mass in F is not scaled.
    """
    before_C, after_C = initial_NC.sum(dim=0), final_NC.sum(dim=0)
    return final_NC * torch.where(after_C > 0, before_C / after_C, 1.0)


def residuals(query_BD: Tensor, near_BKD: Tensor, weight_BK: Tensor, label_BK: Tensor, num_classes: int) -> Tensor:
    """|x - sum_{a: y_a = c} w_a x_a| for each class c.

    Args:
        query_BD: x.
        near_BKD: features of their neighbours.
        weight_BK: w.
        label_BK: labels y of the neighbours.
        num_classes: C.

    Returns:
        B x C; |x| for a class without neighbours.
    """
    same_BKK = label_BK[:, :, None] == label_BK[:, None, :]
    # One sum for each neighbour, over its class: K sums, however many classes there are.
    sum_BKD = (same_BKK * weight_BK[:, None, :]) @ near_BKD
    residual_BK: Tensor = torch.linalg.vector_norm(sum_BKD.neg_().add_(query_BD[:, None, :]), dim=2)
    length_B1: Tensor = torch.linalg.vector_norm(query_BD, dim=1, keepdim=True)
    return length_B1.repeat(1, num_classes).scatter_(1, label_BK, residual_BK)
