"""How likely answers are for each class, each judged by what is known from all others; and so what the items are."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pals.crowd.answers import Answers
from pals.crowd.blocks import dense, in_parallel, precision, row_blocks, some_rows, values_at
from pals.crowd.dawid_skene.annotators import Annotators, all_wrong, half_right
from pals.crowd.dawid_skene.posterior import ItemPosterior
from pals.crowd.dawid_skene.taxonomy_levels import RingCounts

LEAST = 1e-5
"""Probability of a class for an item below which what the item's answers have contributed there is not taken out of what is
known: results differ by less than a hundredth of that."""


class Counts:
    """Counts of (class, label) for every kind of answer, so that an answer's own part can be taken out. What is left is never
    less than `least`: of the class itself, and of another label."""

    def __init__(self, answers: Answers, count_CC: np.ndarray, least: tuple[float, float]) -> None:
        self.count_KC, self.named_KC, self.least = answers.of_kinds(count_CC), answers.named_KC, least
        self.total_C = count_CC.sum(axis=1)

    def of_all(self, kind_S: np.ndarray, who_S: np.ndarray) -> np.ndarray:
        """S x C: probability of these kinds, whoever says them."""
        chance_SC: np.ndarray = self.count_KC[kind_S]
        chance_SC /= self.total_C
        return chance_SC

    def at(self, kind_T: np.ndarray, who_T: np.ndarray, class_T: np.ndarray) -> np.ndarray:
        """Probability of each of these kinds for an item of a class. Kinds and people are given with the class, as places in
        tables."""
        chance_T: np.ndarray = self.count_KC.ravel()[kind_T]
        chance_T /= self.total_C[class_T]
        return chance_T

    def without(self, kind_T: np.ndarray, who_T: np.ndarray, class_T: np.ndarray, own_T: np.ndarray) -> np.ndarray:
        """The same, without their own part of the counts."""
        chance_T: np.ndarray = self.count_KC.ravel()[kind_T]
        chance_T -= own_T
        np.maximum(chance_T, np.where(self.named_KC.ravel()[kind_T], *self.least), out=chance_T)
        chance_T /= self.total_C[class_T] - own_T
        return chance_T


class Chances:
    """Probability of answers (entries E of `given_NS`) for easy and for hard items of each class, by what is known from all
    other answers: with `before`, what an answer itself has contributed is taken out.

    It contributed nothing to most classes, as its item is of few. So the probability of what people say is worked out once for
    every symbol, and again for those answers and classes (T) alone to which there is something to take out.
    """

    def __init__(self, answers: Answers, annotators: Annotators, before: ItemPosterior | None = None) -> None:
        self.answers, self.annotators, self.before = answers, annotators, before
        self.common = _common(answers, annotators)
        care_S = annotators.care_W[answers.annotator_S]
        habit_P = annotators.habit_WC[answers.annotator_P, answers.label_P]
        self.care_S = annotators.strength * care_S
        self.blind_S = annotators.strength * (1 - care_S) * (answers.members_SP @ habit_P)
        self.count_SC: Any = answers.of_symbols(annotators.count_PC)  # an array, or sparse
        self.hard = bool(annotators.hard_C.any())
        if self.hard:  # else nobody asks for these large tables
            self.wrong = _wrong(answers, annotators)
            self.hard_HC = self._log_hard()

    @cached_property
    def easy_SC(self) -> np.ndarray:
        """Logarithm of the probability of each symbol for easy items, nothing taken out. The largest table: who needs few
        symbols asks `easy_of`."""
        shape = self.count_SC.shape
        log_SC = np.empty(shape, dtype=precision(shape))

        def fill(part: slice) -> None:
            chance_SC = self.easy_of(np.arange(part.start, part.stop))
            np.log(chance_SC.astype(log_SC.dtype, copy=False), out=log_SC[part])

        for _ in in_parallel(fill, row_blocks(np.arange(shape[0] + 1), shape[1])):
            pass
        return log_SC

    def easy_of(self, symbol_X: np.ndarray) -> np.ndarray:
        """X x C: probability of these symbols for easy items, nothing taken out."""
        people, annotator_X = self.annotators, self.answers.annotator_S[symbol_X]
        chance_XC = self.common.of_all(self.answers.kind_S[symbol_X], annotator_X)
        chance_XC *= self.care_S[symbol_X, None]
        chance_XC += self.blind_S[symbol_X, None]
        chance_XC += dense(self.count_SC[symbol_X])
        chance_XC /= people.total_WC[annotator_X] + people.strength
        return self._mixed(chance_XC, symbol_X)

    @property
    def hard_row_S(self) -> np.ndarray:
        """The row of `hard_HC` for each symbol: who answers does not matter, unless the answer is unsure."""
        return self.answers.kind_S if self.annotators.unsure is None else np.arange(len(self.care_S))

    @property
    def hard_NH(self) -> Any:
        """The answers by these rows."""
        return self.answers.given_NK if self.annotators.unsure is None else self.answers.given_NS

    def _log_hard(self) -> np.ndarray:
        """Logarithm of the probability of each kind, or each symbol, for hard items."""
        kind_K = np.arange(len(self.answers.named_KC))
        chance_HC = self.wrong.of_all(kind_K, np.zeros_like(kind_K))
        chance_HC *= 0.5
        chance_HC[self.answers.named_KC] += 0.5
        if self.annotators.unsure is not None:
            chance_HC = self._mixed(chance_HC[self.answers.kind_S], np.arange(len(self.care_S)))
        log_HC: np.ndarray = np.log(chance_HC)
        return log_HC

    def __call__(self, entry: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """E x C, of easy and of hard items."""
        symbol_E = self.answers.given_NS.indices[entry]
        easy_EC = self.easy_of(symbol_E)
        hard_EC = np.exp(self.hard_HC[self.hard_row_S[symbol_E]]) if self.hard else easy_EC  # without hard items, no matter
        if self.before is not None:
            item_B, row_E = np.unique(self.answers.item_E[entry], return_inverse=True)
            own = self._own(item_B, row_E, symbol_E, self.answers.given_NS.data[entry])
            easy_T, hard_T = self.without(own)
            easy_EC[own.place_T, own.class_T] = easy_T
            if self.hard:
                hard_EC[own.place_T, own.class_T] = hard_T
        return easy_EC, hard_EC

    def log_of_items(self, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """B x C: the logarithm of the probability of all answers to each of these items, if it is easy and if it is hard."""
        given, classes = self.answers.given_NS, self.answers.num_classes
        own_BS = some_rows(given, part)
        symbol_E, weight_E, entries = own_BS.indices, own_BS.data, slice(given.indptr[part.start], given.indptr[part.stop])
        easy_BC = (own_BS.astype(self.easy_SC.dtype, copy=False) @ self.easy_SC).astype(np.float64, copy=False)
        hard_BC = some_rows(self.hard_NH, part) @ self.hard_HC if self.hard else np.zeros((1, 1))
        if self.before is None:
            return easy_BC, hard_BC
        row_E = self.answers.item_E[entries] - part.start
        own = self._own(part, row_E, symbol_E, weight_E)

        def correct(total_BC: np.ndarray, log_XC: np.ndarray, place_T: np.ndarray, chance_T: np.ndarray) -> None:
            change_T = np.log(chance_T)
            change_T -= log_XC.ravel()[place_T]
            change_T *= own.weight_T
            total_BC += np.bincount(own.cell_T, change_T, minlength=total_BC.size).reshape(total_BC.shape)

        easy_T, hard_T = self.without(own)
        correct(easy_BC, self.easy_SC, own.said_T, easy_T)
        if self.hard:
            correct(hard_BC, self.hard_HC, _places(self.hard_row_S, own.symbol_T, own.class_T, classes), hard_T)
        return easy_BC, hard_BC

    def _own(self, items: np.ndarray | slice, row_E: np.ndarray, symbol_E: np.ndarray, weight_E: np.ndarray) -> Own:
        """What answers to these items, each to that of a row of them, contributed to what was learned."""
        assert self.before is not None
        classes, unsure = self.answers.num_classes, self.annotators.unsure
        easy_BC, hard_BC = self.before.easy_NC[items], self.before.hard_NC[items]
        some_BC = (easy_BC + hard_BC if self.hard else easy_BC) > LEAST
        place_T = np.repeat(np.arange(len(row_E)), np.count_nonzero(some_BC, axis=1)[row_E])
        class_T = np.flatnonzero(some_BC[row_E])
        class_T -= place_T * classes
        symbol_T = symbol_E[place_T]
        cell_T, weight_T = row_E[place_T] * classes + class_T, weight_E[place_T]
        own = [weight_T * table_BC.ravel()[cell_T] for table_BC in ((easy_BC, hard_BC) if self.hard else (easy_BC,))]
        if unsure is not None:
            own = [
                unsure.without_guesses(own_T, symbol_T, hard, class_T) for hard, own_T in zip((False, True), own, strict=False)
            ]
        said_T = symbol_T.astype(np.int64) * classes + class_T
        return Own(
            place_T, class_T, cell_T, symbol_T, said_T, weight_T, own[0], own[-1], self._counts(symbol_T, class_T, said_T)
        )

    def _counts(self, symbol_T: np.ndarray, class_T: np.ndarray, said_T: np.ndarray) -> np.ndarray:
        """How often each of these symbols occurs with a class."""
        if not isinstance(self.count_SC, np.ndarray):
            return values_at(self.count_SC, symbol_T, class_T)
        count_T: np.ndarray = self.count_SC.ravel()[said_T]
        return count_T

    def without(self, own: Own) -> tuple[np.ndarray, np.ndarray]:
        """Probability of each answer for an easy and for a hard item of a class, without what it contributed there."""
        people, answers, classes = self.annotators, self.answers, self.answers.num_classes
        kind_T = _places(answers.kind_S, own.symbol_T, own.class_T, classes)
        who_T = _places(answers.annotator_S, own.symbol_T, own.class_T, classes)
        care_T, blind_T = self.care_S[own.symbol_T], self.blind_S[own.symbol_T]
        careful_T = care_T * self.common.at(kind_T, who_T, own.class_T)
        careful_T /= careful_T + blind_T
        careful_T *= own.easy_T
        chance_T = self.common.without(kind_T, who_T, own.class_T, careful_T)
        chance_T *= care_T
        chance_T += blind_T
        chance_T += np.maximum(own.count_T - own.easy_T, 0)
        chance_T /= np.maximum(people.total_WC.ravel()[who_T] - own.easy_T, 0) + people.strength
        chance_T = self._mixed(chance_T, own.symbol_T)
        if not self.hard:
            return chance_T, chance_T
        named_T = answers.named_KC.ravel()[kind_T]
        mistaken_T = (careful_T + own.hard_T) * (1 - named_T)
        hard_T = 0.5 * named_T + 0.5 * self.wrong.without(kind_T, own.class_T, own.class_T, mistaken_T)
        return chance_T, self._mixed(hard_T, own.symbol_T)

    def _mixed(self, chance: np.ndarray, symbol: np.ndarray) -> np.ndarray:
        """With what unsure answers are worth."""
        unsure = self.annotators.unsure
        return chance if unsure is None else unsure.mixed(chance, symbol)


class Own(NamedTuple):
    """What answers contributed to what was learned of classes, wherever it is more than next to nothing."""

    place_T: np.ndarray  # of the answer among those that are looked at
    class_T: np.ndarray
    cell_T: np.ndarray  # the place of item and class in a table of the items that are looked at
    symbol_T: np.ndarray
    said_T: np.ndarray  # the place of symbol and class in a table of all
    weight_T: np.ndarray
    easy_T: np.ndarray
    hard_T: np.ndarray
    count_T: np.ndarray  # of the symbol and the class, of all answers together


def e_step(
    answers: Answers,
    annotators: Annotators,
    log_prior: np.ndarray,
    before: ItemPosterior | None = None,
    *,
    reuse: bool = False,
) -> ItemPosterior:
    """The E-step, by Bayes' rule: prior (C, or N x C) times the probability of every answer. A gold label leaves no doubt.

    `before` is what the annotators were learned from, if they were. Each answer is weighed by what is known from all others:
    else it would vouch for itself, and who gave few answers would be believed too much. With `reuse` its tables are written
    over: the largest that there are.
    """
    chances, shape = Chances(answers, annotators, before), (answers.num_items, answers.num_classes)
    found = before if reuse and before is not None else ItemPosterior.empty(shape, chances.hard)
    _ = chances.easy_SC  # now, before several threads ask for it
    log_hard_N1 = log_hard(answers, annotators)
    with np.errstate(divide="ignore"):  # without hard items their share is zero
        log_easy_C, log_hard_C = np.log1p(-annotators.hard_C), np.log(annotators.hard_C)

    def weigh(part: slice) -> float:
        easy_BC, hard_BC = chances.log_of_items(part)
        prior_BC = with_gold(log_prior[part] if log_prior.ndim > 1 and len(log_prior) > 1 else log_prior, answers.gold_N[part])
        easy_BC += prior_BC
        easy_BC += log_easy_C
        log_BT = easy_BC
        if chances.hard:
            hard_BC += prior_BC + log_hard_C + log_hard_N1[part]
            log_BT = np.concatenate([easy_BC, hard_BC], axis=1)
        log_total_B, share_BT = softmax(log_BT)
        easy_BC, hard_BC = np.split(share_BT, 2, axis=1) if chances.hard else (share_BT, np.zeros((1, 1)))
        moved = np.inf if before is None else float(np.abs(easy_BC + hard_BC - before.rows(part)).sum())
        found.easy_NC[part] = easy_BC
        if chances.hard:
            found.hard_NC[part] = hard_BC
        found.evidence_N[part] = log_total_B
        return moved

    moved = sum(in_parallel(weigh, row_blocks(answers.given_NS.indptr, answers.num_classes)))
    return ItemPosterior(found.easy_NC, found.hard_NC, found.evidence_N, 0.5 * moved / max(shape[0], 1))


def log_hard(answers: Answers, annotators: Annotators) -> np.ndarray:
    """N x 1: by how much those who do not know make it likelier that an item is hard."""
    return np.zeros((answers.num_items, 1)) if annotators.caution is None else annotators.caution.log_hard_N1()


def with_gold(log_prior: np.ndarray, gold_N: np.ndarray) -> np.ndarray:
    """The prior with certainty where the label is known."""
    known = np.flatnonzero(gold_N >= 0)
    if not len(known):
        return log_prior
    log_prior_NC = np.broadcast_to(log_prior, (len(gold_N), log_prior.shape[-1])).copy()
    log_prior_NC[known] = -np.inf
    log_prior_NC[known, gold_N[known]] = 0.0
    return log_prior_NC


def softmax(value_NT: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logarithm of the sum of exponentials in each row (minus infinity where all are), and the share of each in it."""
    top_N1 = np.maximum(value_NT.max(axis=1, keepdims=True), np.finfo(np.float64).min)
    share_NT = np.exp(value_NT - top_N1)
    total_N1 = share_NT.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        share_NT /= total_N1
        log_total_N: np.ndarray = (top_N1 + np.log(total_N1))[:, 0]
    return log_total_N, share_NT


