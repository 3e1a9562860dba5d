"""CC: the classifier-consistent estimator, minus the logarithm of the probability of the candidates.

    L = -log sum_{c in S} p_c

If every set that holds the true label is equally likely, sum_{c in S} p_c is the probability of the set up to a constant. The
gradient in the logits is p - s with s = p restricted to S and normalised; s is stored for reports and never enters the loss.
Symbols: S candidates; p predictions.
Reference: Feng et al., NeurIPS 2020, arXiv 2007.08929. Differences between paper and authors' code: docs/methods/cc.md.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from pals.methods.bases.confidences import ConfidenceMethod
from pals.methods.epoch_plan import Batch
from pals.pseudo_labels.simplex import masked_softmax


class CC(ConfidenceMethod):
    """Minus the logarithm of the probability of the candidates.

    Args:
        config: options.
        problem: candidates and networks.
    """

    reference: ClassVar[str] = "Feng et al., NeurIPS 2020, arXiv 2007.08929"

    def loss(self, batch: Batch) -> Tensor:
        logits_BC = self.network(batch.views[0]).logits.float()
        self.logits_BC = logits_BC.detach()
        inside_BC = logits_BC.masked_fill(~self.allowed_NC[batch.index_B], -torch.inf)
        return (logits_BC.logsumexp(dim=1) - inside_BC.logsumexp(dim=1)).mean()

    def after_step(self, batch: Batch) -> None:
        self.store(batch, masked_softmax(self.logits_BC, self.allowed_NC[batch.index_B]))
