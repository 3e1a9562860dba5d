"""Expectation and maximisation where there are very many answers: most items can only be of few classes, so what is known of
items and of people is kept for these alone. The formulas are those of `e_step` and `annotators`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from pals.crowd.answers import Answers
from pals.crowd.blocks import in_parallel, row_blocks, some_rows
from pals.crowd.dawid_skene.annotators import Annotators
from pals.crowd.dawid_skene.e_step import LEAST, Chances, Own, log_hard, softmax, with_gold
from pals.crowd.dawid_skene.posterior import ItemPosterior

COLUMNS = 4
"""Numbers per term that are worked on at once."""


@dataclass(frozen=True)
class Cells:
    """The classes that each item may be of (M, item after item; none where nothing is known), and all answers at all cells of
    their items (terms T, item after item, answer after answer)."""

    answers: Answers
    first_N: np.ndarray  # where the cells of each item begin; one more at the end
    class_M: np.ndarray

    @classmethod
    def of(cls, answers: Answers, found: ItemPosterior, keep: float) -> Cells:
        """The classes with at least this share of the likeliest one's probability."""
        shape, known_N = found.easy_NC.shape, answers.known_N

        def look(part: slice) -> tuple[np.ndarray, np.ndarray]:
            rows_BC = found.rows(part)
            least_B1 = keep * rows_BC.max(axis=1, keepdims=True)
            kept_BC = (rows_BC >= least_B1) & (rows_BC > 0) & known_N[part, None]
            return kept_BC.sum(axis=1), np.nonzero(kept_BC)[1].astype(np.int32)

        sizes, classes = zip(*in_parallel(look, row_blocks(np.arange(shape[0] + 1), shape[1])), strict=True)
        return cls(answers, np.append(0, np.cumsum(np.concatenate(sizes))), np.concatenate(classes))

    @cached_property
    def first_T(self) -> np.ndarray:
        """Where the terms of each item begin; one more at the end."""
        return np.append(0, np.cumsum(self.answers.count_N * np.diff(self.first_N)))

    @cached_property
    def item_M(self) -> np.ndarray:
        return np.repeat(np.arange(self.answers.num_items, dtype=np.int32), np.diff(self.first_N))

    @cached_property
    def size_E(self) -> np.ndarray:
        """How many cells the item of each answer has."""
        return np.repeat(np.diff(self.first_N).astype(np.int32), self.answers.count_N)

    @cached_property
    def cell_T(self) -> np.ndarray:
        before_E = self.first_N[self.answers.item_E] - np.cumsum(self.size_E) + self.size_E
        cell_T = np.repeat(before_E.astype(np.int32), self.size_E)
        cell_T += np.arange(len(cell_T), dtype=np.int32)
        return cell_T

    @cached_property
    def pattern(self) -> tuple[Any, np.ndarray]:
        """S x C, sparse: the symbols and classes that occur together (Q); and which of them each term is. Sorted by counting:
        there are far too many terms to compare them."""
        answers, terms = self.answers, len(self.cell_T)
        symbol_T = np.repeat(answers.given_NS.indices, self.size_E)
        shape = len(answers.annotator_S), answers.num_classes
        by_term_TS = csr_matrix((self.class_M[self.cell_T], symbol_T, np.arange(terms + 1)), shape=(terms, shape[0]))
        by_symbol_ST = by_term_TS.tocsc()
        sorted_SC = csr_matrix((by_symbol_ST.indices, by_symbol_ST.data, by_symbol_ST.indptr), shape=shape)
        sorted_SC.sort_indices()
        new_T = np.append(True, np.diff(sorted_SC.indices) != 0)[:terms]
        new_T[sorted_SC.indptr[:-1][np.diff(sorted_SC.indptr) > 0]] = True
        number_T = np.cumsum(new_T)
        place_T = np.empty(terms, dtype=np.int64)
        place_T[sorted_SC.data] = number_T - 1
        first_S = np.append(0, number_T)[sorted_SC.indptr]
        return csr_matrix((np.ones(first_S[-1], dtype=bool), sorted_SC.indices[new_T], first_S), shape=shape), place_T

    def weight_T(self, entries: slice) -> np.ndarray:
        return np.repeat(self.answers.given_NS.data[entries], self.size_E[entries])

    def by_symbol(self, value_M: np.ndarray) -> Any:
        """S x C, sparse: the sum over the answers with each symbol of what their items' cells hold."""
        together_SC, place_T = self.pattern
        value_T = value_M[self.cell_T]
        value_T *= self.weight_T(slice(None))
        count_Q = np.bincount(place_T, value_T, minlength=together_SC.nnz)
        return csr_matrix((count_Q, together_SC.indices, together_SC.indptr), shape=together_SC.shape)

    def by_class(self, value_M: np.ndarray, use_N: np.ndarray) -> np.ndarray:
        """C: the sum over these items."""
        used_M = value_M if use_N.all() else value_M * use_N[self.item_M]
        return np.bincount(self.class_M, used_M, minlength=self.answers.num_classes)


