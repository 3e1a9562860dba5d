"""How many labels are wrong, with all that is not known drawn again and again: Gibbs sampling.

A fit gives one set of annotators and believes in it; from few answers each, quite another set may be as good. Here the true
classes of the items, who errs how, what people in general do, and how far sources repeat each other are drawn in turn, each
given all others. The share of labels that differ from the drawn classes, sweep by sweep, is what may be wrong in them.

A person answers for an item of class c in one of three ways, with probabilities of their own: with care (right with the
probability of the class, otherwise with a mistake as people make it), with a mistake in any case, or blindly, by habit. That is
the mean of the person's confusion matrix; its rows are drawn around it, the closer the larger `strength`. Of a hard item every
second answer is a mistake, whoever gives it; three answers cannot tell such items from people who err more often, so they are
looked for only where there is an opinion. It is the prior of the classes, to a power that is drawn too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from pals.crowd.answer_prediction import LeftOutAnswers, log_predicted, prior_loss, temperature_of
from pals.crowd.answers import Answers
from pals.crowd.dawid_skene.annotators import Annotators
from pals.crowd.dawid_skene.e_step import log_sum, softmax, with_gold
from pals.crowd.dawid_skene.unsure import first_caution, first_unsure
from pals.crowd.set_answers import TINY, Named

SWEEPS, BURN_IN = 240, 60
"""Sweeps that count, after some that forget where it began."""
CORRELATION_EVERY = 5
"""Sweeps between two draws of the correlation, which looks at every answer."""
CARE, SLIP, BLIND = range(3)
POPULATION = (4.5, 0.5, 0.5)
"""Pseudo-counts of the three ways to answer, for a person of whom nothing is known: where the drawing of them begins, and what
their prior is centred on."""
POPULATION_SPREAD = 1.0
"""Deviation of that prior, of the logarithms."""
HABIT_PSEUDO_COUNTS = 5.0
"""Blind answers, spread as all answers are, that a person's habit begins with."""
CLASS_PSEUDO_COUNTS = 10.0
"""Answers that people's accuracy for one class begins with: as for the mean of the classes."""
HARD_PSEUDO_COUNTS = (0.5, 19.5)
"""Hard items and others to begin with, of all classes together; none are hard where there is no opinion."""
OPINION_PSEUDO_COUNTS = 0.5
"""Items of which the opinion is held to say nothing: without any, one that fits all answers would be believed without limit."""
STEEPEST = 2.0
"""Largest power of the opinion, which comes as it predicts answers best. With a hundred classes and few items of each, classes
that are drawn by it would teach that it is to be believed more, and so on without end."""
STRENGTH_PRIOR = (0.5, 0.005)
"""Shape and rate of the Gamma prior."""
WEAKEST, STRONGEST = 1.0, 1000.0
"""Limits of the strength."""
ACCURACIES = np.linspace(0.025, 0.975, 39)
CONCENTRATIONS = np.array([0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0])
"""Values that people's mean accuracy, and the concentration of their mistakes on few classes, may take."""


class Shares(NamedTuple):
    """Of labelings (V), sweep by sweep (S): the share of wrong labels that was drawn, and the share that was to be expected
    given all else that was drawn; and the share of answers that name other classes than those drawn."""

    drawn_VS: np.ndarray
    expected_VS: np.ndarray
    answers_S: np.ndarray


class Start(NamedTuple):
    """Where the drawing begins: what a fit found."""

    posterior_NC: np.ndarray
    annotators: Annotators  # of whom only what people in general do is looked at
    correlation: float


