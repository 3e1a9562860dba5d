"""From features and candidate sets to labels worth training on: the labelling step of PALS.

The neighbours of an item vote with their candidate sets for its pseudo-label (Eq. 1 of the paper); the pseudo-labels of
its neighbours give a belief over the classes (Eq. 2); every class then keeps the same number of its most believed
candidates (Eq. 3 and 4). Where paper and authors' code differ, the defaults follow the code.

`pseudo_label` does the whole step and checks its input; the functions it is made of trust theirs. Nothing here needs
more memory than a few tables of N x C and N x K, and no sum depends on the order in which a device works.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from pals.labels.covering import is_candidate
from pals.pseudo_labels.candidate_model import SetModel, fit_sets
from pals.pseudo_labels.knn import Backend, nearest
from pals.pseudo_labels.knn_recall import recall_of
from pals.util.errors import InputError, unknown

Weighting = Literal["exp", "cosine", "local"]
VoteOn = Literal["pseudo", "candidates", "posterior"]
Auto = Literal["auto"]
SelfWeight = float | Literal["kernel", "auto"]
Quantile = float | Literal["all"]

TRIED = (5, 10, 20, 40, 80)
"""Numbers of neighbours of which "auto" takes the one with the highest likelihood."""


@dataclass(frozen=True)
class Labeling:
    """What one labelling step found."""

    pseudo_N: Tensor  # int64: what the neighbours' candidates say; any class, not only the item's own candidates
    posterior_NC: Tensor  # float32, rows sum to one
    selected_N: Tensor  # bool: the items worth training on
    label_N: Tensor  # int64: the label to train on, -1 where not chosen
    quota: int  # the most items a class could get
    recall: float | None = None  # share of the true neighbours that an approximate search found, on a sample


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
    """One labelling step of PALS; the result is on the device of the features.

    Args:
        neighbors: Number of neighbours K. "auto": the K of `TRIED` under which the neighbours' votes make the candidate sets
            most likely.
        weighting: Weight of a neighbour's vote: exp(cosine / temperature) or, as in the paper, its cosine if positive. "local":
            exp(cosine / spread), for features whose neighbours are not very similar; see `neighbor_weight`.
        include_self: The item itself votes too, as in the authors' code.
        self_weight: Weight of the item's own vote, relative to all neighbours together. "auto": from the noise, which is
            estimated from votes and candidates; see `set_model`. "kernel": from the weighting, if `include_self`.
        quantile: Quantile of the classes' agreement counts that becomes the quota of every class. "all": no quota; every item
            whose most believed class is one of its candidates is chosen.
        prior_NC: Vote frequencies of crowd data; a neighbour's candidates then vote in proportion. A confident label that
            nobody voted for has no frequency: it may be chosen, but does not vote.
        predicted_NC: Class probabilities of the network...
        threshold: ... and the probability above which a prediction joins the candidates.
        vote_on: "candidates" is the paper's ablation without Eq. 1: the belief is the share of the candidates' votes.
            "posterior" (needs self_weight="auto"): in Eq. 1 an item gets, instead of a pseudo-label, the probability of every
            class given its neighbours' votes and its own candidates; with these the neighbours vote in Eq. 2, and the belief is
            again that probability.
    """
    _check_options(weighting, temperature, self_weight, quantile, vote_on)
    allowed_NC = checked_allowed(allowed_NC, features_ND)
    given_NC = allowed_NC
    if (predicted_NC is None) != (threshold is None):
        raise InputError("Pass predicted_NC and threshold together: a prediction counts as confident only above a threshold.")
    if predicted_NC is not None and threshold is not None:
        allowed_NC = add_confident(allowed_NC, _checked_table(predicted_NC, allowed_NC, "predictions"), threshold)
    ballot_NC = allowed_NC.to(torch.float32)
    if prior_NC is not None:
        ballot_NC *= _checked_table(prior_NC, allowed_NC, "vote frequencies")

    if neighbors == "auto":
        neighbors = likeliest_neighbors(features_ND, given_NC, ballot_NC, backend=backend)
    as_neighbor = include_self and self_weight == "kernel"
    voters = find_voters(features_ND, neighbors, weighting, temperature, include_self=as_neighbor, backend=backend)
    recall = recall_of(voters.index_NK, features_ND, backend)
    voters = voters if self_weight == "kernel" else voters.scaled()
    if self_weight == "auto":
        model = fit_sets(voters.vote(ballot_NC), given_NC)
        if vote_on == "posterior":
            pseudo_N, posterior_NC = posterior_belief(voters, ballot_NC, given_NC, model)
            return replace(_selected(pseudo_N, posterior_NC, allowed_NC, quantile), recall=recall)
        self_weight = model.own_weight
    if self_weight != "kernel":
        voters = voters.with_self(self_weight)
    score_NC = voters.vote(ballot_NC)
    pseudo_N = score_NC.argmax(dim=1)
    posterior_NC = vote_posterior(*voters, pseudo_N, score_NC.shape[1]) if vote_on == "pseudo" else share_(score_NC)
    return replace(_selected(pseudo_N, posterior_NC, allowed_NC, quantile), recall=recall)


class Voters(NamedTuple):
    """Who votes on each item, and what each vote counts."""

    index_NK: Tensor
    weight_NK: Tensor

    def vote(self, label_NC: Tensor) -> Tensor:
        return vote(*self, label_NC)

    def scaled(self) -> Voters:
        """The same with weights that sum to one."""
        return Voters(self.index_NK, share_(self.weight_NK.clone()))

    def with_self(self, weight: float | Tensor) -> Voters:
        """The item itself votes too, with this weight: a number, or N x 1."""
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
    """The nearest neighbours with their weights and, if told, the item itself: as near as can be or, where the weighting is
    local, as near as its nearest neighbour."""
    local = weighting == "local"
    index_NK, similarity_NK = nearest(features_ND, neighbors, include_self=include_self and not local, backend=backend)
    found = Voters(index_NK, neighbor_weight(similarity_NK, weighting, temperature))
    return found.with_self(found.weight_NK[:, :1]) if include_self and local else found


def likeliest_neighbors(features_ND: Tensor, allowed_NC: Tensor, ballot_NC: Tensor, *, backend: Backend = "torch") -> int:
    """The number of neighbours, of those in `TRIED`, whose votes (with these ballots, weighted locally) make the candidate sets
    most likely. With one rate of mistakes for all classes: where items come in groups with the same set, as people on a picture
    do, that is left to tell which classes are named often, and the fewest neighbours would seem best, who are of the group."""
    tried = [k for k in TRIED if k < len(features_ND)] or [len(features_ND) - 1]
    index_NK, similarity_NK = nearest(features_ND, tried[-1], include_self=False, backend=backend)

    def likelihood(k: int) -> float:
        voters = Voters(index_NK[:, :k], neighbor_weight(similarity_NK[:, :k], "local"))
        return fit_sets(voters.vote(ballot_NC), allowed_NC, by_class=False).log_likelihood

    return max(tried, key=likelihood)


def posterior_belief(voters: Voters, ballot_NC: Tensor, given_NC: Tensor, model: SetModel) -> tuple[Tensor, Tensor]:
    """The pseudo-labels, and what is likely of each item by the votes of its neighbours, who vote with what is likely of them
    by the votes of their own. The noise is that of the first vote: in the second, an item's own candidates have come back to it
    through its neighbours. It is the noise of the sets as given, so a prediction that joined an item's set is worth nothing
    more for that: where the sets are right it cannot win, and where they are not it wins if the neighbours say the same. Of
    people's votes the most frequent candidate counts in full, the others as their votes do beside it."""
    own_NC = ballot_NC * given_NC
    own_NC = own_NC / own_NC.amax(dim=1, keepdim=True).clamp_min(torch.finfo(own_NC.dtype).tiny)
    first_NC = model.posterior(voters.vote(ballot_NC), own_NC)
    second_NC = voters.vote(first_NC)
    sharpness = fit_sets(second_NC, given_NC).sharpness
    return first_NC.argmax(dim=1), replace(model, sharpness=sharpness).posterior(second_NC, own_NC)


