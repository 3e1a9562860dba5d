"""Columns with further choices, possible and impossible labels, ranks and percentages beside the column of the answers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np

from pals.labels.cells import MISSING
from pals.readers.column_types import WHOLE, columns_in, names_in
from pals.readers.columns import Columns, find, is_queue, not_read, plain
from pals.readers.json_values import labels_of
from pals.readers.reader_table import IMPOSSIBLE, Coded, Grades, Table
from pals.readers.source import Source
from pals.util.errors import InputError
from pals.util.words import quoted

SETS = ("possible", "impossible")
CHOICES = ("second", "percent", *SETS)
"""Roles of columns beside the answer, which only the user names."""
USUAL_NAMES = {
    "label": r"(top|first|1st|best)(_(choice|label|class|answer|guess))?$",
    "second": r"(second|2nd)(_(choice|label|class|answer|guess))?$",
    "possible": r"(possible|plausible)",
    "impossible": r"(impossible|excluded|ruled_out)",
    "percent": r"(percent|prob|.*_(percent|prob))",
}
PERCENT = re.compile(r"([-+]?(?:\d+(?:\.\d*)?|\.\d+))(e[-+]?\d+)?\s*(%?)")
PERCENT_HINT = "Write a number from 0 to 100, one below 1 as 0.5%, or leave it blank."
NO_PERCENT = frozenset({"", "na", "n/a", "nan", "none", "null"})
MAX_TYPOS = 0.01
"""Share of a column's percentages up to which those that are no number are left out; with more, the column is another."""

Choices = dict[str, list[str]]


def choice_columns(columns: Columns, names: Sequence[str], source: Source) -> tuple[Choices, Columns]:
    """The columns of each role of `CHOICES`, and the other columns that the user names.

    Args:
        columns: Columns that the user names; several of one role in a list, or with commas between them.
        names: All columns.
        source: The file, for messages.

    Raises:
        InputError: There is no such column, or there are more columns of percentages than of answers.
    """
    found: Choices = {}
    for role in [role for role in CHOICES if columns.get(role)]:
        given = columns[role]
        several = [name.strip() for name in given.split(",")] if isinstance(given, str) and given not in names else given
        found[role] = [several] if isinstance(several, str) else list(several)
        for name in found[role]:
            find(names, {role: name}, [role], source)
    if len(found.get("percent", ())) > 1 + len(found.get("second", ())):
        source.refuse(
            f"there are {len(found['percent'])} columns of percentages, but fewer of answers",
            "Name one for the answer, and one for each column of further choices (--second-column).",
        )
    return found, {role: name for role, name in columns.items() if role not in found}


def with_choices(table: Table, source: Source, label: str | None, choices: Choices) -> Table:
    """The rows of a table with every choice as a row of its own, and its percentage. A blank cell is no choice.

    Args:
        table: The rows of the file.
        source: The file.
        label: The column of the first choice, if there is one.
        choices: The other columns, by role.

    Returns:
        The table; each row of the file is an answer, unless there are percentages alone.
    """
    stated, notes = percents_in(source, choices["percent"]) if "percent" in choices else ([], ())
    table = replace(table, notes=(*table.notes, *notes))
    if choices.keys() <= {"percent"}:
        return replace(table, percent_R=stated[0]) if stated else table
    ranked = _with_ranks(label, choices)
    columns, rank_X = [name for name, _ in ranked], np.array([rank for _, rank in ranked])
    percent_RX = np.full((source.rows, len(columns)), np.nan)
    for place, column_R in enumerate(stated):
        percent_RX[:, place] = column_R
    code_RX, names = columns_in(source, columns)
    filled_RX = Coded(code_RX, names).flags(str(name).strip() not in MISSING for name in names)
    filled_RX[:, 0] |= ~filled_RX.any(axis=1)
    row_E, column_E = filled_RX.nonzero()
    return replace(
        table.take(row_E),
        label=Coded(code_RX[row_E, column_E], names),
        answer_R=row_E,
        rank_R=rank_X[column_E],
        percent_R=percent_RX[row_E, column_E],
    )


def _with_ranks(label: str | None, choices: Choices) -> list[tuple[str, int]]:
    """The columns of labels with the rank that each gives."""
    if label is not None and choices.keys() <= {"percent"}:
        return [(label, 0)]
    ranked = ([] if label is None else [label]) + choices.get("second", [])
    named = [(name, rank) for rank, name in enumerate(ranked, start=1 + (label is None))]
    return named + [(name, rank) for role, rank in zip(SETS, (0, IMPOSSIBLE), strict=True) for name in choices.get(role, ())]


def percents_in(source: Source, columns: Sequence[str]) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """Columns of percentages as probabilities, and a note on cells that are left out."""
    code_RX, names = columns_in(source, columns)
    value_V, bad_V = percents_of(names.tolist())
    bad_R = Coded(code_RX, names).flags(bad_V).any(axis=1)
    notes: tuple[str, ...] = ()
    if bad_R.any():
        row = int(bad_R.argmax())
        code = next(code for code in code_RX[row].tolist() if code >= 0 and bad_V[code])
        found = f"row {row + source.first_row}: the percentage is {quoted(names[code])}"
        filled = Coded(code_RX, names).flags(str(name).strip().casefold() not in NO_PERCENT for name in names).sum()
        if bad_R.sum() > MAX_TYPOS * filled:
            raise InputError(f"{source.path}, {found}. {PERCENT_HINT}")
        more = f", and {bad_R.sum() - 1:,} more" if bad_R.sum() > 1 else ""
        notes = (f"A percentage that is not read: {source.path}, {found}{more}. {PERCENT_HINT}",)
    return list(np.append(value_V, np.nan)[code_RX].T), notes


