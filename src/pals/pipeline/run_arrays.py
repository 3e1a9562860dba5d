"""Arrays that a run stores for later commands, and those of the review page: nearest neighbours and likeliest classes."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pals.util.errors import InputError
from pals.util.files import replacing, without_advice

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


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an .npz file, not compressed: probabilities hardly become smaller."""
    with replacing(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # numpy's stub takes the names for its own parameters


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name; an InputError if it is missing or damaged."""
    if not path.is_file():
        raise InputError(f"{path.parent} holds no {path.name}: the run is unfinished or too old. Run `pals fit` again.")
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"Cannot read {path} ({without_advice(error)}). Run `pals fit` again to rewrite it.") from None
