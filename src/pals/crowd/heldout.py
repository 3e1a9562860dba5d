"""What can be known of a posterior without the truth: how well it predicts an answer that it has not seen."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from pals.crowd.annotators import Weighed, hard_chance
from pals.crowd.consensus import Consensus

LARGEST = 4_000_000
"""Numbers in a table of held-out answers by classes; where there are more answers, every second, third, ... is looked at."""

HOTTEST = 4.0
DOUBT = 0.3
"""Deviation of the logarithm of the temperature before any answer has been looked at: few answers hardly move it."""


class HeldOut(NamedTuple):
    """For answers (A) to items with at least two: what the item is held to be without this answer, and the probability of the
    answer given each class."""

    item_A: np.ndarray
    weight_A: np.ndarray
    posterior_AC: np.ndarray
    chance_AC: np.ndarray


def held_out(consensus: Consensus) -> HeldOut:
    """Every answer taken out of its item's posterior in turn. Who errs how stays as it was learned from all answers: of that a
    single one decides next to nothing."""
    answers, annotators, found = consensus.answers, consensus.annotators, consensus.found
    given = answers.given_NS.tocoo()
    several_N = np.bincount(given.row[given.data > 0], minlength=answers.num_items) > 1
    use = np.flatnonzero((given.data > 0) & several_N[given.row] & (answers.gold_N[given.row] < 0))
    use = use[:: 1 + len(use) * answers.num_classes // LARGEST]
    item_A, symbol_A, weight_A = given.row[use], given.col[use], given.data[use]
    easy_AC = answers.members_SP[symbol_A] @ annotators.chance_PC
    hard_AC = answers.members_SP[symbol_A] @ hard_chance(answers, annotators)
    with np.errstate(divide="ignore"):
        log_easy_AC = np.log(found.easy_NC[item_A]) - weight_A[:, None] * np.log(easy_AC)
        log_hard_AC = np.log(found.hard_NC[item_A]) - weight_A[:, None] * np.log(hard_AC)
    top_A1 = np.maximum(log_easy_AC, log_hard_AC).max(axis=1, keepdims=True)
    rest = Weighed(np.exp(log_easy_AC - top_A1), np.exp(log_hard_AC - top_A1), weight_A)
    posterior_AC = rest.posterior_NC
    both_AC = rest.easy_NC * easy_AC + rest.hard_NC * hard_AC
    chance_AC = np.divide(both_AC, posterior_AC, out=easy_AC.copy(), where=posterior_AC > 0)
    return HeldOut(item_A, weight_A, posterior_AC / posterior_AC.sum(axis=1, keepdims=True), chance_AC)


def tempered(posterior_NC: np.ndarray, temperature: float) -> np.ndarray:
    """The same order of the classes, less sure the higher the temperature; 1 changes nothing."""
    raised_NC = (posterior_NC / posterior_NC.max(axis=1, keepdims=True)) ** (1 / temperature)
    cooled_NC: np.ndarray = raised_NC / raised_NC.sum(axis=1, keepdims=True)
    return cooled_NC


def find_temperature(held: HeldOut) -> float:
    """The temperature, from 1 to `HOTTEST`, at which the posterior without an answer predicts the answer best."""

    def loss(log_temperature: float) -> float:
        predicted_A = (tempered(held.posterior_AC, float(np.exp(log_temperature))) * held.chance_AC).sum(axis=1)
        return float(-(held.weight_A * np.log(predicted_A)).sum() + 0.5 * (log_temperature / DOUBT) ** 2)

    if not len(held.item_A):
        return 1.0
    return float(np.exp(minimize_scalar(loss, bounds=(0.0, np.log(HOTTEST)), method="bounded", options={"xatol": 1e-3}).x))
