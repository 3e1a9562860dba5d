"""What further answers will come to: asking is simulated, with answers drawn from what is known of the annotators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pals.crowd.next_answer import ENOUGH, Answerer, Standing, decide, paid_for

PLAYS = 5
"""Simulations; the forecast is the mean."""
BUDGET_STEPS = 20
"""In which a budget is spent: an annotator who is asked in one round does not know of the answers of the others."""


class Forecast(NamedTuple):
    """After so many answers (K), at such a cost, the share of the labels that is expected to be right."""

    answers_K: np.ndarray
    cost_K: np.ndarray
    right_K: np.ndarray


def forecast(standing: Standing, sources: Sequence[Answerer], budget: float, seed: int = 0) -> Forecast:
    """By the rule: always the answers that add most for their cost, until the budget is spent or nothing is left to gain.
    Answers are drawn from the posterior of the items, and change it by Bayes' rule."""
    step = max(budget / BUDGET_STEPS, *(source.cost for source in sources), 0.0)
    rng = np.random.default_rng(seed)
    curves = [_play(standing, sources, budget, step, rng) for _ in range(PLAYS)]
    longest = max(len(curve) for curve in curves)
    filled = np.stack([np.pad(curve, ((0, longest - len(curve)), (0, 0)), mode="edge") for curve in curves])
    return Forecast(*filled.mean(axis=0).T)


def _play(standing: Standing, sources: Sequence[Answerer], budget: float, step: float, rng: np.random.Generator) -> np.ndarray:
    """Rows of answers, cost and share of labels right, the first before anything is asked."""
    held = Standing(*(table_NC.copy() for table_NC in vars(standing).values()))
    asking = [replace(source, left_N=source.left_N.copy()) for source in sources]
    cost_V = np.array([source.cost for source in sources])
    found, right_N = decide(held, asking, 0.0), held.right_N
    points = [(0.0, 0.0, right_N.mean())]
    while True:
        answers, spent, _ = points[-1]
        order = np.flatnonzero(found.kind_N != ENOUGH)
        order = order[np.argsort(-found.rate_N[order], kind="stable")]
        cost = cost_V[found.source_N[order]]
        paid = paid_for(cost, min(step, budget - spent))
        rows = order[paid]
        if not len(rows):
            return np.array(points)
        for number, source in enumerate(asking):
            asked = rows[found.source_N[rows] == number]
            _ask(held, source, asked, rng)
            source.left_N[asked] -= 1
            for other in asking if source.expert else ():
                other.left_N[asked] = 0
        again = decide(held[rows], [source[rows] for source in asking], 0.0)
        for table_N, new_M in zip(found, again, strict=True):
            table_N[rows] = new_M
        right_N[rows] = held[rows].right_N
        points.append((answers + len(rows), spent + cost[paid].sum(), right_N.mean()))


def _ask(held: Standing, source: Answerer, rows: np.ndarray, rng: np.random.Generator) -> None:
    """Draw answers about these items, and update their posterior."""
    for number, person in enumerate(source.people):
        asked = rows[source.who_N[rows] == number]
        before = held[asked]
        class_M = _drawn(before.belief_NC, rng)
        after = before.after(_drawn(person[class_M], rng), person)
        for name, table_NC in vars(held).items():
            table_NC[asked] = getattr(after, name)


def _drawn(share_MC: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One class for each row, drawn with these probabilities."""
    total_MC = share_MC.cumsum(axis=1)
    drawn_M: np.ndarray = (total_MC < rng.random((len(share_MC), 1)) * total_MC[:, -1:]).sum(axis=1)
    return drawn_M.clip(max=share_MC.shape[1] - 1)
