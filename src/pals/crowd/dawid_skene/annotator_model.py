"""The annotator model: its parameters (M step) and the likelihood of answers under them (E step).

Model.  Item i has class z_i = c. Annotator w writes an answer a of form f (`answer_table`), which gives every class a role:
    P(c is first | w, f)    = h / n_first,                        h = sigmoid(logit(hit_f) + shift_w)
    P(c is second or listed)= (1 - h) role_f,r / n_r
    P(c is unlisted)        = (1 - h) role_f,0 / n_0 * (C - 1) error_c,top
with the chance `hit_f` that the first choice of a form is right, the annotator's skill (`shift_w`), the chances `role_f` of the
other roles when it is wrong, and the errors of annotators as a whole, `error_c,t`: which label t stands where c was missed. The
diagonal is common to all classes: annotators differ in skill, classes only in what they are mistaken for. That anchors the
model: no class can be explained as what is always called by another class's name.

The answers to one item share their mistakes (`correlation`): n of them count as n / t, t = 1 + (n - 1) rho, the design effect.
    log P(z_i = c | answers) = log prior_ic + (1 / t_i) sum_a weight_a log P(a | c) - [nobody listed c] unlisted_penalty
An answer is judged by parameters that are estimated without it, as far as hits are concerned.

With one form and even errors this is the one-coin model with one skill for each annotator.

Symbols: N items, C classes, A answers, R rows, F forms, W annotators.
References: Dawid and Skene 1979, doi:10.2307/2346806; Zhang et al. 2014 (one coin), arXiv:1406.3824; Kish 1965 (design effect).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import expit, logit, logsumexp

from pals.crowd.dawid_skene.answer_table import FIRST, UNLISTED, AnswerTable

SKILL_STRENGTH = 30.0
"""Prior of the hit rates of forms and annotators, in answers."""
ERROR_STRENGTH = 30.0
"""Prior of each row of the error matrix, in errors: half even, half as labels are frequent."""
UNLISTED_PENALTY = 1.0
"""Nats that a class must make up for if no answer to the item lists it: annotators' mistakes are alike."""
ANSWER_BLOCK = 4_000_000
"""Numbers in a table of answers by classes in memory at once."""
MIN_CHANCE = 1e-3
"""Bound of hit rates and role chances away from 0 and 1."""


@dataclass(frozen=True)
class AnnotatorModel:
    """Parameters of the model.

    Args:
        hit_A: Chance that the first choice of each answer is right, estimated without the answer.
        role_A4: Chances of the roles of a class that is not first, for each answer; zero for FIRST and roles that no class has.
        errors: Which labels are given instead of a class.
        hit_F: Chance that the first choice is right, for each form.
        skill_W: Share of right first choices of each annotator.
    """

    hit_A: np.ndarray
    role_A4: np.ndarray
    errors: Errors
    hit_F: np.ndarray
    skill_W: np.ndarray

    @property
    def skill(self) -> float:
        """Mean chance of a right first choice."""
        return float(self.hit_A.mean()) if len(self.hit_A) else 0.5


@dataclass(frozen=True)
class Errors:
    """The error matrix, error_ct = (count_ct + prior_ct) / (count_c + prior_c), as counts, so that an answer can be left out.

    Args:
        count_CC: Expected number of errors: rows are the true class, columns the label; zero diagonal.
        prior_CC: Pseudo-counts, zero diagonal.
        mass_NC: What an answer to each item contributed to the rows; None if the counts are zero.
    """

    count_CC: np.ndarray
    prior_CC: np.ndarray
    mass_NC: np.ndarray | None = None

    @classmethod
    def even(cls, classes: int) -> Errors:
        """Every wrong label is as probable."""
        prior_CC = np.ones((classes, classes))
        np.fill_diagonal(prior_CC, 0)
        return cls(np.zeros((classes, classes)), prior_CC)

    @property
    def error_CC(self) -> np.ndarray:
        """The matrix; rows sum to 1."""
        total_CC = self.count_CC + self.prior_CC
        error_CC: np.ndarray = total_CC / np.maximum(total_CC.sum(axis=1, keepdims=True), 1e-300)
        return error_CC

    def log_left_out(self, table: AnswerTable, answers: np.ndarray, part_MR: csr_matrix, label_R: np.ndarray) -> np.ndarray:
        """M x C: log-chance of each answer's first choice given the class, the answer itself left out, relative to even errors.
        Of an unranked set the mean over its labels."""
        total_CC = self.count_CC + self.prior_CC
        sum_C, prior_MC = np.maximum(total_CC.sum(axis=1), 1e-300), part_MR @ self.prior_CC.T[label_R]
        chance_MC = part_MR @ total_CC.T[label_R]
        if self.mass_NC is None:
            chance_MC /= sum_C
        else:
            own_MC = self.mass_NC[table.item_A[answers]] * table.weight_A[answers, None]
            part_M1 = np.asarray(part_MR.power(2).sum(axis=1))
            chance_MC = np.maximum(chance_MC - own_MC * part_M1, prior_MC) / np.maximum(
                sum_C - own_MC, self.prior_CC.sum(axis=1)
            )
        log_MC: np.ndarray = np.log(np.maximum(chance_MC * max(len(sum_C) - 1, 1), 1e-6))
        return log_MC


