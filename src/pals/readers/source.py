"""A file as the readers see it: bytes, text, JSON or a table of text, each read at most once and checked on the way."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd

from pals.util.errors import InputError

MARKS = (  # the longer first: UTF-32's mark begins like UTF-16's
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
DELIMITERS = ",\t;"
HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
"""An escape in JSON that may stand for half a character, which no file can hold."""


class Source:
    """One file that a user gave."""

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        self.path = path
        self.encoding = encoding

    def refuse(self, found: str, remedy: str) -> NoReturn:
        raise InputError(f"{self.path}: {found}. {remedy}")

    @cached_property
    def data(self) -> bytes:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            raise InputError(f"{self.path} does not exist. Check the name of the file with the answers.") from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self.refuse(f"it cannot be read ({reason})", "Make the file readable, or name a copy of it.")
        if not data.strip(b" \t\r\n\0\xef\xbb\xbf"):
            self.refuse("the file is empty", "Export the answers again.")
        return data

    @cached_property
    def text(self) -> str:
        data, encoding = self.data, self.encoding
        if encoding is None:
            mark, encoding = next(((m, name) for m, name in MARKS if data.startswith(m)), (b"", "utf-8"))
            data = data[len(mark) :]
        try:
            text = data.decode(encoding).removeprefix("\ufeff")
            if self.encoding is not None:
                text.encode("utf-8")  # some codecs make text that cannot be written
            return text
        except (LookupError, UnicodeEncodeError):
            raise InputError(f"Unknown encoding {encoding!r}. Known are utf-8, cp1252, latin-1, utf-16 and others.") from None
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            self.refuse(
                f"line {line} is not {encoding.upper()} text (byte 0x{data[error.start]:02x})",
                "Save the file as UTF-8, or name its encoding: --encoding cp1252 (encoding='cp1252') for files from Excel.",
            )

    @cached_property
    def json(self) -> Any:
        return self.parse_json(self.text, "")

    def parse_json(self, text: str, place: str) -> Any:
        """The value in `text`; `place` (", line 3") is where the text begins, for the message."""
        try:
            value = json.loads(text)
            if HALF_PAIR.search(text):
                json.dumps(value, ensure_ascii=False).encode("utf-8")
            return value
        except json.JSONDecodeError as error:
            where = place or f", line {error.lineno}, column {error.colno}"
            cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
            found = "the JSON ends in the middle" if cut else f"this is not JSON ({error.msg})"
        except UnicodeEncodeError as error:
            where, found = place, f"{error.object[error.start]!a} is half a character, not text"
        except RecursionError:
            where, found = place, "the JSON is nested too deeply"
        except ValueError as error:  # a number with thousands of digits
            where, found = place, str(error).partition(";")[0]
        raise InputError(f"{self.path}{where}: {found}. Export or download the file again.")

    def json_lines(self) -> list[tuple[int, dict[str, Any]]]:
        """(line number, object) of each line that is not blank."""
        lines = [(number, line) for number, line in enumerate(map(str.strip, self.text.split("\n")), start=1) if line]
        if all(line[0] == "{" and line[-1] == "}" for _, line in lines):
            try:  # all at once is much faster; if it fails, one by one finds the line
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

    # ---- parts of JSON, whose shape nobody has promised

    def as_dict(self, value: Any, what: str, remedy: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.refuse(f"{what} is {kind(value)}, not an object", remedy)
        return value

    def as_list(self, value: Any, what: str, remedy: str) -> list[Any]:
        if not isinstance(value, list):
            self.refuse(f"{what} is {kind(value)}, not a list", remedy)
        return value

    def as_name(self, value: Any, what: str, remedy: str) -> str | None:
        try:
            return text_of(value)
        except TypeError as error:
            self.refuse(f"{what} has {error} where a name belongs", remedy)

    def no_columns(self, columns: Mapping[str, object]) -> None:
        """For formats whose names are fixed."""
        if columns:
            self.refuse("this format has fixed names", "Name no columns (--item-column and the like; `columns`).")

    # ---- tables

    @cached_property
    def is_parquet(self) -> bool:
        return self.data.startswith(b"PAR1")

    @cached_property
    def delimiter(self) -> str:
        line = re.sub(r'"[^"]*"', "", re.split(r"[\r\n]", self.text.lstrip("\r\n"), maxsplit=1)[0])
        return max(DELIMITERS, key=line.count)

    @cached_property
    def header(self) -> list[str]:
        """The names of a table's columns."""
        if self.is_parquet:
            return [str(name) for name in self.frame.columns]
        first = self.text.lstrip("\r\n")
        try:
            row = next(csv.reader(io.StringIO(first[:100_000], newline=""), delimiter=self.delimiter))
        except (csv.Error, StopIteration):
            return []
        return [name.strip() for name in row]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The table, every cell as it stands in the file; parquet cells keep their types."""
        if self.is_parquet:
            return self._parquet()
        remedy = "Mend that row, or export the file again as CSV."
        text = self.text.lstrip("\r\n")  # blank lines above the header
        try:
            frame = pd.read_csv(
                io.BytesIO(text.encode("utf-8")),
                sep=self.delimiter,
                dtype=object,
                na_filter=False,
                skip_blank_lines=False,
            )
        except (ValueError, OverflowError, MemoryError) as error:  # pandas' parser errors are ValueErrors
            reason = str(error).strip().partition("C error: ")[2] or str(error).strip()
            self.refuse(f"the table is damaged ({reason})", remedy)
        if not isinstance(frame.index, pd.RangeIndex):
            self.refuse(
                f"the rows have more cells than the {len(frame.columns)} names in the first row",
                "Give every column a name in the first row.",
            )
        frame.columns = pd.Index([str(name).strip() for name in frame.columns])
        if not len(frame):
            self.refuse("there is a header but no row below it", "Export the answers again.")
        return frame

    @property
    def first_row(self) -> int:
        """The row number, as a spreadsheet shows it, of the frame's first row."""
        if self.is_parquet:
            return 1
        return 2 + len(re.match(r"[\r\n]*", self.text)[0].replace("\r\n", "\n"))  # type: ignore[index]

    def _parquet(self) -> pd.DataFrame:
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            self.refuse("reading Parquet needs the package pyarrow", "`pip install pyarrow`, or export the file as CSV.")
        try:
            frame = pd.read_parquet(io.BytesIO(self.data), engine="pyarrow")
        except Exception as error:  # a damaged file can raise anything
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            self.refuse(f"the Parquet file is truncated or damaged ({reason})", "Write it again.")
        if not isinstance(frame.index, pd.RangeIndex):
            frame = frame.reset_index()
        if not len(frame):
            self.refuse("the table has no rows", "Export the answers again.")
        frame.columns = pd.Index([str(name).strip() for name in frame.columns])
        return frame


def kind(value: object) -> str:
    """What a value is, in words."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def text_of(value: object) -> str | None:
    """A name from a cell or a JSON value: text or a number; None where there is nothing; lists and objects raise."""
    if value is None:
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return None if value != value else str(int(value)) if value.is_integer() else str(value)
    if isinstance(value, int):
        return str(value)
    raise TypeError(kind(value))


def labels_of(value: object) -> list[str | None]:
    """One label or a list of them."""
    return [text_of(label) for label in value] if isinstance(value, list) else [text_of(value)]
