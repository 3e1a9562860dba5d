"""Arrays that a run keeps for later commands, as .npz files in its folder: one writer and one reader for all of them."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pals.util.errors import InputError
from pals.util.files import replacing, without_advice


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Not compressed: probabilities hardly become smaller."""
    with replacing(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # numpy's stub takes the names for its own parameters


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays by name. A missing or damaged file is an error that says how to get another."""
    if not path.is_file():
        raise InputError(f"{path.parent} holds no {path.name}: the run is unfinished or too old. Run `pals fit` again.")
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"Cannot read {path} ({without_advice(error)}). Run `pals fit` again to rewrite it.") from None
