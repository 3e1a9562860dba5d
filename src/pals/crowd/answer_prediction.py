"""What can be known of a posterior without the truth: how well it predicts an answer that it has not seen."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from pals.crowd.answers import Answers
from pals.crowd.blocks import row_blocks
from pals.crowd.dawid_skene.e_step import Chances, log_hard, softmax
from pals.crowd.dawid_skene.em import Consensus

LARGEST = 4_000_000
"""Numbers in a table of left-out answers by classes; where there are more, every second, third, ... item is looked at."""

MISTAKEN = 0.001
"""Share of the gold labels that may be slips, so that one of them cannot outweigh all answers."""

DOUBT = 0.3
"""Deviation of the correlation before any answer has been looked at: a few answers hardly move it from zero."""


class LeftOutAnswers(NamedTuple):
    """For answers (A) to items with at least two: what the item is held to be without this answer, and the probability of the
    answer given each class. A gold label counts as one more answer, and no other answer is judged by it.

    Items with a gold label are needed: most were asked about because the sources were least sure of them. In the items that are
    left the sources agree because these were left, which looks as if no source repeated another."""

    item_A: np.ndarray
    weight_A: np.ndarray
    others_A: np.ndarray  # how many answers are left
    posterior_AC: np.ndarray
    chance_AC: np.ndarray

    def with_gold(self, answers: Answers, gold: np.ndarray, posterior_GC: np.ndarray) -> LeftOutAnswers:
        """And the gold labels of these items, which are held to be this without them."""
        told_GC = (1 - MISTAKEN) * np.eye(answers.num_classes)[answers.gold_N[gold]] + MISTAKEN / answers.num_classes
        return LeftOutAnswers(
            item_A=np.append(self.item_A, gold),
            weight_A=np.append(self.weight_A, np.ones(len(gold))),
            others_A=np.append(self.others_A, answers.count_N[gold]),
            posterior_AC=np.concatenate([self.posterior_AC, posterior_GC]),
            chance_AC=np.concatenate([self.chance_AC, told_GC]),
        )


def left_out_answers(consensus: Consensus, opinion_NC: np.ndarray) -> LeftOutAnswers:
    """Every answer taken out in turn: out of its item's posterior, and out of what is known of its person. The opinion is the
    prior of the classes."""
    answers, found = consensus.answers, consensus.found
    looked_at_N = np.arange(answers.num_items) % (1 + answers.given_NS.nnz * answers.num_classes // LARGEST) == 0
    use = np.flatnonzero((looked_at_N & (answers.count_N > 1))[answers.item_E])
    gold = np.flatnonzero(looked_at_N & answers.answered_N & (answers.gold_N >= 0))
    item_A, weight_A = answers.item_E[use], answers.given_NS.data[use]
    chances = Chances(answers, consensus.annotators, found)
    easy_AC, hard_AC = chances(use)
    with np.errstate(divide="ignore"):
        log_gold_GT = _without_gold(consensus, chances, gold, opinion_NC[gold])
        log_AT = np.log(np.concatenate([found.easy_NC[item_A], found.hard_NC[item_A]], axis=1))
    of_gold = np.flatnonzero(answers.gold_N[item_A] >= 0)
    log_AT[of_gold] = log_gold_GT[np.searchsorted(gold, item_A[of_gold])]
    log_AT -= weight_A[:, None] * np.log(np.concatenate([easy_AC, hard_AC], axis=1))
    rest_easy_AC, rest_hard_AC = np.split(softmax(log_AT)[1], 2, axis=1)
    posterior_AC = rest_easy_AC + rest_hard_AC
    both_AC = rest_easy_AC * easy_AC + rest_hard_AC * hard_AC
    chance_AC = np.divide(both_AC, posterior_AC, out=easy_AC.copy(), where=posterior_AC > 0)
    held = LeftOutAnswers(item_A, weight_A, answers.count_N[item_A] - 1, posterior_AC, chance_AC)
    gold_easy_GC, gold_hard_GC = np.split(softmax(log_gold_GT)[1], 2, axis=1)
    return held.with_gold(answers, gold, gold_easy_GC + gold_hard_GC)


def _without_gold(consensus: Consensus, chances: Chances, gold: np.ndarray, opinion_GC: np.ndarray) -> np.ndarray:
    """G x 2C: log-probability of class and difficulty of these items, up to a constant, as if their labels were not known."""
    answers, hard_C = consensus.answers, consensus.annotators.hard_C
    log_hard_G1 = log_hard(answers, consensus.annotators)[gold]
    log_GT = np.concatenate([np.zeros((len(gold), 1)) + np.log1p(-hard_C), log_hard_G1 + np.log(hard_C)], axis=1)
    log_GT += np.tile(np.log(opinion_GC), 2)
    entry = np.flatnonzero(np.isin(answers.item_E, gold))
    log_ET = answers.given_NS.data[entry, None] * np.log(np.concatenate(chances(entry), axis=1))
    np.add.at(log_GT, np.searchsorted(gold, answers.item_E[entry]), log_ET)
    return log_GT


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
