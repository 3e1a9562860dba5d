"""What images contribute to labels: P(class | image) from scores, with the slope under which answers are predicted best.

    P(z_i = c | x_i) = (1 - doubt) softmax(slope * score_ic + log share_c) + doubt * share_c
    slope: maximises sum_a log [sum_c P_ic L_ic / sum_c P_ic L_ic^(-a)],   L_ic = P(answers to i | c), and without answer a

Symbols: N items, C classes, J items whose answers are predicted, M answers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from pals.crowd.dawid_skene.annotator_model import (
    AnnotatorModel,
    answer_blocks,
    answer_log_likelihood,
    design_effect,
    log_likelihood,
)
from pals.crowd.dawid_skene.answer_table import AnswerTable
from pals.crowd.dawid_skene.em import Consensus

MAX_SLOPE = 40.0
"""Largest factor between scores and logits."""
DOUBT = 0.02
"""Share of the image likelihood that is spread by the class shares; with few items more, as if `DOUBTED` of each class had
shown nothing."""
DOUBTED = 1
MAX_EVIDENCE = 2_000_000
"""Numbers in the table of answers by classes that slope and penalty are chosen by; of more answers, a part."""


@dataclass(frozen=True)
class ImageLikelihood:
    """What the images contribute.

    Args:
        log_NC: Log-probability of each class given the image.
        score_NC: Scores of the regression; None without images.
        penalty: Of the regression.
        slope: Factor between scores and logits; 0 if the images do not help.
        gain: Nats by which the answers are predicted better than by the class shares.
    """

    log_NC: np.ndarray
    score_NC: np.ndarray | None = None
    penalty: float = 0.0
    slope: float = 0.0
    gain: float = 0.0


def image_log_likelihood(table: AnswerTable, score_NC: np.ndarray, slope: float) -> np.ndarray:
    """log P(class | image) of items with these scores; with slope 0 the class shares."""
    if slope == 0:
        return np.tile(np.log(table.class_share_C), (len(score_NC), 1))
    logit_NC = slope * score_NC + np.log(table.class_share_C)
    pseudo, items = DOUBTED * table.num_classes, max(int(table.known_N.sum()), 1)
    doubt = DOUBT + (1 - DOUBT) * pseudo / (items + pseudo)
    shown_NC = np.exp(logit_NC - logsumexp(logit_NC, axis=1, keepdims=True))
    log_NC: np.ndarray = np.log((1 - doubt) * shown_NC + doubt * table.class_share_C)
    return log_NC


def log_shares(table: AnswerTable) -> np.ndarray:
    """The log-shares of the classes for every item, N x C."""
    return np.tile(np.log(table.class_share_C), (table.num_items, 1))


@dataclass(frozen=True)
class Evidence:
    """Answers that are predicted, each from the image and all other answers to its item: M of the answers, to J of the items.

    Args:
        item_J: The items.
        place_M: Place of each answer's item among them.
        own_MC: Log-likelihood of the answer.
        all_JC: Of all answers to the item.
        weight_M: How much each counts.
    """

    item_J: np.ndarray
    place_M: np.ndarray
    own_MC: np.ndarray
    all_JC: np.ndarray
    weight_M: np.ndarray

    @classmethod
    def of(cls, table: AnswerTable, annotators: AnnotatorModel, correlation: float, weight_N: np.ndarray) -> Evidence:
        """Answers to items without a gold label; of very many, those to every second, third, ... item."""
        step = 1 + len(table.item_A) * table.num_classes // MAX_EVIDENCE
        used_A = (table.item_A % step == 0) & (table.gold_N[table.item_A] < 0) & (table.weight_A > 0)
        kept = [answer_log_likelihood(table, annotators, block)[used_A[block]] for block in answer_blocks(table)]
        item_J, place_M = np.unique(table.item_A[used_A], return_inverse=True)
        effect_J1 = design_effect(table, correlation)[item_J]
        own_MC = np.concatenate([np.zeros((0, table.num_classes)), *kept]) / effect_J1[place_M]
        all_JC = log_likelihood(table, annotators)[item_J] / effect_J1
        return cls(item_J, place_M, own_MC, all_JC, weight_N[item_J][place_M])

    def log_predicted(self, log_prior_JC: np.ndarray) -> float:
        """Sum over the answers of log P(answer | image, other answers), up to a constant.

        Args:
            log_prior_JC: Log-probability of each class of these items, given their images.
        """
        total_JC = log_prior_JC + self.all_JC
        with_M = logsumexp(total_JC, axis=1)[self.place_M]
        return float((self.weight_M * (with_M - logsumexp(total_JC[self.place_M] - self.own_MC, axis=1))).sum())


def best_slope(table: AnswerTable, score_NC: np.ndarray, evidence: Evidence) -> tuple[float, float]:
    """The factor between scores and logits under which answers are predicted best, and the gain over no images."""
    score_JC = score_NC[evidence.item_J]

    def loss(slope: float) -> float:
        return -evidence.log_predicted(image_log_likelihood(table, score_JC, slope))

    if not len(evidence.item_J):
        return 0.0, 0.0
    found = minimize_scalar(loss, bounds=(0.0, MAX_SLOPE), method="bounded", options={"xatol": 0.1})
    gain = loss(0.0) - float(found.fun)
    return (float(found.x), gain) if gain > 0 else (0.0, 0.0)


def mean_log_predicted(alone: Consensus, prediction_NC: np.ndarray) -> float:
    """Nats an answer: how well each is predicted from the other answers to its item and a prediction that used none of them.

    Args:
        alone: The fitted annotators, so that predictions can be compared.
        prediction_NC: Probability of each class.
    """
    evidence = Evidence.of(alone.answers, alone.annotators, alone.correlation, np.ones(alone.answers.num_items))
    return evidence.log_predicted(np.log(prediction_NC[evidence.item_J].clip(min=1e-6))) / max(len(evidence.place_M), 1)
