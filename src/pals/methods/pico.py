"""PiCO: contrastive label disambiguation; embeddings, prototypes and soft labels improve one another.

    y = argmax_{c in S} p_c                                            pseudo-label
    v = argmax_{c in S} z mu_c,    s <- phi s + (1 - phi) one_hot(v)   vote of the prototypes
    L = -sum_c s_c log p_c + w SupCon(z; keys, queue, y)

Before the epoch `prototypes_from` s stays uniform and MoCo's loss replaces SupCon.
Symbols: S candidates; p predictions; z embedding; mu prototypes; s soft label; SupCon as in bases/prototypes.py.
Reference: Wang et al., ICLR 2022, arXiv 2201.08984. Differences between paper and authors' code: docs/methods/pico.md.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.bases.prototypes import PrototypeMethod, StepCache, instance_contrast, supervised_contrast
from pals.methods.epoch_plan import Batch, EpochPlan
from pals.methods.method import Context, Kind, Problem
from pals.methods.parts.losses import soft_cross_entropy
from pals.pseudo_labels.simplex import best_candidate, one_hot
from pals.pseudo_labels.soft_vote import similarity
from pals.util.config import STRICT


class PiCO(PrototypeMethod):
    """Contrastive learning with soft labels that follow class prototypes.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(PrototypeMethod.Config):
        prototypes_from: int = Field(default=2, ge=1)
        "First epoch in which prototypes vote and pseudo-labels define positives; MoCo's loss before that."

    kind: ClassVar[Kind] = "partial"
    reference: ClassVar[str] = "Wang et al., ICLR 2022, arXiv 2201.08984"
    cost: ClassVar[float] = 1.33  # and a pass without gradient for the keys
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("prototypes_from",)

    config: Config

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.uses_prototypes = False  # in this epoch

    @property
    def graph_key(self) -> str:
        return "prototypes" if self.uses_prototypes else "moco"

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        self.uses_prototypes = ctx.epoch >= self.config.prototypes_from
        return super().plan_epoch(ctx)

    def loss(self, batch: Batch) -> Tensor:
        c, allowed_BC = self.config, self.allowed_NC[batch.index_B]
        logits_BC, embedding_BD, key_BD, _ = self.embed(batch)
        label_B = best_candidate(logits_BC.detach(), allowed_BC)
        confidence_BC = self.confidence_NC[batch.index_B]
        if self.uses_prototypes:
            score_BC = similarity(embedding_BD.detach(), self.prototype_CD)
            confidence_BC = self.vote_confidence(batch.index_B, score_BC, allowed_BC)
            pool_PD = self.pool(embedding_BD, key_BD)
            contrast_B = supervised_contrast(embedding_BD, pool_PD, self.positives(label_B), c.temperature)
        else:
            contrast_B = instance_contrast(embedding_BD, key_BD, self.queue_MD, c.temperature)
        self.cache = StepCache(embedding_BD.detach(), key_BD, label_B, one_hot(label_B, self.num_classes), confidence_BC)
        return soft_cross_entropy(logits_BC, confidence_BC).mean() + c.contrast_weight * contrast_B.mean()