@dataclass(frozen=True)
class SparsePosterior:
    """An `ItemPosterior` of which only some cells are kept."""

    cells: Cells
    easy_M: np.ndarray
    hard_M: np.ndarray
    evidence_N: np.ndarray
    moved: float = np.inf

    @classmethod
    def of(cls, answers: Answers, found: ItemPosterior, keep: float) -> SparsePosterior:
        cells = Cells.of(answers, found, keep)
        easy_M, hard_M = (
            table_NC[cells.item_M, cells.class_M].astype(np.float64) for table_NC in (found.easy_NC, found.hard_NC)
        )
        return cls(cells, easy_M, hard_M, found.evidence_N, found.moved)

    def sums(self, use_N: np.ndarray) -> np.ndarray:
        """How many of these items are of each class."""
        return self.cells.by_class(self.easy_M + self.hard_M, use_N)

    def hard_sums(self, use_N: np.ndarray) -> np.ndarray:
        return self.cells.by_class(self.hard_M, use_N)

    @property
    def hard_N(self) -> np.ndarray:
        """How likely each item is hard."""
        return np.bincount(self.cells.item_M, self.hard_M, minlength=self.cells.answers.num_items)

    def counts(self, answers: Answers, out: Any = None) -> Any:
        """P x C, sparse: how often each pair occurs with easy items of each class."""
        return self.cells.by_symbol(self.easy_M)

    def said_of_hard(self, answers: Answers) -> np.ndarray:
        """How often each label was given to hard items of each class: rows are the class."""
        by_pair = self.cells.by_symbol(self.hard_M)
        label_Q = np.repeat(answers.label_P, np.diff(by_pair.indptr))
        place_Q = by_pair.indices * np.int64(answers.num_classes) + label_Q
        said = np.bincount(place_Q, by_pair.data, minlength=answers.num_classes**2)
        return said.reshape(answers.num_classes, -1)


def sparse_e_step(
    answers: Answers, annotators: Annotators, log_prior_C: np.ndarray, before: SparsePosterior
) -> SparsePosterior:
    """The E-step on the cells of before: each answer weighed by what is known from all others."""
    cells, chances = before.cells, Chances(answers, annotators)
    states = (before.easy_M, before.hard_M) if chances.hard else (before.easy_M,)
    log_XM = np.stack([np.log1p(-annotators.hard_C), _log(annotators.hard_C)])[: len(states), cells.class_M]
    log_XM += np.where(answers.gold_N[cells.item_M] >= 0, 0.0, log_prior_C[cells.class_M])
    if chances.hard:
        log_XM[1] += log_hard(answers, annotators)[cells.item_M, 0]
    for part, log_XB in _log_of_cells(chances, before):
        log_XM[:, part] += log_XB
    filled_N = np.flatnonzero(np.diff(cells.first_N))
    first_F = cells.first_N[filled_N]
    place_M = np.repeat(np.arange(len(first_F)), np.diff(cells.first_N)[filled_N])
    top_F = np.maximum.reduceat(log_XM.max(axis=0), first_F)
    share_XM = np.exp(log_XM - top_F[place_M])
    total_F = np.add.reduceat(share_XM.sum(axis=0), first_F)
    share_XM /= total_F[place_M]
    evidence_N = before.evidence_N.copy()
    evidence_N[filled_N] = top_F + np.log(total_F)
    hard_M = share_XM[1] if chances.hard else before.hard_M
    moved = np.abs(share_XM.sum(axis=0) - before.easy_M - before.hard_M).sum()
    return SparsePosterior(cells, share_XM[0], hard_M, evidence_N, 0.5 * float(moved) / max(answers.num_items, 1))


