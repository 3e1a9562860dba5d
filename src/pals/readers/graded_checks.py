"""Checks of ranks, percentages and impossible labels, which are turned into the labels that remain possible."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pals.readers.joined_rows import JoinedRows
from pals.readers.reader_table import IMPOSSIBLE
from pals.util.errors import InputError
from pals.util.words import listed, quoted

ROUNDING = 0.01
"""What percentages may add up to above or below 100%: 33 + 33 + 33."""
SAME_CHOICE = "a second choice that is the first one again"


def settle_grades(joined: JoinedRows, names: Sequence[str]) -> None:
    """Check the graded answers, but not those of our own tables; replace impossible labels by all others; count each label of
    an answer once.

    Args:
        joined: The rows, with `IMPOSSIBLE` as the rank of impossible labels.
        names: Names of the classes.

    Raises:
        InputError: Percentages, ranks or impossible labels that cannot be; it names the row and the value.
    """
    if joined.rank_R.any() or not np.isnan(joined.percent_R).all():
        ours_R = np.array([table.as_written for table in joined.tables])[joined.table_R]
        _check_sums(joined, names, ~ours_R)
        _check_ranks(joined, names, ~ours_R)
        _exclude(joined, names)
        _keep_best(joined)


def _refuse(joined: JoinedRows, row: int, found: str, hint: str) -> None:
    raise InputError(f"{joined.tables[joined.table_R[row]].place(joined.row_R[row])}: {found}. {hint}")


def _check_sums(joined: JoinedRows, names: Sequence[str], checked_R: np.ndarray) -> None:
    stated_R = ~np.isnan(joined.percent_R) & checked_R
    stated = np.flatnonzero(stated_R)  # a row that repeats a label and its percentage counts once
    same = pd.DataFrame({name: getattr(joined, f"{name}_R")[stated] for name in ("answer", "label", "percent")}).duplicated()
    stated_R[stated[same]] = False
    sum_A = np.bincount(joined.answer_R, np.where(stated_R, joined.percent_R, 0))
    whole_A = (np.bincount(joined.answer_R, ~stated_R | joined.joint_R) == 0) & (np.bincount(joined.answer_R) > 1)
    bad_R = ((sum_A > 1 + ROUNDING + 1e-9) | (whole_A & (sum_A < 1 - ROUNDING - 1e-9)))[joined.answer_R] & stated_R
    if bad_R.any():
        answer = joined.answer_R[bad_R.argmax()]
        labels = [names[label] for label in joined.label_R[stated_R & (joined.answer_R == answer)]]
        hint = "Let them add up to 100" + ("." if sum_A[answer] > 1 else ", or leave out the one that is not known.")
        _refuse(
            joined, int(bad_R.argmax()), f"the percentages of {listed(labels, 4)} add up to {100 * sum_A[answer]:.4g}", hint
        )


def _check_ranks(joined: JoinedRows, names: Sequence[str], checked_R: np.ndarray) -> None:
    answer_X, rank_X = _ranks_of_answers(joined, checked_R)
    before_X = np.where(np.diff(answer_X, prepend=-1) == 0, np.append(0, rank_X[:-1]), 0)
    gap = np.flatnonzero(rank_X != before_X + 1)
    if len(gap):
        rank = rank_X[gap[0]]
        row = int(((joined.answer_R == answer_X[gap[0]]) & (joined.rank_R == rank)).argmax())
        label = quoted(names[joined.label_R[row]])
        if rank == 2:
            _refuse(joined, row, f"the second choice is {label}, but there is no first", "Fill in the first, or move it there.")
        found = f"{label} is choice {rank}, but there is no choice {rank - 1}"
        _refuse(joined, row, found, "Number the choices 1, 2, 3 without a gap.")


def _ranks_of_answers(joined: JoinedRows, of_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each answer of these rows with each rank that its labels have, in order."""
    base, ranked_R = joined.rank_R.max(initial=0) + 1, (joined.rank_R > 0) & of_R
    code_X = np.unique(joined.answer_R[ranked_R] * base + joined.rank_R[ranked_R])
    return code_X // base, code_X % base


def _exclude(joined: JoinedRows, names: Sequence[str]) -> None:
    excluded_R = joined.rank_R == IMPOSSIBLE
    if not excluded_R.any():
        return
    key_R = joined.answer_R * len(names) + joined.label_R
    both_R = ~excluded_R & np.isin(key_R, key_R[excluded_R])
    if both_R.any():
        row = int(both_R.argmax())
        found = f"{quoted(names[joined.label_R[row]])} is both {'chosen' if joined.rank_R[row] else 'possible'} and impossible"
        _refuse(joined, row, found, "Remove it from one of the two.")
    listed = joined.answer_R[joined.rank_R == 0]  # what is possible is given, too
    rows = np.flatnonzero(np.isin(joined.answer_R, joined.answer_R[excluded_R]) & ~np.isin(joined.answer_R, listed))
    _, first, answer = np.unique(joined.answer_R[rows], return_index=True, return_inverse=True)
    free_AC = np.ones((len(first), len(names)), dtype=bool)
    free_AC[answer, joined.label_R[rows]] = False
    none = np.flatnonzero((np.bincount(answer, ~excluded_R[rows]) == 0) & ~free_AC.any(axis=1))
    if len(none):
        _refuse(joined, int(rows[first[none[0]]]), f"all {len(names)} classes are impossible", "Leave at least one.")
    answer_E, label_E = free_AC.nonzero()
    joined.add_labels(rows[first[answer_E]], label_E)
    joined.keep(joined.rank_R != IMPOSSIBLE)


def _keep_best(joined: JoinedRows) -> None:
    """Of a label that stands in an answer more than once, keep its best rank; then number the ranks again."""
    place_R = np.where(joined.rank_R > 0, joined.rank_R, joined.rank_R.max(initial=0) + 1)
    frame = pd.DataFrame({"answer": joined.answer_R, "label": joined.label_R, "place": place_R})
    again_R = frame.sort_values("place", kind="stable").duplicated(["answer", "label"]).sort_index().to_numpy()
    best_R = frame.groupby(["answer", "label"])["place"].transform("min").to_numpy() if again_R.any() else place_R
    listed_R = again_R & (joined.rank_R == 0) & (best_R < place_R)
    repeated_R = (again_R & (joined.rank_R > 0))[~listed_R]
    joined.keep(~listed_R)
    shorter = joined.answer_R[repeated_R]
    joined.drop(repeated_R, SAME_CHOICE)
    ranked_R = (joined.rank_R > 0) & np.isin(joined.answer_R, shorter)
    answer_X, rank_X = _ranks_of_answers(joined, ranked_R)
    base = joined.rank_R.max(initial=0) + 1
    place = np.searchsorted(answer_X * base + rank_X, joined.answer_R[ranked_R] * base + joined.rank_R[ranked_R])
    joined.rank_R[ranked_R] = (np.arange(len(answer_X)) - np.searchsorted(answer_X, answer_X) + 1)[place]
