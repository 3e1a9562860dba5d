"""ALIM: labels outside the candidate set compete as well, at a discount that follows from the noise rate.

    I_c = 1 if c in S, else lambda                                     importance; 0 trusts the sets, 1 ignores them
    y = argmax_c I_c p_c,    v = softmax(z mu / t_p)                   pseudo-label, prototype scores
    s <- phi s + (1 - phi) u                                           soft label
    u = normalize((I_c v_c)^(1/k))  (alim-scale)   or   one_hot(argmax_c I_c v_c)  (alim-onehot)
    L = H(s, p) + w SupCon(z; keys, queue, y) + w_mix H(mixed s, p(mixed input))
    lambda = eta-quantile of r over the items of the epoch, at most 1,   r = max_{c in S} v_c / max_{c not in S} v_c

An item gets a label outside its set if lambda exceeds its margin r, so that as many items do as sets are noisy.
Symbols: S candidates; p predictions; z embedding; mu prototypes; eta noise rate; H cross-entropy.
Reference: Xu et al., NeurIPS 2023, arXiv 2301.12077. Differences between paper and authors' code: docs/methods/alim.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.bases.holdout import HoldoutMethod
from pals.methods.bases.prototypes import StepCache, supervised_contrast
from pals.methods.epoch_plan import Batch, EpochPlan, Group
from pals.methods.method import Context, Kind, Problem
from pals.methods.parts.losses import soft_cross_entropy
from pals.methods.parts.mixup import draw_weights
from pals.methods.parts.sampling import part, shuffled
from pals.pseudo_labels.simplex import one_hot
from pals.pseudo_labels.soft_vote import similarity
from pals.util.config import STRICT

MARGIN_OFFSET = 1e-9  # keeps the margin of a full set finite


class ALIM(HoldoutMethod):
    """PiCO with an importance of labels outside the sets; subclasses define the target u.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(HoldoutMethod.Config):
        adjust_from: int = Field(default=80, ge=1)
        "First epoch after which lambda is set; until then it is 0."
        lambda_step: float | None = Field(default=None, ge=0, le=1)
        "Raise lambda by this after each epoch; null: set it by the noise rate."
        lambda_most: float = Field(default=1.0, ge=0, le=1)
        "Upper limit of lambda."
        prototype_temperature: float = Field(default=0.07, gt=0)
        "Temperature of the prototypes' scores."
        mixup_weight: float = Field(default=1.0, ge=0)
        "Weight of the mix-up loss; 0: no mix-up."
        zeta: float = Field(default=4.0, gt=0)
        "Mix-up weights come from Beta(zeta, zeta); the larger of w and 1 - w is used."

        @model_validator(mode="after")
        def _check_lambda(self) -> Self:
            if self.lambda_step is not None and self.noise_rate is not None:
                raise ValueError("method.lambda_step and method.noise_rate both set lambda; set one to null.")
            return self

    kind: ClassVar[Kind] = "noisy partial"
    reference: ClassVar[str] = "Xu et al., NeurIPS 2023, arXiv 2301.12077"
    cost: ClassVar[float] = 2.33  # a second pass for mix-up, and one without gradient for the keys
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("confidence_from", "adjust_from")
    begins_after: ClassVar[tuple[str, ...]] = ("adjust_from",)
    config: Config

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.discount = nn.Buffer(torch.zeros(()))  # lambda
        self.margin_N = nn.Buffer(torch.full((self.num_items,), -1.0))  # r; -1: not visited in this epoch

    @property
    def needs_holdout(self) -> bool:
        return self.config.noise_rate is None and self.config.lambda_step is None

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        plan = super().plan_epoch(ctx)
        self.margin_N.fill_(-1.0)
        if not self.config.mixup_weight:
            return plan
        partners = Group(shuffled(self.trained_on(), ctx.generator), views=self.views[:1])
        return replace(plan, groups={**plan.groups, "partners": partners})

    def random_inputs(self, ctx: Context, steps: int) -> Mapping[str, Tensor]:
        if not self.config.mixup_weight:
            return {}
        return {"weight": draw_weights((steps,), self.config.zeta, ctx.rng, fold=True).to(self.allowed_NC.device)}

    def target(self, log_raw_BC: Tensor) -> Tensor:
        """u, B x C.

        Args:
            log_raw_BC: log(I v), up to a constant per row.
        """
        raise NotImplementedError

    def loss(self, batch: Batch) -> Tensor:
        c, allowed_BC = self.config, self.allowed_NC[batch.index_B]
        mixed_B = None
        if c.mixup_weight:
            own_B, other_B = batch.views[0], batch.groups["partners"].views[0][: len(allowed_BC)]
            mixed_B = torch.lerp(other_B, own_B, batch.random["weight"].to(own_B.dtype))
        logits_BC, embedding_BD, key_BD, mixed_logits_BC = self.embed(batch, mixed_B)
        log_importance_BC = log_importance(allowed_BC, self.discount)
        label_B = (logits_BC.detach().float() + log_importance_BC).argmax(dim=1)
        score_BC = similarity(embedding_BD.detach(), self.prototype_CD) / c.prototype_temperature
        confidence_BC = self.confidence_NC[batch.index_B]
        if self.updates_confidence:
            confidence_BC = self.move_confidence(batch.index_B, self.target(score_BC + log_importance_BC))
        pool_PD = self.pool(embedding_BD, key_BD)
        contrast_B = supervised_contrast(embedding_BD, pool_PD, self.positives(label_B), c.temperature)
        self.cache = StepCache(embedding_BD.detach(), key_BD, label_B, one_hot(label_B, self.num_classes), confidence_BC)
        self.margin_B = margin(score_BC.softmax(dim=1), allowed_BC)
        loss = (soft_cross_entropy(logits_BC, confidence_BC) + c.contrast_weight * contrast_B).mean()
        if mixed_logits_BC is None:
            return loss
        other_BC = self.confidence_NC[batch.groups["partners"].index_B[: len(allowed_BC)]]
        target_BC = torch.lerp(other_BC, confidence_BC, batch.random["weight"])
        return loss + c.mixup_weight * soft_cross_entropy(mixed_logits_BC, target_BC).mean()

    def after_step(self, batch: Batch) -> None:
        super().after_step(batch)
        self.margin_N[batch.index_B] = self.margin_B

    def end_epoch(self, ctx: Context) -> bool:
        c = self.config
        if ctx.epoch < c.adjust_from:
            return False
        if c.lambda_step is not None:
            self.discount.add_(c.lambda_step).clamp_(max=c.lambda_most)
            return False
        if self.noise_rate is None:
            self.holdout.estimate_noise_rate(ctx, self.allowed_NC)
            self.holdout.release()
        assert self.noise_rate is not None
        self.discount.copy_(discount_for(self.margin_N[self.margin_N >= 0], self.noise_rate, c.lambda_most))
        return False

    def statistics(self) -> Mapping[str, float]:
        return {"lambda": float(self.discount), **super().statistics()}


