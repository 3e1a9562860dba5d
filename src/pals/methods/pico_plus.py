"""PiCO+: PiCO on reliable items, those near their prototype; the labels of the others are guessed.

    d = -z mu_a,  a = argmax_{c in S} p_c;    reliable R: the share delta of the items with the smallest d, the others U
    g = softmax(z mu / t_g)                                            guess for U, whose sets are ignored
    L = w_m H(mixed target, p(mixed input)) + 2 mean_R H(s, p) + .1 mean_U H(g, p)
        + mean(w SupCon_strict) + .1 mean(SupCon)

Positives of SupCon_strict: for R the reliable rows with the same pseudo-label, for U the nearest neighbours in the pool; and
the own key. Mix-up blends (x, s) of R and (x, g) of U. Before `prototypes_from` the loss is PiCO's.
Symbols: S candidates; p predictions; z embedding; mu prototypes; H cross-entropy; s soft label of PiCO.
Reference: Wang et al., TPAMI 2024, arXiv 2201.08984. Stages, and differences between paper and code: docs/methods/pico_plus.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.bases.holdout import estimate_noise_rate
from pals.methods.bases.prototypes import StepCache, log_shares, mean_over_positives, own_rows
from pals.methods.epoch_plan import Batch, EpochPlan, Selection
from pals.methods.method import Context, Kind, Problem
from pals.methods.parts.losses import soft_cross_entropy
from pals.methods.parts.mixup import blend, draw_mixup, partners
from pals.methods.parts.sampling import part
from pals.methods.parts.selection import mean_over
from pals.methods.pico import PiCO
from pals.pseudo_labels.simplex import best_candidate, one_hot
from pals.pseudo_labels.soft_vote import similarity
from pals.util.config import STRICT

RELIABLE_MARGIN = 0.1
"""The reliable share is smaller by this than the share of sets that hold the true label."""


class PiCOPlus(PiCO):
    """PiCO with a selection of reliable items and guessed labels for the others.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(PiCO.Config):
        prototypes_from: int = Field(default=6, ge=2)
        "First epoch in which prototypes vote and reliable items are selected; MoCo's loss before that."
        neighbors_from: int = Field(default=101, ge=1)
        "First epoch in which unreliable items are pulled towards their neighbours; before that, only towards their own key."
        neighbors: int = Field(default=16, ge=1)
        "Number of these neighbours, including the item itself."
        delta: float | None = Field(default=None, ge=0, le=1)
        "Share of the items that counts as reliable; null: 0.9 minus the noise rate."
        noise_rate: float | None = Field(default=None, ge=0, lt=1)
        "Share of the sets without the true label; null: estimated once, when the warm-up ends."
        reliable_weight: float = Field(default=0.5, ge=0)
        "Weight of the strict contrast of a reliable item from `neighbors_from` on (1 before)..."
        unreliable_weight: float = Field(default=0.1, ge=0)
        "... and of any other item."
        relaxed_weight: float = Field(default=0.1, ge=0)
        "Weight of the relaxed contrast, which takes every pseudo-label at face value."
        class_weight: float = Field(default=2.0, ge=0)
        "Weight of the classification loss of reliable items..."
        guess_weight: float = Field(default=0.1, ge=0)
        "... and of the others, with their guessed targets."
        guess_temperature: float = Field(default=0.07, gt=0)
        "Temperature of the prototypes' guess."
        mixup_weight: float = Field(default=1.0, ge=0)
        "Weight of the mix-up loss; 0: no mix-up."
        zeta: float = Field(default=4.0, gt=0)
        "Mix-up weights come from Beta(zeta, zeta); the larger of w and 1 - w is used."

        @model_validator(mode="after")
        def _check_delta(self) -> Self:
            if self.delta is not None and self.noise_rate is not None:
                raise ValueError("method.delta and method.noise_rate both set the number of reliable items; set one to null.")
            return self

    kind: ClassVar[Kind] = "noisy partial"
    reference: ClassVar[str] = "Wang et al., TPAMI 2024, arXiv 2201.08984"
    cost: ClassVar[float] = 2.33  # a second pass for mix-up, and one without gradient for the keys
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("prototypes_from", "neighbors_from")
    config: Config

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.use_neighbors = False  # as positives, in this epoch
        self.distance_N = nn.Buffer(torch.zeros(self.num_items))  # d
        self.reliable_N = nn.Buffer(torch.ones(self.num_items, dtype=torch.bool))
        self.queue_reliable_M = nn.Buffer(torch.zeros(len(self.queue_MD), dtype=torch.bool))
        self.rate = nn.Buffer(torch.tensor(-1.0))  # of noise; -1: not estimated

    @property
    def graph_key(self) -> str:
        return "neighbors" if self.uses_prototypes and self.use_neighbors else super().graph_key

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        plan = super().plan_epoch(ctx)
        self.use_neighbors = ctx.epoch >= self.config.neighbors_from
        if not self.uses_prototypes:
            return plan
        self.reliable_N.copy_(nearest_share(self.distance_N, self.reliable_share(ctx)))
        return replace(plan, selection=Selection(self.reliable_N.clone(), self.confidence_NC.argmax(dim=1)))

    def reliable_share(self, ctx: Context) -> float:
        """delta as given, or .9 - noise rate, which is estimated on the training items: the warm-up has not memorised them.

        Args:
            ctx: the run.
        """
        c = self.config
        if c.delta is not None:
            return c.delta
        if c.noise_rate is None and self.rate < 0:
            self.rate.fill_(estimate_noise_rate(ctx.probabilities(), self.allowed_NC))
        return max(1 - RELIABLE_MARGIN - (float(self.rate) if c.noise_rate is None else c.noise_rate), 0.0)

    def statistics(self) -> Mapping[str, float]:
        return {"noise_rate": float(self.rate), **super().statistics()} if self.rate >= 0 else super().statistics()

    def random_inputs(self, ctx: Context, steps: int) -> Mapping[str, Tensor]:
        if not (self.uses_prototypes and self.config.mixup_weight):
            return {}
        return draw_mixup((steps,), ctx.batch_size, self.config.zeta, ctx.rng, ctx.generator, fold=True)

    def loss(self, batch: Batch) -> Tensor:
        if self.uses_prototypes:
            loss, best_B = self._main_loss(batch)
        else:
            loss = super().loss(batch)
            best_B = self.cache.label_B
        self.distance_B = -(self.cache.embedding_BD * self.prototype_CD[best_B]).sum(dim=1)
        return loss

    def _main_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """L, and the most likely candidate a of each item."""
        c, index_B = self.config, batch.index_B
        allowed_BC, reliable_B = self.allowed_NC[index_B], self.reliable_N[index_B]
        mixed_B = mixed_with_partners(batch.views[0], batch) if c.mixup_weight else None
        logits_BC, embedding_BD, key_BD, mixed_logits_BC = self.embed(batch, mixed_B)

        score_BC = similarity(embedding_BD.detach(), self.prototype_CD)
        confidence_BC = self.vote_confidence(index_B, score_BC, allowed_BC)
        guess_BC = (score_BC / c.guess_temperature).softmax(dim=1)
        target_BC = torch.where(reliable_B[:, None], confidence_BC, guess_BC)
        entropy_B = soft_cross_entropy(logits_BC, target_BC)
        reliable, others = mean_over(entropy_B, reliable_B), mean_over(entropy_B, ~reliable_B)
        mixed: Tensor | float = 0.0
        if mixed_logits_BC is not None:
            mixed = c.mixup_weight * soft_cross_entropy(mixed_logits_BC, mixed_with_partners(target_BC, batch)).mean()

        best_B = best_candidate(logits_BC.detach(), allowed_BC)
        label_B = torch.where(reliable_B, best_B, logits_BC.detach().argmax(dim=1))
        contrast = self._contrast(embedding_BD, key_BD, label_B, reliable_B)
        member_BC = one_hot(label_B, self.num_classes) & reliable_B[:, None]
        self.cache = StepCache(embedding_BD.detach(), key_BD, label_B, member_BC, confidence_BC)
        return mixed + c.class_weight * reliable + c.guess_weight * others + contrast, best_B

    def _contrast(self, embedding_BD: Tensor, key_BD: Tensor, label_B: Tensor, reliable_B: Tensor) -> Tensor:
        c = self.config
        log_share_BP = log_shares(embedding_BD, self.pool(embedding_BD, key_BD), c.temperature)
        same_BP = self.positives(label_B)
        reliable_P = torch.cat([reliable_B, reliable_B, self.queue_reliable_M])
        neighbor_BP = nearest_rows(log_share_BP.detach(), c.neighbors - 1) if self.use_neighbors else None
        strict_B = mean_over_positives(log_share_BP, strict_positives(same_BP, reliable_B, reliable_P, neighbor_BP))
        if self.use_neighbors:
            strict_B = strict_B * torch.where(reliable_B, c.reliable_weight, c.unreliable_weight)
        return strict_B.mean() + c.relaxed_weight * mean_over_positives(log_share_BP, same_BP).mean()

    def after_step(self, batch: Batch) -> None:
        row_B = self.queue_rows(len(batch.index_B))
        self.queue_reliable_M[row_B] = self.reliable_N[batch.index_B[-len(row_B) :]]
        self.distance_N[batch.index_B] = self.distance_B
        super().after_step(batch)


