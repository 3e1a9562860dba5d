"""Times of answers as seconds since 1970, from dates with a time of day (ISO 8601) or from seconds or milliseconds since 1970;
and how many seconds an answer took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import numpy as np
import pandas as pd

from pals.readers.json_values import text_of
from pals.util.errors import InputError
from pals.util.words import quoted

MAX_TIME = 7_258_118_400
"""The year 2200, in seconds since 1970."""
MIN_TIMESTAMP, MIN_MILLISECONDS = 1e8, 1e11
"""Numbers from the first on are seconds since 1970, from the second on milliseconds; smaller ones are durations."""
NO_TIME = frozenset({"", "na", "n/a", "nan", "nat", "none", "null"})
NUMBER_PATTERN = r"\d+(?:\.\d+)?"
DECIMAL_PATTERN = rf"{NUMBER_PATTERN}(?:e-?\d+)?"
ISO_PATTERN = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?\s*(?:Z|UTC|[+-]\d\d(?::?\d\d)?)?"
Place = Callable[[int], str]
"""Where each cell stands in the file, for messages."""
Times = tuple[np.ndarray | None, tuple[str, ...]]
"""A number for each cell, NaN where it is blank; or None and a note that names a cell which is not understood."""


def times_of(cells: Sequence[object], place: Place, *, required: bool = False) -> Times:
    """Seconds since 1970 for each cell. A cell that is not understood is an error if times are `required`."""
    hint = "is not a date with a time of day. Write times as 2026-01-05T10:00:00, or as seconds since 1970"
    return _read(cells, place, _since_1970, "Times of answers", hint, required)


def durations_of(cells: Sequence[object], place: Place, *, required: bool = False) -> Times:
    """Seconds that each answer took, in the same way."""
    return _read(cells, place, _duration, "Seconds that answers took", "is not a number of seconds. Write it as 4.1", required)


def _read(
    cells: Sequence[object], place: Place, parse: Callable[[pd.Series], np.ndarray], what: str, hint: str, required: bool
) -> Times:
    if all(cell is None for cell in cells):
        return None, ()
    text = pd.Series([_text(cell) for cell in cells], dtype=object)
    value_V = parse(text)
    bad = np.flatnonzero(np.isnan(value_V) & ~text.str.casefold().isin(NO_TIME).to_numpy())
    if not len(bad):
        return value_V, ()
    found = f"{place(bad[0])} holds {quoted(cells[bad[0]])}, which {hint}"
    if required:
        raise InputError(f"{found}.")
    return None, (f"{what} are not read: {found}",)


def written(time_R: np.ndarray) -> np.ndarray:
    """Times as text that `times_of` reads back to the microsecond; blank where a time is not known."""
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
    """NaN where a text is no number, or is a time since 1970."""
    decimals = text.where(text.str.fullmatch(DECIMAL_PATTERN))
    number_V: np.ndarray = pd.to_numeric(decimals, errors="coerce").to_numpy(dtype=np.float64)
    return np.where(number_V < MIN_TIMESTAMP, number_V, np.nan)


def _since_1970(text: pd.Series) -> np.ndarray:
    """NaN where a text is neither a date with a time of day nor a number as large as a time since 1970."""
    number_V = pd.to_numeric(text.where(text.str.fullmatch(NUMBER_PATTERN)), errors="coerce").to_numpy(dtype=np.float64)
    number_V = np.where(number_V >= MIN_MILLISECONDS, number_V / 1000, np.where(number_V >= MIN_TIMESTAMP, number_V, np.nan))
    dates = text.where(text.str.fullmatch(ISO_PATTERN)).str.replace(r"\s*(?:Z|UTC)?$", "", regex=True)
    dates = dates.str.replace(r"\s+(?=[+-]\d\d)", "", regex=True)
    date_V = pd.to_datetime(dates, format="ISO8601", errors="coerce", utc=True).dt.tz_localize(None).to_numpy("datetime64[us]")
    micro_V = np.where(np.isnat(date_V), np.rint(number_V * 1e6), date_V.astype(np.int64))
    time_V: np.ndarray = micro_V / 1e6
    return np.where((time_V >= 0) & (time_V < MAX_TIME), time_V, np.nan)
