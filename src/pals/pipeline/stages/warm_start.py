"""The result of the run before an update: what an update is compared with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from pals.readers import Votes
from pals.util.errors import InputError
from pals.util.files import read_json, without_mark


def _earlier_table(earlier: str | None, columns: list[str]) -> pd.DataFrame | None:
    path = None if earlier is None else Path(earlier).with_name("labels.csv")
    if path is None or not path.exists():
        return None
    try:
        return pd.read_csv(path, usecols=columns, dtype=str, keep_default_na=False)
    except (ValueError, OSError):  # of an early version, or changed by hand
        return None


def earlier_labels(votes: Votes, earlier: str | None) -> np.ndarray | None:
    """Label of every item (N) in the run before, -1 for items or classes that are new; None without such a run."""
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
