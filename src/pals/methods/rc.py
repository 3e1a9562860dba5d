"""RC: the risk-consistent estimator, cross-entropy against soft labels that follow the network.

    L = -sum_c s_c log p_c
    s_c <- p'_c / sum_{k in S} p'_k for c in S, else 0

p' is a second pass of the same batch through the network just updated; s is uniform on S at first. If every set that holds the
true label is equally likely, the ordinary risk is an average over candidates weighted by their true probabilities within the
set, which p' stands in for.
Symbols: S candidates; p predictions; s soft labels.
Reference: Feng et al., NeurIPS 2020, arXiv 2007.08929. Differences between paper and authors' code: docs/methods/rc.md.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.bases.confidences import ConfidenceMethod
from pals.methods.epoch_plan import Batch
from pals.methods.parts.losses import soft_cross_entropy
from pals.pseudo_labels.simplex import masked_softmax
from pals.util.config import STRICT


class RC(ConfidenceMethod):
    """Cross-entropy against the network's own probabilities on the candidates.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(ConfidenceMethod.Config):
        refresh_mode: Literal["train", "eval"] = "train"
        "Mode of the network in the second pass; train, as published, counts each batch twice in the running statistics."

    reference: ClassVar[str] = "Feng et al., NeurIPS 2020, arXiv 2007.08929"
    cost: ClassVar[float] = 1.33  # and a pass without gradient for the confidences
    config: Config

    def loss(self, batch: Batch) -> Tensor:
        return soft_cross_entropy(self.network(batch.views[0]).logits, self.confidence_NC[batch.index_B]).mean()

    def after_step(self, batch: Batch) -> None:
        if self.config.refresh_mode == "eval":
            self.network.eval()
        logits_BC = self.network(batch.views[0]).logits
        self.network.train(self.training)
        self.store(batch, masked_softmax(logits_BC, self.allowed_NC[batch.index_B]))
