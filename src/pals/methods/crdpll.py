"""CRDPLL (also PLCR, DPLL, RCR): labels outside the set are supervised, predictions inside it agree between views.

    L = -sum_{c not in S} log(1 - p_0c) + weight(t) sum_k KL(s || p_k)
    s_c <- (prod_k p_kc)^(1/3) / sum_{j in S} (prod_k p_kj)^(1/3) for c in S, else 0

s is the distribution on S with the smallest sum of divergences from the p_k, those of the loss; it is uniform on S at first.
The weight rises linearly from 0.
Symbols: S candidates; p_0 prediction for the weak view, p_1 and p_2 for strong ones; t epoch; s soft labels.
Reference: Wu, Wang and Zhang, ICML 2022. Differences between paper and authors' code: docs/methods/crdpll.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.bases.confidences import ConfidenceMethod
from pals.methods.epoch_plan import Batch, EpochPlan
from pals.methods.method import Context, Problem
from pals.methods.parts.losses import soft_cross_entropy
from pals.methods.parts.ramps import linear_ramp
from pals.pseudo_labels.simplex import masked_softmax
from pals.util.config import STRICT
from pals.vision.augment.augmentations import CRDPLL_VIEWS

WRONG_OFFSET = 1e-7  # inside the logarithm of the supervised part, which it bounds at 16


class CRDPLL(ConfidenceMethod):
    """Supervision by labels outside the sets, consistency of several views on the candidates.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(ConfidenceMethod.Config):
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
        self.weight = nn.Buffer(torch.zeros(()))  # a number would be a constant in a captured step

    def plan_epoch(self, ctx: Context) -> EpochPlan | None:
        self.weight.fill_(self.config.consistency_weight * linear_ramp(ctx.epoch - 1, self.config.ramp))
        return None

    def loss(self, batch: Batch) -> Tensor:
        logits = [output.logits for output in self.network.each(batch.views)]
        self.logits_BC = torch.stack(logits).detach().float().mean(dim=0)
        wrong_B = wrong_label_loss(logits[0], self.allowed_NC[batch.index_B])
        return (wrong_B + self.weight * divergence(logits, self.confidence_NC[batch.index_B])).mean()

    def after_step(self, batch: Batch) -> None:
        # the geometric mean of softmaxes is the softmax of the mean logits, up to its scale
        self.store(batch, masked_softmax(self.logits_BC, self.allowed_NC[batch.index_B]))


def wrong_label_loss(logits_BC: Tensor, allowed_BC: Tensor) -> Tensor:
    """-sum_{c not in S} log(1 - p_c).

    Args:
        logits_BC: logits.
        allowed_BC: candidates, bool.

    Returns:
        One loss per item.
    """
    share_BC = logits_BC.float().softmax(dim=1)
    return -torch.log1p(WRONG_OFFSET - share_BC).masked_fill(allowed_BC, 0.0).sum(dim=1)


def divergence(logits: Sequence[Tensor], target_BC: Tensor) -> Tensor:
    """sum_k KL(s || p_k), with 0 log 0 = 0.

    Args:
        logits: logits of each view.
        target_BC: s.

    Returns:
        One loss per item.
    """
    negentropy_B = torch.xlogy(target_BC, target_BC).sum(dim=1)
    return torch.stack([soft_cross_entropy(logits_BC, target_BC) + negentropy_B for logits_BC in logits]).sum(dim=0)
