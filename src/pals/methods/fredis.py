"""FREDIS: candidate sets edited in rounds; labels that are nearly the likeliest are added, improbable ones removed.

    gap_c = max_k r_k - r_c;    add c where gap_c < theta,  remove c where gap_c > delta        every `update_every` epochs
    L = lambda sum_v KL(s || p_v) - alpha sum_v sum_{c not in S} log(1 - p_vc)
    s_c <- (p_0c p_1c p_2c)^(1/3), normalised on S

At most `changes` labels are added in a round and at least as many are removed; theta rises and delta falls while few labels
change. All logits are divided by a temperature. A warm-up on the given sets comes first, with lambda = alpha = 1.
Symbols: S candidates; r probabilities of an item's last visit; p_v predictions for three views; s soft label.
Reference: Qiao et al., ICML 2023. A round in full, and differences between paper and authors' code: docs/methods/fredis.md.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.bases.confidences import ConfidenceMethod
from pals.methods.bases.holdout import Holdout
from pals.methods.crdpll import divergence, wrong_label_loss
from pals.methods.epoch_plan import Batch, EpochPlan
from pals.methods.method import Context, Kind, Phase, Problem
from pals.methods.parts.ema import update_ema
from pals.methods.parts.sampling import shuffled
from pals.pseudo_labels.simplex import masked_softmax
from pals.util.config import STRICT
from pals.vision.augment.augmentations import CRDPLL_VIEWS

STRONG_VIEW = "crdpll_strong"


class FREDIS(ConfidenceMethod):
    """CRDPLL's consistency on candidate sets that are edited every few epochs.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(ConfidenceMethod.Config):
        view: Literal["weak", "eval"] = "eval"
        "First view, whose probabilities decide how the sets are edited; the other two are strong."
        warm_up: int | None = Field(default=None, ge=1)
        "Epochs on the given sets before the first round; by default as many as follow."
        warm_up_lr: float = Field(default=0.05, gt=0)
        "Learning rate of the warm-up."
        warm_up_decay: float = Field(default=1e-3, ge=0)
        "Weight decay of the warm-up."
        consistency_weight: float = Field(default=10.0, ge=0)
        "lambda: weight of the agreement between the views after the warm-up (1 during it)."
        wrong_weight: float = Field(default=0.1, ge=0)
        "alpha: weight of the labels outside the sets after the warm-up (1 during it)."
        temperature: float = Field(default=3.0, gt=0)
        "Divisor of the logits after the warm-up (1 during it)."
        update_every: int = Field(default=10, ge=1)
        "Epochs between two rounds; the first round follows the first epoch after the warm-up."
        changes: int = Field(default=100, ge=1)
        "Maximum number of labels that a round adds."
        add_below: float = Field(default=1e-6, ge=0)
        "Initial theta: a label this close to the likeliest is added..."
        add_step: float = Field(default=0.1, ge=0)
        "... and how much theta rises after a round with few changes."
        remove_above: float = Field(default=1.0, ge=0)
        "Initial delta: a label this far from the likeliest is removed..."
        remove_step: float = Field(default=1e-3, ge=0)
        "... and how much delta falls after a round with few changes, or until enough labels are removed."
        removals: int = Field(default=1, ge=0)
        "A round removes at least this many labels for each one it adds, if there are enough."
        strict_cap: bool = False
        "If there are too many labels, draw at random among those that would change (true), or among all near or far ones."
        averaging: float = Field(default=0.2, ge=0, lt=1)
        "In a round, the weights move back by this share..."
        average_with: Literal["last", "first"] = "last"
        "... towards those of the last round or, only in the first round, those before the warm-up (as in the authors' code)."
        held_out: float = Field(default=0.0, ge=0, lt=1)
        "Share of the items in the holdout that decides when to stop; 0: run all epochs."
        patience: int = Field(default=50, ge=1)
        "Stop after this many epochs without a better covering rate on the holdout."

    kind: ClassVar[Kind] = "noisy partial"
    reference: ClassVar[str] = "Qiao et al., ICML 2023"
    cost: ClassVar[float] = 3.0  # three views
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("warm_up", "update_every", "patience")
    views: tuple[str, ...] = ("eval", STRONG_VIEW, STRONG_VIEW)
    own_views = CRDPLL_VIEWS
    config: Config

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.views = (config.view, STRONG_VIEW, STRONG_VIEW)
        self.anchor = copy.deepcopy(self.network).requires_grad_(False)  # the weights move back towards it
        self.holdout = Holdout(self.num_items, config.held_out)
        self.posterior_NC = nn.Buffer(torch.full_like(self.confidence_NC, 1 / self.num_classes))  # r
        self.add_below = nn.Buffer(torch.tensor(config.add_below))  # theta
        self.remove_above = nn.Buffer(torch.tensor(config.remove_above))  # delta
        self.in_warm_up = True  # in this epoch
        self.counts: Mapping[str, float] = {}  # for the log

    def phase(self, number: int) -> Phase | None:
        c = self.config
        settings = {"lr": c.warm_up_lr, "weight_decay": c.warm_up_decay}
        warm_up = Phase("warm-up", c.warm_up, [self.network], settings)
        return (warm_up, Phase("main", modules=[self.network]), None)[min(number, 2)]

    @property
    def graph_key(self) -> str:
        return "warm-up" if self.in_warm_up else "main"

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        self.in_warm_up, self.counts = ctx.phase == "warm-up", {}
        if not self.in_warm_up and ctx.epoch == 1:  # r and s of the network after the warm-up, for all items
            first_NC, strong_NC = (ctx.outputs(view=view).logits for view in self.views[:2])
            self.posterior_NC.copy_(first_NC.softmax(dim=1))
            self.confidence_NC.copy_(masked_softmax((first_NC + 2 * strong_NC) / 3, self.allowed_NC))
            if self.config.average_with == "last":
                update_ema(self.anchor, self.network, 0.0)
        return EpochPlan.of(shuffled(self.holdout.others_M, ctx.generator), drop_last=True)

    def loss(self, batch: Batch) -> Tensor:
        c, allowed_BC = self.config, self.allowed_NC[batch.index_B]
        temperature, agree, wrong = (
            (1.0, 1.0, 1.0) if self.in_warm_up else (c.temperature, c.consistency_weight, c.wrong_weight)
        )
        logits = [output.logits.float() / temperature for output in self.network.each(batch.views)]
        self.logits_VBC = torch.stack(logits).detach()
        agree_B = divergence(logits, self.confidence_NC[batch.index_B])
        wrong_B = torch.stack([wrong_label_loss(logits_BC, allowed_BC) for logits_BC in logits]).sum(dim=0)
        return (agree * agree_B + wrong * wrong_B).mean()

    def after_step(self, batch: Batch) -> None:
        # the geometric mean of softmaxes is the softmax of the mean logits, up to its scale
        self.store(batch, masked_softmax(self.logits_VBC.mean(dim=0), self.allowed_NC[batch.index_B]))
        self.posterior_NC[batch.index_B] = self.logits_VBC[0].softmax(dim=1)

    def end_epoch(self, ctx: Context) -> bool:
        if self.in_warm_up:
            return False
        if (ctx.epoch - 1) % self.config.update_every == 0:
            if self.config.average_with == "last" or ctx.epoch == 1:
                update_ema(self.network, self.anchor, 1 - self.config.averaging)
                update_ema(self.anchor, self.network, 0.0)
            self._edit_sets(ctx.generator)
        if not len(self.holdout.index_M):
            return False
        rate = self.holdout.covering_rate(ctx, self.allowed_NC, self.network)
        return self.holdout.should_stop(rate, self.config.patience, strict=True)

    def _edit_sets(self, generator: torch.Generator) -> None:
        """A round: new sets, thresholds and soft labels of the training items."""
        c, rows_M = self.config, self.holdout.others_M
        old_MC, posterior_MC = self.allowed_NC[rows_M], self.posterior_NC[rows_M]
        new_MC, remove_above = edit_sets(
            old_MC,
            posterior_MC,
            add_below=float(self.add_below),
            remove_above=float(self.remove_above),
            remove_step=c.remove_step,
            changes=c.changes,
            removals=c.removals,
            strict_cap=c.strict_cap,
            generator=generator,
        )
        added, removed = int((new_MC & ~old_MC).sum()), int((old_MC & ~new_MC).sum())
        self.counts = {"added": added, "removed": removed}
        self.allowed_NC[rows_M] = new_MC
        self.confidence_NC[rows_M] = masked_softmax(posterior_MC.clamp_min(torch.finfo().tiny).log(), new_MC)
        self.remove_above.fill_(remove_above)
        if self.add_below < 0.9 and remove_above > 0.1 and added + removed < c.changes:
            self.add_below.add_(c.add_step)
            self.remove_above.sub_(c.remove_step).clamp_min_(0)

    def statistics(self) -> Mapping[str, float]:
        return self.counts


