"""FREDIS: candidate sets edited in rounds, labels that are nearly the likeliest added, labels far from it removed."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.bases.confidences import Confidence
from pals.methods.bases.early_stopping import HeldOut
from pals.methods.crdpll import divergence, wrong_label_loss
from pals.methods.method import Batch, Context, EpochPlan, Kind, Phase, Problem
from pals.methods.parts.losses import masked_softmax
from pals.methods.parts.sampling import shuffled
from pals.util.config import STRICT
from pals.vision.augment.augmentations import CRDPLL_VIEWS

STRONG = "crdpll_strong"


class FREDIS(Confidence):
    """After a warm-up on the sets as given, every few epochs the sets S are edited by how far each label's probability r_c, as
    it was at the last visit, is below the largest:

        gap_c = max_k r_k - r_c,    add c where gap_c < theta,    remove c where gap_c > delta

    At most so many labels move in a round, more are removed than added, and the thresholds open where few move. In between
    the network is trained on the sets as they are, like CRDPLL but with the wrong labels pushed down in all three views, and
    with all logits divided by a temperature:

        L = lambda sum_v KL(s || p_v) - alpha sum_v sum_{c not in S} log(1 - p_vc)
        s_c = (p_0c p_1c p_2c)^(1/3), scaled to sum to one on S

    `docs/methods/fredis.md` has a round in full and the differences between the paper and the authors' code.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(Confidence.Config):
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
        "Share of the items held out to decide when to stop; 0: run all epochs."
        patience: int = Field(default=50, ge=1)
        "Stop after this many epochs without a better covering rate on the held-out items."

    kind: ClassVar[Kind] = "noisy partial"
    reference: ClassVar[str] = "Qiao et al., ICML 2023"
    cost: ClassVar[float] = 3.0  # three views
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("warm_up", "update_every", "patience")
    views: tuple[str, ...] = ("eval", STRONG, STRONG)
    own_views = CRDPLL_VIEWS
    config: Config

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.views = (config.view, STRONG, STRONG)
        self.anchor = copy.deepcopy(self.network).requires_grad_(False)  # what the weights go back to
        self.held_out = HeldOut(self.num_items, config.held_out)
        self.posterior_NC: Tensor
        self.add_below: Tensor
        self.remove_above: Tensor
        self.register_buffer("posterior_NC", torch.full_like(self.confidence_NC, 1 / self.num_classes))
        self.register_buffer("add_below", torch.tensor(config.add_below))
        self.register_buffer("remove_above", torch.tensor(config.remove_above))
        self.warm = True  # set anew each epoch, as is the next
        self.counted: Mapping[str, float] = {}

    def phase(self, number: int) -> Phase | None:
        c = self.config
        settings = {"lr": c.warm_up_lr, "weight_decay": c.warm_up_decay}
        warm_up = Phase("warm-up", c.warm_up, [self.network], settings)
        return (warm_up, Phase("main", modules=[self.network]), None)[min(number, 2)]

    @property
    def graph_key(self) -> str:
        return "warm-up" if self.warm else "main"

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        self.warm, self.counted = ctx.phase == "warm-up", {}
        if not self.warm and ctx.epoch == 1:
            self._take_over(ctx)
        return EpochPlan.of(shuffled(self.held_out.trained_M, ctx.generator), drop_last=True)

    def _take_over(self, ctx: Context) -> None:
        """From the warm-up: confidences and probabilities of the network as it now is, for all items alike."""
        first_NC, strong_NC = (ctx.outputs(view=view).logits for view in self.views[:2])
        self.posterior_NC.copy_(first_NC.softmax(dim=1))
        self.confidence_NC.copy_(masked_softmax((first_NC + 2 * strong_NC) / 3, self.allowed_NC))
        if self.config.average_with == "last":
            self._set_anchor()

    def loss(self, batch: Batch) -> Tensor:
        c, allowed_BC = self.config, self.allowed_NC[batch.index_B]
        temperature, agree, wrong = (1.0, 1.0, 1.0) if self.warm else (c.temperature, c.consistency_weight, c.wrong_weight)
        logits = [output.logits.float() / temperature for output in self.network.each(batch.views)]
        self.seen_VBC = torch.stack(logits).detach()
        agree_B = divergence(logits, self.confidence_NC[batch.index_B])
        wrong_B = torch.stack([wrong_label_loss(logits_BC, allowed_BC) for logits_BC in logits]).sum(dim=0)
        return (agree * agree_B + wrong * wrong_B).mean()

    def after_step(self, batch: Batch) -> None:
        # the geometric mean of softmaxes is, but for its scale, the softmax of the mean logits
        self.remember(batch, masked_softmax(self.seen_VBC.mean(dim=0), self.allowed_NC[batch.index_B]))
        self.posterior_NC[batch.index_B] = self.seen_VBC[0].softmax(dim=1)

    def end_epoch(self, ctx: Context) -> bool:
        if self.warm:
            return False
        if (ctx.epoch - 1) % self.config.update_every == 0:
            self._average_weights(ctx.epoch == 1)
            self._edit(ctx.generator)
        rate = self.held_out.covering_rate(ctx, self.network, self.allowed_NC)
        return self.held_out.patience_ends(rate, self.config.patience, level_misses=True)

    def _average_weights(self, first_round: bool) -> None:
        if self.config.average_with == "last" or first_round:
            for own, anchor in zip(self.network.parameters(), self.anchor.parameters(), strict=True):
                own.lerp_(anchor, self.config.averaging)
            self._set_anchor()

    def _set_anchor(self) -> None:
        for own, anchor in zip(self.network.parameters(), self.anchor.parameters(), strict=True):
            anchor.copy_(own)

    def _edit(self, generator: torch.Generator) -> None:
        """A round: new sets, thresholds and confidences of the items that are trained on."""
        c, rows_M = self.config, self.held_out.trained_M
        old_MC, posterior_MC = self.allowed_NC[rows_M], self.posterior_NC[rows_M]
        new_MC, remove_above = edited(
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
        self.counted = {"added": added, "removed": removed}
        self.allowed_NC[rows_M] = new_MC
        self.confidence_NC[rows_M] = masked_softmax(posterior_MC.clamp_min(torch.finfo().tiny).log(), new_MC)
        self.remove_above.fill_(remove_above)
        if self.add_below < 0.9 and remove_above > 0.1 and added + removed < c.changes:
            self.add_below += c.add_step
            self.remove_above.sub_(c.remove_step).clamp_min_(0)

    def statistics(self) -> Mapping[str, float]:
        return self.counted


class Edited(NamedTuple):
    """Candidate sets after a round, and the threshold of removal, which a round may lower."""

    allowed_NC: Tensor
    remove_above: float


def edited(
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
) -> Edited:
    """One round. `removals` times as many labels are removed as added, where lowering the threshold finds them; a set that
    would be empty stays as it was."""
    gap_NC = posterior_NC.amax(dim=1, keepdim=True) - posterior_NC
    near_NC = gap_NC < add_below
    added = min(int((near_NC & ~allowed_NC).sum()), changes)
    remove_above = lowered(remove_above, remove_step, gap_NC.masked_fill(~allowed_NC, 0.0), removals * added)
    far_NC = gap_NC > remove_above
    grown_NC = allowed_NC | _capped(near_NC, ~allowed_NC, changes, strict_cap, generator)
    new_NC = grown_NC & ~_capped(far_NC, allowed_NC, removals * changes, strict_cap, generator)
    return Edited(torch.where(new_NC.any(dim=1, keepdim=True), new_NC, allowed_NC), remove_above)


def lowered(threshold: float, step: float, gap_NC: Tensor, wanted: int) -> float:
    """The threshold after as many steps down, none perhaps, as it takes until `wanted` gaps are above it. It stops at 0, so
    that the likeliest label of an item, whose gap is 0, is never among them."""
    wanted = min(wanted, int((gap_NC > 0).sum()))
    if wanted == 0 or step == 0:
        return threshold
    goal = gap_NC.flatten().topk(wanted).values[-1].cpu()  # the threshold has to come below this
    below = float(torch.nextafter(goal, torch.zeros(())))  # at least by so much that the gaps' precision shows it
    steps = max(0, math.floor((threshold - float(goal)) / step) + 1)
    return max(0.0, min(threshold - steps * step, below))


def _capped(mask_NC: Tensor, would_change_NC: Tensor, cap: int, strict: bool, generator: torch.Generator) -> Tensor:
    """The mask, or where more than `cap` of its entries would change something, `cap` of its entries at random: of those that
    would, or (as published) of all."""
    changing_NC = mask_NC & would_change_NC
    if int(changing_NC.sum()) <= cap:
        return mask_NC
    place_M = (changing_NC if strict else mask_NC).flatten().nonzero().flatten()
    kept_M = shuffled(place_M, generator)[:cap]
    return torch.zeros_like(mask_NC).flatten().index_fill_(0, kept_M, True).view_as(mask_NC)