def log_sum(value_NT: np.ndarray) -> np.ndarray:
    """Logarithm of the sum of exponentials in each row; minus infinity where all are."""
    return softmax(value_NT)[0]


def _common(answers: Answers, annotators: Annotators) -> Counts | RingCounts:
    """What people with care say; with a taxonomy level by level."""
    classes, first, levels = answers.num_classes, annotators.first, annotators.levels
    if levels is None:
        return Counts(answers, annotators.common_CC, half_right(classes, first))
    return RingCounts(levels, answers, annotators.common_CC, levels.share_MWC, 0.5 * first / classes)


def _wrong(answers: Answers, annotators: Annotators) -> Counts | RingCounts:
    """What they say wrongly."""
    classes, first, levels = answers.num_classes, annotators.first, annotators.levels
    if levels is None:
        return Counts(answers, annotators.wrong_CC, all_wrong(classes, first))
    return RingCounts(levels, answers, annotators.wrong_CC, levels.wrong_M1C, 0.5 * first / classes)


def _places(row_S: np.ndarray, symbol_T: np.ndarray, class_T: np.ndarray, classes: int) -> np.ndarray:
    """Where in a table, row after row, what belongs to these symbols and classes stands; `row_S` is the row of each symbol."""
    place_T: np.ndarray = row_S[symbol_T].astype(np.int64, copy=False)
    place_T *= classes
    place_T += class_T
    return place_T
