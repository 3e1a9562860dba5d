"""One file of answers: its bytes, text, JSON or table, each read at most once and checked on the way."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd

from pals.readers.json_values import RepeatedKeyError, kind, load_json, text_of
from pals.readers.limits import Limits
from pals.readers.parquet import Parquet
from pals.util.errors import InputError
from pals.util.files import check_readable, unreadable
from pals.util.words import in_short, quoted

BYTE_ORDER_MARKS = (  # the longer first: UTF-32's mark begins like UTF-16's
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
DELIMITERS = ",\t;"
MIN_CATEGORY_BYTES = 1 << 24
"""Size of a table from which on a text that occurs many times is stored once."""
NOT_FOR_FILES = frozenset({"punycode", "idna", "undefined", "unicode-escape", "raw-unicode-escape"})
"""Codecs for names in networks and in programs. No table is written in them, and some take hours over one."""
BEFORE_HEADER = re.compile(r'[\r\n]*(?:"?sep=([,;\t])"?(?:\r\n|\r|\n)[\r\n]*)?', re.IGNORECASE)
"""Blank lines, and the line that declares the delimiter to Excel."""


class Source:
    """One file of answers that a user gave.

    Args:
        path: The file; the origin of `data`, for messages.
        encoding: Of a text file that is neither UTF-8 nor marked.
        limits: How much the file may claim to hold; by default from PALS_MAX_CELLS and PALS_MAX_BYTES.
        data: Its content, if it is in memory.

    Raises:
        InputError: There is no such encoding.

    >>> from pathlib import Path
    >>> source = pals.Source(Path("votes.csv"), data=b"item;label\\na.jpg;newt\\n")
    >>> source.header, source.rows
    (['item', 'label'], 1)
    """

    def __init__(
        self, path: Path, encoding: str | None = None, limits: Limits | None = None, data: bytes | None = None
    ) -> None:
        self.path = path
        if data is not None:
            self.data = data
        self.encoding = None if encoding is None else _codec(encoding)
        self.limits = limits or Limits.from_environment()

    def refuse(self, found: str, remedy: str) -> NoReturn:
        """Raise an `InputError` that names the file.

        Args:
            found: What is wrong, with its place in the file, without a full stop, or a question.
            remedy: What to do, in whole sentences.
        """
        raise InputError(f"{self.path}: {found}{'' if found.endswith('?') else '.'} {remedy}")

    @cached_property
    def data(self) -> bytes:
        """The content of the file, which is not empty."""
        reason = self.limits.too_many_bytes(check_readable(self.path, "the file with the answers").st_size, "the file")
        if reason:
            raise InputError(f"{self.path}: {reason}")
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise unreadable(self.path, error) from None
        if not data.strip(b" \t\r\n\0\xef\xbb\xbf"):
            self.refuse("the file is empty", "Export the answers again.")
        return data

    @cached_property
    def text(self) -> str:
        """The content decoded, without a byte order mark."""
        data, encoding = self.data, self.encoding
        if encoding is None:
            mark, encoding = next(((m, name) for m, name in BYTE_ORDER_MARKS if data.startswith(m)), (b"", "utf-8"))
            data = data[len(mark) :]
            if not mark and b"\0" in data[:2] and not self.is_parquet:
                self.refuse(
                    "this looks like UTF-16 without a mark", "Save it as UTF-8, or say --encoding utf-16-le or utf-16-be."
                )
        try:
            text = data.decode(encoding).removeprefix("\ufeff")
            if self.encoding is not None:
                text.encode("utf-8")  # some codecs return text that UTF-8 cannot encode
            return text
        except (LookupError, UnicodeEncodeError):
            raise _unknown_encoding(encoding) from None
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            self.refuse(
                f"line {line} is not {encoding.upper()} text (byte 0x{data[error.start]:02x})",
                "Save the file as UTF-8, or name its encoding: --encoding cp1252 (encoding='cp1252') for files from Excel.",
            )

    @cached_property
    def json(self) -> Any:
        """The content as JSON."""
        return self.parse_json(self.text, "")

    def parse_json(self, text: str, place: str) -> Any:
        """The JSON value in a text of the file.

        Args:
            text: The text.
            place: Where it begins, for messages: ", line 3", or empty.

        Raises:
            InputError: The text is no JSON, or an object has a key twice.
        """
        try:
            return load_json(text)
        except json.JSONDecodeError as error:
            where = place or f", line {error.lineno}, column {error.colno}"
            cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
            found = "the JSON ends in the middle" if cut else f"this is not JSON ({error.msg})"
        except UnicodeEncodeError as error:
            where, found = place, f"{error.object[error.start]!a} is half a character, not text"
        except RecursionError:
            where, found = place, "the JSON is nested too deeply"
        except RepeatedKeyError as error:
            raise InputError(f"{self.path}{place}: {error}. Keep only the right value.") from None
        except ValueError as error:  # a number with thousands of digits
            where, found = place, in_short(str(error).partition(";")[0])
        raise InputError(f"{self.path}{where}: {found}. Export or download the file again.")

    def json_lines(self) -> list[tuple[int, dict[str, Any]]]:
        """(line number, object) of each line that is not blank."""
        lines = [(number, line) for number, line in enumerate(map(str.strip, self.text.split("\n")), start=1) if line]
        if all(line[0] == "{" and line[-1] == "}" for _, line in lines):
            try:  # all at once is much faster; after a failure, one by one finds the line
                values = self.parse_json("[" + ",".join(line for _, line in lines) + "]", "")
            except InputError:
                values = []
            if len(values) == len(lines):
                return [(number, value) for (number, _), value in zip(lines, values, strict=True)]
        found = []
        for number, line in lines:
            value = self.parse_json(line, f", line {number}")
            if not isinstance(value, dict):
                self.refuse(f"line {number} holds {kind(value)}, not an object", 'Write one {"item": ..., ...} per line.')
            found.append((number, value))
        return found

    # ---- parts of JSON

    def as_dict(self, value: Any, what: str, remedy: str) -> dict[str, Any]:
        """A JSON value that must be an object.

        Args:
            value: The value.
            what: What it is, for messages: "the file", "annotation 3".
            remedy: What to do if it is something else.
        """
        if not isinstance(value, dict):
            self.refuse(f"{what} is {kind(value)}, not an object", remedy)
        return value

    def as_list(self, value: Any, what: str, remedy: str) -> list[Any]:
        """A JSON value that must be a list.

        Args:
            value: The value.
            what: What it is, for messages.
            remedy: What to do if it is something else.
        """
        if not isinstance(value, list):
            self.refuse(f"{what} is {kind(value)}, not a list", remedy)
        return value

    def as_name(self, value: Any, what: str, remedy: str) -> str | None:
        """A JSON value that must be a text or a number, as text; None for null.

        Args:
            value: The value.
            what: Where it is, for messages.
            remedy: What to do if it is something else.
        """
        try:
            return text_of(value)
        except TypeError as error:
            self.refuse(f"{what} has {error} where a name belongs", remedy)

    def no_columns(self, columns: Mapping[str, object]) -> None:
        """Refuse columns that the user names, for formats with fixed names.

        Args:
            columns: Columns that the user names.
        """
        if columns:
            self.refuse("this format has fixed names", "Name no columns (--item-column and the like; `columns`).")

    # ---- tables

    @cached_property
    def is_parquet(self) -> bool:
        return self.data.startswith(b"PAR1")

    @cached_property
    def delimiter(self) -> str:
        """The sign between the cells of a table: declared for Excel, or the most frequent one in the header."""
        declared: str | None = self._before_header[1]
        line = re.sub(r'"[^"]*"', "", re.split(r"[\r\n]", self.text[self._before_header.end() :], maxsplit=1)[0])
        return declared or max(DELIMITERS, key=line.count)

    @cached_property
    def _before_header(self) -> re.Match[str]:
        found = BEFORE_HEADER.match(self.text)
        assert found is not None  # it may be empty
        return found

    @cached_property
    def parquet(self) -> Parquet:
        return Parquet(self.path, self.data, self.limits)

    @cached_property
    def header(self) -> list[str]:
        """The names of a table's columns, read from its first row alone."""
        if self.is_parquet:
            return self.parquet.names
        start = self._before_header.end()
        try:
            row = next(csv.reader(io.StringIO(self.text[start : start + 100_000], newline=""), delimiter=self.delimiter))
        except (csv.Error, StopIteration):
            return []
        return [name.strip() for name in row]

    @cached_property
    def names(self) -> list[str]:
        """The names of a table's columns."""
        return self.parquet.names if self.is_parquet else [str(name) for name in self.frame.columns]

    @cached_property
    def repeated(self) -> frozenset[str]:
        """Names of several columns each."""
        return frozenset(name for name, times in Counter(self.names).items() if times > 1)

    @cached_property
    def rows(self) -> int:
        """Number of rows of the table."""
        count = self.parquet.rows if self.is_parquet else len(self.frame)
        if not count:
            self.refuse("the table has no rows", "Export the answers again.")
        return count

    def records(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """The table's rows as JSON objects.

        Args:
            names: The columns.
        """
        if self.is_parquet:
            return self.parquet.records(names)
        rows: list[dict[str, Any]] = self.frame[list(names)].to_dict("records")
        return rows

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The table with every cell as text; a large one stores each text once (categories). Parquet cells have their types."""
        if self.is_parquet:
            return pd.DataFrame(self.records(self.names), columns=pd.Index(self.names), dtype=object)
        data = self.text[self._before_header.end() :].encode("utf-8")
        try:
            frame = pd.read_csv(io.BytesIO(data), sep=self.delimiter, dtype=object, na_filter=False, skip_blank_lines=False)
        except (ValueError, OverflowError) as error:  # pandas' parser errors are ValueErrors
            if "out of memory" in str(error):
                raise MemoryError from None
            reason = str(error).strip().partition("C error: ")[2] or str(error).strip()
            unclosed = re.fullmatch(r"EOF inside string starting at row ([0-9]+)", reason)
            if unclosed:
                self.refuse(
                    f"a quotation mark in row {int(unclosed[1]) + self.first_row - 1} is never closed",
                    "Close it or remove it; inside quotes, write a quotation mark twice.",
                )
            self.refuse(f"the table is damaged ({in_short(reason)})", "Fix that row, or export the file again as CSV.")
        if not isinstance(frame.index, pd.RangeIndex):
            self.refuse(
                f"row {self.first_row} has more cells than the {len(frame.columns)} names in the first row",
                "Give every column a name there, or fix the row: a quotation mark may close too late.",
            )
        self._check_second_header(frame)
        self._check_names(data)
        frame.columns = pd.Index([str(name).strip() for name in frame.columns])
        if len(data) > MIN_CATEGORY_BYTES:
            frame = frame.apply(_as_categories)
        if not len(frame):
            self.refuse("there is a header but no row below it", "Export the answers again.")
        return frame

    def _check_names(self, data: bytes) -> None:
        """Refuse two columns of one name."""
        lines = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", newline="")
        try:
            times = Counter(name.strip() for name in next(csv.reader(lines, delimiter=self.delimiter)))
        except csv.Error:  # a name of a hundred thousand letters
            return
        twice = [name for name, count in times.items() if name and count > 1]
        if twice:
            self.refuse(f"two columns are named {quoted(twice[0])}", "Give every column a name of its own.")

    def _check_second_header(self, frame: pd.DataFrame) -> None:
        """Refuse two files that were joined: the names of the columns, in any order, would be read as an answer."""
        names = ["" if str(name).startswith("Unnamed: ") else name for name in frame.columns]
        known, maybe_R = set(names), pd.Series(True, index=frame.index)
        for number in range(len(names)):
            maybe_R &= frame.iloc[:, number].isin(known)
            if not maybe_R.any():
                return
        maybe = frame[maybe_R]
        for row, cells in maybe[(maybe == "").sum(axis=1) == names.count("")].iterrows():
            if any(names) and sorted(cells) == sorted(names):
                self.refuse_second_header(int(str(row)))

    def refuse_second_header(self, row: int) -> NoReturn:
        """Raise the error for a second header inside the table.

        Args:
            row: Row of `frame`, from 0.
        """
        self.refuse(
            f"row {row + self.first_row} holds names of columns; two files were joined here",
            "Delete that row if both have the same columns in the same order; else name the files one by one.",
        )

    @cached_property
    def first_row(self) -> int:
        """The row number, as a spreadsheet shows it, of the frame's first row."""
        return 1 if self.is_parquet else 2 + len(re.findall(r"\r\n|\r|\n", self._before_header[0]))


def _as_categories(cells: pd.Series) -> pd.Series:
    """As a category; `astype("category")` would convert texts such as "1"."""
    code_R, texts = pd.factorize(cells.to_numpy(dtype=object))
    return pd.Series(pd.Categorical.from_codes(code_R, pd.Index(texts, dtype=object)), index=cells.index)


def _codec(encoding: str) -> str:
    """The encoding, if files are written in it."""
    try:
        found = codecs.lookup(encoding)
    except (LookupError, ValueError):  # ValueError: a name with a zero byte
        raise _unknown_encoding(encoding) from None
    try:
        if found.name not in NOT_FOR_FILES:
            "a".encode(encoding, "ignore")  # some encode bytes, not text
            return encoding
    except LookupError:
        pass
    raise _unknown_encoding(encoding)


def _unknown_encoding(encoding: str) -> InputError:
    return InputError(f"Unknown encoding {quoted(encoding)}. Use utf-8, cp1252, latin-1, utf-16 or another standard one.")
