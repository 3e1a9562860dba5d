"""PL-KNN: the nearest neighbours vote for all their candidates. Nothing is trained.

    score_c = sum_{a in N} w_a [c in S_a],    w_a = 1 - d_a / sum_{b in N} d_b

A training item gets the class with the highest score among its own candidates, a new item that of all classes.
Symbols: N the K nearest training items; d distances; S candidates.
Reference: Hüllermeier and Beringer, IDA 2005. Page: docs/methods/pl-knn.md.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.bases.feature_based import MIN_SCORE, FeatureMethod, Features
from pals.methods.method import Problem
from pals.pseudo_labels import neighbor_weight, vote
from pals.pseudo_labels.knn import Metric, Neighbors, nearest, nearest_to
from pals.pseudo_labels.simplex import normalize_rows, uniform_on
from pals.util.config import STRICT


class PLKNN(FeatureMethod):
    """Classify by a weighted vote of the nearest neighbours' candidates.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config:
        neighbors: int = Field(default=10, ge=1)
        "K: number of neighbours that vote."
        weighting: Literal["linear", "uniform", "exp"] = "linear"
        "Weight of a neighbour: 1 - d / (sum of all d), uniform, or exp(cosine / temperature) as in PALS."
        temperature: float = Field(default=0.1, gt=0)
        "Temperature of the exponential weighting."
        vote: Literal["full", "split"] = "full"
        "Each candidate of a neighbour gets a whole vote, or one vote is split among them."
        include_self: bool = False
        "A training item votes on its own label too, with its K neighbours."
        features: Features = "input"
        "Features to compare: the inputs as in the eval view, or those of a network that is not trained."
        unit_norm: bool | None = None
        "Scale features to unit length first; by default only those of a network."

    reference: ClassVar[str] = "Hüllermeier and Beringer, IDA 2005"
    config: Config

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.unit = config.features == "network" if config.unit_norm is None else config.unit_norm
        self.metric: Metric = "cosine" if config.weighting == "exp" else "euclidean"

    def fit(self) -> Tensor:
        found = nearest(
            self._scaled(self.features_ND), self.config.neighbors, include_self=self.config.include_self, metric=self.metric
        )
        self.confidence_NC = on_candidates(self._votes(found), self.allowed_NC)
        return self.confidence_NC.argmax(dim=1)

    def log_scores(self, features_BD: Tensor) -> Tensor:
        stored_ND = self._scaled(self.features_ND)
        found = nearest_to(self._scaled(features_BD), stored_ND, self.config.neighbors, metric=self.metric)
        return normalize_rows(self._votes(found)).clamp_min(MIN_SCORE).log()

    def _scaled(self, features_ND: Tensor) -> Tensor:
        return F.normalize(features_ND, dim=1) if self.unit else features_ND

    def _votes(self, found: Neighbors) -> Tensor:
        index_NK, similarity_NK = found
        if self.config.weighting == "exp":
            weight_NK = neighbor_weight(similarity_NK, "exp", self.config.temperature)
        elif self.config.weighting == "linear":
            weight_NK = linear_weight(-similarity_NK)
        else:
            weight_NK = torch.ones_like(similarity_NK)
        ballot_NC = uniform_on(self.allowed_NC) if self.config.vote == "split" else self.allowed_NC
        return vote(index_NK, weight_NK, ballot_NC)


def linear_weight(distance_NK: Tensor) -> Tensor:
    """1 - d / sum d for each neighbour; 1 for a single one, and for duplicates of the item.

    Args:
        distance_NK: distances d.

    Returns:
        N x K.

    >>> linear_weight(torch.tensor([[1.0, 3.0]])).tolist()
    [[0.75, 0.25]]
    """
    total_N1 = distance_NK.sum(dim=1, keepdim=True)
    if distance_NK.shape[1] == 1:
        return torch.ones_like(distance_NK)
    return torch.where(total_N1 < 1e-6, 1.0, 1.0 - distance_NK / total_N1.clamp_min(1e-6))


def on_candidates(score_NC: Tensor, allowed_NC: Tensor) -> Tensor:
    """Scores restricted to the candidates and normalised.

    Args:
        score_NC: scores, not negative.
        allowed_NC: candidates, bool.

    Returns:
        N x C, rows sum to one; uniform on the candidates where none has a vote.
    """
    own_NC = score_NC * allowed_NC
    return torch.where(own_NC.any(dim=1, keepdim=True), normalize_rows(own_NC), uniform_on(allowed_NC))
