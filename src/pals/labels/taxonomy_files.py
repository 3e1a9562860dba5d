"""Files that hold a taxonomy: a table of labels and parents, paths from the root on, or a tree in JSON."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pals.labels.cells import MISSING
from pals.labels.taxonomy import Entry
from pals.util.errors import InputError
from pals.util.files import check_readable, unreadable, without_mark
from pals.util.words import quoted

LABEL = ("label", "labels", "name", "node", "class", "taxon", "child", "category")
PARENT = ("parent", "parents", "parent_label", "parent_name", "parent_node", "parent_class", "parent_taxon", "supercategory")
PATH = ("path", "paths", "lineage", "taxonomy", "taxonomic_path")
"""Names of columns, in small letters and with underscores."""
DELIMITERS = (",", "\t", ";")
BETWEEN = ";"
"""Between the nodes of a path."""
STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
"""In JSON."""
LOOKED_FOR = (
    "Give a table with the columns label and parent, a path from the root on each line (birds;gulls;kittiwake), or a JSON tree."
)


def read_entries(path: Path, encoding: str | None = None) -> list[Entry]:
    """The nodes in the order of the file, each with its place."""
    text = _text(path, encoding)
    if text.lstrip()[:1] in ("{", "["):
        return _some(path, _tree(path, _json(path, text), _Lines(text)))
    for delimiter in DELIMITERS:
        rows = _rows(path, text, delimiter)
        header = [cell.strip().casefold().replace(" ", "_").replace("-", "_") for cell in rows[0][1]]
        label, parent, lineage = (_column(header, words) for words in (LABEL, PARENT, PATH))
        if label is not None and parent is not None:
            return _some(path, _parents(path, rows[1:], label, parent))
        if lineage is not None and delimiter != BETWEEN:
            return _some(path, _paths(path, [(number, _cell(row, lineage)) for number, row in rows[1:]]))
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if sum(BETWEEN in line for _, line in lines) * 2 < len(lines):
        raise InputError(f"{path} is not a taxonomy: it starts with {quoted(lines[0][1], 40)}. {LOOKED_FOR}")
    return _some(path, _paths(path, lines))


def _some(path: Path, entries: Iterator[Entry]) -> list[Entry]:
    found = list(entries)
    if not found:
        raise InputError(f"{path} names no label. Give each class with its parent.")
    return found


def _text(path: Path, encoding: str | None) -> str:
    check_readable(path, "the file with the taxonomy")
    try:
        text = path.read_bytes().decode(encoding or "utf-8-sig")
    except OSError as error:
        raise unreadable(path, error) from None
    except (UnicodeDecodeError, LookupError):
        raise InputError(f"{path} is not {encoding or 'UTF-8'} text. Save the taxonomy as CSV in UTF-8.") from None
    if not text.strip():
        raise InputError(f"{path} is empty. {LOOKED_FOR}")
    if "\0" in text:
        raise InputError(f"{path} is not a text file. {LOOKED_FOR}")
    return text


# ---- tables and paths


def _rows(path: Path, text: str, delimiter: str) -> list[tuple[int, list[str]]]:
    """Rows that are not blank, with their numbers as a spreadsheet shows them."""
    try:
        found = [(number, row) for number, row in enumerate(csv.reader(text.splitlines(True), delimiter=delimiter), start=1)]
    except csv.Error as error:
        raise InputError(f"{path}: this is not a table ({error}). {LOOKED_FOR}") from None
    return [(number, row) for number, row in found if any(cell.strip() for cell in row)]


def _column(header: Sequence[str], words: Sequence[str]) -> int | None:
    return next((header.index(word) for word in words if word in header), None)


def _cell(row: Sequence[str], column: int) -> str:
    return without_mark(row[column].strip()) if column < len(row) else ""


def _parents(path: Path, rows: Sequence[tuple[int, list[str]]], label: int, parent: int) -> Iterator[Entry]:
    for number, row in rows:
        name, above = _cell(row, label), _cell(row, parent)
        place = f"{path}, row {number}"
        if not name:
            raise InputError(f"{place}: a parent ({quoted(above)}) without a label; name the label, or delete the row.")
        yield Entry(name, None if above in MISSING else above, place)


def _paths(path: Path, lines: Sequence[tuple[int, str]]) -> Iterator[Entry]:
    """Each node once, where it first stands; the end of a path may not stand twice."""
    above: dict[str, str | None] = {}
    ends: dict[str, int] = {}
    for number, line in lines:
        names = [name.strip().strip('"').strip() for name in line.strip().strip(",").split(BETWEEN)]
        place = f"{path}, row {number}"
        if not any(names) or (number == 1 and names[0].casefold() in PATH):
            continue
        while names and not names[-1]:  # a path may end with the separator
            names.pop()
        if "" in names:
            raise InputError(f"{place}: the path {quoted(line)} has an empty part; name it, or delete one of the {BETWEEN!r}.")
        for name, parent in zip(names, [None, *names[:-1]], strict=True):
            if name not in above or above[name] != parent:
                yield Entry(name, parent, place)  # under another parent it is there twice, which is found out later
            above.setdefault(name, parent)
        if names[-1] in ends and above[names[-1]] == (names[-2] if len(names) > 1 else None):
            raise InputError(f"{place}: the path to {quoted(names[-1])} is already in row {ends[names[-1]]}; delete one.")
        ends[names[-1]] = number


# ---- JSON


class _Lines:
    """On which lines each name stands in a text of JSON, in its order. The parser tells of no lines, so every string is looked
    up once more; all but keys such as "children" are names."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def of_names(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        line, before = 1, 0
        for string in STRING.finditer(self.text):
            line, before = line + self.text.count("\n", before, string.start()), string.start()
            found.setdefault(json.loads(string[0], strict=False).strip(), []).append(line)
        return found

    def take(self, name: str) -> int:
        """The next line with this name."""
        return self.of_names[name].pop(0)


