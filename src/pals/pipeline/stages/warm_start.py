"""What an earlier run found, for an update to begin with and to be compared with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from pals.readers import Votes
from pals.util.errors import InputError
from pals.util.files import read_json, without_mark

CHOICES = {"label": "confidence", "second": "second_probability", "third": "third_probability"}
"""The columns of labels.csv with the likeliest classes of an item, and those with their probabilities."""


def earlier_posterior(votes: Votes, earlier: str | None) -> np.ndarray | None:
    """N x C: the probabilities of the likeliest classes of every item, by the run whose answers are in the file `earlier`; rows
    of zeros for new items. None without such a run, or where its labels do not say it."""
    path = None if earlier is None else Path(earlier).with_name("labels.csv")
    if path is None or not path.exists():
        return None
    columns = ["item", *CHOICES, *CHOICES.values()]
    try:
        table = pd.read_csv(path, usecols=columns, dtype=dict.fromkeys(("item", *CHOICES), str), keep_default_na=False)
        share = {name: pd.to_numeric(table[column], errors="coerce") for name, column in CHOICES.items()}
    except (ValueError, OSError):  # of an earlier version, or changed by hand: it is only where one begins
        return None
    item_L = pd.Index(votes.items).get_indexer(table["item"].map(without_mark))
    start_NC = np.zeros((len(votes.items), len(votes.class_names)))
    for name in CHOICES:
        class_L = pd.Index(votes.class_names).get_indexer(table[name].map(without_mark))
        use = np.flatnonzero((item_L >= 0) & (class_L >= 0) & (share[name] > 0) & (share[name] <= 1))
        start_NC[item_L[use], class_L[use]] = share[name].to_numpy()[use]
    total_N1 = start_NC.sum(axis=1, keepdims=True)
    np.divide(start_NC, total_N1, out=start_NC, where=total_N1 > 0)
    return start_NC


def earlier_labels(votes: Votes, earlier: str | None) -> np.ndarray | None:
    """N: the label of every item in the run whose answers are in the file `earlier`, -1 for items or classes that are unknown
    here. None without such a run, or if its labels.csv cannot be read."""
    path = None if earlier is None else Path(earlier).with_name("labels.csv")
    if path is None or not path.exists():
        return None
    try:
        table = pd.read_csv(path, usecols=["item", "label"], dtype=str, keep_default_na=False)
    except (ValueError, OSError):
        return None
    item_L = pd.Index(votes.items).get_indexer(table["item"].map(without_mark))
    class_L = pd.Index(votes.class_names).get_indexer(table["label"].map(without_mark))
    label_N = np.full(len(votes.items), -1)
    label_N[item_L[item_L >= 0]] = class_L[item_L >= 0]
    return label_N


def earlier_estimate(earlier: str | None) -> float | None:
    """The share of wrong labels that the earlier run estimated; None without such a run or estimate."""
    path = None if earlier is None else Path(earlier).with_name("summary.json")
    try:
        found = None if path is None else read_json(path)
    except (InputError, OSError, ValueError):
        return None
    share = found.get("labels_wrong") if isinstance(found, dict) else None
    return float(share) if isinstance(share, int | float) else None
