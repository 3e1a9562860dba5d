"""Answers with ranks and percentages: their shares, and how they are written."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd


def shares_of_labels(answer_R: np.ndarray, rank_R: np.ndarray, percent_R: np.ndarray) -> np.ndarray:
    """Share of each label in its answer (`Votes.to_candidates`).

    Args:
        answer_R: Number of each label's answer.
        rank_R: Rank of each label, 0 for none.
        percent_R: Probability stated for each label, NaN for none.

    >>> shares_of_labels(np.array([0, 0, 0]), np.array([1, 2, 0]), np.array([0.6, np.nan, np.nan])).round(2).tolist()
    [0.6, 0.24, 0.16]
    """
    stated_R = ~np.isnan(percent_R)
    share_R = np.where(stated_R, percent_R, 0.0)
    rest_A = np.maximum(1 - np.bincount(answer_R, share_R), 0)
    last_A = np.zeros(len(rest_A), dtype=np.int64)
    np.maximum.at(last_A, answer_R, rank_R)
    place_R = np.where(rank_R > 0, rank_R, last_A[answer_R] + 1)
    open_ = np.flatnonzero(~stated_R)
    _, group = np.unique(answer_R[open_] * (place_R.max(initial=0) + 1) + place_R[open_], return_inverse=True)
    part = 1 / (place_R[open_] * np.bincount(group)[group])
    share_R[open_] = rest_A[answer_R[open_]] * part / np.bincount(answer_R[open_], part)[answer_R[open_]]
    return share_R


def percent_texts(percent_R: np.ndarray) -> np.ndarray:
    """Probabilities as text, "70%", that is read back exactly; blank for NaN."""
    code_R, value_V = pd.factorize(percent_R)
    texts = [f"{Decimal(repr(value)).scaleb(2):f}%" for value in value_V.tolist()]
    text_R: np.ndarray = np.array([*texts, ""], dtype=object)[code_R]
    return text_R
