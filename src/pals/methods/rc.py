"""RC: the risk-consistent estimator, cross-entropy against confidences taken from the network after each step."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.bases.confidences import Confidence
from pals.methods.method import Batch
from pals.methods.parts.losses import masked_softmax, soft_cross_entropy
from pals.util.config import STRICT


class RC(Confidence):
    """If every set that holds the true label is equally likely, the ordinary risk is an average over candidates, each weighted
    by its true probability within the set. The network's own probabilities stand in for the true ones:

        L = -sum_c w_c log p_c,    w_c = p'_c / sum_{k in S} p'_k for c in S, else 0

    with p' from a second pass of the same batch through the network just updated. The first w is uniform on S.
    `docs/methods/rc.md` has the differences between the paper and the authors' code.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(Confidence.Config):
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
        self.remember(batch, masked_softmax(logits_BC, self.allowed_NC[batch.index_B]))