def _selected(pseudo_N: Tensor, posterior_NC: Tensor, allowed_NC: Tensor, quantile: Quantile) -> Labeling:
    agreement_C = agreeing_counts(posterior_NC, allowed_NC)
    if quantile == "all":
        best_N = posterior_NC.argmax(dim=1)
        selected_N = is_candidate(allowed_NC, best_N)
        return Labeling(pseudo_N, posterior_NC, selected_N, torch.where(selected_N, best_N, -1), int(agreement_C.max()))
    quota = quota_of(agreement_C, quantile)
    selected_N, label_N = select_reliable(posterior_NC, allowed_NC, quota)
    return Labeling(pseudo_N, posterior_NC, selected_N, label_N, quota)


def threshold_at(epoch: int, epochs: int, high: float = 0.45, low: float = 0.35, first: int = 2) -> float | None:
    """How sure a prediction must be to join the candidates: falls in a line from `high` at epoch 1 to `low` at the last.

    None before epoch `first`: no prediction joins yet.
    """
    if epoch < first:
        return None
    return high - (high - low) * (epoch - 1) / max(epochs - 1, 1)


def add_confident(allowed_NC: Tensor, predicted_NC: Tensor, threshold: float) -> Tensor:
    """The candidates and, where its probability lies above the threshold, the most probable class."""
    top_N1, class_N1 = predicted_NC.max(dim=1, keepdim=True)
    class_C = torch.arange(allowed_NC.shape[1], device=allowed_NC.device)
    return allowed_NC | ((class_C == class_N1) & (top_N1 > threshold))