def wrong_shares(
    answers: Answers,
    log_opinion_NC: np.ndarray | None,
    start: Start,
    labels: Sequence[np.ndarray],
    rng: np.random.Generator,
    sweeps: int = SWEEPS,
) -> Shares:
    """How many of these labels, N numbers each, may be wrong, of the items that people answered for and that have no gold
    label."""
    chain = Chain(answers, log_opinion_NC, start, rng)
    use = np.flatnonzero(answers.answered_N & (answers.gold_N < 0))
    drawn, expected, answered = [], [], []
    for sweep in range(BURN_IN + sweeps):
        chain.sweep(draw_correlation=sweep % CORRELATION_EVERY == 0)
        if sweep < BURN_IN:
            continue
        log_NC = chain.log_tempered()[use]
        class_U = _pick(log_NC, rng)
        class_N = answers.gold_N.copy()
        class_N[use] = class_U
        answered.append(1 - chain.named.right_share(class_N))
        drawn.append([(class_U != label_N[use]).mean() for label_N in labels])
        log_total_U = log_sum(log_NC)
        right_VU = [np.exp(log_NC[np.arange(len(use)), label_N[use]] - log_total_U) for label_N in labels]
        expected.append([1 - right_U.mean() for right_U in right_VU])
    return Shares(np.array(drawn).T, np.array(expected).T, np.array(answered))


