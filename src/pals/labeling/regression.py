"""Labels from candidate sets and features that need no training, in closed form: ridge regression, each item left out in turn.

Two steps alternate: regression on the present belief says of each item what it looks like by all the others, and the item's
own set is evidence beside that. How far to believe the regression, how often sets lack the true label, and how much to
regularise, is what makes the sets most likely; the truth is never asked. Memory: twice the features, and two matrices of
features by features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pals.labeling.voting import checked_allowed

PENALTIES = (1.0, 10.0)
"""Added to the squares of the features, each row of which has length one in the mean."""
ROUNDS = 8
SLOPES = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Factors between standardised scores and logits."""
MISSING = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
"""Shares of sets that lack the true label."""


class SetEvidence(NamedTuple):
    """How scores are read, and what a set says about its label, by likelihood."""

    likelihood: float  # mean log-likelihood of the sets, up to what does not depend on the rest
    slope: float
    odds: float  # log-odds by which a label in the set is more likely than one outside


class SetBelief(NamedTuple):
    """What features and sets say."""

    belief_NC: Tensor  # how likely each label is, by features and sets; rows sum to one
    score_NC: Tensor  # what the item looks like by all others: its own set is not heard


@torch.no_grad()
def belief_from_sets(
    features: Tensor | Sequence[Tensor], allowed_NC: Tensor, weight_NC: Tensor | None = None, *, rounds: int = ROUNDS
) -> SetBelief:
    """What each item's label is, by its features, its own set and the sets of all others.

    `features` are N x D of any scale, or several such tables, which then count alike, however wide. `weight_NC`, 0 to 1, says
    how strongly each candidate was named, where votes were counted.
    """
    tables = [features] if isinstance(features, Tensor) else list(features)
    allowed_NC = checked_allowed(allowed_NC, tables[0])
    named_NC = allowed_NC.float() if weight_NC is None else weight_NC / weight_NC.amax(dim=1, keepdim=True).clamp_min(1e-12)
    row_ND = _rows(tables)
    square_DD = row_ND.T @ row_ND
    found = [_alternate(row_ND, square_DD, penalty, allowed_NC, named_NC, rounds) for penalty in PENALTIES]
    return max(found, key=lambda pair: pair[0].likelihood)[1]


def standard(table_ND: Tensor) -> Tensor:
    """Columns of mean 0 and deviation 1."""
    std_D, mean_D = torch.std_mean(table_ND.float(), dim=0)
    return (table_ND.float() - mean_D).div_(std_D + 1e-6)


def _rows(tables: Sequence[Tensor]) -> Tensor:
    """Standardised features, the rows of each table of length one in the mean, and a constant."""
    parts = [standard(table_ND).div_(math.sqrt(table_ND.shape[1])) for table_ND in tables]
    return torch.cat([*parts, parts[0].new_ones(len(parts[0]), 1)], dim=1)


def _alternate(
    row_ND: Tensor, square_DD: Tensor, penalty: float, allowed_NC: Tensor, named_NC: Tensor, rounds: int
) -> tuple[SetEvidence, SetBelief]:
    lower_DD = torch.linalg.cholesky(square_DD + penalty * torch.eye(len(square_DD), device=square_DD.device))
    inverse_DD = torch.cholesky_inverse(lower_DD)
    leverage_N1 = torch.cat([((part @ inverse_DD) * part).sum(1, keepdim=True) for part in row_ND.split(4096)])
    belief_NC = named_NC / named_NC.sum(dim=1, keepdim=True)
    evidence, score_NC = SetEvidence(-math.inf, 0.0, 0.0), belief_NC
    for _ in range(rounds):
        fitted_NC = row_ND @ (inverse_DD @ (row_ND.T @ belief_NC))
        score_NC = (fitted_NC - leverage_N1 * belief_NC) / (1 - leverage_N1).clamp_min(1e-6)
        score_NC = standard(score_NC)
        evidence = weigh_sets(score_NC, allowed_NC)
        belief_NC = (evidence.slope * score_NC + evidence.odds * named_NC).softmax(dim=1)
    return evidence, SetBelief(belief_NC, score_NC)


def weigh_sets(score_NC: Tensor, allowed_NC: Tensor) -> SetEvidence:
    """The slope and the share of sets without the true label under which these sets are most likely, each label of a set that
    is not the true one being there by the same chance."""
    classes, size = allowed_NC.shape[1], float(allowed_NC.sum(dim=1).float().mean())
    found = []
    for slope in SLOPES:
        inside_N = ((slope * score_NC).softmax(dim=1) * allowed_NC).sum(dim=1)
        for missing in MISSING:
            chance = min(max((size - (1 - missing)) / (classes - 1), 1e-3), 1 - 1e-3)  # of a wrong label to be in a set
            inside, outside = (1 - missing) / chance, missing / (1 - chance)
            likelihood = torch.log(inside * inside_N + outside * (1 - inside_N)).mean()
            # what all sets share: each label is in or out by chance
            rest = size * math.log(chance) + (classes - size) * math.log1p(-chance)
            found.append((likelihood + rest, slope, math.log(inside / outside)))
    values = torch.stack([value for value, _, _ in found]).tolist()
    best = max(range(len(found)), key=values.__getitem__)
    return SetEvidence(values[best], found[best][1], found[best][2])
