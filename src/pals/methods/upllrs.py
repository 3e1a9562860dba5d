"""UPLLRS: iterative separation of unreliable items by re-initialised networks; then semi-supervised partial-label learning.

Separation, repeated until the covering rate on a holdout no longer rises (R: all items at first):
    l = -1/|S| sum_{c in S} log p_c                       a new network is trained for a few epochs on R
    U <- U + the share gamma of R with the largest l in the last of these epochs
Learning, by another network on R as CRDPLL (or PRODEN) and on U as FixMatch:
    L = L_R + xi 1/|U| sum_{i in U} [max h_i >= threshold] (-log p_{i, argmax h_i})

An EMA of this network predicts.
Symbols: S candidates; p predictions; h, p predictions for a weak and a strong view; R reliable, U unreliable items.
Reference: Shi et al., IJCAI 2023, arXiv 2302.09891. Differences between paper and authors' code: docs/methods/upllrs.md.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.bases.holdout import Holdout
from pals.methods.crdpll import CRDPLL, divergence, wrong_label_loss
from pals.methods.epoch_plan import Batch, EpochPlan, Group, Selection
from pals.methods.method import Context, Kind, Phase, Problem
from pals.methods.parts.ema import update_ema
from pals.methods.parts.losses import soft_cross_entropy
from pals.methods.parts.sampling import part, passes, shuffled
from pals.pseudo_labels.simplex import masked_softmax, uniform_on
from pals.util.config import STRICT
from pals.vision.augment import MethodView
from pals.vision.augment.augmentations import CRDPLL_VIEWS, FIXMATCH_VIEWS

SEPARATION_SETTINGS: Mapping[str, Any] = {
    "schedule": "constant",
    "optimizer": "sgd",
    "nesterov": False,
    "decay": "all",
    "tail": "fill",  # otherwise each step would have a new batch size, and compile its network for it
}
"""Training settings of the separation."""


class UPLLRS(CRDPLL):
    """Separate unreliable items, then learn from them without their candidates.

    Args:
        config: options.
        problem: candidates and networks.
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
        "gamma: share of the reliable items that each step removes; 0: no separation."
        max_steps: int | None = Field(default=None, ge=0)
        "Maximum number of separation steps; by default as many as leave 36% of the items."
        patience: int = Field(default=5, ge=1)
        "End the separation after this many consecutive steps with a covering rate below the best."
        held_out: float = Field(default=0.2, ge=0, lt=1)
        "Share of the items in the holdout that decides when to stop; 0: run all steps and epochs."
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
        self.ema = copy.deepcopy(self.network).requires_grad_(False)
        self.buffer_decay = ema_buffer_decay(self.network, config.slow_momentum)
        self.fresh_network = problem.network
        self.separator = problem.network(config.separator)
        self.holdout = Holdout(self.num_items, config.held_out)
        self.max_steps = max_separation_steps(config.exclude) if config.max_steps is None else config.max_steps
        reliable_N = torch.zeros(self.num_items, dtype=torch.bool).index_fill_(0, self.holdout.others_M, True)
        self.reliable_N = nn.Buffer(reliable_N)  # R
        self.loss_N = nn.Buffer(torch.zeros(self.num_items))  # l
        self.steps_done = nn.Buffer(torch.zeros((), dtype=torch.int64))
        self.separated = nn.Buffer(torch.tensor(self.max_steps == 0))
        self.learning = nn.Buffer(torch.tensor(False))
        self.seed = nn.Buffer(torch.randint(2**31, ()))
        self.separating = True  # in this epoch
        self.counts: dict[str, float] = {}  # for the log

    @property
    def predictor(self) -> nn.Module:
        return self.ema if self.learning else self.separator

    @property
    def graph_key(self) -> str:
        return "separation" if self.separating else "main"

    def phase(self, number: int) -> Phase | None:
        c, separations = self.config, int(self.steps_done)
        if not self.separated or number < separations:
            settings = {**SEPARATION_SETTINGS, "lr": c.separation_lr}
            return Phase(f"separation-{number + 1}", c.separation_epochs, [self.separator], settings)
        return Phase("main", modules=[self.network]) if number == separations else None

    def begin_phase(self, number: int) -> None:
        if self.separated:
            return
        with torch.random.fork_rng(devices=[]):  # initial weights come from the global generator
            torch.default_generator.manual_seed(int(self.seed) + number)
            fresh = self.fresh_network(self.config.separator)
        self.separator.load_state_dict(fresh.state_dict())  # in the same module, which is not compiled again

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        self.separating = ctx.phase != "main"
        reliable_M = self.reliable_N.nonzero().flatten()
        self.counts = {"reliable": len(reliable_M)}
        if self.separating:
            return EpochPlan({"main": Group(shuffled(reliable_M, ctx.generator), views=("eval",))})
        super().plan_epoch(ctx)
        self.learning.fill_(True)
        trained_M = self.holdout.others_M
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
        self.loss_B = loss_B.detach()
        return loss_B.mean()

    def _learning_loss(self, batch: Batch) -> Tensor:
        other = batch.groups.get("unreliable")
        inputs = [*batch.views, *(other.views if other is not None else ())]
        # one batch with common statistics, as published
        logits = torch.split(self.network(torch.cat(inputs)).logits, [len(x_B) for x_B in inputs])
        own = logits[: len(batch.views)]
        self.logits_BC = torch.stack(own).detach().float().mean(dim=0)
        confidence_BC = self.confidence_NC[batch.index_B]
        if self.config.solution == "general":
            loss = soft_cross_entropy(own[0], confidence_BC).mean()
        else:
            wrong_B = wrong_label_loss(own[0], self.allowed_NC[batch.index_B])
            loss = (wrong_B + self.weight * divergence(own, confidence_BC)).mean()
        if other is None:
            return loss
        weak_MC, strong_MC = logits[-2:]
        self.guess_MC = (weak_MC.detach().float() / self.config.temperature).softmax(dim=1)
        return loss + self.config.unreliable_weight * confident_loss(self.guess_MC, strong_MC, self.config.threshold).mean()

    def after_step(self, batch: Batch) -> None:
        if self.separating:
            self.loss_N[batch.index_B] = self.loss_B
            return
        super().after_step(batch)
        if "unreliable" in batch.groups:
            self.store(batch.groups["unreliable"], self.guess_MC)  # for reports
        update_ema(self.ema, self.network, self.config.slow_momentum, buffer_decay=self.buffer_decay)

    def end_epoch(self, ctx: Context) -> bool:
        if not self.separating:
            row_M = self.holdout.index_M
            if len(row_M):
                self.confidence_NC[row_M] = masked_softmax(ctx.outputs(self.ema, rows_M=row_M).logits, self.allowed_NC[row_M])
            return self._should_stop(ctx, self.ema, self.config.stop_after, strict=True)
        if ctx.epoch == ctx.epochs:
            self._separate(ctx)
        return False

    def _separate(self, ctx: Context) -> None:
        """One step of the separation."""
        before = int(self.reliable_N.sum())
        self.reliable_N.copy_(exclude_largest(self.loss_N, self.reliable_N, self.config.exclude))
        self.steps_done.add_(1)
        out_of_patience = self._should_stop(ctx, self.separator, self.config.patience, strict=False)
        self.counts["reliable"] = after = int(self.reliable_N.sum())
        if out_of_patience or self.steps_done >= self.max_steps or after == before:
            self.separated.fill_(True)
            self.holdout.reset()

    def _should_stop(self, ctx: Context, network: nn.Module, patience: int, *, strict: bool) -> bool:
        if not len(self.holdout.index_M):
            return False
        self.counts["covering_rate"] = rate = self.holdout.covering_rate(ctx, self.allowed_NC, network)
        return self.holdout.should_stop(rate, patience, strict=strict)

    def statistics(self) -> Mapping[str, float]:
        return self.counts


