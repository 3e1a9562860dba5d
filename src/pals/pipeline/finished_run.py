"""What a finished run's folder holds, as text: its tables, and the settings of its data. Reading them loads no library for
learning, and not even pandas."""

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
"""Where summary.json says how many rows a table has at least."""
BLOCK = 200  # rows that are turned into columns at once: so few that the garbage collector does not count them
UNNAMED = "(unnamed)"
"""Stands for all answers without an annotator's name."""
TAXONOMY = "taxonomy.csv"
"""The tree that the run's answers were read with."""
SEVERAL = "|"  # between the labels of one answer in votes.csv, unless the run was told otherwise


def read_columns(run: Path, name: str, needed: Sequence[str] | None = None) -> dict[str, list[str]]:
    """A table of the run by column. `needed`: columns that it must have, if it is not one of the queue's."""
    path = run / name
    if not path.is_file():
        raise InputError(f"{run} holds no {name}. Give the folder that `pals fit --out` wrote, once it is finished.")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            text = file.read()
        rows = filter(None, csv.reader(io.StringIO(text, newline=""), strict=True))  # a blank line is no row
        header = current_names(path, next(rows, []))
        columns: list[list[str]] = [[] for _ in header]
        while block := list(islice(rows, BLOCK)):
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
    """The same as a DataFrame, all cells as text."""
    import pandas as pd  # the review page starts without it

    return pd.DataFrame(read_columns(run, name, needed))


def _refuse_damaged(path: Path, header: Collection[str], rows: int, needed: Sequence[str] | None = None) -> None:
    """Of a table that has lost columns or rows since the fit nothing may be concluded; without a summary nobody can tell how
    many rows there were."""
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


def separator_of(run: Path | str) -> str | None:
    """What stands between several labels in the run's votes.csv."""
    separator = data_of(run).get("separator", SEVERAL)
    return None if separator is None else str(separator)


def tree_of(run: Path | str) -> str | None:
    """The file with the tree that the run's answers were read with, if there is one."""
    path = Path(run).resolve() / TAXONOMY
    return str(path) if path.exists() else None


def taxonomy_of(run: Path | str) -> Taxonomy | None:
    """That tree."""
    path = tree_of(run)
    return None if path is None else Taxonomy.read(path)


def data_of(run: Path | str) -> dict[str, Any]:
    """The settings of the run's data; nothing where there are none."""
    path = Path(run) / "config.yaml"
    data = read_yaml(path).get("data") if path.is_file() else None
    return data if isinstance(data, dict) else {}
