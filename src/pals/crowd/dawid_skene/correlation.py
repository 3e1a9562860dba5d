"""How far the answers to one item share their mistakes: the intra-item correlation, estimated by simulation.

Let x_a = 1 if the first choice of answer a is right, and h_a its expected value. The statistic is the correlation of x_a - h_a
between two answers to one item,
    s = sum_i sum_c P(z_i = c) sum_{a != b} (x_a - h_a)(x_b - h_b) / sum_i sum_{a != b} sd_a sd_b,
with the fitted posterior in place of the true class. Fitted to the answers themselves, the posterior takes the label of most
annotators for right, so s is too small, by an amount that depends on the crowd. Hence crowds with known correlation rho are
drawn from the fitted model (true classes from the posterior; with probability sqrt(rho) an answer follows the item's common
chance, which makes two answers correlated by rho), the same model is fitted to each, and rho is where the statistic of the
drawn crowds equals that of the real one (indirect inference).

What all annotators get wrong in the same way cannot be seen by any answer: rho is the visible part.

References: Gourieroux, Monfort and Renault 1993 (indirect inference), doi:10.1002/jae.3950080507.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from pals.crowd.dawid_skene.annotator_model import AnnotatorModel
from pals.crowd.dawid_skene.answer_table import AnswerTable

GRID = (0.0, 0.2, 0.4, 0.7)
"""Correlations of the drawn crowds."""
DRAWS = 2
"""Crowds for each of them."""
MAX_ITEMS = 1500
"""Items that crowds are drawn for; of more, a random part."""
MIN_PAIRS = 50
"""Pairs of answers below which nothing is estimated."""


class Fitted(Protocol):
    """What a fit of answers yields."""

    @property
    def posterior_NC(self) -> np.ndarray: ...

    @property
    def annotators(self) -> AnnotatorModel: ...


Fit = Callable[[AnswerTable], Fitted]


def estimate_correlation(table: AnswerTable, fit: Fit, items: np.ndarray | None = None, seed: int = 0) -> float:
    """The correlation of mistakes about one item that the answers show, from 0 to the largest of `GRID`.

    Args:
        table: The answers.
        fit: Fits the annotator model, with correlation 0, to answers to the same items.
        items: The items that `fit` knows, for a part of them; all by default, or a random part of many.
        seed: Of the draws.
    """
    rng = np.random.default_rng(seed)
    if items is None and table.num_items > MAX_ITEMS:
        items = np.sort(rng.permutation(table.num_items)[:MAX_ITEMS])
    part = single_tops(table if items is None else table.take(items))
    if (np.bincount(part.item_A) >= 2).sum() < MIN_PAIRS:
        return 0.0
    found = fit(part)
    observed, drawn_G = correlation_statistic(part, found), []
    for rho in GRID:
        drawn = (draw_answers(part, found, rho, rng) for _ in range(DRAWS))
        drawn_G.append(np.mean([correlation_statistic(crowd, fit(crowd)) for crowd in drawn]))
    return float(np.interp(observed, np.maximum.accumulate(drawn_G), GRID))


def single_tops(table: AnswerTable) -> AnswerTable:
    """The answers that weigh anything, each with its first choice alone (of an unranked set, its first label)."""
    table = table.of_answers(np.flatnonzero(table.weight_A > 0), np.arange(table.num_items), table.gold_N)
    rows = table.first_R
    label_A = np.zeros(len(table.item_A), dtype=np.int64)
    label_A[table.answer_R[rows][::-1]] = table.label_R[rows][::-1]
    return table.with_tops(label_A)


def correlation_statistic(table: AnswerTable, found: Fitted) -> float:
    """The correlation of hits between two answers to one item, under the posterior; see above."""
    items, posterior_NC, mean_A = table.num_items, found.posterior_NC, found.annotators.hit_A
    item_A, top_A = table.item_A, table.top_A
    deviation_A = np.sqrt(mean_A * (1 - mean_A))

    def pairs(value_A: np.ndarray) -> np.ndarray:
        sum_N, square_N = (np.bincount(item_A, value, minlength=items) for value in (value_A, value_A**2))
        return np.asarray(sum_N**2 - square_N)

    # sum over c of P(c) (sum_a [top_a = c] - H)^2 - sum_a ([top_a = c] - h_a)^2, with H = sum_a h_a
    top_NC = np.zeros(posterior_NC.shape)
    np.add.at(top_NC, (item_A, top_A), 1.0)
    hits_NC = np.zeros(posterior_NC.shape)
    np.add.at(hits_NC, (item_A, top_A), 1 - 2 * mean_A)
    mean_N, square_N = (np.bincount(item_A, value, minlength=items) for value in (mean_A, mean_A**2))
    product_NC = (top_NC - mean_N[:, None]) ** 2 - hits_NC - square_N[:, None]
    return float((posterior_NC * product_NC).sum() / max(pairs(deviation_A).sum(), 1e-300))


def draw_answers(table: AnswerTable, found: Fitted, rho: float, rng: np.random.Generator) -> AnswerTable:
    """A crowd drawn from the fitted model, in which hits about one item are correlated by `rho`."""
    answers, item_A = len(table.item_A), table.item_A
    class_N = _draw(found.posterior_NC, rng)
    common_A, own_A = rng.random(table.num_items)[item_A], rng.random(answers)
    chance_A = np.where(rng.random(answers) < np.sqrt(rho), common_A, own_A)
    wrong_A = _draw(found.annotators.errors.error_CC[class_N[item_A]], rng)
    return table.with_tops(np.where(chance_A < found.annotators.hit_A, class_N[item_A], wrong_A))


def _draw(chance_XC: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A class for each row, drawn with these chances."""
    total_XC = chance_XC.cumsum(axis=1)
    drawn_X: np.ndarray = (total_XC < rng.random((len(chance_XC), 1)) * total_XC[:, -1:]).sum(axis=1)
    return drawn_X.clip(max=chance_XC.shape[1] - 1)
