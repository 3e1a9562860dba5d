"""When people answered: dates with a time of day (ISO 8601), or seconds or milliseconds since 1970, as seconds since 1970.
And how long an answer took, in seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import numpy as np
import pandas as pd

from pals.readers.source import text_of
from pals.util.errors import InputError
from pals.util.words import quoted

LATEST = 7_258_118_400
"""The year 2200, in seconds since 1970: what is later is no time of an answer."""
SECONDS, MILLISECONDS = 1e8, 1e11
"""From which on a number is seconds since 1970, in 1973, or milliseconds; smaller ones may be seconds that an answer took."""
BLANK = frozenset({"", "na", "n/a", "nan", "nat", "none", "null"})
NUMBER = r"\d+(?:\.\d+)?"
DECIMAL = rf"{NUMBER}(?:e-?\d+)?"
ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?\s*(?:Z|UTC|[+-]\d\d(?::?\d\d)?)?"
Place = Callable[[int], str]
"""Where each cell stands in the file, for messages."""
Found = tuple[np.ndarray | None, tuple[str, ...]]


def times_of(cells: Sequence[object], place: Place, *, asked: bool = False) -> Found:
    """Seconds since 1970 for each cell, NaN where it is blank. Where a cell is not understood, that is an error if the user
    `asked` for these times; else all are left alone (None), and a note says so."""
    remedy = "is not a date with a time of day. Write times as 2026-01-05T10:00:00, or as seconds since 1970"
    return _read(cells, place, _since_1970, "Times of answers", remedy, asked)


def durations_of(cells: Sequence[object], place: Place, *, asked: bool = False) -> Found:
    """The same for the seconds that each answer took."""
    return _read(cells, place, _duration, "Seconds that answers took", "is not a number of seconds. Write it as 4.1", asked)


def _read(
    cells: Sequence[object], place: Place, understand: Callable[[pd.Series], np.ndarray], what: str, remedy: str, asked: bool
) -> Found:
    if all(cell is None for cell in cells):
        return None, ()
    text = pd.Series([_text(cell) for cell in cells], dtype=object)
    value_V = understand(text)
    bad = np.flatnonzero(np.isnan(value_V) & ~text.str.casefold().isin(BLANK).to_numpy())
    if not len(bad):
        return value_V, ()
    found = f"{place(bad[0])} holds {quoted(cells[bad[0]])}, which {remedy}"
    if asked:
        raise InputError(f"{found}.")
    return None, (f"{what} are not read: {found}",)


def written(time_R: np.ndarray) -> np.ndarray:
    """Times as text that is read back as it was, to the microsecond; blank where a time is not known."""
    known_R = ~np.isnan(time_R)
    micro_R = np.rint(np.where(known_R, time_R, 0) * 1e6).astype("datetime64[us]")
    text_R = np.datetime_as_string(micro_R, unit="us" if (time_R[known_R] % 1).any() else "s", timezone="UTC")
    return np.where(known_R, text_R, "").astype(object)


def _text(cell: object) -> str:
    try:
        return (cell.isoformat() if isinstance(cell, datetime) else text_of(cell) or "").strip()
    except TypeError:  # a list, an object, a day
        return repr(cell)


def _duration(text: pd.Series) -> np.ndarray:
    """NaN for what is no number, or one that is the time of an answer."""
    number_V: np.ndarray = pd.to_numeric(text.where(text.str.fullmatch(DECIMAL)), errors="coerce").to_numpy(dtype=np.float64)
    return np.where(number_V < SECONDS, number_V, np.nan)


def _since_1970(text: pd.Series) -> np.ndarray:
    """NaN for what is neither a date with a time of day nor a number of the size that such a time has."""
    number_V = pd.to_numeric(text.where(text.str.fullmatch(NUMBER)), errors="coerce").to_numpy(dtype=np.float64)
    number_V = np.where(number_V >= MILLISECONDS, number_V / 1000, np.where(number_V >= SECONDS, number_V, np.nan))
    dates = text.where(text.str.fullmatch(ISO)).str.replace(r"\s*(?:Z|UTC)?$", "", regex=True)
    dates = dates.str.replace(r"\s+(?=[+-]\d\d)", "", regex=True)
    date_V = pd.to_datetime(dates, format="ISO8601", errors="coerce", utc=True).dt.tz_localize(None).to_numpy("datetime64[us]")
    micro_V = np.where(np.isnat(date_V), np.rint(number_V * 1e6), date_V.astype(np.int64))
    time_V: np.ndarray = micro_V / 1e6
    return np.where((time_V >= 0) & (time_V < LATEST), time_V, np.nan)