def percents_of(cells: Sequence[object]) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities from percentages. Numbers without a sign are from 0 to 1 if none is above 1, else from 1 to 100, or 0.

    Args:
        cells: The different percentages as written.

    Returns:
        A probability for each, NaN where it is blank or bad; and which are no number from 0 to 100.

    >>> percents_of(["70", "30%", ""])[0].tolist()
    [0.7, 0.3, nan]
    """
    texts = [str(cell).strip().casefold() for cell in cells]
    found = [PERCENT.fullmatch(text) for text in texts]
    hundred = any(match is not None and not match[3] and float(match[1] + (match[2] or "")) > 1 for match in found)
    value_V = np.full(len(texts), np.nan)
    for number, match in enumerate(found):
        if match is not None and not (hundred and not match[3] and 0 < float(match[0]) < 1):  # 0.9 among 70s is which?
            power = int((match[2] or "e0")[1:]) - (2 if match[3] or hundred else 0)
            value_V[number] = float(f"{match[1]}e{power}")  # "70" becomes 0.7 without a rounding error
    bad_V = ~((value_V >= 0) & (value_V <= 1)) & ~np.isin(texts, list(NO_PERCENT))
    value_V[bad_V] = np.nan
    return value_V, bad_V


def record_percents(
    rows: Iterable[tuple[int, Mapping[str, object]]], keys: Sequence[str], where: Callable[[int], str]
) -> dict[str, float]:
    """The probability of each different percentage, a number or a list of them, under some keys of JSON records.

    Args:
        rows: Place and record.
        keys: The keys.
        where: Where a place is, for messages.

    Raises:
        InputError: One is no number from 0 to 100.
    """
    place_of: dict[str, int] = {}
    for place, row in rows:
        for value in (row.get(key) for key in keys):
            for one in value if isinstance(value, list) else [value]:
                place_of.setdefault(str(one), place)
    value_V, bad_V = percents_of(list(place_of))
    for text, bad in zip(place_of, bad_V, strict=True):
        if bad:
            raise InputError(f"{where(place_of[text])}: the percentage is {quoted(text)}. {PERCENT_HINT}")
    return dict(zip(place_of, value_V.tolist(), strict=True))


def graded_labels(
    row: Mapping[str, Any], found: Mapping[str, str], choices: Choices, percent_of: Mapping[str, float]
) -> Grades | None:
    """All choices of a JSON record; None without columns of them.

    Args:
        row: The record.
        found: The key of each other role.
        choices: The keys of choices.
        percent_of: The probability of each percentage (`record_percents`).
    """
    if not choices:
        return None
    graded, label = Grades([], [], []), found.get("label", found.get("candidates"))
    for (key, rank), percent_key in zip_longest(_with_ranks(label, choices), choices.get("percent", ())):
        labels = [label for label in labels_of(row.get(key)) if label is not None and label.strip() not in MISSING]
        stated = row.get(percent_key)
        several = stated if isinstance(stated, list) and len(stated) == len(labels) else [stated] * len(labels)
        part = 1 if several is stated else max(len(labels), 1)
        graded.names.extend(labels)
        graded.rank.extend([rank] * len(labels))
        graded.percent.extend(percent_of.get(str(one), np.nan) / part for one in several)
    return graded


def ranks_in(source: Source, column: str) -> np.ndarray:
    """A column of ranks; 0 or blank is none."""
    cells = names_in(source, column)
    texts = [WHOLE.sub(r"\1", str(name).strip()) for name in cells.names]
    for code, text in enumerate(texts):
        if text and not re.fullmatch("[0-9]{1,9}", text):
            found = f"{source.path}, row {cells.first_row(code) + source.first_row}: the rank is {quoted(cells.names[code])}"
            raise InputError(f"{found}. Write 1 for the first choice, 2 for the second, or leave it blank.")
    rank_R: np.ndarray = np.array([*(int(text or 0) for text in texts), 0])[cells.code_R]
    return rank_R


def choices_not_read(names: Sequence[str], used: Collection[str]) -> tuple[str, ...]:
    """The note of `not_read`, with the options that read further choices."""
    notes, roles = not_read(names, used), usual_roles(name for name in names if name not in used)
    if is_queue(names) or not roles.keys() & {"second", *SETS}:
        return notes
    return (f"{notes[0]}. If they are parts of the answers, add {flags_of(roles)}",)


def flags_of(roles: Mapping[str, str]) -> str:
    """The options that name these columns, without the label's."""
    return " ".join(f"--{role}-column {shlex.quote(name)}" for role, name in roles.items() if role != "label")


def usual_roles(names: Iterable[str]) -> dict[str, str]:
    """The column of each of `CHOICES`, and of the label, that its name suggests."""
    found: dict[str, str] = {}
    for name in names:
        role = next((role for role, words in USUAL_NAMES.items() if re.match(words, plain(name))), "")
        found.setdefault(role, name)
    return {role: found[role] for role in USUAL_NAMES if role in found}
