"""PRODEN: progressive identification of the true label, cross-entropy against soft labels of the last visit.

    L = -sum_c s_c log p_c
    s_c <- m s_c + (1 - m) p_c / sum_{k in S} p_k for c in S, else 0

p is the prediction of the loss, from before the optimiser's step; s is uniform on S at first; m = 0 as published. Training on
the candidate with the smallest loss alone would make early mistakes final.
Symbols: S candidates; p predictions; s soft labels.
Reference: Lv et al., ICML 2020, arXiv 2002.08053. Differences between paper and authors' code: docs/methods/proden.md.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.bases.confidences import ConfidenceMethod
from pals.methods.epoch_plan import Batch
from pals.methods.method import Context
from pals.methods.parts.losses import soft_cross_entropy
from pals.pseudo_labels.simplex import masked_softmax, one_hot
from pals.util.config import STRICT


class PRODEN(ConfidenceMethod):
    """Cross-entropy against soft labels that follow the network.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(ConfidenceMethod.Config):
        update: Literal["progressive", "sudden", "iterative", "naive"] = "progressive"
        "Change confidences at each visit, gradually or (sudden) to a single label; every `update_every` epochs; or never."
        update_every: int = Field(default=100, ge=1)
        "Epochs between two iterative updates."
        momentum: float = Field(default=0.0, ge=0, lt=1)
        "Share of the old confidence kept at each update; 0 as published."

    reference: ClassVar[str] = "Lv et al., ICML 2020, arXiv 2002.08053"
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("update_every",)
    config: Config

    def loss(self, batch: Batch) -> Tensor:
        logits_BC = self.network(batch.views[0]).logits
        self.logits_BC = logits_BC.detach()
        return soft_cross_entropy(logits_BC, self.confidence_NC[batch.index_B]).mean()

    def after_step(self, batch: Batch) -> None:
        if self.config.update in ("naive", "iterative"):
            return
        new_BC = masked_softmax(self.logits_BC, self.allowed_NC[batch.index_B])
        if self.config.update == "sudden":
            new_BC = one_hot(new_BC.argmax(dim=1), self.num_classes).float()
        self.store(batch, torch.lerp(new_BC, self.confidence_NC[batch.index_B], self.config.momentum))

    def end_epoch(self, ctx: Context) -> bool:
        if self.config.update == "iterative" and ctx.epoch % self.config.update_every == 0:
            new_NC = masked_softmax(ctx.outputs().logits, self.allowed_NC)
            self.confidence_NC.lerp_(new_NC, 1 - self.config.momentum)
        return False
