"""How candidate sets come about, as far as the votes of neighbours tell: what an item's own candidates are worth beside them.

The neighbours' vote v_i, in which the item itself has no say, makes class c the true one with probability softmax(b v_i)_c. The
true class is then a candidate unless it was left out (chance eta), every other class by mistake (chance q_c, its own: some are
named with everything, and to be named says little for them); sets that turn out empty are drawn anew. Taken are the b, eta and
q_c under which the sets there are have the highest likelihood: neither truth nor training is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pals.util.even_sample import evenly_spaced

SAMPLE = 5000
"""Items that the model is estimated from, evenly spaced, where there are more."""
LARGEST = 100.0
"""Times all neighbours together that an own vote may count: nothing could overrule it any more."""
START = (3.0, -1.0, -1.0)  # log b, logit eta, logit q_c
BOUNDS = ((-3.0, 7.0), (-7.0, 3.0), (-9.0, 5.0))
PRECISION = 1e-7  # of the likelihood, relative


@dataclass(frozen=True, eq=False)
class SetModel:
    """The model of the sets, fitted."""

    sharpness: float  # b: how sure a vote is
    noise_rate: float  # eta, before empty sets are drawn anew
    partial_rate_C: Tensor  # q_c, float64
    log_likelihood: float  # of a set, given the neighbours' vote, in the mean over the items

    @property
    def evidence(self) -> tuple[Tensor, Tensor]:
        """For each class, the logarithm of the chance of a set that has it, and of one that has not, if it is the true one, up
        to what all classes share. A class that is named more often by mistake than rightly says nothing by being named."""
        logit_C = torch.logit(self.partial_rate_C)
        inside_C, outside_C = _evidence(torch.logit(torch.tensor(self.noise_rate, dtype=torch.float64)), logit_C)
        return inside_C, torch.minimum(outside_C, inside_C)

    @property
    def own_weight(self) -> float:
        """What the item's own vote counts where all neighbours' together count 1, in the mean over the classes."""
        inside_C, outside_C = self.evidence
        return min(float((inside_C - outside_C).mean()) / self.sharpness, LARGEST)

    def posterior(self, vote_NC: Tensor, own_NC: Tensor) -> Tensor:
        """N x C: how likely each class is by the neighbours' vote and the item's own: 1 for a candidate, or less."""
        inside_C, outside_C = (part_C.to(vote_NC) for part_C in self.evidence)
        return (self.sharpness * vote_NC + torch.lerp(outside_C, inside_C, own_NC.to(vote_NC.dtype))).softmax(dim=1)


def fit_sets(vote_NC: Tensor, allowed_NC: Tensor, *, by_class: bool = True) -> SetModel:
    """The model under which the candidate sets are most likely, given the neighbours' votes.

    vote_NC: what the neighbours give to each class, by weights that sum to one; the item itself must not have voted. Computed
    on the host in float64. `by_class`: each class has its own q_c, their logits spread about their mean like a unit normal
    distribution, which holds those of which little is seen; otherwise there is one q for all.
    """
    from scipy.optimize import minimize  # only here: it takes long to import

    row_M = evenly_spaced(len(vote_NC), SAMPLE).to(vote_NC.device)
    vote_MC, allowed_MC = vote_NC[row_M].detach().double().cpu(), allowed_NC[row_M].cpu()

    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        at = torch.tensor(point, requires_grad=True)
        spread = (at[2:] - at[2:].mean()).square().sum() / (2 * len(vote_MC))
        value = spread - _log_likelihood(at, vote_MC, allowed_MC)
        (gradient,) = torch.autograd.grad(value, at)
        return value.item(), gradient.numpy()

    rates = allowed_NC.shape[1] if by_class else 1
    start, bounds = np.array([*START[:2], *[START[2]] * rates]), [*BOUNDS[:2], *[BOUNDS[2]] * rates]
    with torch.enable_grad():
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": PRECISION})
    at = torch.from_numpy(found.x)
    log_likelihood = float(_log_likelihood(at, vote_MC, allowed_MC))
    return SetModel(float(at[0].exp()), float(at[1].sigmoid()), at[2:].sigmoid().expand(allowed_NC.shape[1]), log_likelihood)


def _log_likelihood(point: Tensor, vote_MC: Tensor, allowed_MC: Tensor) -> Tensor:
    """Of the sets, in the mean; `point` is log b, logit eta and logit q_c of each class, or of all."""
    log_b, noise, partial_C = point[0], point[1], point[2:].expand(allowed_MC.shape[1])
    inside_C, outside_C = _evidence(noise, partial_C)
    mistakes_M = F.logsigmoid(torch.where(allowed_MC, partial_C, -partial_C)).sum(dim=1)
    prior_MC = (log_b.exp() * vote_MC).log_softmax(dim=1)
    log_likelihood_M: Tensor = mistakes_M + (prior_MC + torch.where(allowed_MC, inside_C, outside_C)).logsumexp(dim=1)
    return log_likelihood_M.mean()


def _evidence(noise: Tensor, partial_C: Tensor) -> tuple[Tensor, Tensor]:
    """Of logits: for each class, the log chance of a set with it and without it if it is the true one, both divided by the
    chance of the same as a mistake and by that of a set that is not empty."""
    not_named_C = F.logsigmoid(-partial_C)
    empty_C = F.logsigmoid(noise) + not_named_C.sum() - not_named_C
    not_empty_C = torch.log(-torch.expm1(empty_C))
    inside_C = F.logsigmoid(-noise) - F.logsigmoid(partial_C) - not_empty_C
    return inside_C, F.logsigmoid(noise) - not_named_C - not_empty_C
