"""PaPi: class prototypes are a second classifier, which learns on mixed inputs what the first has found out about labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from typing import ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.bases.prototypes import FIRST_PHI, Embedder, best_of, members, moved_prototypes, phi_at, similarity
from pals.methods.method import Batch, Context, EpochPlan, Kind, Method, Problem
from pals.methods.parts.losses import masked_softmax, soft_cross_entropy, uniform_on
from pals.methods.parts.mixup import blend, draw_weights, partners
from pals.methods.parts.sampling import shuffled
from pals.util.config import STRICT


@plain_dataclass(frozen=True)
class Seen:
    """What `loss` leaves for `after_step`, all of it without gradient; rows of the weak view come first, then of the strong."""

    logits_BC: Tensor  # of the weak view alone
    embedding_TD: Tensor  # T = 2B
    label_T: Tensor


class PaPi(Method):
    """The classifier learns from confidences s that follow its own predictions p on the candidates; the prototypes mu, moving
    averages of the embeddings z of each class, are asked to say the same of mixed inputs:

        L = H(s, p_weak) + a sum_v [ l KL(s || v_v) + (1 - l) KL(s' || v_v) ],    v_v = softmax(z(mixed view v).mu / t)
        then s <- phi s + (1 - phi) p_weak cut to the candidates,    mu_c <- m mu_c + (1 - m) z,  c = argmax_{k in S} p_k

    with l the mix-up weight, s' the partner's confidence and a growing from 0. `docs/methods/papi.md` has all of it.
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
    seen: Seen

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.query = Embedder(problem.network(), config.embedding)
        self.prototype_CD: Tensor
        self.confidence_NC: Tensor
        self.phi: Tensor  # these are tensors, because a number would be frozen into a captured step
        self.momentum: Tensor
        self.weight: Tensor
        self.register_buffer("prototype_CD", torch.zeros(self.num_classes, config.embedding))
        self.register_buffer("confidence_NC", uniform_on(self.allowed_NC))
        self.register_buffer("phi", torch.tensor(FIRST_PHI))
        self.register_buffer("momentum", torch.tensor(FIRST_PHI))
        self.register_buffer("weight", torch.zeros(()))

    @property
    def predictor(self) -> nn.Module:
        return self.query.network

    def sets(self, index_B: Tensor) -> Tensor:
        """The candidates that these items are now trained with."""
        return self.allowed_NC[index_B]

    def trained_on(self) -> Tensor:
        """The items of an epoch, in order."""
        return torch.arange(self.num_items, device=self.allowed_NC.device)

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        """All items, shuffled; a short last batch is left out, as published."""
        c = self.config
        self.phi.fill_(phi_at(ctx.epoch, ctx.epochs, c.phi_high, c.phi_low))
        self.momentum.fill_(phi_at(ctx.epoch, ctx.epochs, c.prototype_high, c.prototype_low))
        self.weight.fill_(c.prototype_weight * min((ctx.epoch - 1) / c.ramp_up, 1.0))
        return EpochPlan.of(shuffled(self.trained_on(), ctx.generator), drop_last=True)

    def random_inputs(self, ctx: Context, steps: int) -> Mapping[str, Tensor]:
        device = self.allowed_NC.device
        weight = draw_weights((steps,), self.config.zeta, ctx.rng, fold=False).to(device)
        return {"weight": weight, "uniform": torch.rand(steps, ctx.batch_size, generator=ctx.generator, device=device)}

    def loss(self, batch: Batch) -> Tensor:
        weak_B, strong_B = batch.views
        partner_B, weight = partners(batch.random["uniform"][: len(weak_B)]), batch.random["weight"]
        mixed = [blend(x_B, partner_B, weight) for x_B in (weak_B, strong_B)]
        with torch.no_grad():  # nothing but labels and prototypes comes of it
            strong_BC, strong_BD = self.query(strong_B)
        own, *others = self.query.network.each([weak_B, *mixed])
        with torch.no_grad():
            self.seen = self._seen(batch, own.logits, self.query.project(own.features), strong_BC, strong_BD)
        confidence_BC = self.confidence_NC[batch.index_B]
        classified = soft_cross_entropy(own.logits, confidence_BC).mean()
        scores = [similarity(self.query.project(o.features), self.prototype_CD) / self.config.temperature for o in others]
        asked = [mixed_divergence(score_BC, confidence_BC, partner_B, weight).mean() for score_BC in scores]
        return classified + self.weight * torch.stack(asked).sum()

    def _seen(self, batch: Batch, weak_BC: Tensor, weak_BD: Tensor, strong_BC: Tensor, strong_BD: Tensor) -> Seen:
        allowed_BC = self.sets(batch.index_B)
        choose = best_product if self.config.official else best_of
        label_T = torch.cat([choose(weak_BC, allowed_BC), choose(strong_BC, allowed_BC)])
        return Seen(weak_BC.detach().float(), torch.cat([weak_BD, strong_BD]), label_T)

    def after_step(self, batch: Batch) -> None:
        seen, index_B = self.seen, batch.index_B
        member_TC = members(seen.label_T, self.num_classes)
        self.prototype_CD.copy_(moved_prototypes(self.prototype_CD, seen.embedding_TD, member_TC, self.momentum))
        target_BC = masked_softmax(seen.logits_BC, self.sets(index_B))
        self.confidence_NC[index_B] = torch.lerp(target_BC, self.confidence_NC[index_B], self.phi)

    def posterior(self) -> Tensor:
        return self.confidence_NC


def mixed_divergence(logits_BC: Tensor, target_BC: Tensor, partner_B: Tensor, weight: Tensor) -> Tensor:
    """l KL(s || p) + (1 - l) KL(s' || p) per item, with the target s and that of its partner, s'; 0 log 0 is 0."""
    negentropy_B = torch.xlogy(target_BC, target_BC).sum(dim=1)
    return soft_cross_entropy(logits_BC, blend(target_BC, partner_B, weight)) + blend(negentropy_B, partner_B, weight)


def best_product(logits_BC: Tensor, allowed_BC: Tensor) -> Tensor:
    """The largest of logit times 0 or 1, as the authors' code has it: 0 beats a candidate's negative logit."""
    return (logits_BC * allowed_BC).argmax(dim=1)
