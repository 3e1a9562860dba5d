"""PALS: pseudo-labels by a weighted vote of neighbours, a reliable subset per class, training with label smoothing.

One epoch t of T (equation numbers of the paper):
    Y_i <- Y_i + {argmax_c p_ic} where max_c p_ic > lambda_t           (11) confident predictions join the candidates
    yhat_i = argmax_c sum_{k in N_i} w_ik [c in Y_k]                   (1) pseudo-label,  w_ik = exp(cos(f_i, f_k) / tau)
    q_ic = sum_{k in N_i} w_ik [yhat_k = c] / sum_k w_ik               (2) posterior
    m = delta-quantile over c of #{i: argmax q_i = c in Y_i}           (3) quota
    selected: for each c the m items with the highest q_ic, c in Y_i   (4), (5)
    x = a x_i + (1 - a) x_j,  a ~ Beta(zeta, zeta)                     (6), (7) mix-up of the weak and of the strong view
    L = sum over views of a l_r(x, y_i) + (1 - a) l_r(x, y_j)          (8) to (10)
    l_r(x, y) = -(1 - r) log p_y(x) - r / C sum_c log p_c(x)           label smoothing

Symbols: Y_i candidates, as given at the start of each epoch; f features; p predictions; N_i the K nearest items and i itself.
Reference: Saravanan, Manwani and Gandhi, arXiv 2402.04835. Differences between the paper and the authors' code, and what each
preset follows: docs/methods/pals.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.bases.knn_labeling import KNNMethod
from pals.methods.epoch_plan import Batch, EpochPlan, Selection
from pals.methods.method import Context, Problem
from pals.methods.parts.losses import smoothed_cross_entropy
from pals.methods.parts.mixup import mixed
from pals.methods.parts.sampling import drawn, shuffled
from pals.pseudo_labels.knn_vote import Weighting
from pals.pseudo_labels.reliable_subset import Labeling, VoteOn, pseudo_label, threshold_at
from pals.util.config import STRICT


class PALS(KNNMethod):
    """Pseudo-labels by neighbours, a reliable subset per class, training with label smoothing and mix-up of two views.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(KNNMethod.Config):
        preset: Literal["official", "paper", "small"] = "official"
        """Named set of defaults: the authors' code (the published numbers), the equations read literally, or settings for a few
        thousand items."""
        include_self: bool = True
        "The item itself votes too, with its K neighbours."
        self_weight: Annotated[float, Field(ge=0)] | Literal["kernel", "auto"] = "kernel"
        """Weight of the item's own vote: from the weighting if `include_self` (kernel), from the estimated noise (auto), or a
        number, relative to all neighbours together."""
        weighting: Weighting = "exp"
        """Weight of a neighbour: exp(similarity / temperature), the similarity itself (cosine), or exp(similarity / spread of
        the neighbours' similarities) (local)."""
        temperature: float = Field(default=0.1, gt=0)
        "Temperature of the exponential weighting."
        vote_on: VoteOn = "pseudo"
        """What the posterior is computed from: the neighbours' pseudo-labels (Eq. 1 and 2), their candidates (Eq. 1 off), or
        the probabilities that follow from Eq. 1 and their own candidates (posterior)."""
        delta: Annotated[float, Field(ge=0, le=1)] | Literal["all"] = 0.25
        """Quantile of the per-class agreement that sets how many items each class may select; all: select every item whose
        class with the highest posterior is one of its candidates."""
        smoothing: float = Field(default=0.5, ge=0, lt=1)
        "r: share of the target spread over all classes."
        mixup: bool = True
        "Train on mixtures of two items."
        zeta: float = Field(default=1.0, gt=0)
        "Mix-up weights come from Beta(zeta, zeta)."
        fold_mixup: bool = True
        "Use the larger of w and 1 - w as the mix-up weight."
        consistency: bool = True
        "Train on a weak and a strong view; otherwise on `single_view` alone."
        single_view: Literal["weak", "strong"] = "strong"
        "The view used when consistency is off."
        view_pass: Literal["together", "separate", "joined"] = "together"
        """How two views go through the network: in one pass, each with its own batch statistics; in separate passes (the same
        mathematics, slower on a GPU); or joined into one batch with common statistics (not what the authors do)."""
        view_loss: Literal["mean", "sum"] = "mean"
        "How the losses of the two views are combined."
        threshold_high: float = Field(default=0.45, ge=0, le=1)
        "Confidence above which a prediction joins the candidates, in the first epoch..."
        threshold_low: float = Field(default=0.35, ge=0, le=1)
        "... and in the last; it falls linearly in between. 1 turns the step off."
        confident_from: int = Field(default=2, ge=1)
        "First epoch in which predictions may join the candidates."
        confident_view: Literal["eval", "weak"] = "eval"
        "View on which the confidence is measured."
        draws: Literal["resample", "once"] = "resample"
        "One epoch is N draws with replacement from the reliable items, or one shuffled pass over them."

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "official": {},
        "paper": {
            "weighting": "cosine",
            "include_self": False,
            "fold_mixup": False,
            "view_loss": "sum",
            "single_view": "weak",
            "confident_view": "weak",
            "draws": "once",
        },
        "small": {
            "neighbors": "auto",
            "weighting": "local",
            "self_weight": "auto",
            "vote_on": "posterior",
            "delta": "all",
            "start": "untrained",
            "start_epochs": 20,
        },
    }
    small_preset: ClassVar[tuple[str, int] | None] = ("small", 5000)  # no larger set was measured
    preset_draws: ClassVar[Mapping[str, int]] = {"small": 190_000}
    reference: ClassVar[str] = "Saravanan, Manwani and Gandhi, arXiv 2402.04835"
    cost: ClassVar[float] = 2.33  # two views, and a pass without gradient for the features
    removed_options: ClassVar[Mapping[str, Any]] = {**KNNMethod.removed_options, "smoothing_end": None}
    config: Config

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        if not config.consistency:
            self.views = (config.single_view,)
        self.labeling: Labeling | None = None  # of the current epoch; computed again after a resume

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        c = self.config
        threshold = threshold_at(ctx.epoch, ctx.epochs, c.threshold_high, c.threshold_low, c.confident_from)
        start_ND = self.start_features(ctx)
        features_ND = ctx.features() if start_ND is None else start_ND
        self.labeling = labeling = pseudo_label(  # Eq. 11, then 1 to 5
            features_ND,
            self.allowed_NC,
            neighbors=self.num_neighbors(ctx, features_ND),
            weighting=c.weighting,
            temperature=c.temperature,
            include_self=c.include_self and start_ND is None,  # start features differ so much that it would outvote the others
            self_weight=c.self_weight,
            quantile=c.delta,
            prior_NC=self.prior_NC,
            predicted_NC=None if threshold is None else ctx.probabilities(c.confident_view),
            threshold=threshold,
            vote_on=c.vote_on,
            backend=c.neighbor_backend,
        )
        if c.draws == "resample":
            order_M = drawn(labeling.selected_N, self.num_items, ctx.generator)
        else:
            order_M = shuffled(labeling.selected_N.nonzero().flatten(), ctx.generator)
        return EpochPlan.of(order_M, labeling.label_N, selection=Selection(labeling.selected_N, labeling.label_N))

    def loss(self, batch: Batch) -> Tensor:
        assert batch.target is not None
        views, label_B, r = batch.views, batch.target, self.config.smoothing
        if not self.config.mixup:
            losses = [smoothed_cross_entropy(logits_BC, label_B, r).mean() for logits_BC in self.view_logits(views)]
        else:
            weights = batch.random["weight"]
            blends, partner_VB = mixed(views, batch.random)  # Eq. 6 and 7
            losses = [
                torch.lerp(  # Eq. 8 and 9
                    smoothed_cross_entropy(logits_BC, label_B[partner_VB[v]], r).mean(),
                    smoothed_cross_entropy(logits_BC, label_B, r).mean(),
                    weights[v],
                )
                for v, logits_BC in enumerate(self.view_logits(blends))
            ]
        total = torch.stack(losses).sum()  # Eq. 10
        return total / len(losses) if self.config.view_loss == "mean" else total

    def posterior(self) -> Tensor | None:
        return None if self.labeling is None else self.labeling.posterior_NC

    def statistics(self) -> Mapping[str, float]:
        if self.labeling is None:
            return {}
        found = {"neighbors": int(self.found_neighbors)} if self.config.neighbors == "auto" else {}
        recall = {} if self.labeling.recall is None else {"recall": self.labeling.recall}
        return {"quota": self.labeling.quota, **found, **recall}
