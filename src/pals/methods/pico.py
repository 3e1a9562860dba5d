"""PiCO: contrastive label disambiguation, where embeddings, prototypes and confidences improve one another."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.bases.prototypes import (
    Contrastive,
    Seen,
    best_of,
    instance_contrast,
    members,
    similarity,
    supervised_contrast,
)
from pals.methods.method import Batch, Context, EpochPlan, Kind, Problem
from pals.methods.parts.losses import soft_cross_entropy
from pals.util.config import STRICT


class PiCO(Contrastive):
    """Embeddings z of items with the same pseudo-label y = argmax_{c in S} p_c are pulled together; their moving averages
    mu_c, the prototypes, vote for one candidate; the confidence s of the item follows the vote slowly:

        v = argmax_{c in S} z.mu_c,    s <- phi s + (1 - phi) onehot(v)
        L = -sum_c s_c log p_c + w SupCon(z; keys, queue, y)

    Until the prototypes have settled s is uniform and MoCo's loss, each item against all others, takes SupCon's place.
    `docs/methods/pico.md` has the equations in full and the differences between the paper and the authors' code.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(Contrastive.Config):
        prototypes_from: int = Field(default=2, ge=1)
        "First epoch in which prototypes vote and pseudo-labels define positives; MoCo's loss before that."

    kind: ClassVar[Kind] = "partial"
    reference: ClassVar[str] = "Wang et al., ICLR 2022, arXiv 2201.08984"
    cost: ClassVar[float] = 1.33  # and a pass without gradient for the keys
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("prototypes_from",)

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.config: PiCO.Config = config
        self.settled = False  # set anew each epoch

    @property
    def graph_key(self) -> str:
        return "prototypes" if self.settled else "moco"

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        self.settled = ctx.epoch >= self.config.prototypes_from
        return super().plan_epoch(ctx)

    def loss(self, batch: Batch) -> Tensor:
        c, allowed_BC = self.config, self.allowed_NC[batch.index_B]
        logits_BC, embedding_BD, key_BD = self.embed(batch)
        label_B = best_of(logits_BC.detach(), allowed_BC)
        confidence_BC = self.confidence_NC[batch.index_B]
        if self.settled:
            score_BC = similarity(embedding_BD.detach(), self.prototype_CD)
            confidence_BC = self.voted_confidence(batch.index_B, score_BC, allowed_BC)
            pool_PD = self.pool(embedding_BD, key_BD)
            contrast_B = supervised_contrast(embedding_BD, pool_PD, self.positives(label_B), c.temperature)
        else:
            contrast_B = instance_contrast(embedding_BD, key_BD, self.queue_MD, c.temperature)
        self.seen = Seen(embedding_BD.detach(), key_BD, label_B, members(label_B, self.num_classes), confidence_BC)
        return soft_cross_entropy(logits_BC, confidence_BC).mean() + c.contrast_weight * contrast_B.mean()