def mixed_with_partners(value_B: Tensor, batch: Batch) -> Tensor:
    """Blend inputs or targets of a batch with those of random partners.

    Args:
        value_B: one row per item.
        batch: the batch, with random inputs of mix-up.

    Returns:
        Like `value_B`.
    """
    return blend(value_B, partners(batch.random["uniform"][: len(value_B)]), batch.random["weight"])


def nearest_share(distance_N: Tensor, share: float) -> Tensor:
    """The share of the items with the smallest distances.

    Args:
        distance_N: distances.
        share: between 0 and 1, of the number of items, rounded down.

    Returns:
        bool, N.
    """
    order_N = distance_N.argsort(stable=True)
    near_N = torch.zeros_like(distance_N, dtype=torch.bool)
    near_N[order_N[: part(share, len(order_N))]] = True
    return near_N


def nearest_rows(log_share_BP: Tensor, count: int) -> Tensor:
    """The rows of the pool most similar to each item, without itself.

    Args:
        log_share_BP: similarities, -inf for the item itself.
        count: number of rows.

    Returns:
        bool, B x P.
    """
    found_BK = log_share_BP.topk(min(count, log_share_BP.shape[1] - 1), dim=1).indices
    return torch.zeros_like(log_share_BP, dtype=torch.bool).scatter_(1, found_BK, True)


def strict_positives(same_BP: Tensor, reliable_B: Tensor, reliable_P: Tensor, neighbor_BP: Tensor | None) -> Tensor:
    """Positives of SupCon_strict: reliable rows with the same pseudo-label for a reliable item, neighbours for another, and the
    own key, which comes B rows after the item.

    Args:
        same_BP: rows with the same pseudo-label.
        reliable_B: reliable items.
        reliable_P: reliable rows of the pool.
        neighbor_BP: neighbours of each item; None: no positives but the key for items that are not reliable.

    Returns:
        bool, B x P.
    """
    strict_BP = same_BP & reliable_B[:, None] & reliable_P
    if neighbor_BP is not None:
        strict_BP = torch.where(reliable_B[:, None], strict_BP, neighbor_BP)
    return strict_BP | own_rows(same_BP).roll(len(same_BP), dims=1)
