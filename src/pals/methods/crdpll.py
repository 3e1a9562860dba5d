"""CRDPLL (also PLCR, DPLL, RCR): labels outside the set are supervised, those inside are only asked to agree between views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.bases.confidences import Confidence
from pals.methods.method import Batch, Context, EpochPlan, Problem
from pals.methods.parts.losses import masked_softmax, soft_cross_entropy
from pals.util.config import STRICT
from pals.vision.augment.augmentations import CRDPLL_VIEWS

TINY = 1e-7  # inside the logarithm of the supervised part, which it bounds at 16


class CRDPLL(Confidence):
    """What is no candidate is certainly wrong: its probability in the weak view is pushed down. What is a candidate is
    uncertain: the predictions p_0 (weak), p_1, p_2 (strong) are only pulled towards one distribution s per item,

        L = -sum_{c not in S} log(1 - p_0c) + weight(epoch) sum_k KL(s || p_k)

    and s is their geometric mean on the candidates, which makes the sum of the divergences smallest:

        s_c = (prod_k p_kc)^(1/3) / sum_{j in S} (prod_k p_kj)^(1/3) for c in S, else 0

    with the p that the loss has just seen. The first s is uniform on S; the weight grows linearly from 0.
    `docs/methods/crdpll.md` has the differences between the paper and the authors' code.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(Confidence.Config):
        strong_views: int = Field(default=2, ge=1)
        "Number of strong views that must agree with the first."
        consistency_weight: float = Field(default=1.0, ge=0)
        "Final weight of the consistency loss."
        ramp: int = Field(default=100, ge=1)
        "Epochs over which that weight rises, from 0 in the first."

    reference: ClassVar[str] = "Wu, Wang and Zhang, ICML 2022"
    cost: ClassVar[float] = 3.0  # three views
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("ramp",)
    views: tuple[str, ...] = ("weak", "crdpll_strong", "crdpll_strong")
    own_views = CRDPLL_VIEWS
    config: Config

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.views = (config.view, *["crdpll_strong"] * config.strong_views)
        self.weight: Tensor  # a tensor, because a number would be frozen into a captured step
        self.register_buffer("weight", torch.zeros(()))

    def plan_epoch(self, ctx: Context) -> EpochPlan | None:
        self.weight.fill_(self.config.consistency_weight * min((ctx.epoch - 1) / self.config.ramp, 1.0))
        return None

    def loss(self, batch: Batch) -> Tensor:
        logits = [output.logits for output in self.network.each(batch.views)]
        self.seen_BC = torch.stack(logits).detach().float().mean(dim=0)
        wrong_B = wrong_label_loss(logits[0], self.allowed_NC[batch.index_B])
        return (wrong_B + self.weight * divergence(logits, self.confidence_NC[batch.index_B])).mean()

    def after_step(self, batch: Batch) -> None:
        # the geometric mean of softmaxes is, but for its scale, the softmax of the mean logits
        self.remember(batch, masked_softmax(self.seen_BC, self.allowed_NC[batch.index_B]))


def wrong_label_loss(logits_BC: Tensor, allowed_BC: Tensor) -> Tensor:
    """-sum of log(1 - p) over the labels that are no candidates."""
    share_BC = logits_BC.float().softmax(dim=1)
    return -torch.log1p(TINY - share_BC).masked_fill(allowed_BC, 0.0).sum(dim=1)


def divergence(logits: Sequence[Tensor], target_BC: Tensor) -> Tensor:
    """KL(target || prediction) of each view, summed; 0 log 0 is 0."""
    negentropy_B = torch.xlogy(target_BC, target_BC).sum(dim=1)
    return torch.stack([soft_cross_entropy(logits_BC, target_BC) + negentropy_B for logits_BC in logits]).sum(dim=0)
