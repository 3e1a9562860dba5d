"""Weights of nearest neighbours and the sums of their votes.

    score_ic = sum_k w_ik label_kc,  k in N_i

Symbols: N_i neighbours of item i; w weights, from the cosines s; label candidates, frequencies or probabilities.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pals.pseudo_labels.faiss_search import Backend
from pals.pseudo_labels.knn import nearest
from pals.pseudo_labels.simplex import normalize_rows

Weighting = Literal["exp", "cosine", "local"]


def neighbor_weight(similarity_NK: Tensor, weighting: Weighting = "exp", temperature: float = 0.1) -> Tensor:
    """Weights of the neighbours' votes, up to a factor per row, which changes neither the winner of a vote nor a posterior.

        exp     exp(s / tau)
        cosine  max(s, 0)
        local   exp(s / (s_max - s_min)), so that the nearest counts e times as much as the farthest

    Args:
        similarity_NK: cosines, largest first.
        weighting: one of the three formulas; the two exponential ones are normalised, and no temperature is too low.
        temperature: tau.

    Returns:
        N x K.

    >>> neighbor_weight(torch.tensor([[0.5, -0.5]]), "cosine").tolist()
    [[0.5, 0.0]]
    """
    if weighting == "cosine":
        return similarity_NK.clamp_min(0.0)
    if weighting == "local":
        below_NK = similarity_NK - similarity_NK[:, :1]
        spread_N1 = below_NK[:, -1:].abs().clamp_min(torch.finfo(below_NK.dtype).tiny)
        return (below_NK / spread_N1).softmax(dim=1)
    return (similarity_NK / temperature).softmax(dim=1)


def vote(neighbor_NK: Tensor, weight_NK: Tensor, label_NC: Tensor) -> Tensor:
    """Sum the neighbours' labels, sum_k w_ik label_kc, without storing the N x K x C labels of the neighbours.

    Args:
        neighbor_NK: neighbours of each item: rows of `label_NC`.
        weight_NK: their weights.
        label_NC: their labels: candidates, frequencies or probabilities.

    Returns:
        N x C, in the precision of the weights.

    >>> vote(torch.tensor([[1, 2]]), torch.tensor([[0.5, 2.0]]), torch.eye(3)).tolist()
    [[0.0, 0.5, 2.0]]
    """
    return F.embedding_bag(neighbor_NK, label_NC.to(weight_NK.dtype), per_sample_weights=weight_NK, mode="sum")


def vote_posterior(neighbor_NK: Tensor, weight_NK: Tensor, pseudo_N: Tensor, num_classes: int) -> Tensor:
    """The posterior of each item's class (Eq. 2): the share of the neighbours' weight by their pseudo-labels.

    Args:
        neighbor_NK: neighbours of each item.
        weight_NK: their weights.
        pseudo_N: pseudo-labels of all items.
        num_classes: C.

    Returns:
        N x C, rows sum to one; uniform where all weights are 0.
    """
    # Indexed by class in a small identity table, so that no N x C one-hot table is stored.
    one_hot_CC = torch.eye(num_classes, dtype=weight_NK.dtype, device=weight_NK.device)
    return normalize_rows(vote(pseudo_N[neighbor_NK], weight_NK, one_hot_CC), empty=1 / num_classes)


class Voters(NamedTuple):
    """Who votes on each item: neighbours, and the item itself if it votes.

    Args:
        index_NK: the voting items.
        weight_NK: weights of their votes.
    """

    index_NK: Tensor
    weight_NK: Tensor

    def with_self(self, weight: float | Tensor) -> Voters:
        """These voters and the item itself.

        Args:
            weight: weight of the item's own vote: a number, or N x 1.
        """
        own_N1 = torch.arange(len(self.index_NK), device=self.index_NK.device)[:, None]
        weight_N1 = torch.as_tensor(weight, dtype=self.weight_NK.dtype, device=own_N1.device).expand(len(own_N1), 1)
        return Voters(torch.cat([own_N1, self.index_NK], dim=1), torch.cat([weight_N1, self.weight_NK], dim=1))


def find_voters(
    features_ND: Tensor,
    neighbors: int,
    weighting: Weighting = "exp",
    temperature: float = 0.1,
    *,
    include_self: bool = True,
    backend: Backend = "torch",
) -> Voters:
    """Find the nearest neighbours and compute their weights.

    Args:
        features_ND: features of all items.
        neighbors: K.
        weighting: see `neighbor_weight`.
        temperature: tau.
        include_self: the item itself votes too, with similarity 1 or, for the local weighting, as its nearest neighbour.
        backend: neighbour search.

    Returns:
        K voters per item, or K + 1.
    """
    local = weighting == "local"
    index_NK, similarity_NK = nearest(features_ND, neighbors, include_self=include_self and not local, backend=backend)
    found = Voters(index_NK, neighbor_weight(similarity_NK, weighting, temperature))
    return found.with_self(found.weight_NK[:, :1]) if include_self and local else found
