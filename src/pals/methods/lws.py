"""LWS: the leveraged weighted loss, candidates against the other labels as binary problems.

    L = sum_{c in S} w_c psi(g_c) + beta sum_{c not in S} w_c psi(-g_c),    psi(t) = 1 / (1 + e^t)
    w_c <- e^{g_c} / sum_{k in S} e^{g_k} for c in S,  e^{g_c} / sum_{k not in S} e^{g_k} else

w comes from a second pass of the same batch through the network just updated: the likeliest candidate and the most confusing
other label count most. w is 1/C at first. With `loss="cross-entropy"` (LWC) -log p_c and -log(1 - p_c) replace psi(g_c) and
psi(-g_c).
Symbols: S candidates; g logits; p = softmax(g); beta leverage.
Reference: Wen et al., ICML 2021, arXiv 2106.05731. Differences between paper and authors' code: docs/methods/lws.md.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.bases.confidences import ConfidenceMethod
from pals.methods.epoch_plan import Batch
from pals.methods.method import Problem
from pals.pseudo_labels.simplex import masked_softmax, normalize_rows
from pals.util.config import STRICT

LWC_OFFSET = 1e-8  # inside the logarithms, which it bounds at 18.4


class LWS(ConfidenceMethod):
    """The leveraged weighted loss.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(ConfidenceMethod.Config):
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
        logits_BC = self.network(batch.views[0]).logits.float()
        binary = sigmoid_losses if self.config.loss == "sigmoid" else cross_entropy_losses
        positive_BC, negative_BC = binary(logits_BC)
        loss_BC = torch.where(self.allowed_NC[batch.index_B], positive_BC, self.config.beta * negative_BC)
        return (self.confidence_NC[batch.index_B] * loss_BC).sum(dim=1).mean()

    def after_step(self, batch: Batch) -> None:
        allowed_BC = self.allowed_NC[batch.index_B]
        scores_BC = self.network(batch.views[0]).logits
        self.store(batch, masked_softmax(scores_BC, allowed_BC) + masked_softmax(scores_BC, ~allowed_BC))

    def posterior(self) -> Tensor:
        return normalize_rows(self.confidence_NC * self.allowed_NC)


def sigmoid_losses(logits_BC: Tensor) -> tuple[Tensor, Tensor]:
    """The sigmoid loss of each label as a positive and as a negative, psi(g) and psi(-g).

    Args:
        logits_BC: g.

    Returns:
        Two tables, B x C, at most 1.
    """
    return torch.sigmoid(-logits_BC), torch.sigmoid(logits_BC)


def cross_entropy_losses(logits_BC: Tensor) -> tuple[Tensor, Tensor]:
    """The cross-entropy of each label as a positive and as a negative, -log p and -log(1 - p).

    Args:
        logits_BC: g.

    Returns:
        Two tables, B x C.
    """
    share_BC = logits_BC.softmax(dim=1)
    return -torch.log(share_BC + LWC_OFFSET), -torch.log(1 - share_BC + LWC_OFFSET)
