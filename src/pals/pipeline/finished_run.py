"""The files of a finished run as text: its tables, and the settings of its data. Reading them loads neither torch nor
pandas."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pals.labels.taxonomy import Taxonomy
from pals.util.config import read_yaml
from pals.util.errors import InputError
from pals.util.files import read_object, without_mark
from pals.util.old_names import current_names
from pals.util.words import how_many

if TYPE_CHECKING:
    import pandas as pd

NEEDED = {
    "labels.csv": ("item", "label", "confidence", "second", "votes", "agreement", "status"),
    "doubtful.csv": ("item", "annotator", "answer", "probability_wrong"),
    "votes.csv": ("item", "annotator", "label", "weight", "is_gold"),
    "classes.csv": ("class",),
}
ROWS = {"labels.csv": "items", "doubtful.csv": "doubtful_answers", "votes.csv": "answers"}
"""Key of summary.json with the smallest number of rows of a table."""
MAX_ROWS_AT_ONCE = 200  # turned into columns at once: so few that the garbage collector does not count them
UNNAMED = "(unnamed)"
"""Stands for all answers without an annotator's name."""
TAXONOMY = "taxonomy.csv"
"""The tree that the run's answers were read with."""
SEVERAL = "|"  # between the labels of one answer in votes.csv, unless the run has another separator


def read_columns(run: Path, name: str, needed: Sequence[str] | None = None) -> dict[str, list[str]]:
    """A table of the run by column, all cells as text.

    Args:
        run: The run's folder.
        name: The file.
        needed: Columns that it must have; default: those of `NEEDED`.

    Raises:
        InputError: The file is missing, damaged, or cut off.
    """
    path = run / name
    if not path.is_file():
        raise InputError(f"{run} holds no {name}. Give the folder that `pals fit --out` wrote, once it is finished.")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            text = file.read()
        rows = filter(None, csv.reader(io.StringIO(text, newline=""), strict=True))  # a blank line is no row
        header = current_names(path, next(rows, []))
        columns: list[list[str]] = [[] for _ in header]
        while block := list(islice(rows, MAX_ROWS_AT_ONCE)):
            odd = next((number for number, row in enumerate(block, start=1) if len(row) != len(header)), None)
            if odd is not None:
                raise ValueError(f"row {odd + len(columns[0] if columns else ())} has another number of cells than the header")
            for column, cells in zip(columns, zip(*block, strict=True), strict=True):
                column.extend(cells)
    except (OSError, ValueError, csv.Error) as error:  # a wrong encoding is a ValueError
        raise InputError(f"Cannot read {path}: {' '.join(str(error).split())}. Run `pals fit` again to rewrite it.") from None
    _refuse_damaged(path, header, len(columns[0]) if columns else 0, needed)
    if "'" in text:
        columns = [[without_mark(cell) for cell in cells] for cells in columns]
    return dict(zip(header, columns, strict=True))


def read_table(run: Path, name: str, needed: Sequence[str] | None = None) -> pd.DataFrame:
    """`read_columns` as a data frame."""
    import pandas as pd  # the review page starts without it

    return pd.DataFrame(read_columns(run, name, needed))


def _refuse_damaged(path: Path, header: Collection[str], rows: int, needed: Sequence[str] | None = None) -> None:
    """A table that has lost columns or rows since the fit is an error; rows are only checked if there is a summary."""
    missing = [column for column in needed or NEEDED[path.name] if column not in header]
    if missing:
        raise InputError(f"{path} has no column {missing[0]!r}. Run `pals fit` again to rewrite it.")
    summary = path.with_name("summary.json")
    wanted = read_object(summary).get(ROWS[path.name]) if path.name in ROWS and summary.is_file() else None
    if isinstance(wanted, int) and rows < wanted:
        raise InputError(
            f"{path} is cut off: it has {how_many(rows, 'row')}, and the fit wrote at least {wanted:,}. "
            "Restore it from a copy, or run `pals fit` again to rewrite it."
        )


def run_folder(run: Any) -> Path:
    """The folder of a run, given as its path or as findings: of an update, its round in the run."""
    return Path(getattr(run, "folder", run))


def separator_of(run: Path | str) -> str | None:
    """The separator between several labels in a cell of the run's votes.csv."""
    separator = data_of(run).get("separator", SEVERAL)
    return None if separator is None else str(separator)


def tree_of(run: Path | str) -> str | None:
    """The file with the run's taxonomy, if it has one."""
    path = Path(run).resolve() / TAXONOMY
    return str(path) if path.exists() else None


def taxonomy_of(run: Path | str) -> Taxonomy | None:
    """The run's taxonomy, if it has one."""
    path = tree_of(run)
    return None if path is None else Taxonomy.read(path)


def data_of(run: Path | str) -> dict[str, Any]:
    """The settings of the run's data; empty without config.yaml."""
    path = Path(run) / "config.yaml"
    data = read_yaml(path).get("data") if path.is_file() else None
    return data if isinstance(data, dict) else {}
