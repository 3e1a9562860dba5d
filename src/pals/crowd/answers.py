"""Votes arranged so that everything said about them is a product of sparse matrices: no loop over rows, no table of rows
by classes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, identity, vstack

from pals.crowd.blocks import precision
from pals.labels.cells import UNSURE_WEIGHT
from pals.labels.taxonomy import Taxonomy
from pals.readers import Votes
from pals.readers.taxonomy_answers import node_of_groups


@dataclass(frozen=True)
class Answers:
    """Who said what of which item. A pair (P) is an annotator and a label that they gave at least once. A symbol (S) is what
    one answer says: a pair, or several pairs of one annotator where the answer names several labels. Two answers of one
    annotator that say the same of an item are one. Annotator W - 1 stands for all answers without a name: each of them is
    another person's, and an entry of its own, so that a row may hold several entries of one symbol.

    Weights count relative to their mean, so that only their proportions matter.
    """

    given_NS: Any  # scipy.sparse, float64: weight of an answer with this symbol for this item, above zero
    members_SP: Any  # scipy.sparse, 0 or 1: the pairs that a symbol consists of
    annotator_S: np.ndarray
    sure_S: np.ndarray  # bool: False for answers of which every label is marked as unsure; they have symbols of their own
    unknown_NW: Any  # scipy.sparse: how often a person does not know
    annotator_P: np.ndarray
    label_P: np.ndarray
    gold_N: np.ndarray  # -1 where not known
    num_annotators: int
    num_classes: int
    taxonomy: Taxonomy | None = None

    @cached_property
    def item_E(self) -> np.ndarray:
        """The item of each entry of `given_NS`."""
        return np.repeat(np.arange(self.num_items), self.count_N)

    @cached_property
    def given_SN(self) -> Any:
        """The same by symbol."""
        return self.given_NS.T.tocsr()

    @cached_property
    def plain(self) -> bool:
        """Whether every symbol is a pair: all answers name one label, and surely."""
        return len(self.annotator_S) == len(self.annotator_P)

    @cached_property
    def kind_S(self) -> np.ndarray:
        """The number of the labels (K) that a symbol stands for, whoever says it: a label, or a set of several."""
        several = np.flatnonzero(np.diff(self.members_SP.indptr) > 1)
        kind_S: np.ndarray = self.label_P[self.members_SP.indices[self.members_SP.indptr[:-1]]]
        kind_S[several] = self.num_classes + np.arange(len(several))
        return kind_S

    @cached_property
    def given_NK(self) -> Any:
        """The answers by what they name, whoever gives them; an item may have several entries of a kind."""
        kinds = self.num_classes + int((self.kind_S >= self.num_classes).sum())
        given = self.given_NS
        return csr_matrix((given.data, self.kind_S[given.indices], given.indptr), shape=(self.num_items, kinds))

    @cached_property
    def named_KC(self) -> np.ndarray:
        """K x C, bool: the labels of each kind."""
        return self.of_kinds(np.eye(self.num_classes, dtype=bool)).astype(bool)

    def of_symbols(self, value_PC: Any) -> Any:
        """S x C, an array or sparse: the sum over the pairs of each symbol."""
        return value_PC if self.plain else self.members_SP @ value_PC

    def of_kinds(self, table_CC: np.ndarray) -> np.ndarray:
        """K x C: of a table by class and label, the sum over the labels of each kind."""
        several = np.flatnonzero(self.kind_S >= self.num_classes)
        set_KP = self.members_SP[several]
        sums_KC = set_KP @ table_CC[:, self.label_P].T if len(several) else table_CC[:0]
        return np.concatenate([table_CC.T, sums_KC])

    @property
    def unnamed(self) -> int:
        """The annotator that stands for all answers without a name."""
        return self.num_annotators - 1

    @property
    def asked_NW(self) -> Any:
        """Sparse, 0 or 1: who answered for an item, or did not know; all that is without a name counts."""
        given = self.given_NS
        entries = np.ones(given.nnz), self.annotator_S[given.indices[: given.nnz]], given.indptr
        answered_NW = csr_matrix(entries, shape=(self.num_items, self.num_annotators))
        answered_NW.sum_duplicates()
        answered_NW.data[answered_NW.indices != self.unnamed] = 1
        return answered_NW + self.unknown_NW

    @property
    def num_items(self) -> int:
        return len(self.gold_N)

    @property
    def count_N(self) -> np.ndarray:
        """How many answers that weigh anything an item has; two of one person that say the same are one."""
        return np.diff(self.given_NS.indptr)

    @property
    def answered_N(self) -> np.ndarray:
        return self.count_N > 0

    @property
    def known_N(self) -> np.ndarray:
        """Whether anything at all is known of an item."""
        return self.answered_N | (self.gold_N >= 0)


def arrange(votes: Votes) -> Answers:
    """The votes as sparse matrices."""
    classes, people = len(votes.class_names), len(votes.annotators) + 1
    annotator_R = np.where(votes.annotator_R < 0, people - 1, votes.annotator_R)
    code_P, pair_R = np.unique(annotator_R * classes + votes.label_R, return_inverse=True)
    number_A, first_A, answer_R = np.unique(votes.answer_R, return_index=True, return_inverse=True)
    several_A = np.bincount(answer_R, minlength=len(number_A)) > 1
    # An answer with one label is its pair; those with several have symbols of their own.
    unsure_A = np.bincount(answer_R, votes.sure_R, minlength=len(number_A)) == 0
    meant_A, spoken_X = _sets(votes, annotator_R[first_A], answer_R, several_A, unsure_A)
    symbol_A = np.where(several_A, len(code_P) + meant_A, pair_R[first_A])
    row_R = np.flatnonzero(np.isin(answer_R, spoken_X))
    own_SP = csr_matrix(
        (np.ones(len(row_R)), (symbol_A[answer_R[row_R]] - len(code_P), pair_R[row_R])),
        shape=(len(spoken_X), len(code_P)),
    )
    own_SP.data[:] = 1  # a label that an answer names twice is named
    alone_A = unsure_A & ~several_A
    pair_Q, symbol_A[alone_A] = np.unique(pair_R[first_A[alone_A]], return_inverse=True)
    symbol_A[alone_A] += len(code_P) + own_SP.shape[0]
    single_PP = identity(len(code_P), format="csr")
    symbols = len(code_P) + own_SP.shape[0] + len(pair_Q)
    return Answers(
        given_NS=_given(votes, first_A, symbol_A, symbols),
        members_SP=vstack([single_PP, own_SP, single_PP[pair_Q]], format="csr"),
        annotator_S=np.concatenate([code_P // classes, annotator_R[first_A[spoken_X]], code_P[pair_Q] // classes]),
        sure_S=np.concatenate([np.ones(len(code_P), dtype=bool), ~unsure_A[spoken_X], np.zeros(len(pair_Q), dtype=bool)]),
        unknown_NW=_unknown(votes, people),
        annotator_P=code_P // classes,
        label_P=code_P % classes,
        gold_N=votes.gold_I,
        num_annotators=people,
        num_classes=classes,
        taxonomy=votes.taxonomy,
    )


def _given(votes: Votes, first_A: np.ndarray, symbol_A: np.ndarray, symbols: int) -> Any:
    """Items by symbols: an entry for whatever one annotator says of an item, and for every answer without a name."""
    unnamed = np.flatnonzero(votes.annotator_R[first_A] < 0)
    symbol_X, column_A = np.concatenate([np.arange(symbols), symbol_A[unnamed]]), symbol_A.copy()
    column_A[unnamed] = symbols + np.arange(len(unnamed))  # for now a column each: equal ones are not added up
    weight_A, items = relative(votes.weight_R[first_A]), len(votes.items)
    by_column_NX = csr_matrix((weight_A, (votes.item_R[first_A], column_A)), shape=(items, len(symbol_X)))
    by_column_NX.eliminate_zeros()
    entries = by_column_NX.data, symbol_X[by_column_NX.indices], by_column_NX.indptr
    given_NS = csr_matrix(entries, shape=(items, symbols))
    given_NS.sort_indices()
    return given_NS


def _sets(
    votes: Votes, annotator_A: np.ndarray, answer_R: np.ndarray, several_A: np.ndarray, unsure_A: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of answers with several labels the number of what each says, and for each such number an answer that says it. What one
    person says with the name of a node, and as surely, is the same each time; any other answer is taken for itself."""
    answers = len(several_A)
    node_A = node_of_groups(votes.taxonomy, votes.label_R, answer_R, answers)
    named_A = (annotator_A * (node_A.max(initial=0) + 1) + node_A) * 2 + unsure_A
    spoken = np.where(node_A >= 0, answers + named_A, np.arange(answers))
    _, first_X, meant_X = np.unique(spoken[several_A], return_index=True, return_inverse=True)
    meant_A = np.zeros(answers, dtype=np.int64)
    meant_A[several_A] = meant_X
    return meant_A, np.flatnonzero(several_A)[first_X]


