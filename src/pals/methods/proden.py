"""PRODEN: progressive identification of the true label, cross-entropy against confidences from the visit before."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.bases.confidences import Confidence
from pals.methods.method import Batch, Context
from pals.methods.parts.losses import masked_softmax, soft_cross_entropy
from pals.util.config import STRICT


class PRODEN(Confidence):
    """Training on the candidate with the smallest loss alone would make early mistakes final. Instead all candidates count, by
    confidences w that follow the network:

        L = -sum_c w_c log p_c,    then w_c = p_c / sum_{k in S} p_k for c in S, else 0

    with the p that the loss has just seen, from before the optimiser's step. The first w is uniform on S.
    `docs/methods/proden.md` has the differences between the paper and the authors' code.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(Confidence.Config):
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
        self.seen_BC = logits_BC.detach()
        return soft_cross_entropy(logits_BC, self.confidence_NC[batch.index_B]).mean()

    def after_step(self, batch: Batch) -> None:
        if self.config.update in ("naive", "iterative"):
            return
        new_BC = masked_softmax(self.seen_BC, self.allowed_NC[batch.index_B])
        if self.config.update == "sudden":
            new_BC = torch.zeros_like(new_BC).scatter_(1, new_BC.argmax(dim=1, keepdim=True), 1.0)
        self.remember(batch, torch.lerp(new_BC, self.confidence_NC[batch.index_B], self.config.momentum))

    def end_epoch(self, ctx: Context) -> bool:
        if self.config.update == "iterative" and ctx.epoch % self.config.update_every == 0:
            new_NC = masked_softmax(ctx.outputs().logits, self.allowed_NC)
            self.confidence_NC.lerp_(new_NC, 1 - self.config.momentum)
        return False
