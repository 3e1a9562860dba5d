"""PLRC on PaPi: after a warm-up, sets that hinder the network are told from the others, and all are built anew each epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.bases.frozen_features import frozen_features
from pals.methods.bases.noise_rate import NoiseRate, partial_rate_of
from pals.methods.bases.prototypes import best_of
from pals.methods.method import Batch, Context, EpochPlan, Kind, Problem, Selection, check_neighbors
from pals.methods.papi import PaPi
from pals.methods.parts import reconstruction
from pals.methods.parts.losses import uniform_on
from pals.pseudo_labels.knn import Neighbors
from pals.util.config import STRICT


class PLRC(PaPi):
    """After the warm-up each epoch begins with the predictions P that training has seen last, smoothed over neighbours,
    q = softmax(sum_a s_a P_a). Where P cut to the candidates disagrees with q the set is noisy. Of a growing share of the items
    those that agree best are normal and keep the few candidates that the neighbours like best; those that agree least are noisy
    and get labels from outside their set instead; the rest swap their worst candidate for the best other label. PaPi trains on
    the new sets. Nothing is written back: each epoch starts from the sets as they were given.

    `docs/methods/plrc.md` has the equations and the differences between the paper, the authors' code and this.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(PaPi.Config):
        warm_up: int = Field(default=100, ge=0)
        "E0: epochs of PaPi on the given sets."
        ramp: int = Field(default=100, ge=1)
        "E1 - E0: epochs after that over which the share of separated items rises..."
        share_first: float = Field(default=0.7, ge=0, le=1)
        "... from this (rho_0)..."
        share_last: float = Field(default=1.0, ge=0, le=1)
        "... to this (rho_1)."
        neighbors: int = Field(default=5, ge=2)
        "K: number of items that vote, including the item itself."
        features: Literal["own", "input", "patches", "network"] = "own"
        """Features for finding neighbours: the embeddings of the last visits, or fixed ones: the inputs themselves, similarity
        to patches of pictures, or the network with its initial weights."""
        size_rule: reconstruction.SizeRule = "rate"
        """Size of a new set: from the partial rate and how sure the neighbours are; or all labels above the best one's share /
        lamb; or all above 1 / lamb."""
        lamb: float = Field(default=1.5, gt=0)
        "lambda: number of labels that the first rule adds, or divisor in the others."
        noise_rate: float | None = Field(default=None, ge=0, lt=1)
        "eta: share of the sets without the true label; null: estimated once, from items held out of the warm-up."
        held_out: float = Field(default=0.1, ge=0, lt=1)
        "Share of the items held out for that; 0: use training items."
        partial_rate: float | None = Field(default=None, ge=0, le=1)
        "q: probability that a wrong label is a candidate; null: estimated from the mean size of the sets."

    kind: ClassVar[Kind] = "noisy partial"
    reference: ClassVar[str] = "Peng et al., ICLR 2025"
    counted_in_epochs: ClassVar[tuple[str, ...]] = (*PaPi.counted_in_epochs, "warm_up", "ramp")
    begins_after: ClassVar[tuple[str, ...]] = ("warm_up",)
    config: Config

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        check_neighbors(config.neighbors - 1, self.num_items)
        self.noise = NoiseRate(config.noise_rate, self.num_items, config.held_out)
        self.rebuilt_NC: Tensor
        self.logits_NC: Tensor  # of each item's weak view, when it was visited last
        self.features_ND: Tensor  # by which neighbours are found, where they cannot be made again
        self.register_buffer("rebuilt_NC", self.allowed_NC.clone())
        self.register_buffer("logits_NC", uniform_on(self.allowed_NC))
        width = {"own": config.embedding, "network": self.query.network.feature_width}.get(config.features, 0)
        self.register_buffer("features_ND", torch.zeros(self.num_items, width))
        self.frozen_ND: Tensor | None = None  # made again when a run goes on, as are the neighbours by it
        self.frozen_near: Neighbors | None = None
        self.groups: reconstruction.Split | None = None  # of this epoch; None in the warm-up

    def sets(self, index_B: Tensor) -> Tensor:
        return self.rebuilt_NC[index_B]

    def trained_on(self) -> Tensor:
        return self.noise.trained_on()

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        if ctx.epoch == 1 and self.config.features == "network":
            self.features_ND.copy_(ctx.features())
        if ctx.epoch <= self.config.warm_up:
            return super().plan_epoch(ctx)
        if not self.noise.known:
            self._end_warm_up(ctx)
        self.groups = self._rebuild(ctx)
        label_N = best_of(self.logits_NC, self.rebuilt_NC)
        selection = Selection(self.groups.normal_N | self.groups.noisy_N, label_N)
        return replace(super().plan_epoch(ctx), selection=selection)

    def _end_warm_up(self, ctx: Context) -> None:
        """Find the noise rate, and catch up with the items that were held out for it."""
        self.noise.find(ctx, self.allowed_NC)
        row_M = self.noise.apart.held_M
        if len(row_M):
            output = ctx.outputs(rows_M=row_M)
            self._remember(row_M, output.logits, self.query.project(output.features))

    def _remember(self, index_B: Tensor, logits_BC: Tensor, embedding_BD: Tensor) -> None:
        self.logits_NC[index_B] = logits_BC
        if self.config.features == "own":
            self.features_ND[index_B] = embedding_BD

    def _rebuild(self, ctx: Context) -> reconstruction.Split:
        c, features_ND = self.config, self._features(ctx)
        smoothed_NC = reconstruction.smoothed(self._near(features_ND), self.logits_NC.softmax(dim=1))
        disagreement_N = reconstruction.disagreement(self.logits_NC, self.allowed_NC, smoothed_NC)
        share = reconstruction.share_at(ctx.epoch, c.warm_up, c.ramp, c.share_first, c.share_last)
        normal, noisy = reconstruction.counts(self.num_items, share, self.noise.value)
        groups = reconstruction.split(disagreement_N, normal, noisy)
        new_NC = reconstruction.rebuilt(
            self.allowed_NC,
            self.logits_NC,
            features_ND,
            groups,
            neighbors=c.neighbors,
            rule=c.size_rule,
            lamb=c.lamb,
            partial_rate=self.partial_rate,
        )
        self.rebuilt_NC.copy_(new_NC)
        return groups

    def _features(self, ctx: Context) -> Tensor:
        kind = self.config.features
        if kind == "own" or kind == "network":
            return self.features_ND
        if self.frozen_ND is None:
            self.frozen_ND = frozen_features(ctx, kind, self.num_items, self.allowed_NC.device)
        return self.frozen_ND

    def _near(self, features_ND: Tensor) -> Neighbors:
        """Of all items; those by frozen features are searched once."""
        if self.config.features == "own":
            return reconstruction.with_self(features_ND, self.config.neighbors)
        if self.frozen_near is None:
            self.frozen_near = reconstruction.with_self(features_ND, self.config.neighbors)
        return self.frozen_near

    @property
    def partial_rate(self) -> float:
        """As given, or by the sets; asked once the noise rate is known."""
        given = self.config.partial_rate
        return partial_rate_of(self.allowed_NC, self.noise.value) if given is None else given

    def after_step(self, batch: Batch) -> None:
        super().after_step(batch)
        self._remember(batch.index_B, self.seen.logits_BC, self.seen.embedding_TD[: len(batch.index_B)])

    def statistics(self) -> Mapping[str, float]:
        if self.groups is None:
            return {}
        numbers = [self.groups.normal_N.sum(), self.groups.noisy_N.sum(), self.rebuilt_NC.sum()]
        normal, noisy, labels = torch.stack(numbers).tolist()
        rates = {"noise_rate": self.noise.value, "partial_rate": self.partial_rate}
        return {**rates, "normal": normal, "noisy": noisy, "set_size": labels / self.num_items}
