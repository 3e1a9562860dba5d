"""IRNet: sets that seem to lack the true label receive it, step by step.

First PiCO on working sets S, which are the candidates. After the warm-up, when the covering rate no longer rises:
    n(v) = argmax_{c not in S} f_c(v)
    if  f_n(v) - max_{c in S} f_c(v) > tau  and  n(v) = n  in all views v:    S <- S + {n},  s_n <- f_n,  s normalised
with f = softmax(z mu); without a `tau` f = p and the rule that follows from the rates,
    max_{c in S} f_c < k f_n,    k = q eta / ((1 - q) (1 - eta))

Symbols: p predictions; z embedding; mu prototypes; s soft label; eta noise rate; q partial rate; V views.
Reference: Lian et al., TPAMI 2025, arXiv 2211.04774. Differences between paper and authors' code: docs/methods/irnet.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.bases.holdout import HoldoutMethod, estimate_partial_rate
from pals.methods.bases.prototypes import StepCache, supervised_contrast
from pals.methods.epoch_plan import Batch, EpochPlan
from pals.methods.method import Context, Kind, Problem
from pals.methods.parts.losses import soft_cross_entropy
from pals.methods.parts.ramps import linear_ramp
from pals.pseudo_labels.simplex import best_candidate, normalize_rows, one_hot
from pals.pseudo_labels.soft_vote import similarity
from pals.util.config import STRICT

PLATEAU_EPOCHS = 10  # differences of smoothed covering rates, whose mean...
PLATEAU_TOLERANCE = 1e-6  # ... is below this on a plateau
MIN_PROBABILITY = 1e-7  # inside a logarithm of the symmetric cross-entropy...
MIN_TARGET = 1e-4  # ... and in its reverse part


class IRNet(HoldoutMethod):
    """PiCO on candidate sets that are corrected by the prototypes or by the classifier.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(HoldoutMethod.Config):
        loss: Literal["cross-entropy", "symmetric"] = "cross-entropy"
        "Classification loss; the symmetric one adds the cross-entropy with prediction and confidence swapped."
        forward_weight: float = Field(default=6.0, ge=0)
        "Weight of the ordinary part of the symmetric cross-entropy..."
        reverse_weight: float = Field(default=1.0, ge=0)
        "... and of the reverse part."
        correct_from: int | None = Field(default=None, ge=2)
        "First epoch in which sets are corrected; null: when the covering rate of the holdout stops rising."
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
        def _check_tau(self) -> Self:
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
        self.correcting = False  # in this epoch
        self.working_NC = nn.Buffer(self.allowed_NC.clone())  # S
        self.limit = nn.Buffer(torch.zeros(()))  # tau, or k of the rule that follows from the rates
        self.started = nn.Buffer(torch.zeros((), dtype=torch.int64))  # first epoch of correction; 0: not known yet
        self.window = max(3, config.window)  # two rates, of which the newest is left out, would always be a plateau
        self.covering_E = nn.Buffer(torch.zeros(self.window // 2 + PLATEAU_EPOCHS + 1))  # the last covering rates, newest last
        self.measured = nn.Buffer(torch.zeros((), dtype=torch.int64))  # number of covering rates so far

    @property
    def needs_rate(self) -> bool:
        """Whether the noise rate has to be estimated."""
        return self.config.tau is None and self.config.noise_rate is None

    @property
    def needs_holdout(self) -> bool:
        return self.config.correct_from is None or self.needs_rate

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
        return replace(plan, groups={"main": replace(plan.groups["main"], views=self.views[:2])})

    def _limit(self, started: int, epoch: int, epochs: int) -> float:
        c = self.config
        if c.tau is None:
            assert self.noise_rate is not None
            return likelihood_ratio(estimate_partial_rate(self.allowed_NC, self.noise_rate), self.noise_rate)
        done = linear_ramp(epoch - started, max(epochs - started, 1))
        return c.tau + done * ((c.tau if c.tau_end is None else c.tau_end) - c.tau)

    def loss(self, batch: Batch) -> Tensor:
        c, allowed_BC = self.config, self.working_NC[batch.index_B]
        logits_BC, embedding_BD, key_BD, _ = self.embed(batch)
        label_B = best_candidate(logits_BC.detach(), allowed_BC)
        confidence_BC = self.confidence_NC[batch.index_B]
        if self.updates_confidence:
            score_BC = similarity(embedding_BD.detach(), self.prototype_CD)
            confidence_BC = self.vote_confidence(batch.index_B, score_BC, allowed_BC)
        pool_PD = self.pool(embedding_BD, key_BD)
        contrast_B = supervised_contrast(embedding_BD, pool_PD, self.positives(label_B), c.temperature)
        self.cache = StepCache(embedding_BD.detach(), key_BD, label_B, one_hot(label_B, self.num_classes), confidence_BC)
        if self.correcting:
            self.first_BC = self._score(logits_BC.detach(), embedding_BD.detach())
            with torch.no_grad():
                outputs = self.query.network.each(batch.views[2:]) if batch.views[2:] else []
                self.others = [(output.logits, self.query.project(output.features)) for output in outputs]
        if c.loss == "symmetric":
            own_B = symmetric_cross_entropy(logits_BC, confidence_BC, c.forward_weight, c.reverse_weight)
        else:
            own_B = soft_cross_entropy(logits_BC, confidence_BC)
        return own_B.mean() + c.contrast_weight * contrast_B.mean()

    def _score(self, logits_BC: Tensor, embedding_BD: Tensor) -> Tensor:
        """f."""
        if self.config.tau is None:
            return logits_BC.float().softmax(dim=1)
        return similarity(embedding_BD, self.prototype_CD).softmax(dim=1)

    def after_step(self, batch: Batch) -> None:
        super().after_step(batch)
        if self.correcting:  # the other views are compared with the prototypes just moved, as published
            self._correct(batch.index_B, [self.first_BC, *(self._score(*other) for other in self.others)])

    def _correct(self, index_B: Tensor, scores: Sequence[Tensor]) -> None:
        """Correct S and s; an item's row of S is read at its visits only, so the change takes effect in the next epoch."""
        allowed_BC, confidence_BC = self.working_NC[index_B], self.confidence_NC[index_B]
        found_B, label_B = missing_labels(scores, allowed_BC, self.limit, by_ratio=self.config.tau is None)
        new_BC = one_hot(label_B, self.num_classes) & found_B[:, None]
        removed_BC = one_hot(best_candidate(-scores[0], allowed_BC), self.num_classes) & found_B[:, None] & self.config.swap
        corrected_BC = correct_confidence(confidence_BC, new_BC, removed_BC, scores[0])
        self.confidence_NC[index_B] = torch.where(found_B[:, None], corrected_BC, confidence_BC)
        self.working_NC[index_B] = (allowed_BC | new_BC) & ~removed_BC

    def end_epoch(self, ctx: Context) -> bool:
        if self.started > 0 or not self._starts(ctx):
            return False
        self.started.fill_(ctx.epoch + 1)
        if self.needs_rate:
            self.holdout.estimate_noise_rate(ctx, self.allowed_NC)
        self.holdout.release()
        return False

    def _starts(self, ctx: Context) -> bool:
        """Whether sets are corrected from the next epoch on."""
        if self.config.correct_from is not None:
            return ctx.epoch + 1 >= self.config.correct_from
        self.covering_E.copy_(self.covering_E.roll(-1))
        self.covering_E[-1] = self.holdout.covering_rate(ctx, self.allowed_NC)
        self.measured.add_(1)
        count = int(self.measured)
        return count >= self.window and has_plateaued(self.covering_E[-count:].tolist(), self.window)

    def statistics(self) -> Mapping[str, float]:
        return {"added": float((self.working_NC & ~self.allowed_NC).sum()), **super().statistics()}


def likelihood_ratio(partial_rate: float, noise_rate: float) -> float:
    """k = q eta / ((1 - q) (1 - eta)), the factor in favour of candidates.

    Args:
        partial_rate: q.
        noise_rate: eta.

    >>> likelihood_ratio(0.5, 0.2)
    0.25
    """
    return partial_rate * noise_rate / max((1 - partial_rate) * (1 - noise_rate), MIN_PROBABILITY)


def missing_labels(
    scores: Sequence[Tensor], allowed_BC: Tensor, limit: Tensor, *, by_ratio: bool = False
) -> tuple[Tensor, Tensor]:
    """Find items whose set lacks the label n.

    Args:
        scores: f in each view.
        allowed_BC: S, bool.
        limit: tau, or k.
        by_ratio: max_{c in S} f_c < k f_n in all views, instead of f_n - max_{c in S} f_c > tau.

    Returns:
        Whether a label is missing, bool B, and n of the first view, B.
    """
    inside_VB = torch.stack([score_BC.where(allowed_BC, 0.0).amax(dim=1) for score_BC in scores])
    outside = [score_BC.where(~allowed_BC, 0.0).max(dim=1) for score_BC in scores]
    outside_VB, label_VB = torch.stack([found.values for found in outside]), torch.stack([found.indices for found in outside])
    exceeds_VB = inside_VB < limit * outside_VB if by_ratio else outside_VB - inside_VB > limit
    return exceeds_VB.all(dim=0) & (label_VB == label_VB[0]).all(dim=0), label_VB[0]


def correct_confidence(confidence_BC: Tensor, new_BC: Tensor, removed_BC: Tensor, score_BC: Tensor) -> Tensor:
    """Set new labels to their score and removed ones to 0, and normalise.

    Args:
        confidence_BC: s.
        new_BC: new labels, bool.
        removed_BC: removed labels, bool.
        score_BC: f.

    Returns:
        B x C, rows sum to one.
    """
    return normalize_rows(torch.where(new_BC, score_BC, confidence_BC).masked_fill(removed_BC, 0.0))


def symmetric_cross_entropy(logits_BC: Tensor, target_BC: Tensor, forward: float, reverse: float) -> Tensor:
    """forward H(t, p) + reverse H(p, t), with p and t bounded away from zero.

    Args:
        logits_BC: logits of p.
        target_BC: t.
        forward: weight of the first part.
        reverse: weight of the second.

    Returns:
        One loss per item.
    """
    share_BC = logits_BC.float().softmax(dim=1).clamp_min(MIN_PROBABILITY)
    target_BC = target_BC.clamp_min(MIN_TARGET)
    return -(forward * target_BC * share_BC.log() + reverse * share_BC * target_BC.log()).sum(dim=1)


def has_plateaued(rates: Sequence[float], window: int) -> bool:
    """Whether the covering rates no longer rise: the mean of the last differences of smoothed rates is 0.

    Args:
        rates: the last rates, newest last; the newest is left out of the smoothing, as published.
        window: number of rates over which one is smoothed, half of them to either side.

    >>> has_plateaued([0.5] * 30, 6), has_plateaued([i / 30 for i in range(30)], 6)
    (True, False)
    """
    half, count = window // 2, len(rates)
    parts = [rates[max(0, i - half) : min(count - 1, i + half)] for i in range(max(0, count - PLATEAU_EPOCHS - 1), count)]
    smooth = [sum(values) / len(values) for values in parts]
    return (smooth[-1] - smooth[0]) / (len(smooth) - 1) < PLATEAU_TOLERANCE
