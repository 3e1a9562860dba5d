"""What can be known of a posterior without the truth: how well it predicts an answer that it has not seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from pals.crowd.blocks import row_blocks
from pals.crowd.chances import Chances, e_step
from pals.crowd.consensus import Consensus
from pals.crowd.posterior import ItemPosterior

LARGEST = 4_000_000
"""Numbers in a table of left-out answers by classes; where there are more answers, every second, third, ... is looked at."""

DOUBT = 0.3
"""Deviation of the correlation before any answer has been looked at: a few answers hardly move it from zero."""


class LeftOutAnswers(NamedTuple):
    """For answers (A) to items with at least two: what the item is held to be without this answer, and the probability of the
    answer given each class."""

    item_A: np.ndarray
    weight_A: np.ndarray
    others_A: np.ndarray  # how many answers are left
    posterior_AC: np.ndarray
    chance_AC: np.ndarray


def left_out_answers(consensus: Consensus, prior_NC: np.ndarray) -> LeftOutAnswers:
    """Every answer taken out in turn: out of its item's posterior, and out of what is known of its person. The posterior of an
    item with a gold label is what it would be without, by this prior: experts are asked about the items that people
    disagree on, and without these people would seem to agree."""
    answers, found = consensus.answers, _without_gold(consensus, prior_NC)
    use = np.flatnonzero(answers.count_N[answers.item_E] > 1)
    use = use[:: 1 + len(use) * answers.num_classes // LARGEST]
    item_A, weight_A = answers.item_E[use], answers.given_NS.data[use]
    easy_AC, hard_AC = Chances(answers, consensus.annotators, consensus.found)(use)
    with np.errstate(divide="ignore"):
        log_easy_AC = np.log(found.easy_NC[item_A]) - weight_A[:, None] * np.log(easy_AC)
        log_hard_AC = np.log(found.hard_NC[item_A]) - weight_A[:, None] * np.log(hard_AC)
    top_A1 = np.maximum(log_easy_AC, log_hard_AC).max(axis=1, keepdims=True)
    rest = ItemPosterior(np.exp(log_easy_AC - top_A1), np.exp(log_hard_AC - top_A1), weight_A)
    posterior_AC = rest.posterior_NC
    both_AC = rest.easy_NC * easy_AC + rest.hard_NC * hard_AC
    chance_AC = np.divide(both_AC, posterior_AC, out=easy_AC.copy(), where=posterior_AC > 0)
    posterior_AC = posterior_AC / posterior_AC.sum(axis=1, keepdims=True)
    return LeftOutAnswers(item_A, weight_A, answers.count_N[item_A] - 1, posterior_AC, chance_AC)


def _without_gold(consensus: Consensus, prior_NC: np.ndarray) -> ItemPosterior:
    """What the answers say of the items, of those with a gold label too."""
    answers, found = consensus.answers, consensus.found
    gold_N1 = (answers.gold_N >= 0)[:, None]
    if not gold_N1.any():
        return found
    nobody_N, log_prior_NC = np.full_like(answers.gold_N, -1), np.log(np.maximum(prior_NC, np.finfo(float).tiny))
    asked = e_step(replace(answers, gold_N=nobody_N), consensus.annotators, log_prior_NC, found)
    easy_NC, hard_NC = np.where(gold_N1, asked.easy_NC, found.easy_NC), np.where(gold_N1, asked.hard_NC, found.hard_NC)
    return replace(found, easy_NC=easy_NC, hard_NC=hard_NC)


def tempered(posterior_NC: np.ndarray, temperature_N: np.ndarray) -> np.ndarray:
    """The same order of the classes, less sure the higher the temperature; 1 changes nothing. In the same precision."""
    tempered_NC, items = np.empty_like(posterior_NC), len(posterior_NC)
    temperature_N = np.broadcast_to(temperature_N, items)
    for part in row_blocks(np.arange(items + 1), posterior_NC.shape[1]):
        raised_BC = raised(posterior_NC[part], temperature_N[part])
        np.divide(raised_BC, raised_BC.sum(axis=1, keepdims=True), out=tempered_NC[part])
    return tempered_NC


def raised(posterior_NC: np.ndarray, temperature_N: np.ndarray) -> np.ndarray:
    """The probabilities to a power, in their precision; that of the likeliest class is 1."""
    power_N1 = (1 / temperature_N[:, None]).astype(posterior_NC.dtype, copy=False)
    raised_NC: np.ndarray = (posterior_NC / posterior_NC.max(axis=1, keepdims=True)) ** power_N1
    return raised_NC


def temperature_of(sources_N: np.ndarray, correlation: float) -> np.ndarray:
    """What n sources say counts as much as n / (1 + (n - 1) correlation) independent ones would."""
    temperature_N: np.ndarray = 1 + correlation * np.maximum(sources_N - 1, 0)
    return temperature_N


def find_correlation(held: LeftOutAnswers, opinion: bool) -> float:
    """How far sources repeat each other, from 0 (not at all) to 1: as it must be for what the others say of an item to
    predict the left-out answer best. Sources are the answers, and the opinion if there is one."""
    if not len(held.item_A):
        return 0.0

    def loss(correlation: float) -> float:
        return float(prior_loss(correlation) - (held.weight_A * log_predicted(held, opinion, correlation)).sum())

    return float(minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-4}).x)


def log_predicted(held: LeftOutAnswers, opinion: bool, correlation: float) -> np.ndarray:
    """Log-probability of each left-out answer."""
    temperature_A = temperature_of(held.others_A + opinion, correlation)
    log_A: np.ndarray = np.log((tempered(held.posterior_AC, temperature_A) * held.chance_AC).sum(axis=1))
    return log_A


def prior_loss(correlation: Any) -> Any:
    return 0.5 * (correlation / DOUBT) ** 2
