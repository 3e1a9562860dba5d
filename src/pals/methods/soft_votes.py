"""Shares of the votes as soft labels: the quick way to a classifier from several people's answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.method import Batch, Context, Kind, Method, Problem
from pals.methods.parts.losses import soft_cross_entropy, uniform_on
from pals.methods.parts.mixup import blend, draw_weights, partners
from pals.util.config import STRICT


class SoftVotes(Method):
    """Cross-entropy against the share f of each label among the votes (each candidate the same where nobody counted):

        L = -sum_c f_c log p_c

    on blends of two items and of their shares (mix-up).
    """

    @dataclass(frozen=True, config=STRICT)
    class Config:
        mixup: bool = True
        "Train on mixtures of two items."
        zeta: float = Field(default=1.0, gt=0)
        "Mix-up weights come from Beta(zeta, zeta)."

    kind: ClassVar[Kind] = "noisy partial"
    reference: ClassVar[str] = "Peterson et al., ICCV 2019, arXiv 1908.07086; Zhang et al., ICLR 2018, arXiv 1710.09412"

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.config: SoftVotes.Config = config
        self.network = problem.network()
        share_NC = problem.candidates.frequency_NC
        self.share_NC: Tensor
        self.register_buffer("share_NC", uniform_on(self.allowed_NC) if share_NC is None else share_NC.clone())

    @property
    def predictor(self) -> nn.Module:
        return self.network

    def random_inputs(self, ctx: Context, steps: int) -> Mapping[str, Tensor]:
        if not self.config.mixup:
            return {}
        device = self.share_NC.device
        weight = draw_weights((steps,), self.config.zeta, ctx.rng, fold=True)
        uniform = torch.rand(steps, ctx.batch_size, generator=ctx.generator, device=device)
        return {"weight": weight.to(device), "uniform": uniform}

    def loss(self, batch: Batch) -> Tensor:
        (x_B,), share_BC = batch.views, self.share_NC[batch.index_B]
        if self.config.mixup:
            partner_B, weight = partners(batch.random["uniform"][: len(share_BC)]), batch.random["weight"]
            x_B, share_BC = blend(x_B, partner_B, weight), blend(share_BC, partner_B, weight)
        return soft_cross_entropy(self.network(x_B).logits, share_BC).mean()
