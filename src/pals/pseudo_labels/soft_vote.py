"""The labelling step of SRSE: soft votes of neighbours, weighted by how far their own neighbourhoods agree with them.

A vote is V(P)_i = softmax_c(sum_k W_ik P_kc), with the topology kernel W of labels P (normalize = rows to sum one):

    top_i = normalize(sum_k s_ik / sum_k s_ik P_k),  M_i = normalize(top_i * normalize(P_i))
    rho_i = exp(-gamma H(M_i)^2)                                              trust
    tau_i = tau_0 + lambda_H H(sum_k softmax_k(s_ik / tau_sp) P_k)^2          temperature of a mixed neighbourhood
    W_ik  = exp(s_ik^2 / tau_i - max_k s_ik^2 / tau_i) rho_k                  or exp(s_ik / tau_0) for the kernel "exp"

    P1 = V(Y);   phat = normalize(((1 - w) P1 + w p) * Y);   r = max P1 / (max P1 + max p)
    P2 = V(normalize(r P1 + (1 - r) phat));   yhat = argmax P2
    reliable: for each class c the m items with the highest P2_c among those with yhat = c in Y

Symbols: s cosines, not negative; Y candidates or vote shares; p predictions; H entropy in units of log C; w weight of the
network; m delta-quantile of the number of items with yhat = c in Y.
Reference: SRSE, unreviewed manuscript and code, github.com/2667741708/SRSE. Page: docs/methods/srse.md.

Memory is a few tables of N x C and N x K; no sum depends on the order in which a device works.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from pals.pseudo_labels.knn_vote import vote
from pals.pseudo_labels.simplex import normalize_rows

MIN_ROW_SUM = 1e-12  # as in the authors' code; also inside logarithms
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
    """The weight W of each neighbour's vote.

    Args:
        index_NK: neighbours.
        similarity_NK: cosines s, not negative.
        label_NC: labels P.
        kernel: "topology", or "exp", which does not depend on the labels.
        temperature: tau_0.
        gamma: decay of the trust.
        spread_temperature: tau_sp.
        spread_weight: lambda_H.

    Returns:
        N x K; the largest exponential of a row is 1 for the topology kernel.
    """
    if kernel == "exp":
        return (similarity_NK / temperature).exp()
    trust_N = trust(index_NK, similarity_NK, label_NC, gamma)
    mixed_N1 = mixedness(index_NK, similarity_NK, label_NC, spread_temperature)[:, None]
    exponent_NK = similarity_NK.square() / (temperature + spread_weight * mixed_N1.square())
    return (exponent_NK - exponent_NK.amax(dim=1, keepdim=True)).exp() * trust_N[index_NK]


def trust(index_NK: Tensor, similarity_NK: Tensor, label_NC: Tensor, gamma: float) -> Tensor:
    """rho = exp(-gamma H(M)^2), 1 where an item's labels and those of its neighbours have exactly one label in common.

    Args:
        index_NK: neighbours.
        similarity_NK: cosines.
        label_NC: labels P.
        gamma: decay.

    Returns:
        One number per item.
    """
    share_NK = _normalize(similarity_NK)
    common_NC = _normalize(_normalize(vote(index_NK, share_NK, label_NC)) * _normalize(label_NC))
    return torch.exp(-gamma * entropy(common_NC).square())


def mixedness(index_NK: Tensor, similarity_NK: Tensor, label_NC: Tensor, temperature: float) -> Tensor:
    """H of the neighbours' mean label. As in the authors' code P is not normalised: several candidates sum to more than one.

    Args:
        index_NK: neighbours.
        similarity_NK: cosines.
        label_NC: labels P.
        temperature: tau_sp.

    Returns:
        One number per item.
    """
    return entropy(vote(index_NK, (similarity_NK / temperature).softmax(dim=1), label_NC))


def soft_vote(index_NK: Tensor, weight_NK: Tensor, label_NC: Tensor) -> Tensor:
    """The vote V(P). The sums are not normalised before the softmax: more weight makes the vote sharper.

    Args:
        index_NK: neighbours.
        weight_NK: their weights W.
        label_NC: labels P.

    Returns:
        N x C, rows sum to one.
    """
    return vote(index_NK, weight_NK, label_NC).softmax(dim=1)


def entropy(share_NC: Tensor) -> Tensor:
    """H = -sum_c p_c log p_c / log C, 1 for the uniform distribution.

    Args:
        share_NC: class probabilities.

    Returns:
        One number per row.

    >>> torch.allclose(entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]])), torch.tensor([1.0, 0.0]))
    True
    """
    return -(share_NC * (share_NC + MIN_ROW_SUM).log()).sum(dim=1) / math.log(share_NC.shape[1])


def blend_with_prediction(
    vote_NC: Tensor,
    predicted_NC: Tensor,
    ballot_NC: Tensor,
    weight: float,
    *,
    reliability: float | None = None,
    mask: bool = True,
) -> Tensor:
    """The labels of the second vote, normalize(r P1 + (1 - r) phat).

    Args:
        vote_NC: P1.
        predicted_NC: class probabilities p of the network.
        ballot_NC: candidates or vote shares Y.
        weight: w, the share of the prediction in phat.
        reliability: r; None: max P1 / (max P1 + max p) of each item.
        mask: restrict phat to the candidates.

    Returns:
        N x C, rows sum to one.
    """
    guess_NC = torch.lerp(vote_NC, predicted_NC, weight)
    guess_NC = _normalize(guess_NC * ballot_NC if mask else guess_NC)
    if reliability is not None:
        return _normalize(torch.lerp(guess_NC, vote_NC, reliability))
    return _normalize(torch.lerp(guess_NC, vote_NC, relative_peak(vote_NC, predicted_NC)[:, None]))


def relative_peak(vote_NC: Tensor, predicted_NC: Tensor) -> Tensor:
    """r = max P1 / (max P1 + max p).

    Args:
        vote_NC: P1.
        predicted_NC: p.

    Returns:
        One number per item.
    """
    peak_N = vote_NC.amax(dim=1)
    return peak_N / (peak_N + predicted_NC.amax(dim=1) + MIN_ROW_SUM)


def _normalize(table_NC: Tensor) -> Tensor:
    return normalize_rows(table_NC, min_sum=MIN_ROW_SUM)


def select_own(posterior_NC: Tensor, allowed_NC: Tensor, quota: int) -> Tensor:
    """Select reliable items: for each class the `quota` items with the highest posterior among those whose class with the
    highest posterior it is and whose candidate it is. No class is filled up with items that prefer another.

    Args:
        posterior_NC: P2.
        allowed_NC: candidates, bool.
        quota: m; of equal items the first are selected.

    Returns:
        bool, N.

    >>> select_own(torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]), torch.ones(3, 2, dtype=torch.bool), 1).tolist()
    [True, False, True]
    """
    num_items, num_classes = posterior_NC.shape
    top_N, best_N = posterior_NC.max(dim=1)
    class_N = torch.where(allowed_NC.gather(1, best_N[:, None]).squeeze(1), best_N, num_classes)
    order_N = top_N.argsort(descending=True, stable=True)
    order_N = order_N[class_N[order_N].argsort(stable=True)]  # class by class, the highest posterior first
    sorted_N = class_N[order_N]
    count_C = torch.bincount(class_N, minlength=num_classes + 1)
    rank_N = torch.arange(num_items, device=order_N.device) - (count_C.cumsum(dim=0) - count_C)[sorted_N]
    selected_N = torch.zeros_like(order_N, dtype=torch.bool)
    selected_N[order_N] = (rank_N < quota) & (sorted_N < num_classes)
    return selected_N


def similarity(left_MD: Tensor, right_ND: Tensor) -> Tensor:
    """Dot products in float32 whatever precision the networks run in: a low temperature would amplify the error.

    Args:
        left_MD: rows.
        right_ND: rows of the same width.

    Returns:
        float32, M x N.
    """
    with torch.autocast(left_MD.device.type, enabled=False):
        return left_MD.float() @ right_ND.float().T


def update_class_means(prototype_CD: Tensor, unit_MD: Tensor, member_MC: Tensor, momentum: float) -> Tensor:
    """Prototypes after new items, mu_c <- normalize(m mu_c + (1 - m) normalize(mean of the items of class c)).

    Args:
        prototype_CD: mu, rows of length one, or zero before the first item of a class, whose mean it then becomes.
        unit_MD: features of the items, at unit length.
        member_MC: bool, the class of each item; a row may be empty.
        momentum: m.

    Returns:
        C x D; a class without items keeps its prototype.
    """
    mean_CD = F.normalize(similarity(member_MC.T, unit_MD.T), dim=1)
    moved_CD = F.normalize(torch.lerp(mean_CD, prototype_CD, momentum), dim=1)
    return torch.where(member_MC.any(dim=0)[:, None], moved_CD, prototype_CD)


def consensus(prediction_NC: Tensor, posterior_NC: Tensor, unit_ND: Tensor, prototype_CD: Tensor) -> Tensor:
    """The class on which network, vote and nearest prototype agree.

    Args:
        prediction_NC: p.
        posterior_NC: P2.
        unit_ND: features at unit length.
        prototype_CD: mu.

    Returns:
        int64, N; -1 where they differ.
    """
    label_N = prediction_NC.argmax(dim=1)
    nearest_N = similarity(unit_ND, prototype_CD).argmax(dim=1)
    return torch.where((label_N == posterior_NC.argmax(dim=1)) & (label_N == nearest_N), label_N, -1)
