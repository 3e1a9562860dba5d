"""PaPi: class prototypes are a second classifier, which learns on mixed inputs from the soft labels of the first.

    L = H(s, p_weak) + a sum_v [l KL(s || v_v) + (1 - l) KL(s' || v_v)],    v_v = softmax(z(mixed view v) mu / t)
    s <- phi s + (1 - phi) p_weak restricted to S and normalised
    mu_c <- normalize(m mu_c + (1 - m) z) for each item with c = argmax_{k in S} p_k

Symbols: S candidates; p predictions; z embedding; mu prototypes; s soft label, s' that of the partner; l mix-up weight; a rises
linearly from 0; phi and m fall linearly.
Reference: Xia et al., CVPR 2023. Differences between paper and authors' code: docs/methods/papi.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from typing import ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.bases.prototypes import Embedder, update_prototypes
from pals.methods.epoch_plan import Batch, EpochPlan
from pals.methods.method import Context, Kind, Method, Problem
from pals.methods.parts.losses import soft_cross_entropy
from pals.methods.parts.mixup import blend, draw_mixup, partners
from pals.methods.parts.ramps import FIRST_MOMENTUM, linear_ramp, momentum_at
from pals.methods.parts.sampling import shuffled
from pals.pseudo_labels.simplex import best_candidate, masked_softmax, one_hot, uniform_on
from pals.pseudo_labels.soft_vote import similarity
from pals.util.config import STRICT


@plain_dataclass(frozen=True)
class PaPiStep:
    """Tensors that `loss` passes on to `after_step`, without gradient; T = 2B rows, first of the weak view, then of the strong.

    Args:
        logits_BC: of the weak view.
        embedding_TD: z.
        label_T: the prototypes that they update.
    """

    logits_BC: Tensor
    embedding_TD: Tensor
    label_T: Tensor


class PaPi(Method):
    """Soft labels that follow the classifier, and prototypes that learn them on mixed inputs.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config:
        embedding: int = Field(default=128, ge=1)
        "Width of the embeddings."
        prototype_high: float = Field(default=0.9, ge=0, le=1)
        "Momentum of the prototypes in the second epoch..."
        prototype_low: float = Field(default=0.5, ge=0, le=1)
        "... and at the end; it falls linearly in between. In the first epoch it is 0.99."
        phi_high: float = Field(default=0.95, ge=0, le=1)
        "Share of an item's confidence that is kept at each visit, in the second epoch..."
        phi_low: float = Field(default=0.8, ge=0, le=1)
        "... and at the end; it falls in the same way."
        temperature: float = Field(default=0.3, gt=0)
        "Temperature of the prototypes' scores."
        prototype_weight: float = Field(default=1.0, ge=0)
        "Final weight of the loss of the prototypes on mixed inputs."
        ramp_up: int = Field(default=10, ge=1)
        "Epochs over which that weight rises, from 0 in the first."
        zeta: float = Field(default=8.0, gt=0)
        "Mix-up weights come from Beta(zeta, zeta)."
        official: bool = False
        "Pseudo-labels as in the authors' code: a candidate with a negative logit loses to any label outside the set."

    kind: ClassVar[Kind] = "partial"
    reference: ClassVar[str] = "Xia et al., CVPR 2023"
    cost: ClassVar[float] = 3.33  # the weak view and two mixed ones, and the strong view without gradient
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("ramp_up",)
    views: tuple[str, ...] = ("weak", "strong")
    config: Config
    cache: PaPiStep

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.query = Embedder(problem.network(), config.embedding)
        self.prototype_CD = nn.Buffer(torch.zeros(self.num_classes, config.embedding))
        self.confidence_NC = nn.Buffer(uniform_on(self.allowed_NC))
        # The next three are tensors because numbers would be constants in a captured step.
        self.phi = nn.Buffer(torch.tensor(FIRST_MOMENTUM))
        self.momentum = nn.Buffer(torch.tensor(FIRST_MOMENTUM))
        self.weight = nn.Buffer(torch.zeros(()))

    @property
    def predictor(self) -> nn.Module:
        return self.query.network

    def sets(self, index_B: Tensor) -> Tensor:
        """The candidates that items are trained with in this epoch, B x C.

        Args:
            index_B: items.
        """
        return self.allowed_NC[index_B]

    def trained_on(self) -> Tensor:
        """The items to train on, in order."""
        return torch.arange(self.num_items, device=self.allowed_NC.device)

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        """All items, shuffled; a short last batch is left out, as published."""
        c = self.config
        self.phi.fill_(momentum_at(ctx.epoch, ctx.epochs, c.phi_high, c.phi_low))
        self.momentum.fill_(momentum_at(ctx.epoch, ctx.epochs, c.prototype_high, c.prototype_low))
        self.weight.fill_(c.prototype_weight * linear_ramp(ctx.epoch - 1, c.ramp_up))
        return EpochPlan.of(shuffled(self.trained_on(), ctx.generator), drop_last=True)

    def random_inputs(self, ctx: Context, steps: int) -> Mapping[str, Tensor]:
        return draw_mixup((steps,), ctx.batch_size, self.config.zeta, ctx.rng, ctx.generator, fold=False)

    def loss(self, batch: Batch) -> Tensor:
        weak_B, strong_B = batch.views
        partner_B, weight = partners(batch.random["uniform"][: len(weak_B)]), batch.random["weight"]
        mixed = [blend(x_B, partner_B, weight) for x_B in (weak_B, strong_B)]
        with torch.no_grad():  # used for labels and prototypes only
            strong_BC, strong_BD = self.query(strong_B)
        own, *others = self.query.network.each([weak_B, *mixed])
        with torch.no_grad():
            weak_BC, weak_BD, allowed_BC = own.logits, self.query.project(own.features), self.sets(batch.index_B)
            best = best_product if self.config.official else best_candidate
            label_T = torch.cat([best(weak_BC, allowed_BC), best(strong_BC, allowed_BC)])
            self.cache = PaPiStep(weak_BC.detach().float(), torch.cat([weak_BD, strong_BD]), label_T)
        confidence_BC = self.confidence_NC[batch.index_B]
        classified = soft_cross_entropy(own.logits, confidence_BC).mean()
        scores = [similarity(self.query.project(o.features), self.prototype_CD) / self.config.temperature for o in others]
        divergences = [mixed_divergence(score_BC, confidence_BC, partner_B, weight).mean() for score_BC in scores]
        return classified + self.weight * torch.stack(divergences).sum()

    def after_step(self, batch: Batch) -> None:
        cache, index_B = self.cache, batch.index_B
        member_TC = one_hot(cache.label_T, self.num_classes)
        self.prototype_CD.copy_(update_prototypes(self.prototype_CD, cache.embedding_TD, member_TC, self.momentum))
        target_BC = masked_softmax(cache.logits_BC, self.sets(index_B))
        self.confidence_NC[index_B] = torch.lerp(target_BC, self.confidence_NC[index_B], self.phi)

    def posterior(self) -> Tensor:
        return self.confidence_NC


def mixed_divergence(logits_BC: Tensor, target_BC: Tensor, partner_B: Tensor, weight: Tensor) -> Tensor:
    """l KL(s || p) + (1 - l) KL(s' || p), with 0 log 0 = 0.

    Args:
        logits_BC: logits of p.
        target_BC: s.
        partner_B: the partners, whose target is s'.
        weight: l.

    Returns:
        One loss per item.
    """
    negentropy_B = torch.xlogy(target_BC, target_BC).sum(dim=1)
    return soft_cross_entropy(logits_BC, blend(target_BC, partner_B, weight)) + blend(negentropy_B, partner_B, weight)


def best_product(logits_BC: Tensor, allowed_BC: Tensor) -> Tensor:
    """argmax_c of logit times [c in S], as in the authors' code: a label outside the set wins against negative logits.

    Args:
        logits_BC: logits.
        allowed_BC: candidates, bool.

    Returns:
        int64, B.
    """
    return (logits_BC * allowed_BC).argmax(dim=1)
