"""The trunk that PiCO, PiCO+, ALIM and IRNet share: embeddings, a slow key network, a queue of past keys, class prototypes
and a confidence per label that follows their votes. Not a method itself.

P in a shape is the number of rows in the pool that an embedding is compared with: the batch, its keys and the queue.
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

from pals.methods.method import Batch, Context, EpochPlan, Method, Problem
from pals.methods.parts.losses import uniform_on
from pals.methods.parts.sampling import shuffled
from pals.util.config import STRICT
from pals.vision.augment.augmentations import PICO_VIEWS
from pals.vision.networks import Network

FIRST_PHI = 0.99  # in the first epoch, before the schedule begins


class Embedder(nn.Module):
    """A network with a projection head beside its classifier: class scores, and an embedding of length one in float32."""

    def __init__(self, network: Network, width: int) -> None:
        super().__init__()
        self.network = network
        features = network.feature_width
        self.head = nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, width))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        output = self.network(x)
        return output.logits, self.project(output.features)

    def project(self, features_BD: Tensor) -> Tensor:
        return F.normalize(self.head(features_BD).float(), dim=1)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:  # for the type checker: nn.Module's own is untyped
        both: tuple[Tensor, Tensor] = super().__call__(x)
        return both


@dataclass(frozen=True)
class Seen:
    """What `loss` leaves for `after_step`, all of it without gradient."""

    embedding_BD: Tensor
    key_BD: Tensor
    label_B: Tensor  # pseudo-labels, which go into the queue with the keys
    member_BC: Tensor  # bool: which prototype each item moves; a row may be empty
    confidence_BC: Tensor


class Contrastive(Method):
    """Keeps all state of the trunk and moves it after each step. `loss` of a method made from it calls `embed`, compares with
    the queue by `positives` and `supervised_contrast` or by `instance_contrast`, and leaves a `Seen`.

    Published codes move prototypes, key network and queue in the middle of a step. Here all wait until its end. The numbers
    are the same: the loss reads prototypes and queue as they were before the step, and the key network moved after one step
    is the one that the next would have moved first.
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
    seen: Seen

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__(config, problem)
        self.query = Embedder(problem.network(), config.embedding)
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        length = min(config.queue, self.num_items)  # more would hold several keys of one item
        self.queue_MD: Tensor
        self.queue_label_M: Tensor
        self.place: Tensor  # a tensor, because a number would be frozen into a captured step; so is phi
        self.prototype_CD: Tensor
        self.confidence_NC: Tensor
        self.phi: Tensor
        self.register_buffer("queue_MD", F.normalize(torch.randn(length, config.embedding), dim=1))
        self.register_buffer("queue_label_M", torch.full((length,), -1))  # the label of nobody
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))
        self.register_buffer("prototype_CD", torch.zeros(self.num_classes, config.embedding))
        self.register_buffer("confidence_NC", uniform_on(self.allowed_NC))
        self.register_buffer("phi", torch.tensor(FIRST_PHI))

    @property
    def predictor(self) -> nn.Module:
        return self.query.network

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        """The items that are trained on, shuffled; a short last batch is left out, as published."""
        self.phi.fill_(phi_at(ctx.epoch, ctx.epochs, self.config.phi_high, self.config.phi_low))
        return EpochPlan.of(shuffled(self.trained_on(), ctx.generator), drop_last=True)

    def trained_on(self) -> Tensor:
        """The items of an epoch, in order."""
        return torch.arange(self.num_items, device=self.allowed_NC.device)

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Class scores and embedding of the first view, and the key, made from the second view by the slow network."""
        logits_BC, embedding_BD = self.query(batch.views[0])
        return logits_BC, embedding_BD, self.keys(batch)

    def embed_beside(self, batch: Batch, mixed_B: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The same, and the class scores of mixed inputs, which share the pass but not the batch statistics."""
        own, mixed = self.query.network.each([batch.views[0], mixed_B])
        return own.logits, self.query.project(own.features), self.keys(batch), mixed.logits

    @torch.no_grad()
    def keys(self, batch: Batch) -> Tensor:
        key_BD: Tensor = self.key(batch.views[1])[1]
        return key_BD

    def moved_confidence(self, index_B: Tensor, target_BC: Tensor) -> Tensor:
        """phi of the items' confidence and the rest of the target."""
        return torch.lerp(target_BC, self.confidence_NC[index_B], self.phi)

    def voted_confidence(self, index_B: Tensor, score_BC: Tensor, allowed_BC: Tensor) -> Tensor:
        """The items' confidence, moved towards the allowed label of the highest score."""
        return self.moved_confidence(index_B, members(best_of(score_BC, allowed_BC), self.num_classes).float())

    def pool(self, embedding_BD: Tensor, key_BD: Tensor) -> Tensor:
        """P x D: what the embeddings are compared with."""
        return torch.cat([embedding_BD, key_BD, self.queue_MD])

    def positives(self, label_B: Tensor) -> Tensor:
        """B x P: who in the pool has the same pseudo-label. An item's own key has."""
        return label_B[:, None] == torch.cat([label_B, label_B, self.queue_label_M])

    def after_step(self, batch: Batch) -> None:
        seen, c = self.seen, self.config
        self.confidence_NC[batch.index_B] = seen.confidence_BC
        self.prototype_CD.copy_(moved_prototypes(self.prototype_CD, seen.embedding_BD, seen.member_BC, c.prototype_momentum))
        slow, fast = (tuple(embedder.parameters()) for embedder in (self.key, self.query))
        torch._foreach_lerp_(slow, fast, 1 - c.key_momentum)
        row_B = self.queue_rows(len(seen.key_BD))
        self.queue_MD[row_B] = seen.key_BD[-len(row_B) :]
        self.queue_label_M[row_B] = seen.label_B[-len(row_B) :]
        self.place.add_(len(row_B)).remainder_(len(self.queue_MD))

    def queue_rows(self, batch_size: int) -> Tensor:
        """Where in the queue the next keys go, round and round; a queue shorter than the batch takes its last keys."""
        count = min(batch_size, len(self.queue_MD))
        return (self.place + torch.arange(count, device=self.place.device)) % len(self.queue_MD)

    def posterior(self) -> Tensor:
        return self.confidence_NC


