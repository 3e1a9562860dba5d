"""PALS: pseudo-labels by a weighted vote of neighbours, a reliable subset per class, training with label smoothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.config import STRICT
from pals.labeling import Labeling, pseudo_label, threshold_at
from pals.losses import smoothed_cross_entropy
from pals.methods.base import Batch, Context, Kind, Method, Plan, Problem, Selection, check_neighbors
from pals.methods.early import Averaged, neighbors_at, patch_features
from pals.mixing import blend, draw_weights, partners
from pals.sampling import drawn, shuffled


class PALS(Method):
    """Each epoch: features of all items -> the neighbours vote on the candidates (Eq. 1) -> the neighbours' pseudo-labels
    give a belief per class (Eq. 2) -> per class the most believed items are trusted (Eq. 3-5) -> the network is trained on
    them with label smoothing, mix-up and two views (Eq. 6-10) -> its confident predictions join the candidates (Eq. 11).

    `docs/methods/pals.md` has the equations and every difference between the paper and the authors' code.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config:
        preset: Literal["official", "paper"] = "official"
        "Where the defaults come from: the authors' code (the published numbers) or the equations read literally."
        neighbors: int = Field(default=15, ge=1)
        "K: how many neighbours vote."
        include_self: bool = True
        "The item votes too, beside its K neighbours."
        weighting: Literal["exp", "cosine"] = "exp"
        "Weight of a neighbour: exp(similarity / temperature), or the similarity itself."
        temperature: float = Field(default=0.1, gt=0)
        "Of the exponential weighting."
        vote_on: Literal["pseudo", "candidates"] = "pseudo"
        "What the belief is made of: the neighbours' pseudo-labels (Eq. 1 and 2), or their candidates (Eq. 1 off)."
        delta: float = Field(default=0.25, ge=0, le=1)
        "Quantile of the per-class agreement that sets how many items each class may select."
        smoothing: float = Field(default=0.5, ge=0, lt=1)
        "r: share of the target spread over all classes."
        mixup: bool = True
        "Train on blends of two images."
        zeta: float = Field(default=1.0, gt=0)
        "Mix-up weights come from Beta(zeta, zeta)."
        fold_mixup: bool = True
        "Keep the larger of w and 1 - w as mix-up weight."
        consistency: bool = True
        "Train on a weak and a strong view; otherwise on `single_view` alone."
        single_view: Literal["weak", "strong"] = "strong"
        "The view used when consistency is off."
        view_pass: Literal["together", "separate", "joined"] = "together"
        """How two views go through the network: in one pass with batch statistics of their own, in separate passes (the same
        mathematics, slower on a GPU), or joined to one batch with common statistics (not what the authors do)."""
        view_loss: Literal["mean", "sum"] = "mean"
        "How the losses of the two views are put together."
        threshold_high: float = Field(default=0.45, ge=0, le=1)
        "Confidence that adds a prediction to the candidates, at the first epoch..."
        threshold_low: float = Field(default=0.35, ge=0, le=1)
        "... and at the last; in between it falls linearly. 1 turns the step off."
        confident_from: int = Field(default=2, ge=1)
        "First epoch in which predictions may join the candidates."
        confident_view: Literal["eval", "weak"] = "eval"
        "View on which the confidence is measured."
        draws: Literal["resample", "once"] = "resample"
        "One epoch is N draws with replacement from the reliable items, or one shuffled pass over them."
        use_frequencies: bool = True
        "Weigh the candidates' votes by how often people gave them, where votes were counted."
        early_epochs: int = Field(default=20, ge=2)
        "The first epochs, in which `neighbors_start` and `relabel_every` act."
        neighbors_start: int | None = Field(default=None, ge=1)
        "How many neighbours vote in the first epoch; falls geometrically to `neighbors` over the early epochs. None: always K."
        relabel_every: float = Field(default=1.0, gt=0, le=1)
        "Share of an epoch after which items are labelled anew, in the early epochs; 0.25 labels four times in each."
        start: Literal["network", "patches"] = "network"
        "Features that the first `start_epochs` vote with: the network's, or similarity to patches, which needs no training."
        start_epochs: int = Field(default=5, ge=1)
        "How long those of `start` are used. An item does not vote for itself there."
        average: float = Field(default=0.0, ge=0, lt=1)
        "Share of its old weights that an averaged network (EMA) keeps at each step; it labels and answers. 0: there is none."
        average_until: float = Field(default=1.0, ge=0, le=1)
        "Share of the epochs after which the network itself labels again; the averaged one still answers."
        smoothing_end: float | None = Field(default=None, ge=0, lt=1)
        "`smoothing` changes in a line to this at the last epoch. None: it stays."

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
    }
    kind: ClassVar[Kind] = "noisy partial"
    reference: ClassVar[str] = "Saravanan, Manwani and Gandhi, arXiv 2402.04835"
    cost: ClassVar[float] = 2.33  # two views, and a pass without gradient for the features
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("early_epochs", "start_epochs")
    views: tuple[str, ...] = ("weak", "strong")

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.config: PALS.Config = config
        check_neighbors(max(config.neighbors, config.neighbors_start or 0), self.num_items)
        self.network = problem.network()
        self.averaged = Averaged(self.network) if config.average else None
        if not config.consistency:
            self.views = (config.single_view,)
        frequency_NC = problem.candidates.frequency_NC if config.use_frequencies else None
        self.prior_NC: Tensor | None
        self.register_buffer("prior_NC", frequency_NC)
        self.labeling: Labeling | None = None  # of the current epoch; made anew each epoch, so not part of the state
        self.patch_features_ND: Tensor | None = None  # in the first epochs; made again when a run goes on

    @property
    def predictor(self) -> nn.Module:
        return self.network if self.averaged is None else self.averaged.network

    def plans(self, epoch: int, epochs: int) -> int:
        return round(1 / self.config.relabel_every) if epoch <= self.config.early_epochs else 1

    def plan_epoch(self, ctx: Context) -> Plan:
        self.labeling = labeling = self._label(ctx)
        if self.config.draws == "resample":
            draws = self.num_items // self.plans(ctx.epoch, ctx.epochs)
            order_M = drawn(labeling.chosen_N.float(), draws, ctx.generator)
        else:
            order_M = shuffled(labeling.chosen_N.nonzero().flatten(), ctx.generator)
        return Plan.of(order_M, labeling.label_N, selection=Selection(labeling.chosen_N, labeling.label_N))

    def _label(self, ctx: Context) -> Labeling:
        c = self.config
        threshold = threshold_at(ctx.epoch, ctx.epochs, c.threshold_high, c.threshold_low, c.confident_from)
        labeler = None if ctx.epoch <= c.average_until * ctx.epochs else self.network  # None: the predictor
        by_patches = c.start == "patches" and ctx.epoch <= c.start_epochs
        return pseudo_label(
            self._patches(ctx) if by_patches else ctx.features(labeler),
            self.allowed_NC,
            neighbors=neighbors_at(ctx.epoch, c.neighbors_start, c.neighbors, c.early_epochs),
            weighting=c.weighting,
            temperature=c.temperature,
            include_self=c.include_self and not by_patches,
            quantile=c.delta,
            prior_NC=self.prior_NC,
            predicted_NC=None if threshold is None else ctx.probabilities(c.confident_view, labeler),
            threshold=threshold,
            vote_on=c.vote_on,
        )

    def _patches(self, ctx: Context) -> Tensor:
        if self.patch_features_ND is None:
            self.patch_features_ND = patch_features(ctx, self.num_items, self.allowed_NC.device)
        features_ND = self.patch_features_ND
        if ctx.epoch == self.config.start_epochs:
            self.patch_features_ND = None  # the memory is wanted elsewhere
        return features_ND

    def draw(self, ctx: Context, steps: int) -> Mapping[str, Tensor]:
        c, device = self.config, self.allowed_NC.device
        random: dict[str, Tensor] = {}
        if c.mixup:
            shape = (steps, len(self.views))
            random["weight"] = draw_weights(shape, c.zeta, ctx.rng, fold=c.fold_mixup).to(device)
            random["uniform"] = torch.rand(*shape, ctx.batch_size, generator=ctx.generator, device=device)
        if c.smoothing_end is not None:
            now = c.smoothing + (c.smoothing_end - c.smoothing) * (ctx.epoch - 1) / max(ctx.epochs - 1, 1)
            random["smoothing"] = torch.full((steps,), now, device=device)
        return random

    def loss(self, batch: Batch) -> Tensor:
        assert batch.target is not None
        views, label_B = batch.views, batch.target
        r = batch.random.get("smoothing", self.config.smoothing)
        if not self.config.mixup:
            losses = [smoothed_cross_entropy(logits_BC, label_B, r).mean() for logits_BC in self._logits(views)]
        else:
            weights = batch.random["weight"]
            partner_VB = partners(batch.random["uniform"][:, : len(label_B)])
            mixed = [blend(x_B, partner_VB[v], weights[v]) for v, x_B in enumerate(views)]
            losses = [
                torch.lerp(
                    smoothed_cross_entropy(logits_BC, label_B[partner_VB[v]], r).mean(),
                    smoothed_cross_entropy(logits_BC, label_B, r).mean(),
                    weights[v],
                )
                for v, logits_BC in enumerate(self._logits(mixed))
            ]
        total = torch.stack(losses).sum()
        return total / len(losses) if self.config.view_loss == "mean" else total

    def _logits(self, views: Sequence[Tensor]) -> Sequence[Tensor]:
        if len(views) == 1 or self.config.view_pass == "separate":
            return [self.network(x_B).logits for x_B in views]
        if self.config.view_pass == "joined":
            return self.network(torch.cat(list(views))).logits.chunk(len(views))
        return [output.logits for output in self.network.each(views)]

    def after_step(self, batch: Batch) -> None:
        if self.averaged is not None:
            self.averaged.follow(self.network, self.config.average)

    def belief(self) -> Tensor | None:
        return None if self.labeling is None else self.labeling.belief_NC

    def statistics(self) -> Mapping[str, float]:
        return {} if self.labeling is None else {"quota": self.labeling.quota}
