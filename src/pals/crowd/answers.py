"""Shares of answers, counted."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix

from pals.crowd.blocks import precision
from pals.labels.cells import UNSURE_WEIGHT
from pals.readers import Votes


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
    """The same, only of the labels that an answer names."""
    size_A = np.bincount(votes.answer_R, minlength=1)
    return _shares(votes, _counted(votes) / size_A[votes.answer_R])


def sparse_support(votes: Votes) -> csr_matrix:
    """N x C: weighted share of each item's answers that name a label, alone or with others: of "gull" and "gull|tern", all name
    gull and half of them tern. An unsure label counts half. Only of the labels that an answer names."""
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
