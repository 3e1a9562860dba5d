"""CC: the classifier-consistent estimator, the negative log of the probability that lies on the candidates."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from pals.methods.bases.confidences import Confidence
from pals.methods.method import Batch
from pals.methods.parts.losses import masked_softmax


class CC(Confidence):
    """If every set that holds the true label is equally likely, the probability of seeing the set S is, up to a constant, that
    of the true label lying in S. Its negative log is the loss:

        L = -log sum_{c in S} p_c

    The gradient in the logits is p - w with w = p cut to S and scaled to sum to one: a step of PRODEN whose confidences come
    from the very same pass. So w is what the method believes; it is kept for reports and never enters the loss.
    `docs/methods/cc.md` has the differences between the paper and the authors' code.
    """

    reference: ClassVar[str] = "Feng et al., NeurIPS 2020, arXiv 2007.08929"

    def loss(self, batch: Batch) -> Tensor:
        logits_BC = self.network(batch.views[0]).logits.float()
        self.seen_BC = logits_BC.detach()
        inside_BC = logits_BC.masked_fill(~self.allowed_NC[batch.index_B], -torch.inf)
        return (logits_BC.logsumexp(dim=1) - inside_BC.logsumexp(dim=1)).mean()

    def after_step(self, batch: Batch) -> None:
        self.remember(batch, masked_softmax(self.seen_BC, self.allowed_NC[batch.index_B]))
