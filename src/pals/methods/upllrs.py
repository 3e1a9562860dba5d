"""UPLLRS: networks that are thrown away sort out unreliable items step by step; the rest is learnt as partial labels, they
as unlabelled."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.bases.early_stopping import HeldOut
from pals.methods.crdpll import CRDPLL, divergence, wrong_label_loss
from pals.methods.method import Batch, Context, EpochPlan, Group, Kind, Phase, Problem, Selection
from pals.methods.parts.losses import masked_softmax, soft_cross_entropy, uniform_on
from pals.methods.parts.sampling import part, passes, shuffled
from pals.util.config import STRICT
from pals.vision.augment import MethodView
from pals.vision.augment.augmentations import CRDPLL_VIEWS, FIXMATCH_VIEWS

SEPARATION: Mapping[str, Any] = {
    "schedule": "constant",
    "optimizer": "sgd",
    "nesterov": False,
    "decay": "all",
    "tail": "fill",  # else each step would have batches of a new size, and compile its network for it
}
"""Training settings of the separation."""


class UPLLRS(CRDPLL):
    """Separation. A fresh network is trained for a few epochs on the items R that are still trusted, at first all, by the plain
    average over the candidates,

        l = -(1/|S|) sum_{c in S} log p_c

    and the share gamma of R whose l was largest in the last of these epochs moves to U. Again, with the next network, until
    the covering rate on items held out no longer grows.

    Learning. Another network is trained on R as CRDPLL does (or, in general, as PRODEN) and on U, without candidates, by
    confident pseudo-labels as FixMatch does, h and p being the predictions for a weak and a strong view:

        L = L_R + xi (1/|U|) sum_{i in U} [max h_i >= threshold] (-log p_{i, argmax h_i})

    Its slow average answers. `docs/methods/upllrs.md` has the differences between the paper and the authors' code.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(CRDPLL.Config):
        solution: Literal["augmented", "general"] = "augmented"
        "Loss of reliable items: CRDPLL's, or PRODEN's with one view, for data without strong views."
        separator: str | None = None
        "Name of the small network that separates; by default the run's."
        separation_epochs: int = Field(default=5, ge=1)
        "Epochs of training in each separation step."
        separation_lr: float = Field(default=0.1, gt=0)
        "Constant learning rate of the separation."
        exclude: float = Field(default=0.03, ge=0, lt=1)
        "gamma: share of the trusted items that each step removes; 0: no separation."
        max_steps: int | None = Field(default=None, ge=0)
        "Maximum number of separation steps; by default as many as leave 36% of the items."
        patience: int = Field(default=5, ge=1)
        "End the separation after this many consecutive steps with a covering rate below the best."
        held_out: float = Field(default=0.2, ge=0, lt=1)
        "Share of the items held out to decide when to stop; 0: run all steps and epochs."
        unreliable_batch: int = Field(default=3, ge=1)
        "Number of unreliable items per reliable one in a step."
        unreliable_weight: float = Field(default=1.0, ge=0)
        "xi: weight of their loss."
        threshold: float = Field(default=0.95, ge=0, le=1)
        "Probability from which a prediction counts as a pseudo-label."
        temperature: float = Field(default=1.0, gt=0)
        "Divisor of the logits for that probability."
        slow_momentum: float = Field(default=0.999, ge=0, lt=1)
        "Momentum of the averaged network, which predicts."
        stop_after: int = Field(default=25, ge=1)
        "Stop after this many epochs without a better covering rate."

    kind: ClassVar[Kind] = "noisy partial"
    reference: ClassVar[str] = "Shi et al., IJCAI 2023, arXiv 2302.09891"
    networks: ClassVar[int] = 2  # one after the other
    cost: ClassVar[float] = 9.0  # three views of the reliable items, two of three times as many others
    counted_in_epochs: ClassVar[tuple[str, ...]] = ()  # its epochs are the most it may take, not a schedule
    own_views: ClassVar[Mapping[str, MethodView]] = {**CRDPLL_VIEWS, **FIXMATCH_VIEWS}
    config: Config

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        if config.solution == "general":
            self.views = (config.view,)
        self.slow = copy.deepcopy(self.network).requires_grad_(False)
        self.statistics_share = statistics_share(self.network, config.slow_momentum)
        self.fresh_network = problem.network
        self.separator = problem.network(config.separator)
        self.held_out = HeldOut(self.num_items, config.held_out)
        self.most_steps = most_steps(config.exclude) if config.max_steps is None else config.max_steps
        self.reliable_N: Tensor
        self.loss_N: Tensor
        self.steps_done: Tensor
        self.separated: Tensor
        self.learning: Tensor
        self.seed: Tensor
        reliable_N = torch.zeros(self.num_items, dtype=torch.bool).index_fill_(0, self.held_out.trained_M, True)
        self.register_buffer("reliable_N", reliable_N)
        self.register_buffer("loss_N", torch.zeros(self.num_items))
        self.register_buffer("steps_done", torch.zeros((), dtype=torch.int64))
        self.register_buffer("separated", torch.tensor(self.most_steps == 0))
        self.register_buffer("learning", torch.tensor(False))
        self.register_buffer("seed", torch.randint(2**31, ()))
        self.separating = True  # set anew each epoch, as is the next
        self.counted: dict[str, float] = {}

    @property
    def predictor(self) -> nn.Module:
        return self.slow if self.learning else self.separator

    @property
    def graph_key(self) -> str:
        return "separation" if self.separating else "main"

    def phase(self, number: int) -> Phase | None:
        c, separations = self.config, int(self.steps_done)
        if not self.separated or number < separations:
            settings = {**SEPARATION, "lr": c.separation_lr}
            return Phase(f"separation-{number + 1}", c.separation_epochs, [self.separator], settings)
        return Phase("main", modules=[self.network]) if number == separations else None

    def begin_phase(self, number: int) -> None:
        if self.separated:
            return
        with torch.random.fork_rng(devices=[]):  # first weights come from torch's own generator, which others may have used
            torch.default_generator.manual_seed(int(self.seed) + number)
            fresh = self.fresh_network(self.config.separator)
        self.separator.load_state_dict(fresh.state_dict())  # in the same module: nothing has to be compiled again

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        self.separating = ctx.phase != "main"
        reliable_M = self.reliable_N.nonzero().flatten()
        self.counted = {"reliable": len(reliable_M)}
        if self.separating:
            return EpochPlan({"main": Group(shuffled(reliable_M, ctx.generator), views=("eval",))})
        super().plan_epoch(ctx)
        self.learning.fill_(True)
        trained_M = self.held_out.trained_M
        other_M = trained_M[~self.reliable_N[trained_M]]
        groups = {"main": Group(passes(reliable_M, len(trained_M), ctx.generator))}
        if len(other_M):
            size = self.config.unreliable_batch * ctx.batch_size
            other_M = passes(other_M, (len(trained_M) // ctx.batch_size + 1) * size, ctx.generator)
            groups["unreliable"] = Group(other_M, batch_size=size, views=(self.config.view, "fixmatch_strong"))
        selection = Selection(self.reliable_N, self.confidence_NC.argmax(dim=1))
        return EpochPlan(groups, selection, drop_last=True)

    def loss(self, batch: Batch) -> Tensor:
        if not self.separating:
            return self._learning_loss(batch)
        logits_BC = self.separator(batch.views[0]).logits
        loss_B = soft_cross_entropy(logits_BC, uniform_on(self.allowed_NC[batch.index_B]))
        self.seen_B = loss_B.detach()
        return loss_B.mean()

    def _learning_loss(self, batch: Batch) -> Tensor:
        other = batch.groups.get("unreliable")
        inputs = [*batch.views, *(other.views if other is not None else ())]
        # one batch with common statistics, as published
        logits = torch.split(self.network(torch.cat(inputs)).logits, [len(x_B) for x_B in inputs])
        own = logits[: len(batch.views)]
        self.seen_BC = torch.stack(own).detach().float().mean(dim=0)
        loss = self._reliable_loss(own, batch.index_B)
        if other is None:
            return loss
        weak_MC, strong_MC = logits[-2:]
        self.guess_MC = (weak_MC.detach().float() / self.config.temperature).softmax(dim=1)
        return loss + self.config.unreliable_weight * confident_loss(self.guess_MC, strong_MC, self.config.threshold).mean()

    def _reliable_loss(self, logits: Sequence[Tensor], index_B: Tensor) -> Tensor:
        confidence_BC = self.confidence_NC[index_B]
        if self.config.solution == "general":
            return soft_cross_entropy(logits[0], confidence_BC).mean()
        wrong_B = wrong_label_loss(logits[0], self.allowed_NC[index_B])
        return (wrong_B + self.weight * divergence(logits, confidence_BC)).mean()

    def after_step(self, batch: Batch) -> None:
        if self.separating:
            self.loss_N[batch.index_B] = self.seen_B
            return
        super().after_step(batch)
        if "unreliable" in batch.groups:
            self.remember(batch.groups["unreliable"], self.guess_MC)  # for reports: no loss reads it
        torch._foreach_lerp_(tuple(self.slow.parameters()), tuple(self.network.parameters()), 1 - self.config.slow_momentum)
        for slow, fast in zip(self.slow.buffers(), self.network.buffers(), strict=True):
            if slow.is_floating_point():
                slow.lerp_(fast, self.statistics_share)
            else:
                slow.copy_(fast)

    def end_epoch(self, ctx: Context) -> bool:
        if not self.separating:
            held_M = self.held_out.held_M
            rate = self._covering_rate(ctx, self.slow)
            if rate is not None:
                self.confidence_NC[held_M] = masked_softmax(
                    ctx.outputs(self.slow, rows_M=held_M).logits, self.allowed_NC[held_M]
                )
            return self.held_out.patience_ends(rate, self.config.stop_after, level_misses=True)
        if ctx.epoch == ctx.epochs:
            self._separate(ctx)
        return False

    def _separate(self, ctx: Context) -> None:
        """One step of the separation, and whether it was the last."""
        before = int(self.reliable_N.sum())
        self.reliable_N.copy_(without_worst(self.loss_N, self.reliable_N, self.config.exclude))
        self.steps_done += 1
        rate = self._covering_rate(ctx, self.separator)
        out_of_patience = self.held_out.patience_ends(rate, self.config.patience, level_misses=False)
        self.counted["reliable"] = after = int(self.reliable_N.sum())
        if out_of_patience or self.steps_done >= self.most_steps or after == before:
            self.separated.fill_(True)
            self.held_out.forget()

    def _covering_rate(self, ctx: Context, network: nn.Module) -> float | None:
        rate = self.held_out.covering_rate(ctx, network, self.allowed_NC)
        if rate is not None:
            self.counted["covering_rate"] = rate
        return rate

    def statistics(self) -> Mapping[str, float]:
        return self.counted


def statistics_share(network: nn.Module, slow_momentum: float) -> float:
    """How far the running statistics of the answering network's norms go towards those of the one that is trained, at each
    step: all the way where that one averages them as slowly as the weights are, as the authors' network does. Else no further
    than the weights: statistics of the last few batches do not fit weights of the last thousand."""
    norms = [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    quickest = max((norm.momentum or 0.0 for norm in norms), default=0.0)
    return 1.0 if quickest + slow_momentum <= 1 + 1e-9 else 1 - slow_momentum


def most_steps(exclude: float) -> int:
    """So many that 0.6 squared of the items are left."""
    return round(2 * math.log(0.6) / math.log(1 - exclude)) if exclude > 0 else 0


def without_worst(loss_N: Tensor, reliable_N: Tensor, share: float) -> Tensor:
    """The reliable items but for this share, rounded down, of those with the largest loss."""
    count = part(share, int(reliable_N.sum()))
    worst_M = loss_N.masked_fill(~reliable_N, -torch.inf).topk(count).indices
    return reliable_N.index_fill(0, worst_M, False)


def confident_loss(guess_BC: Tensor, logits_BC: Tensor, threshold: float) -> Tensor:
    """Cross-entropy against the likeliest label of the guess where that is likely enough, else 0."""
    sure_B, label_B = guess_BC.max(dim=1)
    return F.cross_entropy(logits_BC.float(), label_B, reduction="none") * (sure_B >= threshold)