class Chain:
    """What is drawn now of all that is not known. Mistakes are of people in general: rows are the class, columns the label."""

    def __init__(self, answers: Answers, log_opinion_NC: np.ndarray | None, start: Start, rng: np.random.Generator) -> None:
        annotators = start.annotators
        classes, people = answers.num_classes, answers.num_annotators
        self.answers, self.log_opinion_NC, self.rng = answers, log_opinion_NC, rng
        self.named = Named(answers)
        self.known = np.flatnonzero(answers.known_N)
        self.unnamed_P = answers.annotator_P == answers.unnamed
        self.active_W = np.bincount(self.named.annotator_E, minlength=people) > 0
        given_C = np.bincount(self.named.label_K, minlength=classes)
        self.label_share_C = (given_C + 1) / (given_C.sum() + classes)
        # Of labels that nobody gives only their sum is drawn: a table of all classes by all would be nearly empty.
        self.label_L, self.place_P = np.unique(answers.label_P, return_inverse=True)
        self.own_CL = self.label_L == np.arange(classes)[:, None]
        near_CC = annotators.nearness_CC
        self.near_CL = np.where(self.own_CL, 0.0, near_CC[:, self.label_L])
        self.near_rest_C = (classes - 1 - self.near_CL.sum(axis=1)).clip(min=0) if len(self.label_L) < classes else None
        self.unsure, self.caution = first_unsure(answers, self.label_share_C), first_caution(answers)
        # where it begins
        self.class_N = _pick(np.log(start.posterior_NC + TINY), rng)
        self.hard_N = np.zeros(answers.num_items, dtype=bool)
        self.log_population_K = np.log(POPULATION)
        self.way_WK = np.tile(np.array(POPULATION) / sum(POPULATION), (people, 1))
        self.right_C = np.diag(annotators.shared_CC).clip(0.6, 0.98)
        self.mistake_CL = annotators.mistaken_CC[:, self.label_L]
        self.habit_WC = np.tile(self.label_share_C, (people, 1))
        self.strength = annotators.strength
        self.hard = self.log_slope = 0.0
        self.correlation = start.correlation
        self.easy_PC = sum(self._ways(), np.zeros(()))
        self.log_easy_NC = self.log_hard_NC = self.log_both_NC = np.zeros((answers.num_items, classes))

    def sweep(self, draw_correlation: bool) -> None:
        """Everything once."""
        pair_E = self.named.pick_pair(self._chance_PC, self.class_N, self.hard_N, self.rng)
        hard_E, as_sure_E = self.hard_N[self.answers.item_E], self._draw_as_sure()
        self._draw_people(pair_E, ~hard_E & as_sure_E, hard_E & as_sure_E)
        self._draw_items()
        if draw_correlation:
            self._draw_correlation()

    def log_tempered(self) -> np.ndarray:
        """Log-probability of the classes, N x C, up to a constant: as unsure as the correlation of the sources demands."""
        sources_N = self.answers.count_N + (self.log_opinion_NC is not None)
        log_NC: np.ndarray = self.log_both_NC / temperature_of(sources_N, self.correlation)[:, None]
        return log_NC

    # ---- people

    def _ways(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For pairs of a person and a label, P x C: probability that the person names the label for an item of each class:
        rightly, by mistake, and blindly."""
        annotator_P, label_P = self.answers.annotator_P, self.answers.label_P
        care_W1, slip_W1 = self.way_WK[:, [CARE]], self.way_WK[:, [SLIP]]
        right_PC = np.zeros((len(label_P), self.answers.num_classes))
        right_PC[np.arange(len(label_P)), label_P] = (care_W1 * self.right_C)[annotator_P, label_P]
        mistake_PC = (care_W1 * (1 - self.right_C) + slip_W1)[annotator_P] * self.mistake_CL[:, self.place_P].T
        blind_P = self.way_WK[annotator_P, BLIND] * self.habit_WC[annotator_P, label_P]
        return right_PC, mistake_PC, np.broadcast_to(blind_P[:, None], right_PC.shape)

    @property
    def _chance_PC(self) -> tuple[np.ndarray, np.ndarray]:
        """Probability of each pair, of easy and of hard items of each class."""
        return self.easy_PC, (0.5 * self.own_CL + 0.5 * self.mistake_CL)[:, self.place_P].T

    def _draw_as_sure(self) -> np.ndarray:
        """Which answers were given as sure ones are, those that are unsure too; and what these are worth."""
        answers, symbol_E = self.answers, self.answers.given_NS.indices
        if self.unsure is None:
            return np.ones(len(symbol_E), dtype=bool)
        class_E, hard_E = self.class_N[answers.item_E], self.hard_N[answers.item_E]
        easy_SC, hard_SC = (answers.members_SP @ chance_PC + TINY for chance_PC in self._chance_PC)
        chance_E = np.where(hard_E, hard_SC[symbol_E, class_E], easy_SC[symbol_E, class_E])
        self.unsure, as_sure_E = self.unsure.drawn(symbol_E, chance_E, self.rng)
        return as_sure_E

    def _draw_people(self, pair_E: np.ndarray, easy_E: np.ndarray, hard_E: np.ndarray) -> None:
        """Given the classes of the items: who errs how, and what people in general do. By answers to easy and to hard items;
        those that were not given as sure ones are tell nothing."""
        rng, answers, classes = self.rng, self.answers, self.answers.num_classes
        weight_E, class_E = answers.given_NS.data, self.class_N[answers.item_E]
        cell_E = pair_E * classes + class_E
        count_PC = np.bincount(cell_E[easy_E], weight_E[easy_E], minlength=self.easy_PC.size).reshape(-1, classes)
        new_T, way_T, right_T = self._draw_new(cell_E[easy_E])
        annotator_T, label_T, class_T = (
            answers.annotator_P[new_T // classes],
            answers.label_P[new_T // classes],
            new_T % classes,
        )

        def table(chosen_T: np.ndarray, row_T: np.ndarray, rows: int, columns: int, column_T: np.ndarray) -> np.ndarray:
            return np.bincount((row_T * columns + column_T)[chosen_T], minlength=rows * columns).reshape(rows, columns)

        everything_T = np.ones(len(new_T), dtype=bool)
        people, blind_T = answers.num_annotators, way_T == BLIND
        self._draw_ways(table(everything_T, annotator_T, people, 3, way_T))
        blind_WC = table(blind_T, annotator_T, people, classes, label_T)
        self.habit_WC = _dirichlet(HABIT_PSEUDO_COUNTS * self.label_share_C + blind_WC, rng)
        labels, place_T, mistaken_E = len(self.label_L), self.place_P[new_T // classes], answers.label_P[pair_E] != class_E
        mistake_CL = table(~blind_T & ~right_T, class_T, classes, labels, place_T)
        mistake_CL = mistake_CL + table(hard_E & mistaken_E, class_E, classes, labels, self.place_P[pair_E])
        right_C = np.bincount(class_T[right_T], minlength=classes)
        careless_C = np.bincount(class_T[(way_T == CARE) & ~right_T], minlength=classes)
        self._draw_classes(right_C, careless_C, mistake_CL)
        named_E, named_T = (~self.unnamed_P[pair_X] for pair_X in (pair_E, new_T // classes))
        row_E = answers.annotator_P[pair_E] * classes + class_E
        self._draw_strength(np.bincount(row_E[easy_E & named_E]), int(named_T.sum()))
        self._draw_matrices(count_PC)

    def _draw_new(self, cell_A: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of answers in cells (pair, class): those that tell of the mean of the person's matrix, its cells, which way they were
        given, and whether they are right by care. Other answers repeat what the person said before (a Chinese restaurant)."""
        rng, cell_A = self.rng, np.sort(cell_A)
        unnamed_A = self.unnamed_P[cell_A // len(self.right_C)]  # each is the first that its person gave
        first = np.flatnonzero(np.diff(cell_A, prepend=-1))
        before_A = np.arange(len(cell_A)) - np.repeat(first, np.diff(np.append(first, len(cell_A))))
        right_PC, mistake_PC, blind_PC = self._ways()
        mean_A = (right_PC + mistake_PC + blind_PC).ravel()[cell_A] * self.strength
        new_T = cell_A[(rng.random(len(cell_A)) * (mean_A + before_A) < mean_A) | unnamed_A]
        right_T, mistake_T, blind_T = (way.ravel()[new_T] for way in (right_PC, mistake_PC, blind_PC))
        drawn_T = rng.random(len(new_T)) * (right_T + mistake_T + blind_T)
        is_right_T, is_blind_T = drawn_T < right_T, drawn_T >= right_T + mistake_T
        annotator_T, class_T = self.answers.annotator_P[new_T // len(self.right_C)], new_T % len(self.right_C)
        careless_T = self.way_WK[annotator_T, CARE] * (1 - self.right_C[class_T])
        slip_T = rng.random(len(new_T)) * (careless_T + self.way_WK[annotator_T, SLIP]) >= careless_T
        way_T = np.where(is_blind_T, BLIND, np.where(slip_T & ~is_right_T, SLIP, CARE))
        return new_T, way_T, is_right_T

    def _draw_ways(self, count_WK: np.ndarray) -> None:
        """How each person answers, and what is usual among people."""
        rng = self.rng
        way_WK = _dirichlet(np.exp(self.log_population_K) + count_WK, rng)
        if not _implausible(way_WK[self.active_W], self.right_C, self.mistake_CL).any():
            self.way_WK = way_WK
        active, log_sum_K = int(self.active_W.sum()), np.log(self.way_WK[self.active_W] + TINY).sum(axis=0)

        def log_density(log_K: np.ndarray) -> float:
            population_K = np.exp(log_K)
            likelihood = active * (gammaln(population_K.sum()) - gammaln(population_K).sum()) + population_K @ log_sum_K
            return float(likelihood - 0.5 * (((log_K - np.log(POPULATION)) / POPULATION_SPREAD) ** 2).sum())

        now = log_density(self.log_population_K)
        for _ in range(6):
            proposed_K = self.log_population_K + 0.25 * rng.normal(size=3)
            then = log_density(proposed_K)
            if np.log(rng.random()) < then - now:
                self.log_population_K, now = proposed_K, then

    def _draw_classes(self, right_C: np.ndarray, careless_C: np.ndarray, mistake_CL: np.ndarray) -> None:
        """How often careful people are right, class by class, and which mistakes are made."""
        rng = self.rng
        alpha_G1, beta_G1 = CLASS_PSEUDO_COUNTS * ACCURACIES[:, None], CLASS_PSEUDO_COUNTS * (1 - ACCURACIES[:, None])
        found_GC = gammaln(alpha_G1 + right_C) + gammaln(beta_G1 + careless_C) - gammaln(alpha_G1) - gammaln(beta_G1)
        mean = ACCURACIES[_pick((found_GC.sum(axis=1) + np.log(ACCURACIES))[None], rng)[0]]
        accuracy_C = rng.beta(CLASS_PSEUDO_COUNTS * mean + right_C, CLASS_PSEUDO_COUNTS * (1 - mean) + careless_C)
        likelihood_G = _dirichlet_multinomial(mistake_CL, CONCENTRATIONS, self.near_CL, len(right_C) - 1)
        concentration = CONCENTRATIONS[_pick(likelihood_G[None], rng)[0]]
        drawn_CL = np.where(self.own_CL, 0.0, rng.standard_gamma(mistake_CL + concentration * self.near_CL) + TINY)
        rest_C = 0.0 if self.near_rest_C is None else rng.standard_gamma(concentration * self.near_rest_C)
        drawn_CL /= (drawn_CL.sum(axis=1) + rest_C)[:, None]
        kept_C = _implausible(self.way_WK[self.active_W], accuracy_C, drawn_CL)
        self.right_C = np.where(kept_C, self.right_C, accuracy_C)
        self.mistake_CL = np.where(kept_C[:, None], self.mistake_CL, drawn_CL)

    def _draw_strength(self, count_R: np.ndarray, new: int) -> None:
        """How alike people's matrices are to their means (Escobar and West 1995), by the answers in each of their rows."""
        rng, count_R = self.rng, count_R[count_R > 0]
        rate = STRENGTH_PRIOR[1] - np.log(rng.beta(self.strength + 1, count_R)).sum()
        less = (rng.random(len(count_R)) * (count_R + self.strength) < count_R).sum()
        drawn = rng.gamma(STRENGTH_PRIOR[0] + new - less) / rate
        self.strength = float(np.clip(drawn, WEAKEST, STRONGEST))

    def _draw_matrices(self, count_PC: np.ndarray) -> None:
        """People's confusion matrices, where somebody said something; the rest of a row is one number."""
        annotator_P = self.answers.annotator_P
        mean_PC = sum(self._ways(), np.zeros(()))
        named_WC = np.zeros(self.habit_WC.shape)
        np.add.at(named_WC, annotator_P, mean_PC)
        drawn_PC = self.rng.standard_gamma(count_PC + self.strength * mean_PC) + TINY
        total_WC = self.rng.standard_gamma(self.strength * (1 - named_WC).clip(1e-9))
        np.add.at(total_WC, annotator_P, drawn_PC)
        self.easy_PC = drawn_PC / total_WC[annotator_P]
        self.easy_PC[self.unnamed_P] = mean_PC[self.unnamed_P]  # of many people's matrices that is the mean

    # ---- items

    def _draw_items(self) -> None:
        """Given the people: the classes of the items, and which are hard."""
        rng, answers = self.rng, self.answers
        if self.log_opinion_NC is not None:
            hard, easy = HARD_PSEUDO_COUNTS + np.bincount(self.hard_N[answers.answered_N], minlength=2)[::-1]
            self.hard = rng.beta(hard, easy)
            if self.caution is not None:
                self.caution = self.caution.drawn(self.hard_N, rng)
        log_prior_NC = self._draw_prior()
        easy_NC, hard_NC = (answers.given_NS @ np.log(said_SC) for said_SC in self._said())
        self.log_easy_NC = easy_NC + log_prior_NC + np.log1p(-self.hard)
        self.log_hard_NC = hard_NC + log_prior_NC + (np.log(self.hard) if self.hard > 0 else -np.inf)
        if self.caution is not None:
            self.log_hard_NC = self.log_hard_NC + self.caution.log_hard_N1()
        self.log_both_NC = np.logaddexp(self.log_easy_NC, self.log_hard_NC)
        self.class_N = _pick(with_gold(self.log_both_NC, answers.gold_N), rng)
        drawn = np.arange(answers.num_items), self.class_N
        self.hard_N = rng.random(answers.num_items) < np.exp(self.log_hard_NC[drawn] - self.log_both_NC[drawn])

    def _said(self) -> list[np.ndarray]:
        """Probability of each symbol, of easy and of hard items of each class."""
        said = [self.answers.members_SP @ chance_PC + TINY for chance_PC in self._chance_PC]
        if self.unsure is None:
            return said
        return [self.unsure.mixed(said_SC, np.arange(len(said_SC))) for said_SC in said]

    def _draw_prior(self) -> np.ndarray:
        """The log-prior of the classes, up to a constant per item: their shares, or the opinion to a power."""
        rng, class_M = self.rng, self.class_N[self.known]
        if self.log_opinion_NC is None:
            count_C = np.bincount(class_M, minlength=self.answers.num_classes)
            log_share_1C: np.ndarray = np.log(_dirichlet(count_C + 1.0, rng) + TINY)[None]
            return log_share_1C
        said_MC = self.log_opinion_NC[self.known]
        chosen_M, mean_M = said_MC[np.arange(len(class_M)), class_M].sum(), said_MC.mean()

        def log_density(log_slope: float) -> float:
            slope, pseudo = np.exp(log_slope), OPINION_PSEUDO_COUNTS
            if slope > STEEPEST:
                return -np.inf
            log_total_M = np.log(np.exp(slope * said_MC) @ np.ones(said_MC.shape[1]))
            return float(slope * (chosen_M + pseudo * mean_M) - log_total_M.sum() - pseudo * log_total_M.mean())

        now = log_density(self.log_slope)
        for step in (0.5, 0.1):
            proposed = self.log_slope + step * rng.normal()
            then = log_density(proposed)
            if np.log(rng.random()) < then - now:
                self.log_slope, now = proposed, then
        log_prior_NC: np.ndarray = np.exp(self.log_slope) * self.log_opinion_NC
        return log_prior_NC

    def _draw_correlation(self) -> None:
        """How far sources repeat each other: under the drawn value, what the others say of an item should predict an answer."""
        held, rng, opinion = self._left_out(), self.rng, self.log_opinion_NC is not None
        if not len(held.item_A):
            return

        def log_density(correlation: float) -> float:
            return float((held.weight_A * log_predicted(held, opinion, correlation)).sum() - prior_loss(correlation))

        now = log_density(self.correlation)
        for step in (0.2, 0.05, 0.02):
            proposed = self.correlation + step * rng.normal()
            then = log_density(proposed) if 0 <= proposed < 1 else -np.inf
            if np.log(rng.random()) < then - now:
                self.correlation, now = proposed, then

    def _left_out(self) -> LeftOutAnswers:
        """Every answer taken out of its item's posterior, and the gold labels, which are in none."""
        answers, use, gold = self.answers, self.named.several, self.named.gold
        item_A, weight_A = answers.item_E[use], answers.given_NS.data[use]
        log_easy_AC, log_hard_AC = (
            weight_A[:, None] * np.log(said_SC)[answers.given_NS.indices[use]] for said_SC in self._said()
        )
        rest_AC = np.logaddexp(self.log_easy_NC[item_A] - log_easy_AC, self.log_hard_NC[item_A] - log_hard_AC)
        chance_AC = np.exp(self.log_both_NC[item_A] - rest_AC)
        held = LeftOutAnswers(item_A, weight_A, answers.count_N[item_A] - 1, softmax(rest_AC)[1], chance_AC)
        return held.with_gold(answers, gold, softmax(self.log_both_NC[gold])[1])


def _implausible(way_WK: np.ndarray, right_C: np.ndarray, mistake_CL: np.ndarray) -> np.ndarray:
    """Of which classes people would name another more often than it. Without this rule two classes could change their names."""
    care, slip, _ = way_WK.mean(axis=0)
    wrong_C: np.ndarray = care * right_C <= (care * (1 - right_C) + slip) * mistake_CL.max(axis=1, initial=0.0)
    return wrong_C


def _pick(log_NT: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One of each row, by probabilities known up to a factor."""
    picked_N: np.ndarray = (log_NT - np.log(rng.standard_exponential(log_NT.shape))).argmax(axis=1)
    return picked_N


def _dirichlet(count_RL: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    gamma_RL = rng.standard_gamma(count_RL) + TINY
    share_RL: np.ndarray = gamma_RL / gamma_RL.sum(axis=-1, keepdims=True)
    return share_RL


def _dirichlet_multinomial(count_RL: np.ndarray, alpha_G: np.ndarray, base_RL: np.ndarray, width: int) -> np.ndarray:
    """Log-likelihood of rows of counts under Dirichlet priors, one per alpha. Each row of `base_RL` has the mean 1 over all
    labels, so many; those without a column have no counts."""
    some_X, total_R = count_RL[count_RL > 0], count_RL.sum(axis=1)
    alpha_G1, alpha_GX = alpha_G[:, None], alpha_G[:, None] * base_RL[count_RL > 0]
    rows_G = (gammaln(width * alpha_G1) - gammaln(total_R + width * alpha_G1)).sum(axis=1)
    found_G: np.ndarray = rows_G + (gammaln(some_X + alpha_GX) - gammaln(alpha_GX)).sum(axis=1)
    return found_G
