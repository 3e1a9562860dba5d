"""ELR+: early-learning regularisation; early predictions hold back later ones that would memorise wrong labels.

    t_i <- beta t_i + (1 - beta) h(x_i)                                memory, at first 0; h: the EMA of the OTHER network
    x~ = w x_i + (1 - w) x_j,  y~ = w y_i + (1 - w) y_j,  t~ = w t_i + (1 - w) t_j                       mix-up, w >= 1/2
    L = -sum_c y~_c log p_c(x~) + lambda(step) log(1 - sum_c t~_c p_c(x~))

The second part is smallest where the prediction agrees with the memory; its gradient cancels that of labels which contradict
the memory.
Symbols: y one-hot labels; p predictions of a network; lambda ramps up.
Reference: Liu et al., NeurIPS 2020, arXiv 2007.00151. Differences between paper and authors' code: docs/methods/elr+.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.bases.two_networks import NetworkPair, TwoNetworkMethod
from pals.methods.epoch_plan import Batch, EpochPlan, Group
from pals.methods.method import Context, Problem
from pals.methods.parts.ema import update_ema
from pals.methods.parts.losses import soft_cross_entropy
from pals.methods.parts.mixup import blend, draw_mixup, partners
from pals.pseudo_labels.simplex import normalize_rows
from pals.util.config import STRICT
from pals.vision.networks import Network

MIN_DISTANCE = 1e-4  # of probabilities in the regulariser from 0 and 1


class ELRPlus(TwoNetworkMethod):
    """Two networks with a memory of predictions, averaged weights and mix-up.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(TwoNetworkMethod.Config):
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
        self.ema = NetworkPair(problem.network(), problem.network()).requires_grad_(False)
        self.memory_2NC = nn.Buffer(torch.zeros(2, self.num_items, self.num_classes))  # t

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        first_M, second_M = self.orders(ctx)
        return EpochPlan({"main": Group(first_M), "second": Group(second_M)})

    def random_inputs(self, ctx: Context, steps: int) -> Mapping[str, Tensor]:
        c = self.config
        step_M = torch.arange(steps, dtype=torch.float64) + (ctx.epoch - 1) * steps
        rows = {
            "memory_weight": c.memory_weight * sigmoid_ramp(step_M, c.memory_ramp),
            "ema_decay": ema_decay(step_M, c.slow_momentum, c.slow_rule, c.slow_ramp),
        }
        mixing = draw_mixup((steps, 2), ctx.batch_size, c.zeta, ctx.rng, ctx.generator, fold=True)
        return {**mixing, **{name: row.float().to(self.label_N.device) for name, row in rows.items()}}

    def loss(self, batch: Batch) -> Tensor:
        peers = reversed(self.ema.both())
        both = zip(self.pair.both(), peers, (batch, batch.groups["second"]), strict=True)
        (one, first_BC), (two, second_BC) = (
            self.network_loss(k, own, peer, part, batch.random) for k, (own, peer, part) in enumerate(both)
        )
        self.memories = first_BC, second_BC
        return one + two

    def network_loss(
        self, number: int, own: Network, peer: Network, batch: Batch, random: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """L of one network.

        Args:
            number: of the network.
            own: the network.
            peer: the EMA of the other one.
            batch: its batch.
            random: random inputs of the step.

        Returns:
            The loss, and the new memory of the items, which the loss uses.
        """
        memory_BC = self.update_memory(number, peer, batch)
        weight, partner_B = random["weight"][number], partners(random["uniform"][number, : len(memory_BC)])
        mixed_B, label_BC, mixed_BC = (
            blend(table, partner_B, weight) for table in (batch.views[0], self.targets(batch.index_B), memory_BC)
        )
        if self.config.reweight:
            label_BC = reweight(label_BC, mixed_BC)
        logits_BC = own(mixed_B).logits
        loss_B = soft_cross_entropy(logits_BC, label_BC) + random["memory_weight"] * disagreement(logits_BC, mixed_BC)
        return loss_B.mean(), memory_BC

    @torch.no_grad()
    def update_memory(self, number: int, peer: Network, batch: Batch) -> Tensor:
        """beta t + (1 - beta) h(x), B x C, for inputs without mix-up, with batch statistics.

        Args:
            number: of the network.
            peer: the EMA of the other one.
            batch: the batch.
        """
        share_BC = peer(batch.views[0]).logits.float().softmax(dim=1)
        return torch.lerp(share_BC, self.memory_2NC[number, batch.index_B], self.config.memory_momentum)

    def after_step(self, batch: Batch) -> None:
        for memory_NC, part, memory_BC in zip(self.memory_2NC, (batch, batch.groups["second"]), self.memories, strict=True):
            memory_NC[part.index_B] = memory_BC
        update_ema(self.ema, self.pair, batch.random["ema_decay"])  # parameters alone: the EMA uses batch statistics

    def posterior(self) -> Tensor | None:
        """The normalised sum of both memories; uniform for an item without a visit."""
        if not self.memory_2NC.any():
            return None
        return normalize_rows(self.memory_2NC.sum(dim=0).clamp_min(torch.finfo().tiny))


def sigmoid_ramp(step_M: Tensor, length: int) -> Tensor:
    """exp(-5 (1 - step / length)^2), from near 0 to 1.

    Args:
        step_M: steps done.
        length: steps until 1 is reached; 0: always 1.

    Returns:
        M.
    """
    return torch.ones_like(step_M) if length == 0 else torch.exp(-5 * (1 - step_M.clamp_max(length) / length) ** 2)


def ema_decay(step_M: Tensor, momentum: float, rule: str, length: int) -> Tensor:
    """The decay of the averaged networks after each step.

    Args:
        step_M: numbers of the steps, from 0.
        momentum: final decay.
        rule: "ramp": momentum * sigmoid_ramp; otherwise 1 - 1 / step, so that the average is the mean of all steps.
        length: steps of the ramp.

    Returns:
        M.
    """
    return momentum * sigmoid_ramp(step_M + 1, length) if rule == "ramp" else (1 - 1 / (step_M + 1)).clamp_max(momentum)


def disagreement(logits_BC: Tensor, memory_BC: Tensor) -> Tensor:
    """log(1 - sum_c t_c p_c), from 0 where memory and prediction are orthogonal down to log(`MIN_DISTANCE`).

    Args:
        logits_BC: logits of p.
        memory_BC: t.

    Returns:
        One number per item.
    """
    share_BC = logits_BC.float().softmax(dim=1).clamp(MIN_DISTANCE, 1 - MIN_DISTANCE)
    return torch.log1p(-(memory_BC * share_BC).sum(dim=1))


def reweight(label_BC: Tensor, memory_BC: Tensor) -> Tensor:
    """The normalised product of label and memory.

    Args:
        label_BC: labels.
        memory_BC: t.

    Returns:
        B x C; the label where the product is 0.
    """
    product_BC = label_BC * memory_BC
    return torch.where(product_BC.any(dim=1, keepdim=True), normalize_rows(product_BC), label_BC)
