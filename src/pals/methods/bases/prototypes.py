"""Base class of PiCO, PiCO+, ALIM and IRNet: embeddings, a key network, a queue of keys, prototypes, soft labels.

    z = normalize(head(features)),  k = the same by the key network       theta_k <- m_k theta_k + (1 - m_k) theta
    SupCon_i = -1/|P(i)| sum_{j in P(i)} log( e^(z_i A_j / t) / sum_{l != i} e^(z_i A_l / t) ),   A = (z, k, queue)
    MoCo_i   = -log( e^(z_i k_i / t) / (e^(z_i k_i / t) + sum_l e^(z_i Q_l / t)) )
    mu_c <- normalize(m mu_c + (1 - m) z)                                 for each item of class c in turn
    s <- phi s + (1 - phi) one_hot(argmax_{c in S} z mu_c)

Symbols: A pool of P rows: the batch, its keys and the queue Q; P(i) rows with i's pseudo-label; t temperature; s soft label.
Reference: Wang et al. (PiCO), ICLR 2022, arXiv 2201.08984.

Published codes update prototypes, key network and queue in the middle of a step; here they are updated after it. The numbers
are the same: the loss uses prototypes and queue from before the step, and the next step updates the key network first.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass as settings
from torch import Tensor, nn

from pals.methods.epoch_plan import Batch, EpochPlan
from pals.methods.method import Context, Method, Problem
from pals.methods.parts.ema import update_ema
from pals.methods.parts.ramps import FIRST_MOMENTUM, momentum_at
from pals.methods.parts.sampling import shuffled
from pals.pseudo_labels.simplex import best_candidate, one_hot, uniform_on
from pals.pseudo_labels.soft_vote import similarity
from pals.util.config import STRICT
from pals.vision.augment.augmentations import PICO_VIEWS
from pals.vision.networks import Network


class Embedder(nn.Module):
    """A network with a projection head beside its classifier: logits, and an embedding of length one in float32.

    Args:
        network: the network.
        width: width of the embedding.
    """

    def __init__(self, network: Network, width: int) -> None:
        super().__init__()
        self.network = network
        features = network.feature_width
        self.head = nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, width))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        output = self.network(x)
        return output.logits, self.project(output.features)

    def project(self, features_BD: Tensor) -> Tensor:
        """The embedding of features, normalize(head(features)).

        Args:
            features_BD: features of the network.
        """
        return F.normalize(self.head(features_BD).float(), dim=1)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:  # for the type checker: nn.Module's own is untyped
        both: tuple[Tensor, Tensor] = super().__call__(x)
        return both


@dataclass(frozen=True)
class StepCache:
    """Tensors that `loss` passes on to `after_step`, without gradient.

    Args:
        embedding_BD: z.
        key_BD: k.
        label_B: pseudo-labels, which enter the queue with the keys.
        member_BC: the prototype that each item updates, bool; a row may be empty.
        confidence_BC: new soft labels.
    """

    embedding_BD: Tensor
    key_BD: Tensor
    label_B: Tensor
    member_BC: Tensor
    confidence_BC: Tensor


class PrototypeMethod(Method):
    """The state of PiCO and its updates after each step.

    The `loss` of a subclass calls `embed`, compares with the pool by `positives` and `supervised_contrast` or by
    `instance_contrast`, and sets `cache`.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @settings(frozen=True, config=STRICT)
    class Config:
        embedding: int = Field(default=128, ge=1)
        "Width of the embeddings."
        queue: int = Field(default=8192, ge=1)
        "Number of keys of past batches to compare with; at most the number of items."
        key_momentum: float = Field(default=0.999, ge=0, le=1)
        "Momentum of the key network."
        prototype_momentum: float = Field(default=0.99, ge=0, le=1)
        "Momentum of the prototypes."
        temperature: float = Field(default=0.07, gt=0)
        "Temperature of the contrastive loss."
        contrast_weight: float = Field(default=0.5, ge=0)
        "Weight of the contrastive loss."
        phi_high: float = Field(default=0.95, ge=0, le=1)
        "Share of an item's confidence that is kept at each visit, in the second epoch..."
        phi_low: float = Field(default=0.8, ge=0, le=1)
        "... and at the end; it falls linearly in between. In the first epoch it is 0.99."

    views: tuple[str, ...] = ("pico_weak", "pico_strong")
    own_views = PICO_VIEWS
    cache: StepCache

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__(config, problem)
        self.query = Embedder(problem.network(), config.embedding)
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        length = min(config.queue, self.num_items)  # a longer queue would hold several keys of one item
        self.queue_MD = nn.Buffer(F.normalize(torch.randn(length, config.embedding), dim=1))
        self.queue_label_M = nn.Buffer(torch.full((length,), -1))  # -1: empty
        # The next two are tensors because numbers would be constants in a captured step.
        self.queue_start = nn.Buffer(torch.zeros((), dtype=torch.int64))
        self.phi = nn.Buffer(torch.tensor(FIRST_MOMENTUM))
        self.prototype_CD = nn.Buffer(torch.zeros(self.num_classes, config.embedding))
        self.confidence_NC = nn.Buffer(uniform_on(self.allowed_NC))

    @property
    def predictor(self) -> nn.Module:
        return self.query.network

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        """The items that are trained on, shuffled; a short last batch is left out, as published."""
        self.phi.fill_(momentum_at(ctx.epoch, ctx.epochs, self.config.phi_high, self.config.phi_low))
        return EpochPlan.of(shuffled(self.trained_on(), ctx.generator), drop_last=True)

    def trained_on(self) -> Tensor:
        """The items to train on, in order."""
        return torch.arange(self.num_items, device=self.allowed_NC.device)

    def embed(self, batch: Batch, mixed_B: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Pass the first view through the network and the second through the key network.

        Args:
            batch: the batch.
            mixed_B: mixed inputs, which share the pass but not the batch statistics.

        Returns:
            Logits, embedding, key, and logits of the mixed inputs.
        """
        if mixed_B is None:
            logits_BC, embedding_BD = self.query(batch.views[0])
            return logits_BC, embedding_BD, self.keys(batch), None
        own, mixed = self.query.network.each([batch.views[0], mixed_B])
        return own.logits, self.query.project(own.features), self.keys(batch), mixed.logits

    @torch.no_grad()
    def keys(self, batch: Batch) -> Tensor:
        """The embedding of the second view by the key network, B x D.

        Args:
            batch: the batch.
        """
        key_BD: Tensor = self.key(batch.views[1])[1]
        return key_BD

    def move_confidence(self, index_B: Tensor, target_BC: Tensor) -> Tensor:
        """phi s + (1 - phi) target, B x C.

        Args:
            index_B: items.
            target_BC: what their soft labels move towards.
        """
        return torch.lerp(target_BC, self.confidence_NC[index_B], self.phi)

    def vote_confidence(self, index_B: Tensor, score_BC: Tensor, allowed_BC: Tensor) -> Tensor:
        """phi s + (1 - phi) one_hot(argmax_{c in S} score_c), B x C.

        Args:
            index_B: items.
            score_BC: scores of the prototypes.
            allowed_BC: candidates.
        """
        return self.move_confidence(index_B, one_hot(best_candidate(score_BC, allowed_BC), self.num_classes).float())

    def pool(self, embedding_BD: Tensor, key_BD: Tensor) -> Tensor:
        """A, P x D: embeddings, keys and queue.

        Args:
            embedding_BD: z.
            key_BD: k.
        """
        return torch.cat([embedding_BD, key_BD, self.queue_MD])

    def positives(self, label_B: Tensor) -> Tensor:
        """B x P bool: rows of the pool with the same pseudo-label, among them the item's own key.

        Args:
            label_B: pseudo-labels.
        """
        return label_B[:, None] == torch.cat([label_B, label_B, self.queue_label_M])

    def after_step(self, batch: Batch) -> None:
        cache, c = self.cache, self.config
        self.confidence_NC[batch.index_B] = cache.confidence_BC
        self.prototype_CD.copy_(update_prototypes(self.prototype_CD, cache.embedding_BD, cache.member_BC, c.prototype_momentum))
        update_ema(self.key, self.query, c.key_momentum)
        row_B = self.queue_rows(len(cache.key_BD))
        self.queue_MD[row_B] = cache.key_BD[-len(row_B) :]
        self.queue_label_M[row_B] = cache.label_B[-len(row_B) :]
        self.queue_start.add_(len(row_B)).remainder_(len(self.queue_MD))

    def queue_rows(self, batch_size: int) -> Tensor:
        """The rows of the circular queue that the next keys replace; a queue shorter than the batch takes its last keys.

        Args:
            batch_size: number of keys.
        """
        count = min(batch_size, len(self.queue_MD))
        return (self.queue_start + torch.arange(count, device=self.queue_start.device)) % len(self.queue_MD)

    def posterior(self) -> Tensor:
        return self.confidence_NC


def update_prototypes(prototype_CD: Tensor, embedding_BD: Tensor, member_BC: Tensor, momentum: float | Tensor) -> Tensor:
    """mu_c <- normalize(m mu_c + (1 - m) z) for each item in turn; for the items 1..n of a class all at once

        m^n mu + (1 - m) sum_k m^(n - k) z_k

    Args:
        prototype_CD: mu.
        embedding_BD: z, in the order of the batch.
        member_BC: the class of each item, bool; a row may be empty.
        momentum: m; a tensor if it changes between epochs.

    Returns:
        C x D, rows of length one; rows of zeros stay zero.
    """
    rank_BC = member_BC.cumsum(dim=0)  # whole numbers: exact in any order of summation
    count_C = rank_BC[-1]
    weight_BC = member_BC * (1 - momentum) * momentum ** (count_C - rank_BC)
    moved_CD = (momentum**count_C)[:, None] * prototype_CD + similarity(weight_BC.T, embedding_BD.T)
    return F.normalize(moved_CD, dim=1)


def log_shares(embedding_BD: Tensor, pool_PD: Tensor, temperature: float) -> Tensor:
    """log( e^(z A_j / t) / sum_l e^(z A_l / t) ) for each row j of the pool, without the item itself.

    Args:
        embedding_BD: z.
        pool_PD: A; its first B rows are the items.
        temperature: t.

    Returns:
        B x P; -inf for the item's own row.
    """
    score_BP = similarity(embedding_BD, pool_PD) / temperature
    return F.log_softmax(score_BP.masked_fill(own_rows(score_BP), -torch.inf), dim=1)


def own_rows(table_BP: Tensor) -> Tensor:
    """B x P bool: an item's own row of the pool.

    Args:
        table_BP: any table of this shape.
    """
    return one_hot(torch.arange(len(table_BP), device=table_BP.device), table_BP.shape[1])


def mean_over_positives(log_share_BP: Tensor, positive_BP: Tensor) -> Tensor:
    """The mean of minus `log_shares` over the positives of each item.

    Args:
        log_share_BP: log shares.
        positive_BP: positives, bool; the item itself does not count, and each item needs another one.

    Returns:
        One loss per item.
    """
    positive_BP = positive_BP & ~own_rows(positive_BP)
    return -log_share_BP.where(positive_BP, 0.0).sum(dim=1) / positive_BP.sum(dim=1)


def supervised_contrast(embedding_BD: Tensor, pool_PD: Tensor, positive_BP: Tensor, temperature: float) -> Tensor:
    """SupCon of each item.

    Args:
        embedding_BD: z.
        pool_PD: A.
        positive_BP: P(i), bool.
        temperature: t.

    Returns:
        One loss per item.
    """
    return mean_over_positives(log_shares(embedding_BD, pool_PD, temperature), positive_BP)


def instance_contrast(embedding_BD: Tensor, key_BD: Tensor, queue_MD: Tensor, temperature: float) -> Tensor:
    """MoCo's loss of each item: its own key against the queue.

    Args:
        embedding_BD: z.
        key_BD: k.
        queue_MD: Q.
        temperature: t.

    Returns:
        One loss per item.
    """
    own_B1 = (embedding_BD * key_BD).sum(dim=1, keepdim=True)
    score_BM = torch.cat([own_B1, similarity(embedding_BD, queue_MD)], dim=1) / temperature
    return -F.log_softmax(score_BM, dim=1)[:, 0]