class ALIMScale(ALIM):
    """ALIM with soft targets, u_c = (I_c v_c)^(1/k) / sum_j (I_j v_j)^(1/k).

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(ALIM.Config):
        scale_power: float = Field(default=1.0, gt=0)
        "k: a larger value makes the target softer; 1 as in the authors' code."

    config: Config

    def target(self, log_raw_BC: Tensor) -> Tensor:
        return (log_raw_BC / self.config.scale_power).softmax(dim=1)


class ALIMOnehot(ALIM):
    """ALIM with hard targets, u = one_hot(argmax_c I_c v_c).

    Args:
        config: options.
        problem: candidates and networks.
    """

    def target(self, log_raw_BC: Tensor) -> Tensor:
        return one_hot(log_raw_BC.argmax(dim=1), self.num_classes).float()


def log_importance(allowed_BC: Tensor, discount: Tensor) -> Tensor:
    """log I, which unlike I cannot make scores underflow.

    Args:
        allowed_BC: candidates, bool.
        discount: lambda.

    Returns:
        B x C: 0 for a candidate, log lambda for another label.
    """
    return discount.log().where(~allowed_BC, 0.0)


def margin(score_BC: Tensor, allowed_BC: Tensor) -> Tensor:
    """r, the best score of a candidate divided by the best of another label.

    Args:
        score_BC: v.
        allowed_BC: candidates, bool.

    Returns:
        One margin per item.
    """
    best_B, other_B = (score_BC.where(mask_BC, 0.0).amax(dim=1) for mask_BC in (allowed_BC, ~allowed_BC))
    return best_B / (MARGIN_OFFSET + other_B)


def discount_for(margin_M: Tensor, noise_rate: float, limit: float) -> Tensor:
    """lambda, the eta-quantile of the margins.

    Args:
        margin_M: margins r.
        noise_rate: eta.
        limit: largest lambda.

    Returns:
        A scalar tensor.

    >>> discount_for(torch.tensor([0.2, 0.5, 0.9, 3.0]), 0.25, 1.0).item()
    0.5
    """
    if noise_rate <= 0 or not len(margin_M):
        return margin_M.new_zeros(())
    place = min(part(noise_rate, len(margin_M)), len(margin_M) - 1)
    return margin_M.sort().values[place].clamp(max=limit)