def m_step(
    table: AnswerTable, posterior_NC: np.ndarray, item_weight_N: np.ndarray, errors: Errors, strength: float
) -> AnnotatorModel:
    """Hit rates of forms and annotators and chances of roles, from the posterior. Errors are given (`estimate_errors`).

    Args:
        table: The answers.
        posterior_NC: Probability of each class.
        item_weight_N: How much each item counts.
        errors: As in `AnnotatorModel`.
        strength: Prior of the hit rates, in answers.
    """
    answers, forms, form_A = len(table.item_A), table.num_forms, table.form_A
    weight_A = table.weight_A * item_weight_N[table.item_A]
    mass_R = posterior_NC[table.item_R, table.label_R]
    mass_A4 = np.stack(
        [np.bincount(table.answer_R, mass_R * (table.role_R == role), minlength=answers) for role in range(4)], 1
    ).astype(np.float64, copy=False)  # bincount of nothing has whole numbers
    mass_A4[:, UNLISTED] = np.maximum(1 - mass_A4.sum(axis=1), 0)
    mass_A4 *= weight_A[:, None]
    overall_4 = (mass_A4.sum(axis=0) + 1e-6) / (mass_A4.sum() + 4e-6)
    sums_F4 = np.stack([np.bincount(form_A, mass_A4[:, role], minlength=forms) for role in range(4)], axis=1)
    chance_A4 = sums_F4[form_A] - mass_A4 + strength * overall_4
    hit_A = np.clip(chance_A4[:, FIRST] / chance_A4.sum(axis=1), MIN_CHANCE, 1 - MIN_CHANCE)
    own_A, named = np.full(answers, np.nan), np.flatnonzero(table.annotator_A >= 0)
    own_A[named], skill_W = _shifted(table, weight_A, mass_A4[:, FIRST], hit_A, strength, named)
    role_A4 = np.where(table.count_A4 > 0, np.maximum(chance_A4, MIN_CHANCE * chance_A4.sum(axis=1, keepdims=True)), 0.0)
    role_A4[:, FIRST] = 0
    role_A4 /= np.maximum(role_A4.sum(axis=1, keepdims=True), 1e-300)
    hit_F = (sums_F4[:, FIRST] + strength * overall_4[FIRST]) / (sums_F4.sum(axis=1) + strength)
    return AnnotatorModel(np.where(np.isnan(own_A), hit_A, own_A), role_A4, errors, hit_F, skill_W)


