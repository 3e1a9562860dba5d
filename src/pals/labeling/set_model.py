"""How candidate sets come about, as far as the votes of neighbours tell: what an item's own candidates are worth beside them.

The neighbours' vote v_i, in which the item itself has no say, makes class c the true one with probability softmax(b v_i)_c. The
true class is then a candidate unless it was left out (chance eta), every other class by mistake (chance q); sets that turn out
empty are drawn anew. Taken are the b, eta and q under which the sets there are have the highest likelihood: neither truth nor
training is needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from torch import Tensor

SAMPLE = 5000
"""Items that the three numbers are estimated from, evenly spaced, where there are more."""
LARGEST = 100.0
"""Times all neighbours together that an own vote may count: nothing could overrule it any more."""
START = (3.0, -1.0, -1.0)  # log b, logit eta, logit q
BOUNDS = ((-3.0, 7.0), (-7.0, 3.0), (-9.0, 5.0))
PRECISION = 1e-7  # of the likelihood, relative


@dataclass(frozen=True)
class SetModel:
    """The model of the sets, fitted."""

    sharpness: float  # b: how sure a vote is
    noise_rate: float  # eta, before empty sets are drawn anew
    partial_rate: float  # q
    log_likelihood: float  # of a set, given the neighbours' vote, in the mean over the items

    @property
    def log_odds(self) -> float:
        """What it says for a class to be a candidate, in nats; nothing where the sets are no better than chance."""
        return max(_logit(1 - self.noise_rate) - _logit(self.partial_rate), 0.0)

    @property
    def own_weight(self) -> float:
        """What the item's own vote counts where all neighbours' together count 1."""
        return min(self.log_odds / self.sharpness, LARGEST)

    def posterior(self, vote_NC: Tensor, own_NC: Tensor) -> Tensor:
        """N x C: how likely each class is by the neighbours' vote and the item's own: 1 for a candidate, or less."""
        return (self.sharpness * vote_NC + self.log_odds * own_NC).softmax(dim=1)


def fit_sets(vote_NC: Tensor, allowed_NC: Tensor) -> SetModel:
    """The model under which the candidate sets are most likely, given the neighbours' votes.

    vote_NC: what the neighbours give to each class, by weights that sum to one; the item itself must not have voted. Computed
    on the host in float64.
    """
    step = max(1, math.ceil(len(vote_NC) / SAMPLE))
    vote_MC, allowed_MC = vote_NC[::step].detach().double().cpu(), allowed_NC[::step].cpu()

    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        at = torch.tensor(point, requires_grad=True)
        value = -_log_likelihood(at, vote_MC, allowed_MC)
        (gradient,) = torch.autograd.grad(value, at)
        return value.item(), gradient.numpy()

    with torch.enable_grad():
        found = minimize(loss, np.array(START), jac=True, method="L-BFGS-B", bounds=BOUNDS, options={"ftol": PRECISION})
    log_b, noise, partial = found.x.tolist()
    return SetModel(math.exp(log_b), _sigmoid(noise), _sigmoid(partial), -float(found.fun))


def _log_likelihood(point: Tensor, vote_MC: Tensor, allowed_MC: Tensor) -> Tensor:
    """Of the sets, in the mean; `point` is log b, logit eta and logit q."""
    log_b, noise, partial = point
    classes, size_M = allowed_MC.shape[1], allowed_MC.sum(dim=1)
    left_out_M = F.logsigmoid(noise) + size_M * F.logsigmoid(partial) + (classes - 1 - size_M) * F.logsigmoid(-partial)
    among_MC = (log_b.exp() * vote_MC).log_softmax(dim=1) - (noise + partial) * allowed_MC
    log_likelihood_M: Tensor = left_out_M + among_MC.logsumexp(dim=1)
    empty = F.logsigmoid(noise) + (classes - 1) * F.logsigmoid(-partial)
    return log_likelihood_M.mean() - torch.log(-torch.expm1(empty))


def _logit(share: float) -> float:
    return math.log(share) - math.log1p(-share)


def _sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))
