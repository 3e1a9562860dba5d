"""CLSP: candidates that an item's neighbours do not list are deleted before training, which is PRODEN's.

    D_ic = [c in S_i] #{neighbours a: c not in S_a}
    S_i loses at most n_i = ceil(tau (|S_i| - 1)) labels: those with more down-votes D than the (n_i + 1)-th of them

Symbols: S candidates; tau share of a set that may go. The equations are computed in pseudo_labels/prune_sets.py.
Reference: He et al., ICLR 2024. Differences between the paper, the authors' code and this file: docs/methods/clsp.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import nn

from pals.methods.bases.frozen_features import Frozen, frozen_features
from pals.methods.epoch_plan import EpochPlan
from pals.methods.method import Context, Problem, check_neighbors
from pals.methods.proden import PRODEN
from pals.pseudo_labels.prune_sets import CLASS_SHARE, NEIGHBORS, TAU, max_neighbors, prune
from pals.pseudo_labels.simplex import uniform_on
from pals.util.config import STRICT


class CLSP(PRODEN):
    """Prune the candidate sets before the first epoch, then train by PRODEN.

    Args:
        config: options.
        problem: candidates and networks.
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
        """Features for finding neighbours: the inputs themselves, similarity to patches of images, or the network with its
        initial weights."""

    reference: ClassVar[str] = "He et al., ICLR 2024"
    config: Config

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        check_neighbors(max_neighbors(config.neighbors, self.num_items, self.num_classes, config.class_share), self.num_items)
        self.pruned = nn.Buffer(torch.zeros((), dtype=torch.int64))  # number of deleted candidates

    def plan_epoch(self, ctx: Context) -> EpochPlan | None:
        if ctx.epoch == 1:
            c, before = self.config, self.allowed_NC.sum()
            features_ND = frozen_features(ctx, c.features, self.num_items, self.allowed_NC.device)
            kept_NC = prune(
                self.allowed_NC, features_ND, tau=c.tau, neighbors=c.neighbors, class_share=c.class_share, spare=c.spare
            )
            self.allowed_NC.copy_(kept_NC)
            self.confidence_NC.copy_(uniform_on(kept_NC))
            self.pruned.copy_(before - kept_NC.sum())
        return super().plan_epoch(ctx)

    def statistics(self) -> Mapping[str, float]:
        return {"pruned": int(self.pruned)}
