"""The result of the run before an update: where its fit starts, and what it is compared with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from pals.readers import Votes
from pals.util.errors import InputError
from pals.util.files import read_json, without_mark

LIKELIEST = {"label": "confidence", "second": "second_probability", "third": "third_probability"}
"""Columns of labels.csv with the likeliest classes of an item, and their probabilities."""


def earlier_posterior(votes: Votes, earlier: str | None) -> np.ndarray | None:
    """Probabilities of the likeliest classes of every item (N x C) in the run before; zeros for new items.

    Args:
        votes: Items and classes.
        earlier: votes.csv of that run; None without one.

    Returns:
        The probabilities; None without such a run, or if its labels.csv cannot be read: the fit only starts from them.
    """
    table = _earlier_table(earlier, ["item", *LIKELIEST, *LIKELIEST.values()])
    if table is None:
        return None
    share = {name: pd.to_numeric(table[column], errors="coerce") for name, column in LIKELIEST.items()}
    item_L = pd.Index(votes.items).get_indexer(table["item"].map(without_mark))
    start_NC = np.zeros((len(votes.items), len(votes.class_names)))
    for name in LIKELIEST:
        class_L = pd.Index(votes.class_names).get_indexer(table[name].map(without_mark))
        use = np.flatnonzero((item_L >= 0) & (class_L >= 0) & (share[name] > 0) & (share[name] <= 1))
        start_NC[item_L[use], class_L[use]] = share[name].to_numpy()[use]
    total_N1 = start_NC.sum(axis=1, keepdims=True)
    np.divide(start_NC, total_N1, out=start_NC, where=total_N1 > 0)
    return start_NC


def _earlier_table(earlier: str | None, columns: list[str]) -> pd.DataFrame | None:
    path = None if earlier is None else Path(earlier).with_name("labels.csv")
    if path is None or not path.exists():
        return None
    try:
        return pd.read_csv(path, usecols=columns, dtype=str, keep_default_na=False)
    except (ValueError, OSError):  # of an early version, or changed by hand
        return None


def earlier_labels(votes: Votes, earlier: str | None) -> np.ndarray | None:
    """Label of every item (N) in the run before, -1 for items or classes that are new; None as in `earlier_posterior`."""
    table = _earlier_table(earlier, ["item", "label"])
    if table is None:
        return None
    item_L = pd.Index(votes.items).get_indexer(table["item"].map(without_mark))
    class_L = pd.Index(votes.class_names).get_indexer(table["label"].map(without_mark))
    label_N = np.full(len(votes.items), -1)
    label_N[item_L[item_L >= 0]] = class_L[item_L >= 0]
    return label_N


def earlier_estimate(earlier: str | None) -> float | None:
    """Share of wrong labels that the run before estimated; None without such a run or estimate."""
    path = None if earlier is None else Path(earlier).with_name("summary.json")
    try:
        found = None if path is None else read_json(path)
    except (InputError, OSError, ValueError):
        return None
    share = found.get("labels_wrong") if isinstance(found, dict) else None
    return float(share) if isinstance(share, int | float) else None
