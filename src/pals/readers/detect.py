"""Detection of a file's format from its content; its suffix counts only for pickles and .mat files."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pals.readers.column_types import names_in
from pals.readers.columns import KNOWN, Columns, plain
from pals.readers.formats.wide import columns_unlike_others
from pals.readers.graded_columns import SETS, flags_of, usual_roles
from pals.readers.source import Source
from pals.util.errors import InputError
from pals.util.words import in_short, listed, quoted

OTHER_FILES = (  # first bytes, what it is, hint
    (b"PK\x03\x04", "a ZIP or Excel file", "Unpack it, or save the sheet as CSV (UTF-8)."),
    (b"\xd0\xcf\x11\xe0", "an old Excel file", "Save the sheet as CSV (UTF-8)."),
    (b"\x1f\x8b", "a gzip file", "Unpack it first."),
    (b"%PDF", "a PDF", "Export the answers as CSV."),
)
PICKLE_FILE = "a pickle, which could run any program and is never loaded"
EXPECTED_FORMATS = "Looked for: a table with columns item and label, one column per annotator, and all else in docs/formats.md."

COLUMN_ROLES = {"item": "the image's name", "label": "the answer"}
MAX_LISTED_COLUMNS = 6
"""Columns that the question for one of them names."""


def detect(source: Source, columns: Columns | None = None) -> str:
    """The name of the format.

    Args:
        source: The file.
        columns: Columns that the user named.

    Raises:
        InputError: The format is not known, or no format of answers.
    """
    columns = columns or {}
    data = source.data
    for mark, what, hint in OTHER_FILES:
        if data.startswith(mark):
            source.refuse(f"this is {what}", hint)
    if (data[:1] == b"\x80" and data[1:2] in b"\x02\x03\x04\x05") or source.path.suffix in (".pkl", ".pickle"):
        source.refuse(f"this is {PICKLE_FILE}", "Save the answers as CSV or JSON.")
    if data.startswith((b"MATLAB", b"\x89HDF")) or source.path.suffix == ".mat":
        return "mat"
    if source.is_parquet:
        names = {plain(name) for name in source.header}
        has_lists = "file_name" in names and names & {"votes", "candidates"}  # Hugging Face's, with lists in their cells
        return "huggingface" if has_lists else _table(source, columns)
    # XML declares its encoding.
    start = data.lstrip()[:14].decode("latin-1") if data.lstrip().startswith(b"<") else source.text.lstrip()[:14]
    if start.lower().startswith(("<!doctype html", "<html")):
        source.refuse("this is a web page", "Download or export the answers again; the page may say that you must sign in.")
    if start.startswith("<"):
        return "cvat"
    return _json(source) if start.startswith(("[", "{")) else _table(source, columns)


def _json(source: Source) -> str:
    if source.text.lstrip().startswith("{"):
        first = source.text.lstrip().partition("\n")[0]
        try:
            record = json.loads(first)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            kind = _object(record)
            if kind is not None:
                return kind
            return "huggingface" if "file_name" in record else "jsonl"
        kind = _object(source.json)
        if kind is not None:
            return kind
        raise _cannot_tell(source.path, f"a JSON object with the keys {listed(source.json, 4)}")
    entries = source.json
    first_entry: Any = next((entry for entry in entries if isinstance(entry, dict)), None)
    if first_entry is None:
        raise _cannot_tell(source.path, "a JSON list without objects")
    if "data" in first_entry or {"annotator", "annotation_id"} <= first_entry.keys():
        return "label-studio"
    return "dcic" if "annotations" in first_entry else "json"


def _object(value: dict[str, Any]) -> str | None:
    if {"images", "annotations", "categories"} <= value.keys():
        return "coco"
    if {"items", "categories"} <= value.keys():
        return "datumaro"
    if value and all(isinstance(votes, dict) for votes in value.values()):
        return "peerannot"
    return None


def _table(source: Source, columns: Columns) -> str:
    names, chosen = [plain(name) for name in source.header], frozenset(columns)
    has = {role for role, words in KNOWN.items() if role in chosen or set(words) & set(names)}
    if {"annotations", "subject_data"} <= set(names):
        return "zooniverse"
    if {"annotator", "annotation_id", "lead_time"} <= set(names):
        return "label-studio"
    if "annotators" in chosen:
        return "wide"
    if ("label" in has and "label" in chosen) or {"item", "label"} <= has:
        return "long"
    if {"item", "candidates"} <= has:
        return "candidates"
    starts_with_items = bool(names) and (names[0] in ("", *KNOWN["item"]) or names[0].startswith("unnamed:"))
    if (starts_with_items or "item" in chosen) and len(names) > 1 and not has & {"annotator", "label", "candidates"}:
        _check_wide(source, columns)
        return "wide"
    if "item" in has and chosen & {"possible", "impossible"}:
        return "long"
    missing = {"item", "label"} - has
    if len(missing) == 1:
        _ask_for_column(source, columns, *missing)
    raise _cannot_tell(source.path, f"a table with the columns {listed(source.header, 4)}")


def _ask_for_column(source: Source, columns: Columns, role: str) -> None:
    """Ask which column holds the items or the answers, if any can: columns of text, or of numbers if there are no others."""
    taken = {word for words in KNOWN.values() for word in words}
    names = [name for name in source.names if plain(name) not in taken and name not in (*columns.values(), *source.repeated)]
    if not source.is_parquet:  # whose columns may hold more than names
        names = [name for name in names if not _is_numeric(names_in(source, name).names)] or names
    roles = usual_roles(names) if role == "label" else {}
    names = [name for name in names if name != roles.get("percent")] or names
    if names:
        best = roles.get("label", names[0])
        also = f", and perhaps {flags_of(roles)}" if roles.keys() & {"second", *SETS} and best != roles.get("second") else ""
        more = ", ..." if len(names) > MAX_LISTED_COLUMNS else ""
        among, first = ", ".join(in_short(name, 40) for name in names[:MAX_LISTED_COLUMNS]), quoted(best, 40)
        source.refuse(
            f"which column holds {COLUMN_ROLES[role]}: {among}{more}?",
            f"Add --{role}-column {shlex.quote(in_short(best, 40))}{also} (columns={{{role!r}: {first}}}).",
        )


def _is_numeric(names: np.ndarray) -> bool:
    """Whether all texts that are not blank are numbers."""
    cells = pd.Series(names, dtype=object).str.strip()
    return bool(pd.to_numeric(cells[cells != ""], errors="coerce").notna().all())


def _check_wide(source: Source, columns: Columns) -> None:
    """Refuse a table that may have an answer per row: read as a wide one, its annotators would become classes."""
    odd = columns_unlike_others(source, columns)
    if odd:
        source.refuse(
            f"is every column a person's (wide)? {quoted(odd[0], 40)} has no answer in common with the others",
            "If so: --format wide (format='wide'). If each row is one answer, say which column holds what: --label-column NAME "
            "--annotator-column NAME (columns={'label': 'NAME', 'annotator': 'NAME'}).",
        )


def _cannot_tell(path: Path, found: str) -> InputError:
    return InputError(
        f"{path}: cannot tell what kind of file this is: {found}. {EXPECTED_FORMATS} Name the format (--format long) or the "
        f"columns (--item-column, --label-column; columns={{'item': ..., 'label': ...}}); a table without a header row needs "
        f"one."
    )
