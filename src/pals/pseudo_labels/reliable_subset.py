"""The labelling step of PALS: from features and candidate sets to the items and labels worth training on.

    w_ik = exp(s_ik / tau),  k in N_i                                the K nearest by the cosine s, and i itself
    yhat_i = argmax_c sum_k w_ik pi_kc [c in Y_k]                    (1) pseudo-label, any class
    q_ic = sum_k w_ik [yhat_k = c] / sum_k w_ik                      (2) posterior
    m = delta-quantile of a_1..a_C,  a_c = #{i: argmax q_i = c in Y_i}   (3) quota
    T_c = the m items with the highest q_ic among those with c in Y_i,  T = union of T_c   (4), (5) selection
    Y_i <- Y_i + {argmax p_i} where max p_i > lambda_t               (11) confident predictions join

Symbols: Y_i candidates; pi vote frequencies, or 1; p predictions; tau temperature; delta quantile; lambda_t threshold.
Reference: Saravanan, Manwani and Gandhi, arXiv 2402.04835. Where paper and authors' code differ, the defaults follow the code;
docs/methods/pals.md lists the differences.

Memory is a few tables of N x C and N x K; no sum depends on the order in which a device works. `pseudo_label` checks its
input, the other functions do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from pals.labels.covering import is_candidate
from pals.pseudo_labels.candidate_model import CandidateModel, fit_candidate_model
from pals.pseudo_labels.faiss_search import Backend
from pals.pseudo_labels.knn import nearest
from pals.pseudo_labels.knn_recall import recall_of
from pals.pseudo_labels.knn_vote import Voters, Weighting, find_voters, neighbor_weight, vote, vote_posterior
from pals.pseudo_labels.simplex import floor_quantile, normalize_rows, one_hot
from pals.util.errors import InputError, unknown

VoteOn = Literal["pseudo", "candidates", "posterior"]
Auto = Literal["auto"]
SelfWeight = float | Literal["kernel", "auto"]
Quantile = float | Literal["all"]

NEIGHBOR_GRID = (5, 10, 20, 40, 80)
"""Numbers of neighbours from which "auto" takes the one with the highest likelihood."""


@dataclass(frozen=True)
class Labeling:
    """The result of one labelling step.

    Args:
        pseudo_N: pseudo-labels by the neighbours' candidates, int64; any class, not only candidates of the item.
        posterior_NC: posterior of each item's class, float32; rows sum to one.
        selected_N: items to train on, bool.
        label_N: labels to train on, int64; -1 for items that are not selected.
        quota: largest number of items per class.
        recall: share of the true neighbours that an approximate search found, on a sample; None for an exact search.
    """

    pseudo_N: Tensor
    posterior_NC: Tensor
    selected_N: Tensor
    label_N: Tensor
    quota: int
    recall: float | None = None


@torch.no_grad()
def pseudo_label(
    features_ND: Tensor,
    allowed_NC: Tensor,
    *,
    neighbors: int | Auto = 15,
    weighting: Weighting = "exp",
    temperature: float = 0.1,
    include_self: bool = True,
    self_weight: SelfWeight = "kernel",
    quantile: Quantile = 0.25,
    prior_NC: Tensor | None = None,
    predicted_NC: Tensor | None = None,
    threshold: float | None = None,
    vote_on: VoteOn = "pseudo",
    backend: Backend = "torch",
) -> Labeling:
    """Compute pseudo-labels and select reliable items: one labelling step of PALS.

    Args:
        features_ND: features of all items.
        allowed_NC: candidates, bool or 0 and 1; no row is empty.
        neighbors: number of neighbours K. "auto": the K of `NEIGHBOR_GRID` under which the neighbours' votes give the candidate
            sets the highest likelihood.
        weighting: weight of a neighbour's vote: exp(cosine / temperature) or, as in the paper, its cosine if positive. "local":
            exp(cosine / spread), for features whose neighbours are not very similar; see `neighbor_weight`.
        temperature: tau of the exponential weighting.
        include_self: the item itself votes too, as in the authors' code.
        self_weight: weight of the item's own vote, relative to all neighbours together. "auto": from the noise, which is
            estimated from votes and candidates; see `candidate_model`. "kernel": from the weighting, if `include_self`.
        quantile: delta, the quantile of the classes' agreement counts that becomes the quota of every class. "all": no quota;
            every item whose class with the highest posterior is a candidate is selected.
        prior_NC: vote frequencies of crowd data; a neighbour's candidates then vote in proportion. A confident label without
            votes may be selected, but does not vote.
        predicted_NC: class probabilities of the network, N x C.
        threshold: lambda_t, the probability above which a prediction joins the candidates.
        vote_on: "pseudo" is Eq. 2. "candidates" is the paper's ablation without Eq. 1: the posterior is the share of the
            candidates' votes. "posterior" (needs self_weight="auto"): in Eq. 1 an item gets, instead of a pseudo-label, its
            posterior given its neighbours' votes and its own candidates; with these the neighbours vote in Eq. 2.
        backend: neighbour search, see `nearest`.

    Returns:
        Pseudo-labels, posterior and selection, on the device of the features.

    Raises:
        InputError: for NaN, empty sets, tables of wrong shapes (the message names the row), or options out of range.

    >>> import torch
    >>> features_ND = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> allowed_NC = torch.tensor([[1, 1], [1, 0], [0, 1], [1, 1]])
    >>> found = pals.pseudo_label(features_ND, allowed_NC, neighbors=1)
    >>> found.label_N.tolist(), found.quota
    ([0, 0, 1, 1], 2)
    """
    _check_options(weighting, temperature, self_weight, quantile, vote_on)
    allowed_NC = check_candidates(allowed_NC, features_ND)
    given_NC = allowed_NC
    if (predicted_NC is None) != (threshold is None):
        raise InputError("Pass predicted_NC and threshold together: a prediction counts as confident only above a threshold.")
    if predicted_NC is not None and threshold is not None:
        allowed_NC = add_confident(allowed_NC, _checked_table(predicted_NC, allowed_NC, "predictions"), threshold)  # Eq. 11
    ballot_NC = allowed_NC.to(torch.float32)
    if prior_NC is not None:
        ballot_NC *= _checked_table(prior_NC, allowed_NC, "vote frequencies")

    if neighbors == "auto":
        neighbors = likeliest_neighbors(features_ND, given_NC, ballot_NC, backend=backend)
    as_neighbor = include_self and self_weight == "kernel"
    voters = find_voters(features_ND, neighbors, weighting, temperature, include_self=as_neighbor, backend=backend)
    recall = recall_of(voters.index_NK, features_ND, backend)
    if self_weight != "kernel":  # the neighbours together have weight 1
        voters = Voters(voters.index_NK, normalize_rows(voters.weight_NK, empty=1 / voters.weight_NK.shape[1]))
    if self_weight == "auto":
        model = fit_candidate_model(vote(*voters, ballot_NC), given_NC)
        if vote_on == "posterior":
            pseudo_N, posterior_NC = noise_aware_posterior(voters, ballot_NC, given_NC, model)
            return replace(_select(pseudo_N, posterior_NC, allowed_NC, quantile), recall=recall)
        self_weight = model.self_weight
    if self_weight != "kernel":
        voters = voters.with_self(self_weight)
    score_NC = vote(*voters, ballot_NC)
    pseudo_N = score_NC.argmax(dim=1)  # Eq. 1
    if vote_on == "pseudo":
        posterior_NC = vote_posterior(*voters, pseudo_N, score_NC.shape[1])  # Eq. 2
    else:
        posterior_NC = normalize_rows(score_NC, empty=1 / score_NC.shape[1])
    return replace(_select(pseudo_N, posterior_NC, allowed_NC, quantile), recall=recall)


def likeliest_neighbors(features_ND: Tensor, allowed_NC: Tensor, ballot_NC: Tensor, *, backend: Backend = "torch") -> int:
    """The number of neighbours whose local votes give the candidate sets the highest likelihood.

    The model has one partial rate for all classes: with a rate per class, groups of items that share a set would favour the
    smallest K, whose neighbours are all of the item's group.

    Args:
        features_ND: features of all items.
        allowed_NC: candidates, bool.
        ballot_NC: weight of each candidate in the vote, float32.
        backend: neighbour search.

    Returns:
        A number of `NEIGHBOR_GRID`, or N - 1 if the set is smaller.
    """
    grid = [k for k in NEIGHBOR_GRID if k < len(features_ND)] or [len(features_ND) - 1]
    index_NK, similarity_NK = nearest(features_ND, grid[-1], include_self=False, backend=backend)

    def likelihood(k: int) -> float:
        voters = Voters(index_NK[:, :k], neighbor_weight(similarity_NK[:, :k], "local"))
        return fit_candidate_model(vote(*voters, ballot_NC), allowed_NC, by_class=False).log_likelihood

    return max(grid, key=likelihood)


def noise_aware_posterior(voters: Voters, ballot_NC: Tensor, given_NC: Tensor, model: CandidateModel) -> tuple[Tensor, Tensor]:
    """Pseudo-labels and posterior under a model of the noise, in two rounds:

        p1_i = P(class | neighbours' ballots, S_i),    p2_i = P(class | neighbours' p1, S_i)

    Both use the noise of the first vote: in the second, an item's own candidates return to it through its neighbours. The noise
    is that of the given sets, so a prediction that joined a set adds no evidence of its own.

    Args:
        voters: neighbours, without the item itself.
        ballot_NC: weight of each candidate in the vote; the largest of an item counts in full as its own vote.
        given_NC: candidates as given, bool.
        model: model fitted to the first vote.

    Returns:
        Pseudo-labels argmax p1, N, and posterior p2, N x C.
    """
    own_NC = ballot_NC * given_NC
    own_NC = own_NC / own_NC.amax(dim=1, keepdim=True).clamp_min(torch.finfo(own_NC.dtype).tiny)
    first_NC = model.posterior(vote(*voters, ballot_NC), own_NC)
    second_NC = vote(*voters, first_NC)
    sharpness = fit_candidate_model(second_NC, given_NC).sharpness
    return first_NC.argmax(dim=1), replace(model, sharpness=sharpness).posterior(second_NC, own_NC)


def _select(pseudo_N: Tensor, posterior_NC: Tensor, allowed_NC: Tensor, quantile: Quantile) -> Labeling:
    agreement_C = agreeing_counts(posterior_NC, allowed_NC)
    if quantile == "all":
        best_N = posterior_NC.argmax(dim=1)
        selected_N = is_candidate(allowed_NC, best_N)
        return Labeling(pseudo_N, posterior_NC, selected_N, torch.where(selected_N, best_N, -1), int(agreement_C.max()))
    quota = quota_of(agreement_C, quantile)  # Eq. 3
    selected_N, label_N = select_reliable(posterior_NC, allowed_NC, quota)  # Eq. 4 and 5
    return Labeling(pseudo_N, posterior_NC, selected_N, label_N, quota)


def threshold_at(epoch: int, epochs: int, high: float = 0.45, low: float = 0.35, first: int = 2) -> float | None:
    """The confidence threshold of an epoch, lambda_t = high - (high - low) (t - 1) / (T - 1).

    Args:
        epoch: t, from 1.
        epochs: T.
        high: threshold of the first epoch.
        low: threshold of the last epoch.
        first: first epoch in which predictions join.

    Returns:
        None before the epoch `first`.

    >>> threshold_at(1, 500), threshold_at(500, 500)
    (None, 0.35)
    """
    return None if epoch < first else high - (high - low) * (epoch - 1) / max(epochs - 1, 1)


def add_confident(allowed_NC: Tensor, predicted_NC: Tensor, threshold: float) -> Tensor:
    """Add the most probable class to the candidates where its probability exceeds the threshold (Eq. 11).

    Args:
        allowed_NC: candidates, bool.
        predicted_NC: class probabilities.
        threshold: lambda_t.

    Returns:
        bool, N x C.

    >>> add_confident(torch.tensor([[True, False]]), torch.tensor([[0.4, 0.6]]), 0.5).tolist()
    [[True, True]]
    """
    top_N, class_N = predicted_NC.max(dim=1)
    return allowed_NC | (one_hot(class_N, allowed_NC.shape[1]) & (top_N > threshold)[:, None])


def agreeing_counts(posterior_NC: Tensor, allowed_NC: Tensor) -> Tensor:
    """For each class, the number of items whose largest posterior it is and whose candidate it is: a_c of Eq. 3.

    Args:
        posterior_NC: posterior.
        allowed_NC: candidates, bool.

    Returns:
        int64, C.
    """
    num_classes = posterior_NC.shape[1]
    best_N = posterior_NC.argmax(dim=1)
    agreed_N = torch.where(is_candidate(allowed_NC, best_N), best_N, num_classes)
    return torch.bincount(agreed_N, minlength=num_classes + 1)[:num_classes]


def quota_of(agreement_C: Tensor, quantile: float) -> int:
    """The number m of items per class (Eq. 3): a quantile of the agreement counts, rounded down.

    As in the authors' code, 0.5 is the lower median and other quantiles are interpolated. The minimum of 1 is ours: otherwise
    nothing would be selected if a quarter of the classes agree with no item.

    Args:
        agreement_C: agreement counts.
        quantile: delta, from 0 to 1.

    Returns:
        At least 1.

    >>> quota_of(torch.tensor([1, 2, 7, 8]), 0.5)
    2
    """
    return max(1, floor_quantile(agreement_C, quantile, lower_median=True))


def select_reliable(posterior_NC: Tensor, allowed_NC: Tensor, quota: int) -> tuple[Tensor, Tensor]:
    """Select for every class the `quota` candidates with the highest posterior (Eq. 4 and 5).

    Of equal posteriors the first items are selected. An item selected by several classes gets the one with its highest
    posterior, the first of equal ones.

    Args:
        posterior_NC: posterior.
        allowed_NC: candidates, bool.
        quota: m.

    Returns:
        The selected items, bool N, and their labels, N; -1 for the others.

    >>> select_reliable(torch.tensor([[0.9, 0.1], [0.8, 0.2]]), torch.tensor([[True, False], [True, True]]), 1)[1].tolist()
    [0, 1]
    """
    outside = -1.0  # below every posterior
    score_CN = torch.where(allowed_NC, posterior_NC, outside).T.contiguous()
    # The order of equals in topk differs between devices, so only its values are used: entries above the lowest value are in,
    # and entries equal to it fill the remaining places in order.
    top_CM = score_CN.topk(min(quota, score_CN.shape[1]), dim=1, sorted=False).values
    lowest_C1 = top_CM.amin(dim=1, keepdim=True)
    places_C1 = (top_CM == lowest_C1).sum(dim=1, keepdim=True)
    level_CN = score_CN == lowest_C1
    late_CN = level_CN & (level_CN.to(torch.int32).cumsum_(dim=1) > places_C1)
    best_N, class_N = score_CN.masked_fill_(late_CN | (score_CN < lowest_C1), outside).max(dim=0)
    selected_N = best_N > outside
    return selected_N, torch.where(selected_N, class_N, -1)


def _check_options(weighting: str, temperature: float, self_weight: float | str, quantile: float | str, vote_on: str) -> None:
    if weighting not in get_args(Weighting):
        raise unknown("weighting", weighting, get_args(Weighting))
    if vote_on not in get_args(VoteOn):
        raise unknown("vote_on", vote_on, get_args(VoteOn))
    if not temperature > 0:
        raise InputError(f"The temperature is {temperature}; it must be above 0 (the authors use 0.1).")
    if self_weight not in ("kernel", "auto") and not (isinstance(self_weight, int | float) and 0 <= self_weight < math.inf):
        raise InputError(f"The self_weight is {self_weight!r}; it must be 'kernel', 'auto' or a number from 0.")
    if vote_on == "posterior" and self_weight != "auto":
        raise InputError("A posterior takes the noise into account: with vote_on='posterior' set self_weight='auto'.")
    if quantile != "all" and not (isinstance(quantile, int | float) and 0 <= quantile <= 1):
        raise InputError(f"The quantile is {quantile}; it must lie between 0 and 1 (the paper uses 0.25), or be 'all'.")


def check_candidates(allowed_NC: Tensor, features_ND: Tensor) -> Tensor:
    """Check a candidate matrix.

    Args:
        allowed_NC: candidates, bool or 0 and 1.
        features_ND: features of the same items.

    Returns:
        bool, N x C, on the device of the features.

    Raises:
        InputError: for another shape, other numbers, or an empty set; the message names the row.
    """
    if allowed_NC.ndim != 2 or allowed_NC.shape[:1] != features_ND.shape[:1] or allowed_NC.shape[1] == 0:
        raise InputError(f"Candidates {tuple(allowed_NC.shape)}, features {tuple(features_ND.shape)}: give a row per item.")
    allowed_NC = allowed_NC.to(features_ND.device)
    if allowed_NC.dtype != torch.bool:
        _refuse_rows(
            ((allowed_NC != 0) & (allowed_NC != 1)).any(dim=1),
            "of the candidate matrix holds something other than 0 and 1. Mark candidates with 1 and all else with 0.",
        )
        allowed_NC = allowed_NC.to(torch.bool)
    _refuse_rows(~allowed_NC.any(dim=1), "of the candidate matrix is empty. Drop the item, or allow it every class.")
    return allowed_NC


def _checked_table(table_NC: Tensor, allowed_NC: Tensor, name: str) -> Tensor:
    if table_NC.shape != allowed_NC.shape:
        raise InputError(f"The {name} {tuple(table_NC.shape)} and candidates {tuple(allowed_NC.shape)} must have one shape.")
    table_NC = table_NC.to(device=allowed_NC.device, dtype=torch.float32)
    wrong_N = ~((table_NC >= 0) & torch.isfinite(table_NC)).all(dim=1)
    _refuse_rows(wrong_N, f"of the {name} holds NaN, infinity or a negative number. Pass shares or probabilities.")
    return table_NC


def _refuse_rows(wrong_N: Tensor, complaint: str) -> None:
    if wrong_N.any():
        raise InputError(f"Row {int(wrong_N.nonzero()[0])} {complaint}")