class _TwiceError(ValueError):
    """A key that one object has twice."""


def _json(path: Path, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        found = f"{path}, line {error.lineno}: this is not JSON ({error.msg})"
        raise InputError(f"{found}. Fix it, or write the taxonomy again.") from None
    except RecursionError:
        raise InputError(f"{path}: the JSON is nested too deeply for a taxonomy. {LOOKED_FOR}") from None
    except _TwiceError as error:
        lines = _Lines(text).of_names[str(error).strip()]
        where = f", lines {lines[0]} and {lines[1]}" if len(lines) == 2 else ""  # of a key such as "name", any may be meant
        found = f"{path}{where}: one object has the label {quoted(str(error))} twice"
        raise InputError(f"{found}; keep one, or give them different names.") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(next(name for name in names if names.count(name) > 1))
    return found


def _tree(path: Path, value: Any, lines: _Lines) -> Iterator[Entry]:
    """Objects of children by name, lists of children, or objects with `name` and `children`; a text is a leaf. In the order of
    the text, so that each node finds its line."""
    open_: list[tuple[Any, tuple[str, ...], str | None]] = [(value, (), None)]
    while open_:
        found, above, name = open_.pop()
        if name is not None:
            place = f"{path}, line {lines.take(name)}{_under(above)}"
            yield Entry(name, above[-1] if above else None, place)
            above = (*above, name)
        if isinstance(found, list):
            open_ += [(child, above, None) for child in reversed(found)]
        elif found is not None:
            open_ += [(children, above, name) for name, children in reversed(_members(found, f"{path}{_under(above)}"))]


def _under(above: tuple[str, ...]) -> str:
    return f", under {' > '.join(map(quoted, above[-3:]))}" if above else ""


def _members(found: Any, place: str) -> list[tuple[str, Any]]:
    """The nodes that a value names, each with what is below it."""
    if isinstance(found, dict):
        key = next((key for key in ("name", "label") if isinstance(found.get(key), str)), None)
        nested = {name for name, value in found.items() if isinstance(value, (dict, list))}
        found = found if key is None or nested - {"children"} else {found[key]: found.get("children")}
    else:
        found = {found: None}
    for name in found:
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"{place}: a node is a name, not {quoted(name)}. {LOOKED_FOR}")
    return [(name.strip(), below) for name, below in found.items()]