def neighbor_weight(similarity_NK: Tensor, weighting: Weighting = "exp", temperature: float = 0.1) -> Tensor:
    """How much each neighbour's vote counts; a negative cosine counts nothing.

    "exp" is exp(cosine / temperature) scaled to sum to one in each row: the factor changes neither the winner of a vote
    nor a belief, and no temperature is too low for it. "local" is the same with a temperature for each row: how much nearer its
    nearest neighbour is than its farthest (the columns come in this order), so that the one counts e times as much as the
    other whatever cosines the features have.
    """
    if weighting == "cosine":
        return similarity_NK.clamp_min(0.0)
    if weighting == "local":
        below_NK = similarity_NK - similarity_NK[:, :1]
        spread_N1 = below_NK[:, -1:].abs().clamp_min(torch.finfo(below_NK.dtype).tiny)
        return (below_NK / spread_N1).softmax(dim=1)
    return (similarity_NK / temperature).softmax(dim=1)


def vote(neighbor_NK: Tensor, weight_NK: Tensor, label_NC: Tensor) -> Tensor:
    """Sum the neighbours' labels, each times its weight."""
    return F.embedding_bag(neighbor_NK, label_NC.to(weight_NK.dtype), per_sample_weights=weight_NK, mode="sum")


def vote_posterior(neighbor_NK: Tensor, weight_NK: Tensor, pseudo_N: Tensor, num_classes: int) -> Tensor:
    """The share of the neighbours' weight that each class has by their pseudo-labels."""
    # Looked up by class in a small identity table: a vote over N one-hot rows without ever writing them down.
    one_hot_CC = torch.eye(num_classes, dtype=weight_NK.dtype, device=weight_NK.device)
    return share_(vote(pseudo_N[neighbor_NK], weight_NK, one_hot_CC))


def share_(score_NC: Tensor) -> Tensor:
    """Scale rows in place to sum to one; a row without any vote believes in all classes alike."""
    total_N1 = score_NC.sum(dim=1, keepdim=True)
    silent_N1 = (total_N1 == 0).to(score_NC.dtype)
    return score_NC.add_(silent_N1 / score_NC.shape[1]).div_(total_N1 + silent_N1)


def agreeing_counts(posterior_NC: Tensor, allowed_NC: Tensor) -> Tensor:
    """For each class, how many items believe in it most and also have it among their candidates."""
    num_classes = posterior_NC.shape[1]
    best_N1 = posterior_NC.argmax(dim=1, keepdim=True)
    agreed_N1 = torch.where(allowed_NC.gather(1, best_N1), best_N1, num_classes)
    return torch.bincount(agreed_N1.flatten(), minlength=num_classes + 1)[:num_classes]


def quota_of(agreement_C: Tensor, quantile: float) -> int:
    """How many items a class may have: a quantile of the agreement counts, rounded down, but at least 1.

    As the authors have it, 0.5 is the lower median and every other quantile is interpolated. The least of 1 is ours:
    where a quarter of the classes agree with nothing, nothing at all would be chosen.
    """
    count_C = agreement_C.cpu().to(torch.float64)
    value = float(count_C.median() if quantile == 0.5 else torch.quantile(count_C, quantile))
    return max(1, math.floor(value + 1e-6))  # 28.999999999999996 is the 29 that interpolation in floats missed


def select_reliable(posterior_NC: Tensor, allowed_NC: Tensor, quota: int) -> tuple[Tensor, Tensor]:
    """Which items are chosen, and their labels (-1: not chosen).

    Every class takes its `quota` most believed candidates; of equally believed ones the first in order. An item taken by
    several classes gets the one it believes in most, the first on ties.
    """
    outside = -1.0  # below every belief
    score_CN = torch.where(allowed_NC, posterior_NC, outside).T.contiguous()
    # The order in which topk returns equals differs between devices, so only its values are used: what lies above the
    # lowest is in, what equals it fills the places left, in order.
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


def checked_allowed(allowed_NC: Tensor, features_ND: Tensor) -> Tensor:
    """The candidate matrix as bool, on the device of the features; what is no such matrix is refused."""
    if allowed_NC.ndim != 2 or allowed_NC.shape[:1] != features_ND.shape[:1] or allowed_NC.shape[1] == 0:
        raise InputError(
            f"The candidate matrix has shape {tuple(allowed_NC.shape)}, the features {tuple(features_ND.shape)}; "
            "expected one row per item in both and one column per class in the matrix."
        )
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
        raise InputError(
            f"The {name} have shape {tuple(table_NC.shape)}, the candidates {tuple(allowed_NC.shape)}; "
            "give one row per item and one column per class."
        )
    table_NC = table_NC.to(device=allowed_NC.device, dtype=torch.float32)
    wrong_N = ~((table_NC >= 0) & torch.isfinite(table_NC)).all(dim=1)
    _refuse_rows(wrong_N, f"of the {name} holds NaN, infinity or a negative number. Pass shares or probabilities.")
    return table_NC


def _refuse_rows(wrong_N: Tensor, complaint: str) -> None:
    if wrong_N.any():
        raise InputError(f"Row {int(wrong_N.nonzero()[0])} {complaint}")