def edit_sets(
    allowed_NC: Tensor,
    posterior_NC: Tensor,
    *,
    add_below: float,
    remove_above: float,
    remove_step: float,
    changes: int,
    removals: int,
    strict_cap: bool,
    generator: torch.Generator,
) -> tuple[Tensor, float]:
    """One round of edits. A set that would be empty stays as it was.

    Args:
        allowed_NC: S, bool.
        posterior_NC: r.
        add_below: theta.
        remove_above: delta.
        remove_step: how much delta falls at a time until enough labels are removed.
        changes: maximum number of labels that are added.
        removals: number of labels that are removed for each one that is added, if lowering delta finds them.
        strict_cap: see the options of FREDIS.
        generator: random numbers for labels beyond the maximum.

    Returns:
        The new sets, bool, and delta.
    """
    gap_NC = posterior_NC.amax(dim=1, keepdim=True) - posterior_NC
    near_NC = gap_NC < add_below
    added = min(int((near_NC & ~allowed_NC).sum()), changes)
    remove_above = lower_threshold(remove_above, remove_step, gap_NC.masked_fill(~allowed_NC, 0.0), removals * added)
    far_NC = gap_NC > remove_above
    grown_NC = allowed_NC | _capped(near_NC, ~allowed_NC, changes, strict_cap, generator)
    new_NC = grown_NC & ~_capped(far_NC, allowed_NC, removals * changes, strict_cap, generator)
    return torch.where(new_NC.any(dim=1, keepdim=True), new_NC, allowed_NC), remove_above


