"""Nearest neighbours and likeliest classes of every item, stored in the run's folder for the review page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pals.pipeline.run_arrays import read_arrays, write_arrays
from pals.util.errors import InputError

NEIGHBORS_FILE = "second-look.npz"
STORED_NEIGHBORS = 8
STORED_CLASSES = 3


@dataclass(frozen=True)
class ItemNeighbors:
    """Of N items in the order of labels.csv the K nearest neighbours, and the T classes that the classifier, which has not seen
    the item's answers, finds likeliest. K or T is 0 where there are no features, or no classifier."""

    neighbor_NK: np.ndarray
    similarity_NK: np.ndarray
    choice_NT: np.ndarray
    share_NT: np.ndarray

    @classmethod
    def of(cls, neighbor_NK: np.ndarray, similarity_NK: np.ndarray, predicted_NC: np.ndarray | None) -> ItemNeighbors:
        """The first `STORED_NEIGHBORS` and `STORED_CLASSES`; `predicted_NC` is None without a classifier."""
        if predicted_NC is None:
            predicted_NC = np.zeros((len(neighbor_NK), 0))
        choice_NT = np.argsort(-predicted_NC, axis=1, kind="stable")[:, :STORED_CLASSES]
        return cls(
            neighbor_NK[:, :STORED_NEIGHBORS].astype(np.int32),
            similarity_NK[:, :STORED_NEIGHBORS].astype(np.float32),
            choice_NT.astype(np.int32),
            np.take_along_axis(predicted_NC, choice_NT, axis=1).astype(np.float32),
        )

    def save(self, folder: Path) -> None:
        write_arrays(folder / NEIGHBORS_FILE, vars(self))

    @classmethod
    def load(cls, folder: Path) -> ItemNeighbors:
        """Those of a finished run."""
        try:
            return cls(**read_arrays(folder / NEIGHBORS_FILE))
        except TypeError:
            raise InputError(f"{folder / NEIGHBORS_FILE} is damaged. Run `pals fit` again to rewrite it.") from None
