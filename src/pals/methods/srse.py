"""SRSE: PALS with soft votes weighted by trust, and with salvage of items whose set lacks the true label.

One epoch, from the candidates Y as given (nothing is written back):
    1. unit features f, predictions p               of all items, one weak view
    2. P1 = V(Y)                                    the K nearest vote softly with their candidates
    3. P2 = V(blend of P1 and p)                    the neighbours vote again; equations in pseudo_labels/soft_vote.py
    4. reliable: for each class the m items with the highest P2_c among those with argmax P2 = c in Y
    5. mu_c <- normalize(.9 mu_c + .1 mean f)       prototypes, over the reliable items
       t_i = c if argmax p = argmax P2 = argmax_c f mu_c = c, else none
    6. salvaged with the label t_i: not reliable, and t_i the same, for W epochs;  W = max(5, round(.03 T))
    7. N draws from reliable and salvaged items; mix-up of two views:
       x = l x_i + (1 - l) x_j,   t = l y_i + (1 - l) y_j,   L = mean over views of -sum_c t_c log p_c(x)

Symbols: V soft vote; mu C x D prototypes; m quota; T epochs; l mix-up weight.
Reference: SRSE, unreviewed manuscript and code, github.com/2667741708/SRSE, 2026. Differences between the manuscript, the
authors' code and this file: docs/methods/srse.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.bases.knn_labeling import KNNMethod
from pals.methods.epoch_plan import Batch, EpochPlan, Selection
from pals.methods.method import Context, Problem
from pals.methods.parts.losses import soft_cross_entropy
from pals.methods.parts.mixup import blend, mixed
from pals.methods.parts.ramps import linear_ramp
from pals.methods.parts.sampling import drawn
from pals.pseudo_labels import soft_vote as sv
from pals.pseudo_labels.knn import Neighbors, nearest
from pals.pseudo_labels.knn_recall import recall_of
from pals.pseudo_labels.reliable_subset import agreeing_counts
from pals.pseudo_labels.simplex import best_candidate, floor_quantile, one_hot
from pals.pseudo_labels.soft_vote import Kernel
from pals.util.config import STRICT

MIN_SALVAGE_WINDOW = 5  # epochs, however short the training
MIN_VOTE_SHARE = 1e-8  # of a candidate without counted votes


@plain_dataclass(frozen=True)
class Extraction:
    """The result of one labelling step.

    Args:
        posterior_NC: P2.
        reliable_N: reliable items, bool.
        salvaged_N: salvaged items, bool; none of them is reliable.
        label_N: labels to train on; -1 for other items.
        quota: m.
    """

    posterior_NC: Tensor
    reliable_N: Tensor
    salvaged_N: Tensor
    label_N: Tensor
    quota: int


class SRSE(KNNMethod):
    """Pseudo-labels by two soft votes of neighbours, salvage by consensus, training with mix-up of two views.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(KNNMethod.Config):
        preset: Literal["official", "fast"] = "official"
        "official: as in the authors' code; fast: a quarter of its epochs, starting with patch features and many neighbours."
        kernel: Kernel = "topology"
        """Weight of a neighbour in the first vote: from its trust and how mixed the neighbourhood is, or
        exp(similarity / temperature)."""
        second_kernel: Literal["same", "topology", "exp"] = "same"
        "The same in the second vote."
        temperature: float = Field(default=0.1, ge=0.02)
        "tau_0: lowest temperature of the topology kernel, and the temperature of the exponential one."
        gamma: float = Field(default=2.0, ge=0)
        "How fast trust falls with the disagreement between an item and its neighbours; 0: all neighbours are trusted."
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
        "Let the neighbours vote a second time, with the blend; otherwise the blend is the posterior."
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

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {"official": {}, "fast": {"neighbors_start": 250, "start": "patches"}}
    preset_epochs: ClassVar[Mapping[str, int]] = {"fast": 125}
    reference: ClassVar[str] = "SRSE, unreviewed manuscript and code, github.com/2667741708/SRSE, 2026"
    cost: ClassVar[float] = 2.67  # two views, and passes without gradient for the features and for clean statistics
    counted_in_epochs: ClassVar[tuple[str, ...]] = (*KNNMethod.counted_in_epochs, "model_ramp")
    config: Config

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.prototype_CD = nn.Buffer(torch.zeros(self.num_classes, self.network.feature_width))
        self.unreliable_N = nn.Buffer(torch.zeros(self.num_items, dtype=torch.int32))  # epochs since an item was reliable
        self.agreed_N = nn.Buffer(torch.zeros(self.num_items, dtype=torch.int32))  # epochs with the same consensus
        self.consensus_N = nn.Buffer(torch.full((self.num_items,), -1))  # -1: none
        self.extraction: Extraction | None = None  # of the current epoch; computed again after a resume
        self.recall: float | None = None  # of an approximate neighbour search
        self.clean_BD: Tensor

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        c = self.config
        output = ctx.outputs(view="weak" if c.predict_view == "both" else c.predict_view)  # 1
        predicted_NC = output.logits.float().softmax(dim=1)
        if c.predict_view == "both":
            predicted_NC = (predicted_NC + ctx.probabilities("strong")) / 2
        unit_ND = F.normalize(output.features.float(), dim=1)
        start_ND = self.start_features(ctx)
        searched_ND = unit_ND if start_ND is None else start_ND
        index_NK, cosine_NK = nearest(searched_ND, self.num_neighbors(ctx, searched_ND), backend=c.neighbor_backend)
        self.recall = recall_of(index_NK, searched_ND, c.neighbor_backend)

        posterior_NC = self.vote_twice(Neighbors(index_NK, cosine_NK.relu()), predicted_NC, ctx.epoch)  # 2 and 3
        quota = max(1, floor_quantile(agreeing_counts(posterior_NC, self.allowed_NC), c.delta))  # 4
        reliable_N = sv.select_own(posterior_NC, self.allowed_NC, quota)
        label_N = torch.where(reliable_N, posterior_NC.argmax(dim=1), -1)

        self.update_prototypes(unit_ND, label_N)  # 5
        consensus_N = sv.consensus(predicted_NC, posterior_NC, unit_ND, self.prototype_CD)
        salvaged_N = self.salvage(reliable_N, consensus_N, ctx.epochs)  # 6
        label_N = torch.where(salvaged_N, consensus_N, label_N)
        if not bool((label_N >= 0).any()):  # no item's class is a candidate: each gets its best candidate
            reliable_N, label_N = torch.ones_like(reliable_N), best_candidate(posterior_NC, self.allowed_NC)
        self.extraction = Extraction(posterior_NC, reliable_N, salvaged_N, label_N, quota)
        selected_N = reliable_N | salvaged_N
        order_M = drawn(selected_N, self.num_items, ctx.generator)  # 7
        return EpochPlan.of(order_M, label_N, selection=Selection(selected_N, label_N), drop_last=True)

    def vote_twice(self, near: Neighbors, predicted_NC: Tensor, epoch: int) -> Tensor:
        """P2, or without `second_vote` the blend of P1 and p; N x C.

        Args:
            near: neighbours with non-negative similarities.
            predicted_NC: p.
            epoch: from 1.
        """
        c, ballot_NC = self.config, self.allowed_NC.float()
        if self.prior_NC is not None:
            ballot_NC = (self.prior_NC.float() + MIN_VOTE_SHARE) * self.allowed_NC
        vote_NC = self.vote(near, ballot_NC, c.kernel)
        weight = c.model_share * linear_ramp(epoch - 1, c.model_ramp)
        blend_NC = sv.blend_with_prediction(vote_NC, predicted_NC, ballot_NC, weight, reliability=c.reliability, mask=c.mask)
        if not c.second_vote:
            return blend_NC
        return self.vote(near, blend_NC, c.kernel if c.second_kernel == "same" else c.second_kernel)

    def salvage(self, reliable_N: Tensor, consensus_N: Tensor, epochs: int) -> Tensor:
        """Count epochs without reliability and with the same consensus.

        Args:
            reliable_N: reliable items, bool.
            consensus_N: t, -1 for none.
            epochs: T.

        Returns:
            Items for which both lasted W epochs, bool, N.
        """
        self.unreliable_N.add_(1).masked_fill_(reliable_N, 0)
        self.agreed_N.masked_fill_(consensus_N != self.consensus_N, 0).add_(1).masked_fill_(consensus_N < 0, 0)
        self.consensus_N.copy_(consensus_N)
        window = salvage_window(epochs, self.config.salvage_share)
        return (self.unreliable_N >= window) & (self.agreed_N >= window) & self.config.salvage

    def vote(self, near: Neighbors, label_NC: Tensor, kernel: Kernel) -> Tensor:
        """The soft vote V(P) with the options of the method.

        Args:
            near: neighbours with non-negative similarities.
            label_NC: labels P.
            kernel: kernel of the weights.
        """
        c = self.config
        weight_NK = sv.kernel_weight(
            *near,
            label_NC,
            kernel=kernel,
            temperature=c.temperature,
            gamma=c.gamma,
            spread_temperature=c.spread_temperature,
            spread_weight=c.spread_weight,
        )
        return sv.soft_vote(near.index_NK, weight_NK, label_NC)

    def update_prototypes(self, unit_MD: Tensor, label_M: Tensor) -> None:
        """Move the prototypes towards the mean features of their classes.

        Args:
            unit_MD: features at unit length.
            label_M: labels; -1 belongs to no class.
        """
        member_MC = one_hot(label_M, self.num_classes)
        momentum = self.config.prototype_momentum
        self.prototype_CD.copy_(sv.update_class_means(self.prototype_CD, unit_MD, member_MC, momentum))

    def loss(self, batch: Batch) -> Tensor:
        assert batch.target is not None
        c, views = self.config, list(batch.views)
        if c.clean_statistics:
            with torch.no_grad():  # inputs without mix-up, with batch statistics, which update the running ones
                self.clean_BD = F.normalize(self.network(views[0]).features.float(), dim=1)
        one_hot_BC = one_hot(batch.target, self.num_classes).float()
        target_BC = torch.lerp(one_hot_BC, torch.full_like(one_hot_BC, 1 / self.num_classes), c.smoothing)
        targets = [target_BC for _ in views]
        if c.mixup:
            views, partner_VB = mixed(views, batch.random)
            targets = [blend(target_BC, partner_VB[v], weight) for v, weight in enumerate(batch.random["weight"])]
        logits = self.view_logits(views)
        losses = [soft_cross_entropy(l_BC, t_BC).mean() for l_BC, t_BC in zip(logits, targets, strict=True)]
        return torch.stack(losses).mean()

    def after_step(self, batch: Batch) -> None:
        if self.config.clean_statistics:
            assert batch.target is not None
            self.update_prototypes(self.clean_BD, batch.target)

    def posterior(self) -> Tensor | None:
        return None if self.extraction is None else self.extraction.posterior_NC

    def statistics(self) -> Mapping[str, float]:
        found = self.extraction
        if found is None:
            return {}
        reliable, salvaged = torch.stack([found.reliable_N.sum(), found.salvaged_N.sum()]).tolist()
        recall = {} if self.recall is None else {"recall": self.recall}
        return {"quota": found.quota, "reliable": reliable, "salvaged": salvaged, **recall}


def salvage_window(epochs: int, share: float) -> int:
    """The number of epochs W for which an item must be unreliable with the same consensus.

    Args:
        epochs: T.
        share: share of all epochs.

    >>> salvage_window(500, 0.03), salvage_window(30, 0.03)
    (15, 5)
    """
    return max(MIN_SALVAGE_WINDOW, round(share * epochs))
