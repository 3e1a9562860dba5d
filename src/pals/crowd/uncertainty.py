"""How sure a result is: replicates of the fit, and mistakes that answers share but do not show.

The labels are the likeliest classes of the mean of B replicates (`closed_form`). Their probabilities allow for more correlation
than the answers show, since what all annotators get wrong alike, and images that were labelled by them with them, looks right:
    P(z_i = c) ~ mean_b P_b(z_i = c)^(t_i / u_i),   t_i = 1 + (n_i - 1) rho,   u_i = 1 + (n_i - 1 + v) rho',
with n_i answers, v = 1 if images were used, and rho' = `FACTOR` rho + `FLOOR`. A power leaves the label as it is.

Shares of wrong labels and the intervals of items are drawn: a replicate, a rho' between `FACTORS` and `FLOORS`, and then, for
shares, which labels are wrong. They hold what the answers and their spread show, not a mistake that all share.

Symbols: N items, C classes, B replicates, S draws.
"""

from __future__ import annotations

import numpy as np

from pals.crowd.dawid_skene.answer_table import AnswerTable

FACTOR, FLOOR = 1.8, 0.1
"""The correlation in excess of the visible one."""
FACTORS, FLOORS = (0.5, 3.5), (0.0, 0.25)
"""Its range in the draws."""
MAX_REPLICATES = 12
MAX_NUMBERS = 6_000_000
"""Probabilities of all replicates together; with more items and classes there are fewer replicates, at least one."""
DRAWS = 400
ITEM_DRAWS = 60
"""Draws for shares, and for the interval of each item."""
INTERVAL = (0.025, 0.975)


def num_replicates(table: AnswerTable) -> int:
    """Number of replicates that fit these answers' size, B."""
    return int(np.clip(MAX_NUMBERS // max(table.num_items * table.num_classes, 1), 1, MAX_REPLICATES))


def exponent(table: AnswerTable, correlation: float, images: bool, excess: float) -> np.ndarray:
    """N x 1: t_i / u_i for a correlation rho' (`excess`)."""
    others_N1 = np.maximum(table.count_N[:, None] - 1, 0)
    effect_N1 = 1 + others_N1 * correlation
    power_N1: np.ndarray = np.minimum(effect_N1 / (1 + (others_N1 + images) * excess), 1.0)
    return np.where(table.answered_N[:, None], power_N1, 1.0)


def raised(posterior_NC: np.ndarray, power_N1: np.ndarray) -> np.ndarray:
    """Each row to its power, normalised."""
    top_N1 = np.maximum(posterior_NC.max(axis=1, keepdims=True), 1e-300)
    powered_NC = (posterior_NC / top_N1) ** power_N1
    raised_NC: np.ndarray = powered_NC / powered_NC.sum(axis=1, keepdims=True)
    return raised_NC


def reported(table: AnswerTable, mean_NC: np.ndarray, correlation: float, images: bool) -> np.ndarray:
    """The probabilities to report."""
    return raised(mean_NC, exponent(table, correlation, images, FACTOR * correlation + FLOOR))


def drawn_excess(correlation: float, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Correlations rho', evenly from their range, S."""
    factor_S, floor_S = rng.uniform(*FACTORS, draws), rng.uniform(*FLOORS, draws)
    excess_S: np.ndarray = factor_S * correlation + floor_S
    return excess_S
