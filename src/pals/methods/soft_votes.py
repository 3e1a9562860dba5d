"""Shares of the votes as soft labels: a quick classifier from several annotators' answers.

    L = -sum_c f_c log p_c(x),    x = w x_i + (1 - w) x_j,  f = w f_i + (1 - w) f_j

Symbols: f share of each label among the item's votes, uniform on the candidates without counted votes; w mix-up weight.
References: Peterson et al., ICCV 2019, arXiv 1908.07086; Zhang et al., ICLR 2018, arXiv 1710.09412.
Page: docs/methods/soft-votes.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.epoch_plan import Batch
from pals.methods.method import Context, Kind, Method, Problem
from pals.methods.parts.losses import soft_cross_entropy
from pals.methods.parts.mixup import blend, draw_mixup, partners
from pals.pseudo_labels.simplex import uniform_on
from pals.util.config import STRICT


class SoftVotes(Method):
    """Cross-entropy against vote shares, with mix-up.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config:
        mixup: bool = True
        "Train on mixtures of two items."
        zeta: float = Field(default=1.0, gt=0)
        "Mix-up weights come from Beta(zeta, zeta)."

    kind: ClassVar[Kind] = "noisy partial"
    reference: ClassVar[str] = "Peterson et al., ICCV 2019, arXiv 1908.07086; Zhang et al., ICLR 2018, arXiv 1710.09412"

    config: Config

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.network = problem.network()
        share_NC = problem.candidates.frequency_NC
        self.share_NC = nn.Buffer(uniform_on(self.allowed_NC) if share_NC is None else share_NC.clone())

    def random_inputs(self, ctx: Context, steps: int) -> Mapping[str, Tensor]:
        if not self.config.mixup:
            return {}
        return draw_mixup((steps,), ctx.batch_size, self.config.zeta, ctx.rng, ctx.generator, fold=True)

    def loss(self, batch: Batch) -> Tensor:
        (x_B,), share_BC = batch.views, self.share_NC[batch.index_B]
        if self.config.mixup:
            partner_B, weight = partners(batch.random["uniform"][: len(share_BC)]), batch.random["weight"]
            x_B, share_BC = blend(x_B, partner_B, weight), blend(share_BC, partner_B, weight)
        return soft_cross_entropy(self.network(x_B).logits, share_BC).mean()
