"""Scores of every item that do not depend on the item's own label: kernel ridge regression, each item left out in turn.

Leaving an item out changes a ridge regression in a known way, so all N regressions cost little more than one.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pals.util.errors import InputError

LANDMARKS = 5000
BLOCK = 2000
"""Rows handled at once."""


def leave_one_out(
    features_ND: Tensor,
    target_NC: np.ndarray,
    *,
    generator: torch.Generator,
    known_N: np.ndarray | None = None,
    penalty: float = 0.1,
    landmarks: int = LANDMARKS,
) -> np.ndarray:
    """N x C scores: what regression on all other items predicts for each. Scores for `fuse`.

    Items are compared by exp(-d / m), d the squared distance of their features and m its median; so features must be to
    scale, and must not depend on the labels. Targets are soft labels, such as `dawid_skene(votes).posterior_NC`. Items with
    `known_N` false (without answers) teach nothing. With more than `landmarks` items the kernel is spanned by a random part of
    them (Nyström), which leaves the answer exact for what can be spanned: memory grows with N times `landmarks`.
    """
    data_ND, target = _checked(features_ND, target_NC)
    items = len(data_ND)
    known = torch.ones(items, dtype=torch.bool) if known_N is None else torch.from_numpy(np.asarray(known_N, dtype=bool))
    known = known.to(data_ND.device)
    if int(known.sum()) < 2:
        return np.zeros(target_NC.shape)
    mean_C = target[known].mean(dim=0)
    span = torch.randperm(items, generator=generator, device=generator.device)[:landmarks].to(data_ND.device)
    width = _median_distance(data_ND[span])
    code_NM = _codes(data_ND, data_ND[span], width)
    taught_NM = code_NM * known[:, None]
    inverse_MM = torch.cholesky_inverse(torch.linalg.cholesky(_add(taught_NM.T @ taught_NM, penalty)))
    weight_MC = inverse_MM @ (taught_NM.T @ (target - mean_C))
    fitted_NC = code_NM @ weight_MC
    own_N1 = ((code_NM @ inverse_MM) * code_NM).sum(dim=1, keepdim=True)  # share of its own target in what is fitted
    left_out_NC = (fitted_NC - own_N1 * (target - mean_C)) / (1 - own_N1).clamp_min(1e-9)
    score_NC: np.ndarray = (mean_C + torch.where(known[:, None], left_out_NC, fitted_NC)).cpu().numpy()
    return score_NC


def _codes(data_ND: Tensor, span_MD: Tensor, width: float) -> Tensor:
    """Items as vectors whose products are the kernel, as far as the landmarks span it."""
    lower_MM = torch.linalg.cholesky(_add(_kernel(span_MD, span_MD, width), 1e-6))
    blocks = [
        torch.linalg.solve_triangular(lower_MM, _kernel(span_MD, part_BD, width), upper=False).T
        for part_BD in torch.split(data_ND, BLOCK)
    ]
    return torch.cat(blocks)


def _kernel(one_MD: Tensor, other_BD: Tensor, width: float) -> Tensor:
    return torch.exp(-_distances(one_MD, other_BD) / width)


def _distances(one_MD: Tensor, other_BD: Tensor) -> Tensor:
    """Squared Euclidean distances, in float64."""
    product_MB = (one_MD @ other_BD.T).double()
    return (one_MD.double().square().sum(1)[:, None] + other_BD.double().square().sum(1) - 2 * product_MB).clamp_min(0)


def _median_distance(data_ND: Tensor) -> float:
    part_BD = data_ND[:1000]
    distance = _distances(part_BD, part_BD)
    above = torch.triu_indices(len(part_BD), len(part_BD), offset=1, device=distance.device)
    return max(float(distance[above[0], above[1]].median()), 1e-12)


def _add(matrix_MM: Tensor, value: float) -> Tensor:
    matrix_MM.diagonal().add_(value)
    return matrix_MM


def _checked(features_ND: Tensor, target_NC: np.ndarray) -> tuple[Tensor, Tensor]:
    if features_ND.ndim != 2 or target_NC.ndim != 2 or len(features_ND) != len(target_NC):
        raise InputError(
            f"Features of shape {tuple(features_ND.shape)} and targets of shape {target_NC.shape} do not belong together; "
            "give one row of each per item."
        )
    data_ND = features_ND.detach().to(torch.float32)
    bad_N = ~torch.isfinite(data_ND).all(dim=1)
    if bool(bad_N.any()):
        raise InputError(f"The features of item {int(bad_N.int().argmax())} hold NaN or infinity. Clean the input first.")
    return data_ND - data_ND.mean(dim=0), torch.from_numpy(np.asarray(target_NC, dtype=np.float64)).to(data_ND.device)