def _unknown(votes: Votes, people: int) -> Any:
    annotator_U = np.where(votes.unknown_annotator_U < 0, people - 1, votes.unknown_annotator_U)
    counted = (np.ones(len(annotator_U)), (votes.unknown_item_U, annotator_U))
    return csr_matrix(counted, shape=(len(votes.items), people))


def subset(votes: Votes, chosen: np.ndarray) -> Votes:
    """The votes about these items, in this order, and the people who gave them."""
    place_I = np.full(len(votes.items), -1)
    place_I[chosen] = np.arange(len(chosen))
    rows = np.flatnonzero(place_I[votes.item_R] >= 0)
    unknown = np.flatnonzero(place_I[votes.unknown_item_U] >= 0)
    named = np.concatenate([votes.annotator_R[rows], votes.unknown_annotator_U[unknown], [-1]])
    people, annotator = np.unique(named, return_inverse=True)
    return replace(
        votes.take(rows),
        items=tuple(votes.items[item] for item in chosen),
        annotators=tuple(votes.annotators[person] for person in people[1:]),
        item_R=place_I[votes.item_R[rows]],
        annotator_R=annotator[: len(rows)] - 1,
        gold_I=votes.gold_I[chosen],
        audit_I=votes.audit_I[chosen],
        unknown_item_U=place_I[votes.unknown_item_U[unknown]],
        unknown_annotator_U=annotator[len(rows) : -1] - 1,
    )


