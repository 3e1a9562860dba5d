"""CLSP: candidates that an item's neighbours do not list are deleted before training, which is PRODEN's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.bases.frozen_features import Frozen, frozen_features
from pals.methods.method import Context, EpochPlan, Problem, check_neighbors
from pals.methods.parts.losses import uniform_on
from pals.methods.proden import PRODEN
from pals.pseudo_labels.prune_sets import CLASS_SHARE, NEIGHBORS, TAU, neighbors_for, prune
from pals.util.config import STRICT


class CLSP(PRODEN):
    """Before the first epoch each label c of a set S is down-voted by the neighbours that do not list it,

        D_c = [c in S] #{neighbours a: c not in S_a}

    and of each set at most n = ceil(tau (|S| - 1)) labels go: those with more down-votes than the (n + 1)-th of them. What is
    left is trained on by PRODEN. `docs/methods/clsp.md` has the differences between the paper, the authors' code and this.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(PRODEN.Config):
        tau: float = Field(default=TAU, ge=0, le=1)
        "Share of its candidates, not counting one, that a set may lose; use less if sets may lack the true label."
        neighbors: int = Field(default=NEIGHBORS, ge=1)
        "K: number of other items that vote."
        class_share: float | None = Field(default=CLASS_SHARE, gt=0)
        "K is at most this share of the mean number of items per class; null: no such limit."
        spare: bool = True
        "Leave a set unchanged if its neighbours list another label more often than any of its own."
        features: Frozen = "input"
        """Features for finding neighbours: the inputs themselves, similarity to patches of pictures, or the network with its
        initial weights."""

    reference: ClassVar[str] = "He et al., ICLR 2024"
    config: Config

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        check_neighbors(neighbors_for(config.neighbors, self.num_items, self.num_classes, config.class_share), self.num_items)
        self.pruned: Tensor
        self.register_buffer("pruned", torch.zeros((), dtype=torch.int64))  # candidates that are gone

    def plan_epoch(self, ctx: Context) -> EpochPlan | None:
        if ctx.epoch == 1:
            self._prune(frozen_features(ctx, self.config.features, self.num_items, self.allowed_NC.device))
        return super().plan_epoch(ctx)

    def _prune(self, features_ND: Tensor) -> None:
        c, before = self.config, self.allowed_NC.sum()
        kept_NC = prune(
            self.allowed_NC, features_ND, tau=c.tau, neighbors=c.neighbors, class_share=c.class_share, spare=c.spare
        )
        self.allowed_NC.copy_(kept_NC)
        self.confidence_NC.copy_(uniform_on(kept_NC))
        self.pruned.copy_(before - kept_NC.sum())

    def statistics(self) -> Mapping[str, float]:
        return {"pruned": int(self.pruned)}
