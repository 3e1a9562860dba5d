"""ELR+: early-learning regularisation. What was predicted early, before wrong labels are learnt by heart, holds back later
predictions; two networks, averaged weights and mix-up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.bases.two_networks import Pair, TwoNetworks
from pals.methods.method import Batch, Context, EpochPlan, Group, Problem
from pals.methods.parts.losses import soft_cross_entropy
from pals.methods.parts.mixup import blend, partners
from pals.util.config import STRICT
from pals.vision.networks import Network

CLIP = 1e-4  # probabilities in the regulariser are at least this far from 0 and 1


class ELRPlus(TwoNetworks):
    """Each network has a memory t_i of predictions for each item, at first 0, into which go those made with the averaged
    weights of the OTHER one. Labels y and memories are mixed like the inputs, with a weight w of at least a half:

        t_i <- beta t_i + (1 - beta) h(x_i)                  h: the other network's average
        x~ = w x_i + (1 - w) x_j,  y~ = w y_i + (1 - w) y_j,  t~ = w t_i + (1 - w) t_j
        L = -sum_c y~_c log p_c(x~) + lambda(step) log(1 - sum_c t~_c p_c(x~))

    The second part is lowest where the prediction agrees with the memory. Its gradient undoes that of labels which contradict
    the memory. `docs/methods/elr+.md` has the differences between the paper and the authors' code.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(TwoNetworks.Config):
        memory_momentum: float = Field(default=0.7, ge=0, lt=1)
        "beta: share of an item's memory that is kept at each visit."
        memory_weight: float = Field(default=3.0, ge=0)
        "lambda: weight of the agreement with the memory."
        memory_ramp: int = Field(default=0, ge=0)
        "Steps over which that weight rises from 0; 0: full weight from the start."
        reweight: bool = False
        "Multiply the mixed label by the mixed memory and normalise it; the authors do this on CIFAR-100."
        zeta: float = Field(default=1.0, gt=0)
        "Mix-up weights come from Beta(zeta, zeta)."
        slow_momentum: float = Field(default=0.997, ge=0, lt=1)
        "Final momentum of the averaged networks: share of the old weights kept at each step."
        slow_rule: Literal["ramp", "mean"] = "ramp"
        "How that share rises from 0: over `slow_ramp` steps, or so that the average is the plain mean of all steps so far."
        slow_ramp: int = Field(default=40_000, ge=1)
        "Steps over which it rises under the first rule."

    reference: ClassVar[str] = "Liu et al., NeurIPS 2020, arXiv 2007.00151"
    cost: ClassVar[float] = 2.67  # for each network a step, and a pass through an averaged one
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("memory_ramp", "slow_ramp")
    config: Config

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.slow = Pair(problem.network(), problem.network()).requires_grad_(False)
        self.memory_2NC: Tensor
        self.register_buffer("memory_2NC", torch.zeros(2, self.num_items, self.num_classes))

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        first_M, second_M = self.orders(ctx)
        return EpochPlan({"main": Group(first_M), "second": Group(second_M)})

    def random_inputs(self, ctx: Context, steps: int) -> Mapping[str, Tensor]:
        c = self.config
        step_M = torch.arange(steps, dtype=torch.float64) + (ctx.epoch - 1) * steps  # as many in each epoch
        rows = {
            "memory_weight": c.memory_weight * ramp_up(step_M, c.memory_ramp),
            "slow_share": slow_share(step_M, c.slow_momentum, c.slow_rule, c.slow_ramp),
        }
        mixing = self.draw_mixing(ctx, steps, ctx.batch_size, c.zeta)
        return {**mixing, **{name: row.float().to(self.label_N.device) for name, row in rows.items()}}

    def loss(self, batch: Batch) -> Tensor:
        slow = reversed(self.slow.both())  # each network looks at the average of the other
        both = zip(self.pair.both(), slow, (batch, batch.groups["second"]), strict=True)
        done = [self.network_loss(k, own, peer, part, batch.random) for k, (own, peer, part) in enumerate(both)]
        self.seen = [memory_BC for _, memory_BC in done]
        return done[0][0] + done[1][0]

    def network_loss(
        self, number: int, own: Network, peer: Network, batch: Batch, random: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Of one network, and the new memory of the items, which the loss has already seen."""
        memory_BC = self.moved_memory(number, peer, batch)
        weight, partner_B = random["weight"][number], partners(random["uniform"][number, : len(memory_BC)])
        mixed_B, label_BC, mixed_BC = (
            blend(table, partner_B, weight) for table in (batch.views[0], self.targets(batch.index_B), memory_BC)
        )
        if self.config.reweight:
            label_BC = reweighted(label_BC, mixed_BC)
        logits_BC = own(mixed_B).logits
        loss_B = soft_cross_entropy(logits_BC, label_BC) + random["memory_weight"] * disagreement(logits_BC, mixed_BC)
        return loss_B.mean(), memory_BC

    @torch.no_grad()
    def moved_memory(self, number: int, peer: Network, batch: Batch) -> Tensor:
        """With the peer's predictions for inputs that are not mixed, by batch statistics."""
        share_BC = peer(batch.views[0]).logits.float().softmax(dim=1)
        return torch.lerp(share_BC, self.memory_2NC[number, batch.index_B], self.config.memory_momentum)

    def after_step(self, batch: Batch) -> None:
        for memory_NC, part, memory_BC in zip(self.memory_2NC, (batch, batch.groups["second"]), self.seen, strict=True):
            memory_NC[part.index_B] = memory_BC
        move_average(self.slow, self.pair, batch.random["slow_share"])

    def posterior(self) -> Tensor | None:
        """What both remember, scaled; uniform for an item that was never visited."""
        if not self.memory_2NC.any():
            return None
        total_NC = self.memory_2NC.sum(dim=0).clamp_min(torch.finfo().tiny)
        return total_NC / total_NC.sum(dim=1, keepdim=True)


def ramp_up(step_M: Tensor, length: int) -> Tensor:
    """exp(-5 (1 - step / length)^2), from near 0 to 1, where it stays; always 1 if there is no length."""
    return torch.ones_like(step_M) if length == 0 else torch.exp(-5 * (1 - step_M.clamp_max(length) / length) ** 2)


def slow_share(step_M: Tensor, momentum: float, rule: str, length: int) -> Tensor:
    """Share of their old weights that averaged networks keep after the steps with these numbers, from 0."""
    return momentum * ramp_up(step_M + 1, length) if rule == "ramp" else (1 - 1 / (step_M + 1)).clamp_max(momentum)


def move_average(slow: Pair, fast: Pair, share: Tensor) -> None:
    """slow <- share slow + (1 - share) fast, parameters alone: averaged networks run on batch statistics."""
    old, new = tuple(slow.parameters()), tuple(fast.parameters())
    torch._foreach_mul_(old, share)
    torch._foreach_add_(old, torch._foreach_mul(new, 1 - share))


def disagreement(logits_BC: Tensor, memory_BC: Tensor) -> Tensor:
    """log(1 - sum_c t_c p_c): from 0, where memory and prediction have nothing in common, down to the log of `CLIP`."""
    share_BC = logits_BC.float().softmax(dim=1).clamp(CLIP, 1 - CLIP)
    return torch.log1p(-(memory_BC * share_BC).sum(dim=1))


def reweighted(label_BC: Tensor, memory_BC: Tensor) -> Tensor:
    """The product of both, scaled to sum to one; the label where it is 0 everywhere."""
    product_BC = label_BC * memory_BC
    total_B1 = product_BC.sum(dim=1, keepdim=True)
    return torch.where(total_B1 > 0, product_BC / total_B1, label_BC)