def ema_buffer_decay(network: nn.Module, decay: float) -> float:
    """The decay of batch statistics in the EMA: 0 if the network averages them as slowly as the weights are, as the authors'
    network does; otherwise that of the weights, because statistics of the last few batches do not fit weights of the last
    thousand.

    Args:
        network: the trained network.
        decay: of the weights.
    """
    norms = [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    fastest = max((norm.momentum or 0.0 for norm in norms), default=0.0)
    return 0.0 if fastest + decay <= 1 + 1e-9 else decay


def max_separation_steps(exclude: float) -> int:
    """The number of steps after which .6^2 of the items are left, 2 log(.6) / log(1 - gamma).

    Args:
        exclude: gamma.

    >>> max_separation_steps(0.03)
    34
    """
    return round(2 * math.log(0.6) / math.log(1 - exclude)) if exclude > 0 else 0


def exclude_largest(loss_N: Tensor, reliable_N: Tensor, share: float) -> Tensor:
    """Exclude the reliable items with the largest losses.

    Args:
        loss_N: losses.
        reliable_N: R, bool.
        share: gamma; the number of items is rounded down.

    Returns:
        bool, N.
    """
    count = part(share, int(reliable_N.sum()))
    worst_M = loss_N.masked_fill(~reliable_N, -torch.inf).topk(count).indices
    return reliable_N.index_fill(0, worst_M, False)


def confident_loss(guess_BC: Tensor, logits_BC: Tensor, threshold: float) -> Tensor:
    """FixMatch's loss, [max h >= threshold] (-log p_{argmax h}).

    Args:
        guess_BC: h.
        logits_BC: logits of p.
        threshold: smallest confidence.

    Returns:
        One loss per item.
    """
    top_B, label_B = guess_BC.max(dim=1)
    return F.cross_entropy(logits_BC.float(), label_B, reduction="none") * (top_B >= threshold)
