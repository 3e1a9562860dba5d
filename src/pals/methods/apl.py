"""APL (also APLL, ABS): an ordinary loss averaged over the candidates; a bounded one is robust to noisy sets.

    L = 1/|S| sum_{c in S} l(p, c)

    mae     2 (1 - p_c)                      mse    1 - 2 p_c + sum_k p_k^2
    gce     (1 - p_c^r) / r                  huber  -log p_c, below a probability of cut its tangent
    ce      -log p_c (not bounded)           focal  -(1 - p_c)^g log p_c (not bounded)

Where the true label is more often a candidate than any other and l is bounded, the minimiser of L on noisy candidate sets is
also good on the true labels; the cross-entropy has no such guarantee.
Symbols: S candidates; p predictions; l(p, c) the loss if c were the true label.
Reference: Lv et al., TPAMI 2024, arXiv 2106.06152. The source of the settings: docs/methods/apl.md.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.average import Average
from pals.methods.epoch_plan import Batch, EpochPlan
from pals.methods.method import Context, Kind, Problem
from pals.methods.parts import losses
from pals.pseudo_labels.simplex import uniform_on
from pals.util.config import STRICT


class APL(Average):
    """A loss averaged over the candidates.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(Average.Config):
        loss: Literal["mae", "mse", "gce", "huber", "ce", "focal"] = "gce"
        "Loss that is averaged over the candidates. The first four are bounded; ce gives the method `average`."
        power: float = Field(default=0.7, gt=0, le=1)
        "r of gce: close to 0 it is the cross-entropy, at 1 half of mae."
        cut: float = Field(default=0.1, gt=0, lt=1)
        "Probability below which huber is linear."
        focus: float = Field(default=0.5, ge=0)
        "g of focal."
        warm_up: int = Field(default=0, ge=0)
        "Number of first epochs that average the cross-entropy instead: mae starts slowly with many classes."

    kind: ClassVar[Kind] = "noisy partial"
    reference: ClassVar[str] = "Lv et al., TPAMI 2024, arXiv 2106.06152"
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("warm_up",)
    begins_after: ClassVar[tuple[str, ...]] = ("warm_up",)

    config: Config

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.averaged = config.loss  # in this epoch

    @property
    def graph_key(self) -> str:
        return self.averaged

    def plan_epoch(self, ctx: Context) -> EpochPlan | None:
        self.averaged = "ce" if ctx.epoch <= self.config.warm_up else self.config.loss
        return None

    def loss(self, batch: Batch) -> Tensor:
        loss_BC = self.label_losses(self.network(batch.views[0]).logits)
        return (loss_BC * uniform_on(self.allowed_NC[batch.index_B])).sum(dim=1).mean()

    def label_losses(self, logits_BC: Tensor) -> Tensor:
        """l(p, c) of each label, B x C.

        Args:
            logits_BC: logits.
        """
        match self.averaged:
            case "mae":
                return losses.absolute_error(logits_BC)
            case "mse":
                return losses.squared_error(logits_BC)
            case "gce":
                return losses.generalized_cross_entropy(logits_BC, self.config.power)
            case "huber":
                return losses.huber_cross_entropy(logits_BC, self.config.cut)
            case "focal":
                return losses.focal_loss(logits_BC, self.config.focus)
            case _:
                return -F.log_softmax(logits_BC.float(), dim=1)
