"""Soft votes of neighbours that are trusted as far as their own neighbourhood bears them out: the labelling of SRSE.

Unlike the votes of `pals.pseudo_labels`, which name a winner, these stay soft: a vote is the softmax of the neighbours' summed
labels. Functions of tensors alone, in float32. Nothing here needs more memory than a few tables of N x C and N x K, and no sum
depends on the order in which a device works.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from pals.methods.bases.prototypes import similarity
from pals.pseudo_labels import vote

EPS = 1e-12
Kernel = Literal["topology", "exp"]


def kernel_weight(
    index_NK: Tensor,
    similarity_NK: Tensor,
    label_NC: Tensor,
    *,
    kernel: Kernel = "topology",
    temperature: float = 0.1,
    gamma: float = 2.0,
    spread_temperature: float = 0.5,
    spread_weight: float = 0.5,
) -> Tensor:
    """N x K: what each neighbour's vote counts; similarities must not be negative.

    "topology": exp(s^2 / tau_i), scaled so that the largest is 1, times the neighbour's trust. Where the neighbourhood is mixed
    tau_i is high, and near and far neighbours count alike. "exp": exp(s / temperature), whatever the labels.
    """
    if kernel == "exp":
        return (similarity_NK / temperature).exp()
    trust_N = trust(index_NK, similarity_NK, label_NC, gamma)
    mixed_N1 = mixedness(index_NK, similarity_NK, label_NC, spread_temperature)[:, None]
    exponent_NK = similarity_NK.square() / (temperature + spread_weight * mixed_N1.square())
    return (exponent_NK - exponent_NK.amax(dim=1, keepdim=True)).exp() * trust_N[index_NK]


def soft_vote(index_NK: Tensor, weight_NK: Tensor, label_NC: Tensor) -> Tensor:
    """The softmax of the neighbours' labels, each times its weight. The sums are not divided by anything first, so the more
    weight has voted the sharper the answer."""
    return vote(index_NK, weight_NK, label_NC).softmax(dim=1)


def trust(index_NK: Tensor, similarity_NK: Tensor, label_NC: Tensor, gamma: float) -> Tensor:
    """rho = exp(-gamma s^2), with s the entropy of what an item's labels and its neighbours' have in common: 1 where they agree
    on one label."""
    share_NK = similarity_NK / similarity_NK.sum(dim=1, keepdim=True).clamp_min(EPS)
    around_NC = normed(vote(index_NK, share_NK, label_NC))
    common_NC = normed(around_NC * normed(label_NC))
    return torch.exp(-gamma * entropy(common_NC).square())


def mixedness(index_NK: Tensor, similarity_NK: Tensor, label_NC: Tensor, temperature: float) -> Tensor:
    """Entropy of the neighbours' mean label. The mean is taken as it is: a row of several candidates sums to more than one."""
    return entropy(vote(index_NK, (similarity_NK / temperature).softmax(dim=1), label_NC))


def entropy(share_NC: Tensor) -> Tensor:
    """In units of the largest that so many classes can have."""
    return -(share_NC * (share_NC + EPS).log()).sum(dim=1) / math.log(share_NC.shape[1])


def normed(table_NC: Tensor) -> Tensor:
    """Rows scaled to sum to one; a row of zeros stays."""
    return table_NC / table_NC.sum(dim=1, keepdim=True).clamp_min(EPS)


def model_share(epoch: int, most: float, ramp: int) -> float:
    """How much the network's prediction counts in this epoch, from 1: nothing in the first, `most` after `ramp` more."""
    return most * min(1.0, (epoch - 1) / ramp) if ramp else most


def blended(
    vote_NC: Tensor,
    predicted_NC: Tensor,
    ballot_NC: Tensor,
    share: float,
    *,
    reliability: float | None = None,
    mask: bool = True,
) -> Tensor:
    """The neighbours' vote and the network's prediction in one table, rows sum to one.

    `share` of the prediction goes into the vote, the result is cut to the item's own candidates (`mask`), and `reliability` of
    the vote is added to the rest of that; by default a vote weighs more where it is surer than the prediction.
    """
    guess_NC = torch.lerp(vote_NC, predicted_NC, share)
    guess_NC = normed(guess_NC * ballot_NC if mask else guess_NC)
    if reliability is not None:
        return normed(torch.lerp(guess_NC, vote_NC, reliability))
    return normed(torch.lerp(guess_NC, vote_NC, sureness(vote_NC, predicted_NC)[:, None]))


def sureness(vote_NC: Tensor, predicted_NC: Tensor) -> Tensor:
    """r: the height of the vote's peak as a share of both peaks."""
    peak_N = vote_NC.amax(dim=1)
    return peak_N / (peak_N + predicted_NC.amax(dim=1) + EPS)


def own_quota(pool_C: Tensor, quantile: float) -> int:
    """A quantile of the classes' pools, interpolated and rounded down; it may be 0."""
    value = float(torch.quantile(pool_C.cpu().to(torch.float64), quantile))
    return math.floor(value + 1e-6)  # 28.999999999999996 is the 29 that interpolation in floats missed


def select_own(posterior_NC: Tensor, allowed_NC: Tensor, quota: int) -> Tensor:
    """Which items are reliable: of those that believe most in one of their own candidates, for each class the `quota` that
    believe in it most; of equals the first in order. No class is filled up with items that prefer another."""
    num_items, nobody = posterior_NC.shape
    top_N, best_N = posterior_NC.max(dim=1)
    class_N = torch.where(allowed_NC.gather(1, best_N[:, None]).squeeze(1), best_N, nobody)
    order_N = top_N.argsort(descending=True, stable=True)
    order_N = order_N[class_N[order_N].argsort(stable=True)]  # class by class, the most believed first
    sorted_N = class_N[order_N]
    count_C = torch.bincount(class_N, minlength=nobody + 1)
    rank_N = torch.arange(num_items, device=order_N.device) - (count_C.cumsum(dim=0) - count_C)[sorted_N]
    selected_N = torch.zeros_like(order_N, dtype=torch.bool)
    selected_N[order_N] = (rank_N < quota) & (sorted_N < nobody)
    return selected_N


def moved_means(prototype_CD: Tensor, unit_MD: Tensor, member_MC: Tensor, momentum: float) -> Tensor:
    """Prototypes after new items: `momentum` of the old one and the rest of the items' mean, both of length one, brought to
    length one. A class without items keeps its prototype; one without a prototype, a row of zeros, takes over the mean."""
    mean_CD = F.normalize(similarity(member_MC.T, unit_MD.T), dim=1)
    moved_CD = F.normalize(torch.lerp(mean_CD, prototype_CD, momentum), dim=1)
    return torch.where(member_MC.any(dim=0)[:, None], moved_CD, prototype_CD)


def consensus(prediction_NC: Tensor, posterior_NC: Tensor, unit_ND: Tensor, prototype_CD: Tensor) -> Tensor:
    """The class that network, vote and nearest prototype all name; -1 where they do not."""
    label_N = prediction_NC.argmax(dim=1)
    nearest_N = similarity(unit_ND, prototype_CD).argmax(dim=1)
    return torch.where((label_N == posterior_NC.argmax(dim=1)) & (label_N == nearest_N), label_N, -1)
