"""A generative model of candidate sets, fitted to the sets and the neighbours' votes: what is an item's own set worth?

Model.  Item i has class z_i; v_i are its neighbours' votes (the item itself does not vote):
    P(z_i = c) = softmax(b v_i)_c
    P(c in S | z_i = c) = 1 - eta,    P(k in S | z_i = c) = q_k for each k != c
and a set that turns out empty is drawn again, so both are divided by P(S not empty | z_i = c).
The likelihood is maximised over b, eta and the logits of q_C, which have a unit normal prior about their mean.
    log P(z_i = c | S, v_i) = b v_ic + [c in S] inside_c + [c not in S] outside_c + const
inside_c and outside_c are the log likelihood ratios of a set with and without c: c is the true class, or not.

Symbols: b sharpness of the votes; eta noise rate; q_k partial rate of class k; v N x C votes.
Reference: ours. Page: docs/methods/pals.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pals.util.even_sample import evenly_spaced

MAX_MODEL_ITEMS = 5000
"""Number of items, evenly spaced, that the model is fitted to where there are more."""
MAX_SELF_WEIGHT = 100.0
"""Weight of an item's own vote that no neighbours can outvote: they count 1 together."""
INITIAL_POINT = (3.0, -1.0, -1.0)  # log b, logit eta, logit q_c
POINT_BOUNDS = ((-3.0, 7.0), (-7.0, 3.0), (-9.0, 5.0))
LIKELIHOOD_TOLERANCE = 1e-7  # relative


@dataclass(frozen=True, eq=False)
class CandidateModel:
    """The fitted model.

    Args:
        sharpness: b.
        noise_rate: eta, before empty sets are drawn again.
        partial_rate_C: q_c, float64.
        log_likelihood: mean log likelihood of a set given the neighbours' votes.

    >>> model = CandidateModel(8.0, 0.2, torch.tensor([0.25, 0.25], dtype=torch.float64), 0.0)
    >>> round(model.self_weight, 2)
    0.31
    """

    sharpness: float
    noise_rate: float
    partial_rate_C: Tensor
    log_likelihood: float

    @property
    def log_likelihood_ratios(self) -> tuple[Tensor, Tensor]:
        """inside_C and outside_C, up to a common constant. A class that is a candidate by mistake more often than rightly gains
        nothing from being a candidate."""
        logit_C = torch.logit(self.partial_rate_C)
        inside_C, outside_C = _log_ratios(torch.logit(torch.tensor(self.noise_rate, dtype=torch.float64)), logit_C)
        return inside_C, torch.minimum(outside_C, inside_C)

    @property
    def self_weight(self) -> float:
        """Weight of the item's own vote where all neighbours together have weight 1: mean_c (inside_c - outside_c) / b."""
        inside_C, outside_C = self.log_likelihood_ratios
        return min(float((inside_C - outside_C).mean()) / self.sharpness, MAX_SELF_WEIGHT)

    def posterior(self, vote_NC: Tensor, own_NC: Tensor) -> Tensor:
        """The posterior of each item's class, softmax_c(b v_c + own_c inside_c + (1 - own_c) outside_c).

        Args:
            vote_NC: the neighbours' votes, rows sum to one.
            own_NC: the item's own vote: 1 for a candidate, less for one with fewer votes, 0 elsewhere.

        Returns:
            N x C, rows sum to one.
        """
        inside_C, outside_C = (part_C.to(vote_NC) for part_C in self.log_likelihood_ratios)
        return (self.sharpness * vote_NC + torch.lerp(outside_C, inside_C, own_NC.to(vote_NC.dtype))).softmax(dim=1)


def fit_candidate_model(vote_NC: Tensor, allowed_NC: Tensor, *, by_class: bool = True) -> CandidateModel:
    """Fit the model by maximum likelihood (L-BFGS-B), on the host in float64.

    Args:
        vote_NC: the neighbours' votes, rows sum to one; the item itself must not have voted.
        allowed_NC: candidates, bool.
        by_class: each class has a partial rate of its own; otherwise one rate for all.

    Returns:
        The model with the highest likelihood.

    >>> allowed_NC = torch.eye(2, dtype=torch.bool)[torch.arange(40) % 2]
    >>> model = fit_candidate_model(allowed_NC.float(), allowed_NC)
    >>> model.noise_rate < 0.1
    True
    """
    from scipy.optimize import minimize  # here because its import takes long

    row_M = evenly_spaced(len(vote_NC), MAX_MODEL_ITEMS).to(vote_NC.device)
    vote_MC, allowed_MC = vote_NC[row_M].detach().double().cpu(), allowed_NC[row_M].cpu()

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        at = torch.tensor(point, requires_grad=True)
        prior = (at[2:] - at[2:].mean()).square().sum() / (2 * len(vote_MC))
        value = prior - _log_likelihood(at, vote_MC, allowed_MC)
        (gradient,) = torch.autograd.grad(value, at)
        return value.item(), gradient.numpy()

    rates = allowed_NC.shape[1] if by_class else 1
    initial = np.array([*INITIAL_POINT[:2], *[INITIAL_POINT[2]] * rates])
    bounds = [*POINT_BOUNDS[:2], *[POINT_BOUNDS[2]] * rates]
    with torch.enable_grad():
        options = {"ftol": LIKELIHOOD_TOLERANCE}
        found = minimize(objective, initial, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    at = torch.from_numpy(found.x)
    log_likelihood = float(_log_likelihood(at, vote_MC, allowed_MC))
    partial_rate_C = at[2:].sigmoid().expand(allowed_NC.shape[1])
    return CandidateModel(float(at[0].exp()), float(at[1].sigmoid()), partial_rate_C, log_likelihood)


def _log_likelihood(point: Tensor, vote_MC: Tensor, allowed_MC: Tensor) -> Tensor:
    """Mean log likelihood of a set; `point` is log b, logit eta, and logit q of each class or of all."""
    log_b, noise, partial_C = point[0], point[1], point[2:].expand(allowed_MC.shape[1])
    inside_C, outside_C = _log_ratios(noise, partial_C)
    mistakes_M = F.logsigmoid(torch.where(allowed_MC, partial_C, -partial_C)).sum(dim=1)
    prior_MC = (log_b.exp() * vote_MC).log_softmax(dim=1)
    log_likelihood_M: Tensor = mistakes_M + (prior_MC + torch.where(allowed_MC, inside_C, outside_C)).logsumexp(dim=1)
    return log_likelihood_M.mean()


def _log_ratios(noise: Tensor, partial_C: Tensor) -> tuple[Tensor, Tensor]:
    """inside_C and outside_C from logits of eta and q_C, both divided by the probability that the set is not empty."""
    absent_C = F.logsigmoid(-partial_C)
    empty_C = F.logsigmoid(noise) + absent_C.sum() - absent_C
    not_empty_C = torch.log(-torch.expm1(empty_C))
    inside_C = F.logsigmoid(-noise) - F.logsigmoid(partial_C) - not_empty_C
    return inside_C, F.logsigmoid(noise) - absent_C - not_empty_C
