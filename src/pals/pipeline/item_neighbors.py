"""What a person who looks at an item again wants beside it: which items are most alike, and what the classifier says that has
not seen its answers. Kept in the run's folder for all items, so that nothing is computed when it is shown."""

from __future__ import annotations

import io
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pals.util.errors import InputError
from pals.util.files import write_bytes

FILE_NAME = "second-look.npz"
ALIKE = 8  # similar items of each
CHOICES = 3  # likeliest classes of each


@dataclass(frozen=True)
class SecondLook:
    """Of N items, in the order of labels.csv, the K most alike and the T classes that the classifier finds likeliest. K or T is
    0 where there is nothing to compare, or no classifier."""

    neighbor_NK: np.ndarray
    similarity_NK: np.ndarray
    choice_NT: np.ndarray
    share_NT: np.ndarray

    @classmethod
    def of(cls, neighbor_NK: np.ndarray, similarity_NK: np.ndarray, said_NC: np.ndarray | None) -> SecondLook:
        if said_NC is None:
            said_NC = np.zeros((len(neighbor_NK), 0))
        choice_NT = np.argsort(-said_NC, axis=1, kind="stable")[:, :CHOICES]
        return cls(
            neighbor_NK[:, :ALIKE].astype(np.int32),
            similarity_NK[:, :ALIKE].astype(np.float32),
            choice_NT.astype(np.int32),
            np.take_along_axis(said_NC, choice_NT, axis=1).astype(np.float32),
        )

    def save(self, folder: Path) -> None:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **vars(self))
        write_bytes(folder / FILE_NAME, buffer.getbuffer())

    @classmethod
    def load(cls, folder: Path) -> SecondLook | None:
        """None of a run that was made before this was kept."""
        path = folder / FILE_NAME
        if not path.is_file():
            return None
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                return cls(**{name: file[name] for name in file.files})
        except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error):
            raise InputError(f"{path} is damaged. Run `pals fit` again to rewrite it.") from None
