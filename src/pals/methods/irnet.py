"""IRNet: sets that seem to miss the true label are given it, a little at a time, until they are like clean ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.bases.holdout import Robust
from pals.methods.bases.prototypes import Seen, best_of, members, similarity, supervised_contrast
from pals.methods.method import Batch, Context, EpochPlan, Kind, Problem
from pals.methods.parts.losses import soft_cross_entropy
from pals.util.config import STRICT

DIFFERENCES = 10  # of the smoothed covering rates, whose mean says whether they still rise...
LEVEL = 1e-6  # ... by more than this
SMALLEST = 1e-7  # probability inside a logarithm of the symmetric cross-entropy...
SMALLEST_TARGET = 1e-4  # ... and confidence: what a label without any is worth in the reverse part


class IRNet(Robust):
    """First PiCO, on working sets S that are the candidates. Once it gets no better, an item whose best label n outside S beats
    its best candidate clearly, in every one of several views v, and the same n in all, is given this label:

        max_{c not in S} f_c(v) - max_{c in S} f_c(v) > tau  and  n(v) = n for all v:    S <- S + {n},  s_n <- f_n

    (and s is brought back to sum to one).

    Here f = softmax(z.mu) are the prototypes' scores. Without a `tau` the classifier's probabilities are asked instead, by the
    rule that follows from the rates, max_S p < k max_notS p with k = q eta / ((1 - q)(1 - eta)), q the chance that a wrong
    label is a candidate. `docs/methods/irnet.md` has the rest and the differences between the paper and the authors' code.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(Robust.Config):
        loss: Literal["cross-entropy", "symmetric"] = "cross-entropy"
        "Classification loss; the symmetric one adds the cross-entropy with prediction and confidence swapped."
        forward_weight: float = Field(default=6.0, ge=0)
        "Weight of the ordinary part of the symmetric cross-entropy..."
        reverse_weight: float = Field(default=1.0, ge=0)
        "... and of the reverse part."
        correct_from: int | None = Field(default=None, ge=2)
        "First epoch in which sets are corrected; null: when the covering rate of held-out items stops rising."
        window: int = Field(default=100, ge=1)
        "Epochs over which that rate is smoothed, at least 3; sets are not corrected earlier than this."
        tau: float | None = Field(default=None, ge=0)
        "Margin by which a label must beat all candidates, in prototype scores; null: the rule derived from the rates."
        tau_end: float | None = Field(default=None, ge=0)
        "The same in the last epoch, reached linearly; null: `tau` throughout."
        extra_weak: int = Field(default=1, ge=0)
        "Number of weak views that must agree with the first..."
        extra_strong: int = Field(default=0, ge=0)
        "... and strong ones."
        swap: bool = False
        "The new label replaces the worst candidate."

        @model_validator(mode="after")
        def _has_a_threshold(self) -> Self:
            if self.tau_end is not None and self.tau is None:
                raise ValueError("method.tau_end is where method.tau ends; give that one too, or leave both out.")
            return self

    kind: ClassVar[Kind] = "noisy partial"
    reference: ClassVar[str] = "Lian et al., TPAMI 2025, arXiv 2211.04774"
    cost: ClassVar[float] = 1.67  # and two passes without gradient: for the keys and for the second view
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("confidence_from", "correct_from", "window")
    views: tuple[str, ...] = ("pico_weak", "pico_strong", "pico_weak")
    config: Config

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        weak, strong, *_ = self.views
        self.views = (weak, strong, *[weak] * config.extra_weak, *[strong] * config.extra_strong)
        self.correcting = False  # set anew each epoch
        self.working_NC: Tensor
        self.limit: Tensor  # tau, or k of the rule that follows from the rates
        self.started: Tensor  # first epoch of correction, 0: not known yet
        self.covering_E: Tensor  # the last covering rates, one per epoch, the newest at the end
        self.measured: Tensor  # how many there have been
        self.register_buffer("working_NC", self.allowed_NC.clone())
        self.register_buffer("limit", torch.zeros(()))
        self.register_buffer("started", torch.zeros((), dtype=torch.int64))
        self.window = max(3, config.window)  # of two rates, the newest left out, one remains: it would always seem level
        self.register_buffer("covering_E", torch.zeros(self.window // 2 + DIFFERENCES + 1))
        self.register_buffer("measured", torch.zeros((), dtype=torch.int64))

    @property
    def wants_rate(self) -> bool:
        """Whether the noise rate has to be estimated."""
        return self.config.tau is None and self.config.noise_rate is None

    @property
    def wants_held_out(self) -> bool:
        return self.config.correct_from is None or self.wants_rate

    @property
    def graph_key(self) -> str:
        return f"{super().graph_key}, correcting" if self.correcting else super().graph_key

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        plan = super().plan_epoch(ctx)
        started = int(self.started)
        self.correcting = 0 < started <= ctx.epoch
        if self.correcting:
            self.limit.fill_(self._limit(started, ctx.epoch, ctx.epochs))
            return plan
        return replace(plan, groups={"main": replace(plan.groups["main"], views=self.views[:2])})  # the rest is not asked yet

    def _limit(self, started: int, epoch: int, epochs: int) -> float:
        c = self.config
        if c.tau is None:
            assert self.noise_rate is not None
            mean_size = float(self.allowed_NC.sum(dim=1).double().mean())
            return likelihood_ratio(wrong_rate(mean_size, self.noise_rate, self.num_classes), self.noise_rate)
        done = (epoch - started) / max(epochs - started, 1)
        return c.tau + done * ((c.tau if c.tau_end is None else c.tau_end) - c.tau)

    def loss(self, batch: Batch) -> Tensor:
        c, allowed_BC = self.config, self.working_NC[batch.index_B]
        logits_BC, embedding_BD, key_BD = self.embed(batch)
        label_B = best_of(logits_BC.detach(), allowed_BC)
        confidence_BC = self.confidence_NC[batch.index_B]
        if self.settled:
            score_BC = similarity(embedding_BD.detach(), self.prototype_CD)
            confidence_BC = self.voted_confidence(batch.index_B, score_BC, allowed_BC)
        pool_PD = self.pool(embedding_BD, key_BD)
        contrast_B = supervised_contrast(embedding_BD, pool_PD, self.positives(label_B), c.temperature)
        self.seen = Seen(embedding_BD.detach(), key_BD, label_B, members(label_B, self.num_classes), confidence_BC)
        if self.correcting:
            self.first_BC = self._score(logits_BC.detach(), embedding_BD.detach())
            self.others = self._other_views(batch.views[2:])
        if c.loss == "symmetric":
            own_B = symmetric_cross_entropy(logits_BC, confidence_BC, c.forward_weight, c.reverse_weight)
        else:
            own_B = soft_cross_entropy(logits_BC, confidence_BC)
        return own_B.mean() + c.contrast_weight * contrast_B.mean()

    @torch.no_grad()
    def _other_views(self, views: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Class scores and embedding of each."""
        outputs = self.query.network.each(views) if views else []
        return [(output.logits, self.query.project(output.features)) for output in outputs]

    def _score(self, logits_BC: Tensor, embedding_BD: Tensor) -> Tensor:
        """What decides whether a label is missing, as shares of one."""
        if self.config.tau is None:
            return logits_BC.float().softmax(dim=1)
        return similarity(embedding_BD, self.prototype_CD).softmax(dim=1)

    def after_step(self, batch: Batch) -> None:
        super().after_step(batch)
        if self.correcting:  # the other views are compared with the prototypes just moved, as published
            self._correct(batch.index_B, [self.first_BC, *(self._score(*other) for other in self.others)])

    def _correct(self, index_B: Tensor, scores: Sequence[Tensor]) -> None:
        """A row of S is read at the visits of its item alone: what is written now holds from the next epoch on."""
        allowed_BC, confidence_BC = self.working_NC[index_B], self.confidence_NC[index_B]
        found_B, label_B = missing_labels(scores, allowed_BC, self.limit, by_ratio=self.config.tau is None)
        new_BC = members(label_B, self.num_classes) & found_B[:, None]
        gone_BC = members(best_of(-scores[0], allowed_BC), self.num_classes) & found_B[:, None] & self.config.swap
        corrected_BC = with_label(confidence_BC, new_BC, gone_BC, scores[0])
        self.confidence_NC[index_B] = torch.where(found_B[:, None], corrected_BC, confidence_BC)
        self.working_NC[index_B] = (allowed_BC | new_BC) & ~gone_BC

    def end_epoch(self, ctx: Context) -> bool:
        if self.started > 0 or not self._starts(ctx):
            return False
        self.started.fill_(ctx.epoch + 1)
        if self.wants_rate:
            self.estimate(ctx)
        self.release()
        return False

    def _starts(self, ctx: Context) -> bool:
        """Whether sets are corrected from the next epoch on."""
        if self.config.correct_from is not None:
            return ctx.epoch + 1 >= self.config.correct_from
        self.covering_E.copy_(self.covering_E.roll(-1))
        self.covering_E[-1] = self.covering_rate(ctx)
        self.measured.add_(1)
        count = int(self.measured)
        return count >= self.window and has_levelled(self.covering_E[-count:].tolist(), self.window)

    def statistics(self) -> Mapping[str, float]:
        return {"added": float((self.working_NC & ~self.allowed_NC).sum()), **super().statistics()}


def wrong_rate(mean_size: float, noise_rate: float, num_classes: int) -> float:
    """Chance that a wrong label is a candidate: what the mean size of a set leaves for it beside the true one."""
    return min((mean_size - 1 + noise_rate) / (num_classes - 1), 1.0)


def likelihood_ratio(wrong: float, noise_rate: float) -> float:
    """k = q eta / ((1 - q)(1 - eta)): how much likelier than a candidate a label outside must be to be the true one."""
    return wrong * noise_rate / max((1 - wrong) * (1 - noise_rate), SMALLEST)


def missing_labels(
    scores: Sequence[Tensor], allowed_BC: Tensor, limit: Tensor, *, by_ratio: bool = False
) -> tuple[Tensor, Tensor]:
    """Whether the best label outside the set, the same in all views, beats the best one inside by more than `limit` in all of
    them (or if it does `by_ratio`: whether the best inside is less than `limit` times the best outside); and which label."""
    inside_VB = torch.stack([score_BC.where(allowed_BC, 0.0).amax(dim=1) for score_BC in scores])
    outside = [score_BC.where(~allowed_BC, 0.0).max(dim=1) for score_BC in scores]
    outside_VB, label_VB = torch.stack([found.values for found in outside]), torch.stack([found.indices for found in outside])
    beaten_VB = inside_VB < limit * outside_VB if by_ratio else outside_VB - inside_VB > limit
    return beaten_VB.all(dim=0) & (label_VB == label_VB[0]).all(dim=0), label_VB[0]


def with_label(confidence_BC: Tensor, new_BC: Tensor, gone_BC: Tensor, score_BC: Tensor) -> Tensor:
    """The confidences with new labels at their score and others gone, brought back to sum to one."""
    changed_BC = torch.where(new_BC, score_BC, confidence_BC).masked_fill(gone_BC, 0.0)
    return changed_BC / changed_BC.sum(dim=1, keepdim=True)


def symmetric_cross_entropy(logits_BC: Tensor, target_BC: Tensor, forward: float, reverse: float) -> Tensor:
    """forward H(t, p) + reverse H(p, t), with p and t kept away from zero."""
    share_BC = logits_BC.float().softmax(dim=1).clamp_min(SMALLEST)
    target_BC = target_BC.clamp_min(SMALLEST_TARGET)
    return -(forward * target_BC * share_BC.log() + reverse * share_BC * target_BC.log()).sum(dim=1)


def has_levelled(rates: Sequence[float], window: int) -> bool:
    """Whether the rates no longer rise: each is smoothed by its neighbours in time, half a window to either side (the newest
    rate is left out, as published), and the last differences are 0 in the mean. Older rates than they need may be missing."""
    half, count = window // 2, len(rates)
    parts = [rates[max(0, i - half) : min(count - 1, i + half)] for i in range(max(0, count - DIFFERENCES - 1), count)]
    smooth = [sum(values) / len(values) for values in parts]
    return (smooth[-1] - smooth[0]) / (len(smooth) - 1) < LEVEL
