"""Which item first: the one order in which the queue, the review page and the report show items.

Benefit of another answer for item i, the estimated probability that its label is wrong:
    b_i = TRUST * (1 - confidence_i) + (1 - TRUST) * (answers against + 1/2) / (answers + 1)
and the k-th best item of a class (k = 0, 1, ...) is ranked by b_i / (1 + k / (SPREAD / C)), so that a class with twice the
benefit of the others gets more than an even share of the first SPREAD items, but no class fills them alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pals.util.errors import InputError
from pals.util.words import quoted

TRUST = 0.75
"""Weight of the result's own confidence; the rest is estimated from the answers alone."""
DISAGREEMENT = "disagreement"
"""Status of an item about which trusted answers differ: these items come first."""
SPREAD = 200
"""Items over which the classes share evenly: as many as `pals relabel` lists by default."""

FILE_OF_COLUMN = {"probability_wrong": "doubtful.csv", "weight": "votes.csv", "gain": "next.csv"}
"""The other columns of numbers are those of labels.csv."""
AUDIT_SHARE = 0.25
"""Share of a queue that is drawn at random by default: answers to a fair sample measure how many labels are wrong."""
AUDIT_SEED = 20
RANDOM_CHECK = "random check"
"""Why an item that was drawn is in the queue."""

Columns = Mapping[str, Sequence[str]]
"""A table of a run, all cells as text."""


def item_order(labels: Columns) -> np.ndarray:
    """Rows of labels.csv, the item first whose label another answer is most likely to improve, after disagreements to settle.

    Args:
        labels: The columns item, label, confidence, votes, agreement and status of labels.csv.

    Returns:
        Row numbers (int64) of all items but gold ones.
    """
    row_M = np.flatnonzero([status != "gold" for status in labels["status"]])
    asked = {
        name: [labels[name][row] for row in row_M.tolist()] for name in ("item", "label", "confidence", "votes", "agreement")
    }
    confidence_M, votes_M = column_of_numbers(asked, "confidence"), column_of_numbers(asked, "votes")
    benefit_M = expected_benefit(confidence_M, votes_M, column_of_numbers(asked, "agreement", missing=0.0))
    order: np.ndarray = row_M[spread_over_classes(benefit_M, np.array(asked["label"], dtype=object))]
    settled = [labels["status"][row] != DISAGREEMENT for row in order.tolist()]
    return order[np.argsort(settled, kind="stable")]


def with_audit(
    order: np.ndarray, everything: np.ndarray, rows: int, share: float, number: int, fixed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """A queue of which a share is drawn at random, evenly mixed with the items that are worth an answer.

    Args:
        order: Items that are worth an answer, the most useful first.
        everything: All items that are not gold, from which the sample is drawn.
        rows: Length of the queue.
        share: Share of it that is drawn, from 0 to less than 1.
        number: Number of the round: the seed of the draw.
        fixed: Number of items that stay first, drawn or not.

    Returns:
        The items, at most `rows`, and whether each was drawn.
    """
    drawn = np.random.default_rng([AUDIT_SEED, number]).permutation(np.sort(everything))
    drawn = drawn[: round(share * min(rows, len(everything)))]
    first, rest = order[:fixed], order[fixed:]
    added = drawn[~np.isin(drawn, first)]
    rest = rest[~np.isin(rest, drawn)][: max(0, rows - len(first) - len(added))]
    place = np.concatenate([(np.arange(len(part)) + 0.5) / max(len(part), 1) for part in (rest, added)])
    found = np.concatenate([first, np.concatenate([rest, added])[np.argsort(place, kind="stable")]])
    return found, np.isin(found, drawn)


def expected_benefit(confidence_N: np.ndarray, votes_N: np.ndarray, agreement_N: np.ndarray) -> np.ndarray:
    """Estimated probability that an item's label is wrong (equation above): 1/2 by the answers alone where there are none."""
    against_N = (votes_N * (1 - agreement_N) + 0.5) / (votes_N + 1)
    benefit_N: np.ndarray = TRUST * (1 - confidence_N) + (1 - TRUST) * against_N
    return benefit_N


def spread_over_classes(benefit_N: np.ndarray, label_N: np.ndarray, spread: int = SPREAD) -> np.ndarray:
    """Row numbers, best first, ranked by benefit and by how many better items of the same class there are."""
    classes, class_N = np.unique(label_N, return_inverse=True)
    order_N = np.argsort(-benefit_N, kind="stable")
    by_class_N = order_N[np.argsort(class_N[order_N], kind="stable")]  # class by class, each from its best on
    size_C = np.bincount(class_N, minlength=len(classes))
    before_N = np.empty(len(class_N), dtype=np.int64)
    before_N[by_class_N] = np.arange(len(class_N)) - np.repeat(np.cumsum(size_C) - size_C, size_C)
    rank_N = benefit_N / (1 + before_N / (spread / max(len(classes), 1)))
    found: np.ndarray = order_N[np.argsort(-rank_N[order_N], kind="stable")]
    return found


def column_of_numbers(table: Columns, column: str, missing: float | None = None) -> np.ndarray:
    """A column of numbers; blank cells are `missing`, or an error that names the item where that is None."""
    try:
        value_N = np.fromiter(map(float, table[column]), dtype=np.float64)
    except ValueError:  # a cell is blank, or no number
        blank = np.nan if missing is None else missing
        value_N = np.array([_number(cell, blank) for cell in table[column]], dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(value_N))
    if len(bad):
        item, cell = table["item"][bad[0]], table[column][bad[0]].strip()
        file = FILE_OF_COLUMN.get(column, "labels.csv")
        raise InputError(f"The {column} of {quoted(item)} is {quoted(cell)}, not a number. Run `pals fit` to rewrite {file}.")
    return value_N


def _number(cell: str, blank: float) -> float:
    try:
        return float(cell) if cell.strip() else blank
    except ValueError:
        return np.nan
