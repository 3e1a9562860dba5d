"""Non-negative least squares for many small problems at once, exact: the active-set method of Lawson and Hanson (1974) on
the normal equations, in float64, one step of all unfinished problems at a time."""

from __future__ import annotations

import torch
from torch import Tensor

TOLERANCE = 1e-13  # of a gradient, as a share of the problem's largest product
ROUNDS = 30  # steps allowed, times K; two or three times K are usual


@torch.no_grad()
def solve_nnls(gram_MKK: Tensor, product_MK: Tensor) -> Tensor:
    """The w >= 0 that minimise |x - sum_a w_a y_a|^2, given the products (y_a y_b) and (y_a x), for each of M problems.

    The answer meets the conditions of Karush, Kuhn and Tucker: with g = product - gram w no g_a lies above zero, and g_a is
    zero where w_a is not. The y may depend on each other linearly; then one of several answers is given.
    """
    gram_MKK, product_MK = gram_MKK.to(torch.float64), product_MK.to(torch.float64)
    square_MK = gram_MKK.diagonal(dim1=1, dim2=2)
    scale_MK = torch.where(square_MK > 0, square_MK, 1.0).rsqrt()  # all y of one length: else the long ones set the tolerance
    gram_MKK, product_MK = gram_MKK * scale_MK[:, :, None] * scale_MK[:, None, :], product_MK * scale_MK
    answer_MK = torch.zeros_like(product_MK)
    # From here on U counts the problems not yet finished: `row_U` says which they are.
    row_U = torch.arange(len(product_MK), device=product_MK.device)
    gram_UKK, product_UK, weight_UK = gram_MKK, product_MK, torch.zeros_like(product_MK)
    free_UK = torch.zeros_like(product_MK, dtype=torch.bool)  # may be above zero
    for _ in range(ROUNDS * max(product_MK.shape[1], 1)):
        if not len(row_U):
            break
        weight_UK, free_UK, arrived_U1, vain_U1 = _move(gram_UKK, product_UK, weight_UK, free_UK)
        enters_UK = _steepest(gram_UKK, product_UK, weight_UK, free_UK) & arrived_U1
        free_UK = free_UK | enters_UK
        answer_MK[row_U] = weight_UK
        left_V = (enters_UK.any(dim=1) | ~(arrived_U1 | vain_U1).squeeze(1)).nonzero().flatten()
        row_U, gram_UKK, product_UK = row_U[left_V], gram_UKK[left_V], product_UK[left_V]
        weight_UK, free_UK = weight_UK[left_V], free_UK[left_V]
    return answer_MK * scale_MK


def _move(gram_UKK: Tensor, product_UK: Tensor, weight_UK: Tensor, free_UK: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Towards the best weights on the free places, as far as none of them falls below zero; those that reach zero are free
    no more. Also says whether the best weights were reached, and whether the last place was set free in vain."""
    best_UK = _best(gram_UKK, product_UK, free_UK)
    below_UK = free_UK & (best_UK <= 0)
    arrived_U1 = ~below_UK.any(dim=1, keepdim=True)
    # Only the place that was set free just now has no weight yet. That it wants none, although its slope was the steepest,
    # means that the slopes are down to rounding: the answer is found.
    vain_U1 = (below_UK & (weight_UK == 0)).any(dim=1, keepdim=True)
    reach_UK = torch.where(below_UK, weight_UK / (weight_UK - best_UK), 1.0)
    reach_U1 = reach_UK.amin(dim=1, keepdim=True)
    leaves_UK = below_UK & (reach_UK <= reach_U1)
    partly_UK = torch.lerp(weight_UK, best_UK, reach_U1).clamp_min(0.0).masked_fill(leaves_UK, 0.0)
    weight_UK = torch.where(arrived_U1, best_UK, torch.where(vain_U1, weight_UK, partly_UK))
    return weight_UK, free_UK & ~leaves_UK, arrived_U1, vain_U1


def _best(gram_UKK: Tensor, product_UK: Tensor, free_UK: Tensor) -> Tensor:
    """Least squares on the free places alone, zero elsewhere; zero everywhere where they depend on each other exactly."""
    both_UKK = free_UK[:, :, None] & free_UK[:, None, :]
    system_UKK = torch.where(both_UKK, gram_UKK, 0.0) + torch.diag_embed((~free_UK).to(gram_UKK.dtype))
    best_UK = torch.linalg.solve_ex(system_UKK, torch.where(free_UK, product_UK, 0.0)).result
    return torch.where(torch.isfinite(best_UK).all(dim=1, keepdim=True) & free_UK, best_UK, 0.0)


def _steepest(gram_UKK: Tensor, product_UK: Tensor, weight_UK: Tensor, free_UK: Tensor) -> Tensor:
    """The place, if any, whose weight had best be set free to grow."""
    slope_UK = product_UK - (gram_UKK @ weight_UK[:, :, None]).squeeze(2)
    slope_UK = slope_UK.masked_fill(free_UK, -torch.inf)
    place_U1 = slope_UK.argmax(dim=1, keepdim=True)
    tolerance_U1 = TOLERANCE * product_UK.abs().amax(dim=1, keepdim=True)
    is_place_UK = torch.arange(slope_UK.shape[1], device=slope_UK.device) == place_U1
    return is_place_UK & (slope_UK > tolerance_U1)