def _shifted(
    table: AnswerTable, weight_A: np.ndarray, mass_A: np.ndarray, hit_A: np.ndarray, strength: float, named: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The hit rates of answers by named annotators, and each annotator's skill. An annotator's shift is the difference in
    log-odds between the right first choices and those expected from the forms, both with the prior."""
    annotator_A, annotators = table.annotator_A[named], table.num_annotators
    weight, mass, expected = weight_A[named], mass_A[named], (hit_A * weight_A)[named]
    weight_W, mass_W, expected_W = (np.bincount(annotator_A, value, minlength=annotators) for value in (weight, mass, expected))
    prior = strength * hit_A[named]
    count = weight_W[annotator_A] - weight + strength
    rate = np.clip((mass_W[annotator_A] - mass + prior) / count, MIN_CHANCE, 1 - MIN_CHANCE)
    usual = np.clip((expected_W[annotator_A] - expected + prior) / count, MIN_CHANCE, 1 - MIN_CHANCE)
    own = np.clip(expit(logit(hit_A[named]) + logit(rate) - logit(usual)), MIN_CHANCE, 1 - MIN_CHANCE)
    mean = mass_A.sum() / max(weight_A.sum(), 1e-300)
    return own, (mass_W + strength * mean) / (weight_W + strength)


def estimate_errors(
    table: AnswerTable, posterior_NC: np.ndarray, item_weight_N: np.ndarray, strength: float = ERROR_STRENGTH
) -> Errors:
    """Expected errors in the first choices, and a prior that is half even and half as labels are frequent."""
    classes, mass_NC = table.num_classes, posterior_NC * item_weight_N[:, None]
    count_CC = np.zeros((classes, classes))
    for answers in answer_blocks(table):
        rows, part_MR = _first_rows(table, answers)
        mass_MC = mass_NC[table.item_A[answers]] * table.weight_A[answers, None]
        mass_MC[table.answer_R[rows] - answers[0], table.label_R[rows]] = 0
        label_RC = csr_matrix((np.ones(len(rows)), (np.arange(len(rows)), table.label_R[rows])), shape=(len(rows), classes))
        count_CC += ((part_MR @ label_RC).T @ mass_MC).T
    frequent_C = table.share_NC.mean(axis=0) if table.num_items else np.zeros(classes)
    prior_CC = np.tile((frequent_C + 1 / classes) / 2, (classes, 1))
    np.fill_diagonal(prior_CC, 0)
    prior_CC *= strength / np.maximum(prior_CC.sum(axis=1, keepdims=True), 1e-300)
    return Errors(count_CC, prior_CC, mass_NC)


def log_likelihood(table: AnswerTable, model: AnnotatorModel) -> np.ndarray:
    """N x C: log P(answers to the item | class), weighted; without the design effect."""
    log_NC = np.zeros((table.num_items, table.num_classes))
    for answers in answer_blocks(table):
        item, place = np.unique(table.item_A[answers], return_inverse=True)
        to_items = csr_matrix((np.ones(len(answers)), (place, np.arange(len(answers)))))
        log_NC[item] += to_items @ answer_log_likelihood(table, model, answers)
    return log_NC


def answer_log_likelihood(table: AnswerTable, model: AnnotatorModel, answers: np.ndarray) -> np.ndarray:
    """The same for each of some answers (M, consecutive), M x C."""
    if not len(answers):
        return np.zeros((0, table.num_classes))
    rows, part_MR = _first_rows(table, answers)
    log_MC = model.errors.log_left_out(table, answers, part_MR, table.label_R[rows])
    count = np.maximum(table.count_A4[answers, UNLISTED], 1)
    role = np.maximum(model.role_A4[answers, UNLISTED], MIN_CHANCE)
    log_MC += np.log((1 - model.hit_A[answers]) * role / count)[:, None]
    rows = _rows(table, answers)
    answer_R, role_R = table.answer_R[rows], table.role_R[rows]
    hit_R = model.hit_A[answer_R]
    chance_R = np.where(role_R == FIRST, hit_R, (1 - hit_R) * model.role_A4[answer_R, role_R])
    log_MC[answer_R - answers[0], table.label_R[rows]] = np.log(chance_R * table.part_R[rows])
    weighted_MC: np.ndarray = log_MC * table.weight_A[answers, None]
    return weighted_MC


def answer_blocks(table: AnswerTable) -> Iterator[np.ndarray]:
    """Consecutive answers, as many at once as make a block."""
    step = max(1, ANSWER_BLOCK // table.num_classes)
    for start in range(0, len(table.item_A), step):
        yield np.arange(start, min(start + step, len(table.item_A)))


def _rows(table: AnswerTable, answers: np.ndarray) -> np.ndarray:
    """The rows of consecutive answers."""
    return np.arange(*np.searchsorted(table.answer_R, [answers[0], answers[-1] + 1]))


def _first_rows(table: AnswerTable, answers: np.ndarray) -> tuple[np.ndarray, csr_matrix]:
    """The rows of their first choices, and how they make up the answers, M x R."""
    rows = _rows(table, answers)
    rows = rows[table.role_R[rows] == FIRST]
    cells = table.answer_R[rows] - answers[0], np.arange(len(rows))
    return rows, csr_matrix((table.part_R[rows], cells), shape=(len(answers), len(rows)))


def design_effect(table: AnswerTable, correlation: float) -> np.ndarray:
    """N x 1: by what the log-likelihood of each item's answers is divided."""
    effect_N1: np.ndarray = 1 + np.maximum(table.count_N - 1, 0)[:, None] * correlation
    return effect_N1


def e_step(table: AnswerTable, model: AnnotatorModel, log_prior_NC: np.ndarray, correlation: float) -> np.ndarray:
    """The posterior, N x C, given a log-prior (N x C or C); gold labels are certain."""
    log_NC = log_likelihood(table, model) / design_effect(table, correlation) + log_prior_NC
    log_NC -= UNLISTED_PENALTY * ~table.named_NC
    posterior_NC: np.ndarray = np.exp(log_NC - logsumexp(log_NC, axis=1, keepdims=True))
    return with_gold(table, posterior_NC)


def with_gold(table: AnswerTable, posterior_NC: np.ndarray) -> np.ndarray:
    """The posterior with certain gold labels; changes the array."""
    gold = np.flatnonzero(table.gold_N >= 0)
    posterior_NC[gold] = 0
    posterior_NC[gold, table.gold_N[gold]] = 1
    return posterior_NC


def information(hit: np.ndarray, classes: int) -> np.ndarray:
    """What an answer with this hit rate is worth: its log-odds above guessing, in nats."""
    log_odds: np.ndarray = logit(np.clip(hit, MIN_CHANCE, 1 - MIN_CHANCE)) + np.log(max(classes - 1, 1))
    return log_odds
