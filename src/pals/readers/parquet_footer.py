"""What a Parquet file claims to hold, from its footer alone (Thrift's compact protocol).

Read here before pyarrow sees the file: what to refuse must be known beforehand, and its own way of telling the sizes of columns
ends the whole program where a footer is damaged.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NamedTuple

DEEPEST = 16  # a footer is nested less
TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
ROWS, GROUPS = 3, 4  # fields of the footer
COLUMNS, GROUP_ROWS = 1, 3  # of a row group
ABOUT, VALUES, UNPACKED = 3, 5, 6  # of a column in it: what is said about it; in this, the values and the bytes


class FooterError(ValueError):
    """The footer is damaged."""


class Claim(NamedTuple):
    """How much there is."""

    rows: int
    values: int
    "In all columns together; a cell with a list has as many as the list is long."
    largest: int
    "Bytes of the largest stretch of a column, once unpacked."
    groups: tuple[int, ...] = ()
    "Rows of each row group."


def claimed(data: bytes) -> Claim:
    """What the file claims. Nothing of it is unpacked."""
    size = _footer_size(data[-8:], len(data))
    return _claim(data[-8 - size : -8])


def claimed_by(path: Path) -> Claim:
    """The same of a file that may not fit into memory: only its footer is read."""
    length = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, length - 8))
        size = _footer_size(file.read(8), length)
        file.seek(length - 8 - size)
        return _claim(file.read(size))


def _footer_size(end: bytes, length: int) -> int:
    if length < 12 or end[-4:] != b"PAR1":
        raise FooterError("it does not end as a Parquet file does")
    size: int = struct.unpack("<I", end[:4])[0]
    if size > length - 12:
        raise FooterError("its footer is cut off")
    return size


def _claim(data: bytes) -> Claim:
    footer = _Reader(data).struct()
    groups = [group for group in _list(footer, GROUPS) if isinstance(group, dict)]
    about = [_dict(column, ABOUT) for group in groups for column in _list(group, COLUMNS) if isinstance(column, dict)]
    return Claim(
        rows=max(_number(footer, ROWS), sum(_number(group, GROUP_ROWS) for group in groups)),
        values=sum(_number(column, VALUES) for column in about),
        largest=max((_number(column, UNPACKED) for column in about), default=0),
        groups=tuple(_number(group, GROUP_ROWS) for group in groups),
    )


def _list(fields: dict[int, Any], key: int) -> list[Any]:
    found = fields.get(key)
    return found if isinstance(found, list) else []


def _dict(fields: dict[int, Any], key: int) -> dict[int, Any]:
    found = fields.get(key)
    return found if isinstance(found, dict) else {}


def _number(fields: dict[int, Any], key: int) -> int:
    found = fields.get(key)
    return found if isinstance(found, int) and found > 0 else 0


class _Reader:
    """Takes values off the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def bytes(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise FooterError("its footer is damaged")
        self.at += count
        return self.data[self.at - count : self.at]

    def whole(self) -> int:
        """A number from 0, seven bits a byte."""
        value = shift = 0
        while True:
            (byte,) = self.bytes(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 63:
                return value

    def signed(self) -> int:
        value = self.whole()
        return value >> 1 ^ -(value & 1)

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Its fields by number."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self.bytes(1)[0]:
            number = number + (head >> 4) if head >> 4 else self.signed()
            kind = head & 0xF
            fields[number] = kind == TRUE if kind in (TRUE, FALSE) else self.value(kind, depth + 1)
        return fields

    def value(self, kind: int, depth: int) -> Any:
        if depth > DEEPEST:
            raise FooterError("its footer is nested too deeply")
        if kind in (TRUE, FALSE, BYTE):
            return self.bytes(1)[0]
        if kind == DOUBLE:
            return self.bytes(8)
        if kind == BINARY:
            return self.bytes(self.whole())
        if kind in (LIST, SET):
            head = self.bytes(1)[0]
            count = self.whole() if head >> 4 == 15 else head >> 4
            return [self.value(head & 0xF, depth + 1) for _ in range(self._possible(count))]
        if kind == MAP:
            count = self._possible(self.whole())
            kinds = self.bytes(1)[0] if count else 0
            return [(self.value(kinds >> 4, depth + 1), self.value(kinds & 0xF, depth + 1)) for _ in range(count)]
        return self.struct(depth) if kind == STRUCT else self.signed()

    def _possible(self, count: int) -> int:
        if count > len(self.data) - self.at:
            raise FooterError("its footer is damaged")
        return count
