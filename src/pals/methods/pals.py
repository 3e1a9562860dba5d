"""PALS: pseudo-labels by a weighted vote of neighbours, a reliable subset per class, training with label smoothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.bases.knn_labeling import ByNeighbors
from pals.methods.method import Batch, Context, EpochPlan, Kind, Problem, Selection
from pals.methods.parts.losses import smoothed_cross_entropy
from pals.methods.parts.mixup import draw_mixup, mixed
from pals.methods.parts.sampling import drawn, shuffled
from pals.pseudo_labels import Labeling, VoteOn, Weighting, pseudo_label, threshold_at
from pals.util.config import STRICT


class PALS(ByNeighbors):
    """Each epoch: features of all items -> the neighbours vote on the candidates (Eq. 1) -> the neighbours' pseudo-labels
    give a belief per class (Eq. 2) -> per class the most believed items are trusted (Eq. 3-5) -> the network is trained on
    them with label smoothing, mix-up and two views (Eq. 6-10) -> its confident predictions join the candidates (Eq. 11).

    `docs/methods/pals.md` has the equations and every difference between the paper and the authors' code.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(ByNeighbors.Config):
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
        """What the belief is computed from: the neighbours' pseudo-labels (Eq. 1 and 2), their candidates (Eq. 1 off), or the
        probabilities that follow from Eq. 1 and their own candidates (posterior)."""
        delta: Annotated[float, Field(ge=0, le=1)] | Literal["all"] = 0.25
        """Quantile of the per-class agreement that sets how many items each class may select; all: select every item whose most
        believed class is one of its candidates."""
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
    kind: ClassVar[Kind] = "noisy partial"
    reference: ClassVar[str] = "Saravanan, Manwani and Gandhi, arXiv 2402.04835"
    cost: ClassVar[float] = 2.33  # two views, and a pass without gradient for the features
    removed_options: ClassVar[Mapping[str, Any]] = {**ByNeighbors.removed_options, "smoothing_end": None}
    views: tuple[str, ...] = ("weak", "strong")

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.config: PALS.Config = config
        if not config.consistency:
            self.views = (config.single_view,)
        self.labeling: Labeling | None = None  # of the current epoch; made anew each epoch, so not part of the state

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        self.labeling = labeling = self._label(ctx)
        if self.config.draws == "resample":
            order_M = drawn(labeling.selected_N, self.num_items, ctx.generator)
        else:
            order_M = shuffled(labeling.selected_N.nonzero().flatten(), ctx.generator)
        return EpochPlan.of(order_M, labeling.label_N, selection=Selection(labeling.selected_N, labeling.label_N))

    def _label(self, ctx: Context) -> Labeling:
        c = self.config
        threshold = threshold_at(ctx.epoch, ctx.epochs, c.threshold_high, c.threshold_low, c.confident_from)
        start_ND = self.start_features(ctx)
        features_ND = ctx.features() if start_ND is None else start_ND
        return pseudo_label(
            features_ND,
            self.allowed_NC,
            neighbors=self.voters(ctx, features_ND),
            weighting=c.weighting,
            temperature=c.temperature,
            include_self=c.include_self and start_ND is None,  # they are little alike: it would outvote all others
            self_weight=c.self_weight,
            quantile=c.delta,
            prior_NC=self.prior_NC,
            predicted_NC=None if threshold is None else ctx.probabilities(c.confident_view),
            threshold=threshold,
            vote_on=c.vote_on,
            backend=c.neighbor_backend,
        )

    def random_inputs(self, ctx: Context, steps: int) -> Mapping[str, Tensor]:
        c, shape = self.config, (steps, len(self.views))
        return draw_mixup(shape, ctx.batch_size, c.zeta, ctx.rng, ctx.generator, fold=c.fold_mixup) if c.mixup else {}

    def loss(self, batch: Batch) -> Tensor:
        assert batch.target is not None
        views, label_B, r = batch.views, batch.target, self.config.smoothing
        if not self.config.mixup:
            losses = [smoothed_cross_entropy(logits_BC, label_B, r).mean() for logits_BC in self._logits(views)]
        else:
            weights = batch.random["weight"]
            blends, partner_VB = mixed(views, batch.random)
            losses = [
                torch.lerp(
                    smoothed_cross_entropy(logits_BC, label_B[partner_VB[v]], r).mean(),
                    smoothed_cross_entropy(logits_BC, label_B, r).mean(),
                    weights[v],
                )
                for v, logits_BC in enumerate(self._logits(blends))
            ]
        total = torch.stack(losses).sum()
        return total / len(losses) if self.config.view_loss == "mean" else total

    def _logits(self, views: Sequence[Tensor]) -> Sequence[Tensor]:
        if len(views) == 1 or self.config.view_pass == "separate":
            return [self.network(x_B).logits for x_B in views]
        if self.config.view_pass == "joined":
            return self.network(torch.cat(list(views))).logits.chunk(len(views))
        return [output.logits for output in self.network.each(views)]

    def posterior(self) -> Tensor | None:
        return None if self.labeling is None else self.labeling.posterior_NC

    def statistics(self) -> Mapping[str, float]:
        if self.labeling is None:
            return {}
        found = {"neighbors": int(self.found_neighbors)} if self.config.neighbors == "auto" else {}
        recall = {} if self.labeling.recall is None else {"recall": self.labeling.recall}
        return {"quota": self.labeling.quota, **found, **recall}