def _log_of_cells(chances: Chances, found: SparsePosterior) -> list[tuple[slice, np.ndarray]]:
    """Of stretches of cells the logarithm of the probability of all answers to their items, X x B: if easy, and if hard."""
    cells, given = found.cells, chances.answers.given_NS
    count_Q: np.ndarray = chances.count_SC.data

    def weigh(items: slice) -> tuple[slice, np.ndarray]:
        terms = slice(cells.first_T[items.start], cells.first_T[items.stop])
        entries = slice(given.indptr[items.start], given.indptr[items.stop])
        part = slice(cells.first_N[items.start], cells.first_N[items.stop])
        cell_T, weight_T, place_T = cells.cell_T[terms], cells.weight_T(entries), cells.pattern[1][terms]
        own = Own(
            place_T=place_T,
            class_T=cells.class_M[cell_T],
            cell_T=cell_T,
            symbol_T=np.repeat(given.indices[entries], cells.size_E[entries]),
            said_T=place_T,
            weight_T=weight_T,
            easy_T=weight_T * found.easy_M[cell_T],
            hard_T=weight_T * found.hard_M[cell_T],
            count_T=np.take(count_Q, place_T),
        )
        chance_X = chances.without(own)[: 1 + chances.hard]
        place_T = cell_T - np.int64(part.start)
        logs = [np.bincount(place_T, weight_T * np.log(chance_T), part.stop - part.start) for chance_T in chance_X]
        return part, np.stack(logs)

    return list(in_parallel(weigh, row_blocks(cells.first_T, COLUMNS)))


def full_e_step(
    answers: Answers, annotators: Annotators, log_prior_C: np.ndarray, before: SparsePosterior | None = None
) -> ItemPosterior:
    """The E-step for all classes, without a table of people's labels by classes. Only at the cells of before is an answer's own
    part taken out: elsewhere there is next to none. Nor does it count there as moved what is too little for a cell."""
    chances, shape = Chances(answers, annotators), (answers.num_items, answers.num_classes)
    found, known_N = ItemPosterior.empty(shape, chances.hard), answers.known_N
    log_hard_N1 = log_hard(answers, annotators)
    log_X1C = np.stack([np.log1p(-annotators.hard_C), _log(annotators.hard_C)])[: 1 + chances.hard, None]
    log_XM = np.zeros((1, 0))
    if before is not None:
        log_XM = np.concatenate([log_XB for _, log_XB in _log_of_cells(chances, before)], axis=1)

    def weigh(items: slice) -> float:
        log_XBC = _log_of_items(chances, items)
        if before is not None:
            cells = before.cells
            part = slice(cells.first_N[items.start], cells.first_N[items.stop])
            place = cells.item_M[part] - items.start, cells.class_M[part]
            log_XBC[:, *place] = log_XM[:, part]
        log_XBC[1:] += log_hard_N1[items]
        log_XBC += log_X1C + with_gold(log_prior_C, answers.gold_N[items])
        log_total_B, share_BT = softmax(np.concatenate(list(log_XBC), axis=1))
        shares = np.split(share_BT, len(log_XBC), axis=1)
        found.evidence_N[items] = log_total_B
        for table_NC, share_BC in zip((found.easy_NC, found.hard_NC), shares, strict=False):
            table_NC[items] = share_BC
        if before is None:
            return np.inf
        rest_BC = np.where(share_BT > LEAST, share_BT, 0.0).reshape(len(share_BT), len(shares), -1).sum(axis=1)
        rest_BC[place] = found.rows(items)[place] - before.easy_M[part] - before.hard_M[part]
        return float(np.abs(rest_BC[known_N[items]]).sum())

    moved = sum(in_parallel(weigh, row_blocks(answers.given_NS.indptr, answers.num_classes)))
    return ItemPosterior(found.easy_NC, found.hard_NC, found.evidence_N, 0.5 * moved / max(shape[0], 1))


def _log_of_items(chances: Chances, items: slice) -> np.ndarray:
    """X x B x C: the logarithm of the probability of all answers to these items, if easy and if hard, nothing taken out."""
    own_BS = some_rows(chances.answers.given_NS, items)
    entries = len(own_BS.data)
    own_BE = csr_matrix((own_BS.data.astype(np.float32), np.arange(entries), own_BS.indptr), shape=(own_BS.shape[0], entries))
    logs = [own_BE @ np.log(chances.easy_of(own_BS.indices).astype(np.float32))]  # in double precision four times slower
    if chances.hard:
        logs.append(some_rows(chances.hard_NH, items) @ chances.hard_HC)
    return np.stack(logs).astype(np.float64)


def _log(value: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):  # without hard items their share is zero
        log: np.ndarray = np.log(value)
    return log
