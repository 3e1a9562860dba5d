"""PLRC on PaPi: candidate sets are rebuilt in each epoch after a warm-up, and PaPi trains on the new sets.

    q_i = softmax(sum_{a in N_i} cos_ia P_a)                           predictions smoothed over neighbours
    d_i = -sum_c Phat_ic log q_ic                                      disagreement;  Phat = P restricted to S, normalised
Of a growing share rho of the items, those with the smallest d are normal, those with the largest (a share eta of them) noisy:
    normal:   S' = the n_i labels of S with the largest votes
    noisy:    S' = the n_i labels outside S with the largest votes
    others:   S' = S with the worst candidate replaced by the best other label
    n_i = (1 - max_c v_ic) q C + lambda                                size, rounded down;  v: votes of normal and noisy items

Nothing is written back: each epoch starts from the sets as given.
Symbols: S candidates; P predictions of each item's last visit; eta noise rate; q partial rate; K neighbours with the item.
Reference: Peng et al., ICLR 2025. Differences between the paper, the authors' code and this file: docs/methods/plrc.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.bases.frozen_features import frozen_features
from pals.methods.bases.holdout import Holdout, estimate_partial_rate
from pals.methods.epoch_plan import Batch, EpochPlan, Selection
from pals.methods.method import Context, Kind, Problem, check_neighbors
from pals.methods.papi import PaPi
from pals.methods.parts.ramps import linear_ramp
from pals.pseudo_labels import vote
from pals.pseudo_labels.knn import Neighbors, nearest
from pals.pseudo_labels.simplex import best_candidate, masked_softmax, one_hot, uniform_on
from pals.util.config import STRICT

LOG_OFFSET = 1e-6  # inside the logarithm of the disagreement
SizeRule = Literal["rate", "relative", "absolute"]


class Split(NamedTuple):
    """A division of the items by disagreement; the others are hard.

    Args:
        normal_N: items whose set seems to hold the true label, bool.
        noisy_N: items whose set seems to lack it, bool.
    """

    normal_N: Tensor
    noisy_N: Tensor


class PLRC(PaPi):
    """PaPi on candidate sets that are rebuilt by the predictions of neighbours.

    Args:
        config: options.
        problem: candidates and networks.
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
        to patches of images, or the network with its initial weights."""
        size_rule: SizeRule = "rate"
        """Size of a new set: from the partial rate and the neighbours' confidence; or all labels above the best one's share /
        lamb; or all above 1 / lamb."""
        lamb: float = Field(default=1.5, gt=0)
        "lambda: number of labels that the first rule adds, or divisor in the others."
        noise_rate: float | None = Field(default=None, ge=0, lt=1)
        "eta: share of the sets without the true label; null: estimated once, from a holdout of the warm-up."
        held_out: float = Field(default=0.1, ge=0, lt=1)
        "Share of the items in that holdout; 0: use training items."
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
        self.holdout = Holdout(self.num_items, config.held_out if config.noise_rate is None else 0.0)
        self.rebuilt_NC = nn.Buffer(self.allowed_NC.clone())  # S'
        self.logits_NC = nn.Buffer(uniform_on(self.allowed_NC))  # of each item's weak view at its last visit
        width = {"own": config.embedding, "network": self.query.network.feature_width}.get(config.features, 0)
        self.features_ND = nn.Buffer(torch.zeros(self.num_items, width))  # for the neighbours, if they cannot be computed again
        self.frozen_ND: Tensor | None = None  # a resumed run computes this and the next again
        self.frozen_near: Neighbors | None = None
        self.groups: Split | None = None  # of this epoch; None in the warm-up

    def sets(self, index_B: Tensor) -> Tensor:
        return self.rebuilt_NC[index_B]

    def trained_on(self) -> Tensor:
        return self.holdout.trained_on()

    @property
    def noise_rate(self) -> float:
        """eta, as given or estimated; -1 before the estimate."""
        return float(self.holdout.rate) if self.config.noise_rate is None else self.config.noise_rate

    @property
    def partial_rate(self) -> float:
        """q, as given or from the mean size of the sets."""
        given = self.config.partial_rate
        return estimate_partial_rate(self.allowed_NC, self.noise_rate) if given is None else given

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        c = self.config
        if ctx.epoch == 1 and c.features == "network":
            self.features_ND.copy_(ctx.features())
        if ctx.epoch <= c.warm_up:
            return super().plan_epoch(ctx)
        if self.noise_rate < 0:
            self._end_warm_up(ctx)
        features_ND, near = self._neighbors(ctx)
        smoothed_NC = smooth_over_neighbors(near, self.logits_NC.softmax(dim=1))
        disagreement_N = disagreement(self.logits_NC, self.allowed_NC, smoothed_NC)
        share = c.share_first + (c.share_last - c.share_first) * linear_ramp(ctx.epoch - c.warm_up, c.ramp)  # rho
        self.groups = split(disagreement_N, *split_counts(self.num_items, share, self.noise_rate))
        new_NC = rebuild_sets(
            self.allowed_NC,
            self.logits_NC,
            features_ND,
            self.groups,
            neighbors=c.neighbors,
            rule=c.size_rule,
            lamb=c.lamb,
            partial_rate=self.partial_rate,
        )
        self.rebuilt_NC.copy_(new_NC)
        label_N = best_candidate(self.logits_NC, self.rebuilt_NC)
        selection = Selection(self.groups.normal_N | self.groups.noisy_N, label_N)
        return replace(super().plan_epoch(ctx), selection=selection)

    def _end_warm_up(self, ctx: Context) -> None:
        """Estimate the noise rate, and store predictions and embeddings of the holdout."""
        self.holdout.estimate_noise_rate(ctx, self.allowed_NC)
        self.holdout.release()
        row_M = self.holdout.index_M
        if len(row_M):
            output = ctx.outputs(rows_M=row_M)
            self._store(row_M, output.logits, self.query.project(output.features))

    def _store(self, index_B: Tensor, logits_BC: Tensor, embedding_BD: Tensor) -> None:
        self.logits_NC[index_B] = logits_BC
        if self.config.features == "own":
            self.features_ND[index_B] = embedding_BD

    def _neighbors(self, ctx: Context) -> tuple[Tensor, Neighbors]:
        """Features, and the neighbours of all items by them; those by frozen features are searched once."""
        kind, k = self.config.features, self.config.neighbors
        if kind == "own":
            return self.features_ND, neighbors_with_self(self.features_ND, k)
        if kind != "network" and self.frozen_ND is None:
            self.frozen_ND = frozen_features(ctx, kind, self.num_items, self.allowed_NC.device)
        features_ND = self.features_ND if self.frozen_ND is None else self.frozen_ND
        if self.frozen_near is None:
            self.frozen_near = neighbors_with_self(features_ND, k)
        return features_ND, self.frozen_near

    def after_step(self, batch: Batch) -> None:
        super().after_step(batch)
        self._store(batch.index_B, self.cache.logits_BC, self.cache.embedding_TD[: len(batch.index_B)])

    def statistics(self) -> Mapping[str, float]:
        if self.groups is None:
            return {}
        numbers = [self.groups.normal_N.sum(), self.groups.noisy_N.sum(), self.rebuilt_NC.sum()]
        normal, noisy, labels = torch.stack(numbers).tolist()
        rates = {"noise_rate": self.noise_rate, "partial_rate": self.partial_rate}
        return {**rates, "normal": normal, "noisy": noisy, "set_size": labels / self.num_items}


def split_counts(items: int, share: float, noise_rate: float) -> tuple[int, int]:
    """The numbers of normal and of noisy items, rounded down as published.

    Args:
        items: number of items.
        share: rho.
        noise_rate: eta.

    >>> split_counts(100, 0.7, 0.3)
    (49, 21)
    """
    total = int(items * share)
    normal = int(total * (1 - noise_rate))
    return normal, total - normal


def smooth_over_neighbors(near: Neighbors, table_NC: Tensor) -> Tensor:
    """q, the softmax of the sum of the neighbours' rows times their similarities, which is not normalised before.

    Args:
        near: neighbours.
        table_NC: P.

    Returns:
        N x C, rows sum to one.
    """
    return vote(near.index_NK, near.similarity_NK, table_NC).softmax(dim=1)


def neighbors_with_self(features_ND: Tensor, k: int) -> Neighbors:
    """K neighbours including the item itself, or all items if there are fewer.

    Args:
        features_ND: features.
        k: K.
    """
    if len(features_ND) < 2 or k < 2:
        own_N1 = torch.arange(len(features_ND), device=features_ND.device)[:, None]
        return Neighbors(own_N1, torch.ones_like(own_N1, dtype=torch.float32))
    return nearest(features_ND, min(k, len(features_ND)) - 1)


def disagreement(logits_NC: Tensor, allowed_NC: Tensor, smoothed_NC: Tensor) -> Tensor:
    """d, the cross-entropy of the prediction restricted to the candidates against the neighbours' prediction.

    Args:
        logits_NC: logits of P.
        allowed_NC: S, bool.
        smoothed_NC: q.

    Returns:
        One number per item.
    """
    return -(masked_softmax(logits_NC, allowed_NC) * (smoothed_NC + LOG_OFFSET).log()).sum(dim=1)


def split(disagreement_N: Tensor, normal: int, noisy: int) -> Split:
    """The items with the smallest disagreement, and those with the largest; of equal ones the first come first.

    Args:
        disagreement_N: d.
        normal: number of normal items.
        noisy: number of noisy items.
    """
    order_N = disagreement_N.argsort(stable=True)
    rank_N = torch.empty_like(order_N)
    rank_N[order_N] = torch.arange(len(order_N), device=order_N.device)
    return Split(rank_N < normal, rank_N >= len(order_N) - noisy)


def possible_labels(allowed_NC: Tensor, noisy_N: Tensor) -> Tensor:
    """The labels from which new sets are chosen: S, or the labels outside S of noisy items. A full set stays.

    Args:
        allowed_NC: S, bool.
        noisy_N: noisy items, bool.

    Returns:
        bool, N x C.
    """
    return allowed_NC ^ (noisy_N & ~allowed_NC.all(dim=1))[:, None]


def set_sizes(
    vote_NC: Tensor, allowed_NC: Tensor, size_N: Tensor, *, rule: SizeRule, lamb: float, partial_rate: float
) -> Tensor:
    """n, the sizes of the new sets: at least 1, at most the sizes of the given ones.

    Args:
        vote_NC: v.
        allowed_NC: possible labels, bool.
        size_N: sizes of the given sets.
        rule: "rate" (the authors' case2): (1 - max v) q C + lambda, rounded down. "relative" (case1): the number of possible
            labels with v > max v / lambda. "absolute" (case3): with v > 1 / lambda.
        lamb: lambda.
        partial_rate: q.

    Returns:
        int64, N.
    """
    if rule == "rate":
        wanted_N = (1 - vote_NC.amax(dim=1)) * partial_rate * vote_NC.shape[1] + lamb
    else:
        share_NC = vote_NC * allowed_NC
        bar_N1 = share_NC.amax(dim=1, keepdim=True) / lamb if rule == "relative" else 1 / lamb
        wanted_N = (share_NC > bar_N1).sum(dim=1)
    return wanted_N.clamp_min(1).minimum(size_N).long()


def top_labels(score_NC: Tensor, allowed_NC: Tensor, count_N: Tensor) -> Tensor:
    """The possible labels with the highest scores.

    Args:
        score_NC: scores; of equal ones the first labels are taken.
        allowed_NC: possible labels, bool.
        count_N: number of labels of each item.

    Returns:
        bool, N x C.
    """
    order_NC = score_NC.masked_fill(~allowed_NC, -torch.inf).argsort(dim=1, descending=True, stable=True)
    place_NC = torch.arange(order_NC.shape[1], device=order_NC.device).expand_as(order_NC)
    rank_NC = torch.empty_like(order_NC).scatter_(1, order_NC, place_NC)
    return allowed_NC & (rank_NC < count_N[:, None])


def swap_worst(allowed_NC: Tensor, logits_NC: Tensor) -> Tensor:
    """Replace the least likely candidate by the likeliest other label. A full set stays.

    Args:
        allowed_NC: S, bool.
        logits_NC: logits of P.

    Returns:
        bool, N x C.
    """
    best_N = logits_NC.masked_fill(allowed_NC, -torch.inf).argmax(dim=1)
    worst_N = logits_NC.masked_fill(~allowed_NC, torch.inf).argmin(dim=1)
    classes = allowed_NC.shape[1]
    changed_NC = (allowed_NC | one_hot(best_N, classes)) & ~one_hot(worst_N, classes)
    return torch.where(allowed_NC.all(dim=1, keepdim=True), allowed_NC, changed_NC)


def rebuild_sets(
    allowed_NC: Tensor,
    logits_NC: Tensor,
    features_ND: Tensor,
    groups: Split,
    *,
    neighbors: int,
    rule: SizeRule,
    lamb: float,
    partial_rate: float,
) -> Tensor:
    """The new sets S'.

    Args:
        allowed_NC: S, bool.
        logits_NC: logits of P.
        features_ND: features for the neighbours.
        groups: normal and noisy items, which vote among themselves.
        neighbors: K.
        rule: see `set_sizes`, as the next two.
        lamb: lambda.
        partial_rate: q.

    Returns:
        bool, N x C.
    """
    row_M = (groups.normal_N | groups.noisy_N).nonzero().flatten()
    new_NC = swap_worst(allowed_NC, logits_NC)
    if not len(row_M):
        return new_NC
    open_MC = possible_labels(allowed_NC, groups.noisy_N)[row_M]
    near = neighbors_with_self(features_ND[row_M], neighbors)
    vote_MC = smooth_over_neighbors(near, masked_softmax(logits_NC[row_M], open_MC))
    count_M = set_sizes(vote_MC, open_MC, allowed_NC[row_M].sum(dim=1), rule=rule, lamb=lamb, partial_rate=partial_rate)
    new_NC[row_M] = top_labels(vote_MC, open_MC, count_M)
    return new_NC
