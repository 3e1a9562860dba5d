"""Finds the file of weights that a network starts from."""

from __future__ import annotations

from pathlib import Path

from pals.data.download import VARIABLE, WEIGHTS, WEIGHTS_FOLDER, data_folder, fetch_command
from pals.util.errors import InputError


def find_weights(weights: str, data_dir: Path | None = None) -> Path:
    """The file itself, or one of this name in the user's data folder or its subfolder `weights`."""
    place = data_folder(data_dir)
    tried = [Path(weights).expanduser()]
    if place is not None:
        tried += [place / weights, place / WEIGHTS_FOLDER / weights]
    for path in tried:
        if path.exists():
            return path
    looked = ", ".join(dict.fromkeys(str(path.absolute()) for path in tried))
    nowhere = "" if place is not None else f" ({VARIABLE}, the folder of data and weights, is not set)"
    raise InputError(f"There is no weights file {weights}; looked for {looked}{nowhere}. {_remedy(weights, place)}")


def _remedy(weights: str, place: Path | None) -> str:
    for name, file in WEIGHTS.items():
        if file.file_name == Path(weights).name:
            return f"Get it with {fetch_command(name, place)} or from {file.url}, or do without: --set network.weights=null."
    return "Check the path; weights are never downloaded unasked."
