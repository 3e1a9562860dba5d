"""SRSE: PALS with soft votes that are weighed by trust, and with a way back for items whose set lacks the label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.bases.knn_labeling import ByNeighbors
from pals.methods.bases.prototypes import best_of, members
from pals.methods.method import Batch, Context, EpochPlan, Kind, Problem, Selection
from pals.methods.parts.losses import soft_cross_entropy
from pals.methods.parts.mixup import blend, draw_mixup, mixed
from pals.methods.parts.sampling import drawn
from pals.pseudo_labels import agreeing_counts, soft_vote
from pals.pseudo_labels.knn import Neighbors, nearest
from pals.pseudo_labels.knn_recall import recall_of
from pals.util.config import STRICT

LEAST_WINDOW = 5  # epochs in which an item must hold out to be salvaged, however short the training
SMALLEST_SHARE = 1e-8  # of the votes, for a candidate that nobody named


@plain_dataclass(frozen=True)
class Extraction:
    """What one labelling step found; made anew each epoch, so not part of the state."""

    posterior_NC: Tensor
    reliable_N: Tensor  # bool
    salvaged_N: Tensor  # bool; never one of the reliable
    label_N: Tensor  # int64: the label to train on, -1 where neither
    quota: int


class SRSE(ByNeighbors):
    """Each epoch: features and predictions of all items on one weak view -> the neighbours vote softly with their candidates
    -> the prediction, cut to the own candidates, is blended in -> the neighbours vote again, with that -> per class the most
    believed of the items whose winner is a candidate of theirs are reliable -> items that were not reliable for long, but of
    which network, vote and prototypes have said the same all that time, are salvaged with that label -> the network is trained
    on both, on mix-ups of two views. Nothing is written back: each epoch starts from the sets as they were given.

    `docs/methods/srse.md` has the equations and every difference between the manuscript and the authors' code.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(ByNeighbors.Config):
        preset: Literal["official", "fast"] = "official"
        "official: as in the authors' code; fast: a quarter of its epochs, starting with patch features and many neighbours."
        kernel: soft_vote.Kernel = "topology"
        """Weight of a neighbour in the first vote: from its trust and how mixed the neighbourhood is, or
        exp(similarity / temperature)."""
        second_kernel: Literal["same", "topology", "exp"] = "same"
        "The same in the second vote."
        temperature: float = Field(default=0.1, ge=0.02)
        "tau_0: lowest temperature of the topology kernel, and the temperature of the exponential one."
        gamma: float = Field(default=2.0, ge=0)
        "How fast trust falls with the disagreement between an item and its neighbours; 0: everyone is trusted."
        spread_temperature: float = Field(default=0.5, gt=0)
        "tau_sp: temperature of the weights that measure how mixed a neighbourhood is."
        spread_weight: float = Field(default=0.5, ge=0)
        "lambda_H: how much a mixed neighbourhood raises the temperature."
        model_share: float = Field(default=0.5, ge=0, le=1)
        "w_max: final share of the network's prediction in the blend with the first vote..."
        model_ramp: int = Field(default=10, ge=0)
        "... reached linearly from 0 after this many epochs."
        mask: bool = True
        "Restrict the prediction to the item's own candidates."
        reliability: float | None = Field(default=None, ge=0, le=1)
        "r: fixed weight of the first vote against the masked prediction; null: from how sure the two are."
        second_vote: bool = True
        "Let the neighbours vote a second time, with the blend; otherwise the blend is the belief."
        delta: float = Field(default=0.25, ge=0, le=1)
        "Quantile of the classes' pools that sets how many items each class may select."
        salvage: bool = True
        "Also train on items that are never reliable but on whose label network, vote and prototypes agree."
        salvage_share: float = Field(default=0.03, ge=0, le=1)
        "How long they must agree, as a share of the epochs; at least 5 epochs."
        prototype_momentum: float = Field(default=0.9, ge=0, le=1)
        "Momentum of the prototypes."
        clean_statistics: bool = True
        """Before each step, pass the weak view through the network without mix-up and without gradient: this updates the
        prototypes and the running statistics of batch norm."""
        predict_view: Literal["weak", "eval", "both"] = "weak"
        "View for features and predictions; both: the prediction is the mean over a weak and a strong view, in two passes."
        smoothing: float = Field(default=0.0, ge=0, lt=1)
        "Share of the target spread over all classes."
        mixup: bool = True
        "Train on mixtures of two items."
        zeta: float = Field(default=1.0, gt=0)
        "Mix-up weights come from Beta(zeta, zeta)."
        fold_mixup: bool = False
        "Use the larger of w and 1 - w as the mix-up weight."
        view_pass: Literal["joined", "together"] = "joined"
        "How two views go through the network: joined into one batch with common statistics, or in one pass with their own."

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "official": {},
        "fast": {"neighbors_start": 250, "start": "patches"},
    }
    preset_epochs: ClassVar[Mapping[str, int]] = {"fast": 125}
    kind: ClassVar[Kind] = "noisy partial"
    reference: ClassVar[str] = "SRSE, unreviewed manuscript and code, github.com/2667741708/SRSE, 2026"
    cost: ClassVar[float] = 2.67  # two views, and passes without gradient for the features and for clean statistics
    counted_in_epochs: ClassVar[tuple[str, ...]] = (*ByNeighbors.counted_in_epochs, "model_ramp")
    views: tuple[str, ...] = ("weak", "strong")

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.config: SRSE.Config = config
        self.prototype_CD: Tensor
        self.unreliable_N: Tensor  # for how many epochs now an item has not been reliable
        self.agreed_N: Tensor  # for how many epochs now all have named the same class
        self.consensus_N: Tensor  # that class, -1 if they differ
        self.register_buffer("prototype_CD", torch.zeros(self.num_classes, self.network.feature_width))
        self.register_buffer("unreliable_N", torch.zeros(self.num_items, dtype=torch.int32))
        self.register_buffer("agreed_N", torch.zeros(self.num_items, dtype=torch.int32))
        self.register_buffer("consensus_N", torch.full((self.num_items,), -1))
        self.found: Extraction | None = None
        self.recall: float | None = None  # of an approximate search for neighbours
        self.seen_BD: Tensor

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        self.found = found = self._extract(ctx)
        active_N = found.reliable_N | found.salvaged_N
        order_M = drawn(active_N, self.num_items, ctx.generator)
        return EpochPlan.of(order_M, found.label_N, selection=Selection(active_N, found.label_N), drop_last=True)

    def _extract(self, ctx: Context) -> Extraction:
        c = self.config
        unit_ND, predicted_NC = self._look(ctx)
        start_ND = self.start_features(ctx)
        searched_ND = unit_ND if start_ND is None else start_ND
        found = nearest(searched_ND, self.voters(ctx, searched_ND), backend=c.neighbor_backend)
        self.recall = recall_of(found.index_NK, searched_ND, c.neighbor_backend)
        posterior_NC = self._believe(Neighbors(found.index_NK, found.similarity_NK.relu()), predicted_NC, ctx.epoch)
        quota = max(1, soft_vote.own_quota(agreeing_counts(posterior_NC, self.allowed_NC), c.delta))
        reliable_N = soft_vote.select_own(posterior_NC, self.allowed_NC, quota)
        label_N = torch.where(reliable_N, posterior_NC.argmax(dim=1), -1)
        self._move_prototypes(unit_ND, label_N)
        consensus_N = soft_vote.consensus(predicted_NC, posterior_NC, unit_ND, self.prototype_CD)
        self._remember(reliable_N, consensus_N)
        salvaged_N = self._salvaged(ctx.epochs)
        label_N = torch.where(salvaged_N, self.consensus_N, label_N)
        if not bool((label_N >= 0).any()):  # nobody's winner is a candidate: each takes the best of its own
            reliable_N, label_N = torch.ones_like(reliable_N), best_of(posterior_NC, self.allowed_NC)
        return Extraction(posterior_NC, reliable_N, salvaged_N, label_N, quota)

    def _look(self, ctx: Context) -> tuple[Tensor, Tensor]:
        """Features at unit length, and class probabilities, from the same pass."""
        view = self.config.predict_view
        output = ctx.outputs(view="weak" if view == "both" else view)
        predicted_NC = output.logits.float().softmax(dim=1)
        if view == "both":
            predicted_NC = (predicted_NC + ctx.probabilities("strong")) / 2
        return F.normalize(output.features.float(), dim=1), predicted_NC

    def _believe(self, near: Neighbors, predicted_NC: Tensor, epoch: int) -> Tensor:
        """Vote, blend with the prediction, vote again."""
        c, ballot_NC = self.config, self._ballot()
        first_NC = self._vote(near, ballot_NC, c.kernel)
        share = soft_vote.model_share(epoch, c.model_share, c.model_ramp)
        blend_NC = soft_vote.blended(first_NC, predicted_NC, ballot_NC, share, reliability=c.reliability, mask=c.mask)
        if not c.second_vote:
            return blend_NC
        return self._vote(near, blend_NC, c.kernel if c.second_kernel == "same" else c.second_kernel)

    def _vote(self, near: Neighbors, label_NC: Tensor, kernel: soft_vote.Kernel) -> Tensor:
        c = self.config
        weight_NK = soft_vote.kernel_weight(
            *near,
            label_NC,
            kernel=kernel,
            temperature=c.temperature,
            gamma=c.gamma,
            spread_temperature=c.spread_temperature,
            spread_weight=c.spread_weight,
        )
        return soft_vote.soft_vote(near.index_NK, weight_NK, label_NC)

    def _ballot(self) -> Tensor:
        """What the items vote with: 1 for each candidate, or the shares of people's votes."""
        if self.prior_NC is None:
            return self.allowed_NC.float()
        return (self.prior_NC.float() + SMALLEST_SHARE) * self.allowed_NC

    def _move_prototypes(self, unit_MD: Tensor, label_M: Tensor) -> None:
        member_MC = members(label_M, self.num_classes)
        moved_CD = soft_vote.moved_means(self.prototype_CD, unit_MD, member_MC, self.config.prototype_momentum)
        self.prototype_CD.copy_(moved_CD)

    def _remember(self, reliable_N: Tensor, consensus_N: Tensor) -> None:
        """Count for how many epochs; all that queues of the last epochs would be asked for."""
        self.unreliable_N.add_(1).masked_fill_(reliable_N, 0)
        self.agreed_N.masked_fill_(consensus_N != self.consensus_N, 0).add_(1).masked_fill_(consensus_N < 0, 0)
        self.consensus_N.copy_(consensus_N)

    def _salvaged(self, epochs: int) -> Tensor:
        window = salvage_window(epochs, self.config.salvage_share)
        lasting_N = (self.unreliable_N >= window) & (self.agreed_N >= window)
        return lasting_N if self.config.salvage else torch.zeros_like(lasting_N)

    def random_inputs(self, ctx: Context, steps: int) -> Mapping[str, Tensor]:
        c, shape = self.config, (steps, len(self.views))
        return draw_mixup(shape, ctx.batch_size, c.zeta, ctx.rng, ctx.generator, fold=c.fold_mixup) if c.mixup else {}

    def loss(self, batch: Batch) -> Tensor:
        assert batch.target is not None
        if self.config.clean_statistics:
            self.seen_BD = self._clean_features(batch.views[0])
        one_hot_BC = members(batch.target, self.num_classes).float()
        target_BC = torch.lerp(one_hot_BC, torch.full_like(one_hot_BC, 1 / self.num_classes), self.config.smoothing)
        views, targets = self._mixed(batch, target_BC)
        logits = self._logits(views)
        losses = [soft_cross_entropy(l_BC, t_BC).mean() for l_BC, t_BC in zip(logits, targets, strict=True)]
        return torch.stack(losses).mean()

    @torch.no_grad()
    def _clean_features(self, x_B: Tensor) -> Tensor:
        """Of images before mix-up, by batch statistics, which move the running ones."""
        return F.normalize(self.network(x_B).features.float(), dim=1)

    def _mixed(self, batch: Batch, target_BC: Tensor) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """The views and their targets, each view mixed up by a weight and a permutation of its own."""
        if not self.config.mixup:
            return batch.views, [target_BC for _ in batch.views]
        views, partner_VB = mixed(batch.views, batch.random)
        return views, [blend(target_BC, partner_VB[v], weight) for v, weight in enumerate(batch.random["weight"])]

    def _logits(self, views: Sequence[Tensor]) -> Sequence[Tensor]:
        if self.config.view_pass == "joined":
            return self.network(torch.cat(list(views))).logits.chunk(len(views))
        return [output.logits for output in self.network.each(views)]

    def after_step(self, batch: Batch) -> None:
        if self.config.clean_statistics:
            assert batch.target is not None
            self._move_prototypes(self.seen_BD, batch.target)

    def posterior(self) -> Tensor | None:
        return None if self.found is None else self.found.posterior_NC

    def statistics(self) -> Mapping[str, float]:
        if self.found is None:
            return {}
        reliable, salvaged = torch.stack([self.found.reliable_N.sum(), self.found.salvaged_N.sum()]).tolist()
        recall = {} if self.recall is None else {"recall": self.recall}
        return {"quota": self.found.quota, "reliable": reliable, "salvaged": salvaged, **recall}


def salvage_window(epochs: int, share: float) -> int:
    """How many epochs an item must hold out to be salvaged: a share of all of them, at least 5."""
    return max(LEAST_WINDOW, round(share * epochs))