def lower_threshold(threshold: float, step: float, gap_NC: Tensor, count: int) -> float:
    """Lower a threshold in steps until a number of gaps exceeds it.

    Args:
        threshold: delta.
        step: how much it falls at a time.
        gap_NC: gaps; those of the likeliest labels are 0.
        count: number of gaps.

    Returns:
        At least 0, so that the likeliest label of an item never exceeds it.
    """
    count = min(count, int((gap_NC > 0).sum()))
    if count == 0 or step == 0:
        return threshold
    goal = gap_NC.flatten().topk(count).values[-1].cpu()  # the threshold has to fall below this
    below = float(torch.nextafter(goal, torch.zeros(())))  # the next smaller float32
    steps = max(0, math.floor((threshold - float(goal)) / step) + 1)
    return max(0.0, min(threshold - steps * step, below))


def _capped(mask_NC: Tensor, would_change_NC: Tensor, cap: int, strict: bool, generator: torch.Generator) -> Tensor:
    """The mask, or if more than `cap` entries would change a set, `cap` random entries: of these, or (as published) of all."""
    changing_NC = mask_NC & would_change_NC
    if int(changing_NC.sum()) <= cap:
        return mask_NC
    place_M = (changing_NC if strict else mask_NC).flatten().nonzero().flatten()
    kept_M = shuffled(place_M, generator)[:cap]
    return torch.zeros_like(mask_NC).flatten().index_fill_(0, kept_M, True).view_as(mask_NC)