def with_rows(votes: Votes, rows: np.ndarray) -> Votes:
    """The votes with these rows alone; items and people stay."""
    columns = {column.name: getattr(votes, column.name)[rows] for column in fields(votes) if column.name.endswith("_R")}
    return replace(votes, **columns | {"answer_R": np.unique(columns["answer_R"], return_inverse=True)[1]})


def relative(weight_A: np.ndarray) -> np.ndarray:
    """Weights with mean one over those that count; all zero stay zero."""
    top = weight_A.max(initial=0)
    if top <= 0:
        return np.zeros(len(weight_A))
    weight_A = weight_A / top  # first, so that enormous weights have a finite sum
    scaled_A: np.ndarray = weight_A / weight_A[weight_A > 0].mean()
    return scaled_A


def vote_shares(votes: Votes) -> np.ndarray:
    """N x C: weighted share of each item's answers that a label got; an answer with several labels is split evenly, an unsure
    label counts half. Zeros where no answer weighs anything."""
    share_NC: np.ndarray = sparse_shares(votes).toarray()
    return share_NC


def sparse_shares(votes: Votes) -> csr_matrix:
    """The same, only of the labels that somebody gave."""
    size_A = np.bincount(votes.answer_R, minlength=1)
    return _shares(votes, _counted(votes) / size_A[votes.answer_R])


def sparse_support(votes: Votes) -> csr_matrix:
    """N x C: weighted share of each item's answers that name a label, alone or with others: of "gull" and "gull|tern", all name
    gull and half of them tern. An unsure label counts half. Only of the labels that somebody gave."""
    counted_R, size_A = _counted(votes), np.bincount(votes.answer_R, minlength=1)
    most_A = np.zeros(len(size_A))
    np.maximum.at(most_A, votes.answer_R, counted_R)
    whole_N = np.bincount(votes.item_R, (most_A / size_A.clip(min=1))[votes.answer_R], minlength=len(votes.items))
    support_NC = _shares(votes, counted_R, whole_N)
    np.minimum(support_NC.data, 1.0, out=support_NC.data)
    return support_NC


def _counted(votes: Votes) -> np.ndarray:
    """What each row weighs where labels are only counted."""
    counted_R: np.ndarray = relative(votes.weight_R) * np.where(votes.sure_R, 1.0, UNSURE_WEIGHT)
    return counted_R


def _shares(votes: Votes, part_R: np.ndarray, total_N: np.ndarray | None = None) -> csr_matrix:
    """N x C: the sum of the parts by item and label, relative to the item's total: all its parts, unless given."""
    shape = len(votes.items), len(votes.class_names)
    sparse_NC = csr_matrix((part_R, (votes.item_R, votes.label_R)), shape=shape)
    total_N = np.asarray(sparse_NC.sum(axis=1)).ravel() if total_N is None else total_N
    sparse_NC.data /= np.repeat(np.where(total_N > 0, total_N, 1.0), np.diff(sparse_NC.indptr))
    return sparse_NC.astype(precision(shape))


def ratio(top: np.ndarray, bottom: np.ndarray, otherwise: float = np.nan) -> np.ndarray:
    """top / bottom, and something else where bottom is zero."""
    shape = np.broadcast_shapes(top.shape, bottom.shape)
    found: np.ndarray = np.divide(top, bottom, out=np.full(shape, otherwise), where=bottom > 0)
    return found
