"""Files that hold a taxonomy: a table of labels and parents, paths from the root on, or a tree in JSON."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pals.labels.cells import MISSING
from pals.labels.taxonomy import TaxonomyNode
from pals.util.errors import InputError
from pals.util.files import check_readable, unreadable, without_mark
from pals.util.words import quoted

LABEL = ("label", "labels", "name", "node", "class", "taxon", "child", "category")
PARENT = ("parent", "parents", "parent_label", "parent_name", "parent_node", "parent_class", "parent_taxon", "supercategory")
PATH = ("path", "paths", "lineage", "taxonomy", "taxonomic_path")
"""Names of columns, in lower case and with underscores."""
TABLE_DELIMITERS = (",", "\t", ";")
PATH_SEPARATOR = ";"
TAXONOMY_HINT = (
    "Give a table with the columns label and parent, a path from the root on each line (birds;gulls;kittiwake), or a JSON tree."
)


def read_nodes(path: Path, encoding: str | None = None) -> list[TaxonomyNode]:
    """Reads the nodes of a taxonomy, in the order of the file.

    Args:
        path: A table with the columns label and parent, paths from the root (a line each, or a column), or a JSON tree.
        encoding: Of the text; default UTF-8.

    Returns:
        The nodes, each with its place in the file.

    Raises:
        InputError: The file is missing, unreadable, or no taxonomy; it gives the row or the node.
    """
    text = _text(path, encoding)
    nodes = list(_tree(path, _read_json(path, text)) if text.lstrip()[:1] in ("{", "[") else _of_text(path, text))
    if not nodes:
        raise InputError(f"{path} names no label. Give each class with its parent.")
    return nodes


def _text(path: Path, encoding: str | None) -> str:
    check_readable(path, "the file with the taxonomy")
    try:
        text = path.read_bytes().decode(encoding or "utf-8-sig")
    except OSError as error:
        raise unreadable(path, error) from None
    except (UnicodeDecodeError, LookupError):
        raise InputError(f"{path} is not {encoding or 'UTF-8'} text. Save the taxonomy as CSV in UTF-8.") from None
    if not text.strip():
        raise InputError(f"{path} is empty. {TAXONOMY_HINT}")
    if "\0" in text:
        raise InputError(f"{path} is not a text file. {TAXONOMY_HINT}")
    return text


# ---- tables and paths


def _of_text(path: Path, text: str) -> Iterator[TaxonomyNode]:
    for delimiter in TABLE_DELIMITERS:
        rows = _rows(path, text, delimiter)
        header = [cell.strip().casefold().replace(" ", "_").replace("-", "_") for cell in rows[0][1]]
        label, parent, lineage = (
            next((header.index(word) for word in words if word in header), None) for words in (LABEL, PARENT, PATH)
        )
        if label is not None and parent is not None:
            return _parents(path, rows[1:], label, parent)
        if lineage is not None and delimiter != PATH_SEPARATOR:
            return _paths(path, [(number, _cell(row, lineage)) for number, row in rows[1:]])
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if sum(PATH_SEPARATOR in line for _, line in lines) * 2 < len(lines):
        raise InputError(f"{path} is not a taxonomy: it starts with {quoted(lines[0][1], 40)}. {TAXONOMY_HINT}")
    return _paths(path, lines)


def _rows(path: Path, text: str, delimiter: str) -> list[tuple[int, list[str]]]:
    """Rows that are not blank, with their numbers as a spreadsheet shows them."""
    try:
        found = list(enumerate(csv.reader(text.splitlines(True), delimiter=delimiter), start=1))
    except csv.Error as error:
        raise InputError(f"{path}: this is not a table ({error}). {TAXONOMY_HINT}") from None
    return [(number, row) for number, row in found if any(cell.strip() for cell in row)]


def _cell(row: Sequence[str], column: int) -> str:
    return without_mark(row[column].strip()) if column < len(row) else ""


def _parents(path: Path, rows: Sequence[tuple[int, list[str]]], label: int, parent: int) -> Iterator[TaxonomyNode]:
    for number, row in rows:
        name, above = _cell(row, label), _cell(row, parent)
        place = f"{path}, row {number}"
        if not name:
            raise InputError(f"{place}: a parent ({quoted(above)}) without a label; name the label, or delete the row.")
        yield TaxonomyNode(name, None if above in MISSING else above, place)


def _paths(path: Path, lines: Sequence[tuple[int, str]]) -> Iterator[TaxonomyNode]:
    """Each node once, at its first place. The end of a path may not occur twice."""
    above: dict[str, str | None] = {}
    ends: dict[str, int] = {}
    for number, line in lines:
        names = [name.strip().strip('"').strip() for name in line.strip().strip(",").split(PATH_SEPARATOR)]
        place = f"{path}, row {number}"
        if not any(names) or (number == 1 and names[0].casefold() in PATH):
            continue
        while names and not names[-1]:  # a path may end with the separator
            names.pop()
        if "" in names:
            raise InputError(f"{place}: the path {quoted(line)} has an empty part; name it, or delete a {PATH_SEPARATOR!r}.")
        for name, parent in zip(names, [None, *names[:-1]], strict=True):
            if name not in above or above[name] != parent:
                yield TaxonomyNode(name, parent, place)  # a second one, under another parent, is refused by Taxonomy.of
            above.setdefault(name, parent)
        if names[-1] in ends and above[names[-1]] == (names[-2] if len(names) > 1 else None):
            raise InputError(f"{place}: the path to {quoted(names[-1])} is already in row {ends[names[-1]]}; delete one.")
        ends[names[-1]] = number


# ---- JSON


def _read_json(path: Path, text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        for name, count in Counter(name for name, _ in pairs).items():
            if count > 1:
                found = f"{path}: one object has the label {quoted(name)} twice"
                raise InputError(f"{found}; keep one, or give them different names.")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        found = f"{path}, line {error.lineno}: this is not JSON ({error.msg})"
        raise InputError(f"{found}. Fix it, or write the taxonomy again.") from None
    except RecursionError:
        raise InputError(f"{path}: the JSON is nested too deeply for a taxonomy. {TAXONOMY_HINT}") from None


def _tree(path: Path, value: Any) -> Iterator[TaxonomyNode]:
    """Objects of children by name, lists of children, or objects with `name` and `children`; a text is a leaf. Depth first."""
    waiting: list[tuple[Any, tuple[str, ...], str | None]] = [(value, (), None)]
    while waiting:
        found, above, name = waiting.pop()
        if name is not None:
            parent, above = above[-1] if above else None, (*above, name)
            yield TaxonomyNode(name, parent, _place(path, above))
        if isinstance(found, list):
            waiting += [(child, above, None) for child in reversed(found)]
        elif found is not None:
            waiting += [(below, above, label) for label, below in reversed(_members(found, _place(path, above)))]


def _place(path: Path, above: tuple[str, ...]) -> str:
    return f"{path}, {' > '.join(map(quoted, above[-4:]))}" if above else str(path)


def _members(found: Any, place: str) -> list[tuple[str, Any]]:
    """The nodes that a value names, each with the value below it."""
    if isinstance(found, dict):
        key = next((key for key in ("name", "label") if isinstance(found.get(key), str)), None)
        nested = {name for name, value in found.items() if isinstance(value, (dict, list))}
        found = found if key is None or nested - {"children"} else {found[key]: found.get("children")}
    else:
        found = {found: None}
    for name in found:
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"{place}: a node is a name, not {quoted(name)}. {TAXONOMY_HINT}")
    return [(name.strip(), below) for name, below in found.items()]
