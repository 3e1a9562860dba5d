"""Tabular data sets of partial label learning in MATLAB files: features, candidates and, for grading, the truth."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from pals.readers import read_votes
from pals.readers.formats.mat import features
from pals.readers.source import Source


class MatData(NamedTuple):
    """A data set such as Lost, MSRCv2 or BirdSong."""

    X: np.ndarray  # items by features
    candidates: np.ndarray  # items by classes, 0 and 1
    truth: np.ndarray | None  # class number of each item; None if the file has no `target`


def load_mat(path: str | Path) -> MatData:
    """Reads `data` (items by features), `partial_target` (classes by items) and `target` of a MATLAB file.

    Args:
        path: A .mat file.

    Returns:
        Features, candidates and, if the file has a `target` for every item, the truth.

    Raises:
        InputError: The file is damaged or lacks a variable.
    """
    from sklearn.utils import check_array

    votes = read_votes(path, format="mat")  # also checks the file
    sets = votes.to_candidates()
    X = check_array(features(Source(Path(path))), dtype=np.float64, input_name="data")
    truth = votes.gold_I if (votes.gold_I >= 0).all() else None
    return MatData(X, sets.allowed_NC.numpy().astype(np.int8), truth)