def phi_at(epoch: int, epochs: int, high: float, low: float) -> float:
    """Share of the old confidence kept in this epoch, counted from 1. As published, the fall begins with the third."""
    return FIRST_PHI if epoch == 1 else high - (high - low) * (epoch - 2) / epochs


def best_of(score_BC: Tensor, allowed_BC: Tensor) -> Tensor:
    """The allowed class with the highest score."""
    return score_BC.masked_fill(~allowed_BC, -torch.inf).argmax(dim=1)


def members(label_B: Tensor, num_classes: int) -> Tensor:
    """B x C bool: each row has its label and nothing else."""
    return label_B[:, None] == torch.arange(num_classes, device=label_B.device)


def similarity(left_BD: Tensor, right_MD: Tensor) -> Tensor:
    """Dot products, in float32 whatever precision the networks run in: a small temperature would blow up the error."""
    with torch.autocast(left_BD.device.type, enabled=False):
        return left_BD.float() @ right_MD.float().T


def moved_prototypes(prototype_CD: Tensor, embedding_BD: Tensor, member_BC: Tensor, momentum: float | Tensor) -> Tensor:
    """Each item in turn moves its class: mu <- m mu + (1 - m) z; after the last, rows are brought to length one (zero rows
    stay). For a class with the items 1..n all at once: m^n mu + (1 - m) sum_k m^(n-k) z_k. A momentum that changes from epoch
    to epoch comes as a tensor."""
    rank_BC = member_BC.cumsum(dim=0)  # of whole numbers: exact in any order of summation
    count_C = rank_BC[-1]
    weight_BC = member_BC * (1 - momentum) * momentum ** (count_C - rank_BC)
    moved_CD = (momentum**count_C)[:, None] * prototype_CD + similarity(weight_BC.T, embedding_BD.T)
    return F.normalize(moved_CD, dim=1)


def log_shares(embedding_BD: Tensor, pool_PD: Tensor, temperature: float) -> Tensor:
    """log( e^(z.A_j / t) / sum_l e^(z.A_l / t) ) for each j in the pool. The first B rows of the pool are the items
    themselves: an item's own row is left out of the sum, and its share is 0."""
    score_BP = similarity(embedding_BD, pool_PD) / temperature
    return F.log_softmax(score_BP.masked_fill(own_rows(score_BP), -torch.inf), dim=1)


def own_rows(table_BP: Tensor) -> Tensor:
    """B x P bool: where an item meets itself in the pool."""
    return members(torch.arange(len(table_BP), device=table_BP.device), table_BP.shape[1])


def mean_over_positives(log_share_BP: Tensor, positive_BP: Tensor) -> Tensor:
    """Per item the mean of minus its positives' `log_shares`. Itself does not count; each item needs another positive."""
    positive_BP = positive_BP & ~own_rows(positive_BP)
    return -log_share_BP.where(positive_BP, 0.0).sum(dim=1) / positive_BP.sum(dim=1)


def supervised_contrast(embedding_BD: Tensor, pool_PD: Tensor, positive_BP: Tensor, temperature: float) -> Tensor:
    """SupCon per item: the mean, over its positives j in the pool, of -log( e^(z.A_j / t) / sum_l e^(z.A_l / t) )."""
    return mean_over_positives(log_shares(embedding_BD, pool_PD, temperature), positive_BP)


def instance_contrast(embedding_BD: Tensor, key_BD: Tensor, queue_MD: Tensor, temperature: float) -> Tensor:
    """MoCo's loss per item: its own key against the queue, -log( e^(z.k / t) / (e^(z.k / t) + sum_l e^(z.Q_l / t)) )."""
    own_B1 = (embedding_BD * key_BD).sum(dim=1, keepdim=True)
    score_BM = torch.cat([own_B1, similarity(embedding_BD, queue_MD)], dim=1) / temperature
    return -F.log_softmax(score_BM, dim=1)[:, 0]
