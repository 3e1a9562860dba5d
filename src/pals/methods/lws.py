"""LWS: the leveraged weighted loss, candidates against the rest as binary problems."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.bases.confidences import Confidence
from pals.methods.method import Batch, Problem
from pals.methods.parts.losses import masked_softmax
from pals.util.config import STRICT

TINY = 1e-8  # inside the logarithms of the cross-entropy version, which it bounds at 18.4


class LWS(Confidence):
    """Every class score g_c is a binary problem: high for the candidates, low for the rest. In each of the two groups the
    labels are weighted, and `beta` trades one group against the other:

        L = sum_{c in S} w_c psi(g_c) + beta sum_{c not in S} w_c psi(-g_c),    psi(t) = 1 / (1 + e^t)

    After each step, w is the softmax of the updated network for the same batch, scaled to sum to one over the candidates and
    to one over the rest: the likeliest candidate and the most confusing other label count most. The first w is 1/C everywhere.
    With `loss="cross-entropy"` (LWC) -log p_c and -log(1 - p_c) take the place of psi(g_c) and psi(-g_c).
    `docs/methods/lws.md` has the differences between the paper and the authors' code.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(Confidence.Config):
        beta: float = Field(default=1.0, ge=0)
        "Leverage: weight of the labels outside the candidate set."
        loss: Literal["sigmoid", "cross-entropy"] = "sigmoid"
        "Loss of the binary problems: the sigmoid loss (LWS) or the cross-entropy of the softmax (LWC)."

    reference: ClassVar[str] = "Wen et al., ICML 2021, arXiv 2106.05731"
    cost: ClassVar[float] = 1.33  # and a pass without gradient for the confidences
    config: Config

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.confidence_NC.fill_(1 / self.num_classes)

    def loss(self, batch: Batch) -> Tensor:
        scores_BC = self.network(batch.views[0]).logits.float()
        binary = sigmoid_losses if self.config.loss == "sigmoid" else entropy_losses
        as_right_BC, as_wrong_BC = binary(scores_BC)
        loss_BC = torch.where(self.allowed_NC[batch.index_B], as_right_BC, self.config.beta * as_wrong_BC)
        return (self.confidence_NC[batch.index_B] * loss_BC).sum(dim=1).mean()

    def after_step(self, batch: Batch) -> None:
        allowed_BC = self.allowed_NC[batch.index_B]
        scores_BC = self.network(batch.views[0]).logits
        self.remember(batch, masked_softmax(scores_BC, allowed_BC) + masked_softmax(scores_BC, ~allowed_BC))

    def posterior(self) -> Tensor:
        inside_NC = self.confidence_NC * self.allowed_NC
        return inside_NC / inside_NC.sum(dim=1, keepdim=True)


def sigmoid_losses(scores_BC: Tensor) -> tuple[Tensor, Tensor]:
    """Of each score, if its label is taken for right and if for wrong; at most 1."""
    return torch.sigmoid(-scores_BC), torch.sigmoid(scores_BC)


def entropy_losses(scores_BC: Tensor) -> tuple[Tensor, Tensor]:
    """The same by the cross-entropy of the softmax."""
    share_BC = scores_BC.softmax(dim=1)
    return -torch.log(share_BC + TINY), -torch.log(1 - share_BC + TINY)
