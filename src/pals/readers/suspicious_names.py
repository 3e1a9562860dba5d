"""Names that are likely mistakes: read as they are, with a warning."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence

from pals.labels.cells import MISSING
from pals.readers.read_summary import some
from pals.util.words import how_many

LABEL_SEPARATORS = "|;,/+&"
SPREADSHEET_ERRORS = frozenset({"#REF!", "#NAME?", "#NAME", "#VALUE!", "#DIV/0!", "#NUM!", "#NULL!"})
INVISIBLE = frozenset({"Cc", "Cf"})
"""Unicode categories of invisible characters."""


def suspicious_names(items: Sequence[str], classes: Sequence[str], workers: Sequence[str]) -> Iterator[str]:
    """One warning per kind of mistake."""
    broken = [name for name in classes if any(unicodedata.category(letter) == "Cc" for letter in name)]
    if broken:
        count = how_many(
            len(broken), "label has a line break or control character", "labels have line breaks or control characters"
        )
        yield f"{count} inside ({some(broken, len(broken))}); check the quotes in the file"
    joined = _joined(classes)
    if joined:
        count = how_many(len(joined), "label looks like several labels", "labels look like several labels each")
        yield f"{count} ({some(joined, len(joined))}); in tables put | between several labels, in JSON make them a list"
    errors = [name for name in classes if name in SPREADSHEET_ERRORS]
    if errors:
        count = how_many(len(errors), "label is the error of a spreadsheet", "labels are errors of a spreadsheet")
        yield f"{count} ({some(errors, len(errors))}); fix these cells and export the file again"
    missing = [name for name in workers if name in MISSING]
    if missing:
        count = how_many(len(missing), "annotator is", "annotators are")
        yield f"{count} called {some(missing, len(missing))}; leave the cell blank where the annotator is not known"
    numbers = _same_key(classes, [re.sub(r"\A0*([0-9]+)(?:\.0*)?\Z", r"\1", name) for name in classes])
    if numbers:
        yield f"Classes that are the same number, written in different ways: {some(numbers, len(numbers))}"
    for what, names in (("Items", items), ("Classes", classes), ("Annotators", workers)):
        capitals = _same_key(names, [name.casefold() for name in names])
        if capitals:
            yield f"{what} that differ in capitals only: {some(capitals, len(capitals))}"
        invisible = _same_key(names, list(map(_visible, names)))
        if invisible:
            yield f"{what} that look the same, with other or unseen characters in them: {some(invisible, len(invisible))}"
        if names is not items:
            spaces = [re.sub(r"[\s_-]+", " ", name.casefold()) for name in names]
            spaced = [name for name in _same_key(names, spaces) if name not in {*capitals, *invisible}]
            if spaced:
                yield f"{what} that differ in blanks, hyphens or underscores: {some(spaced, len(spaced))}"


def _joined(classes: Sequence[str]) -> list[str]:
    """Classes that consist of the names of several others."""
    known = set(classes)

    def is_joined(name: str, separator: str) -> bool:
        return separator in name and all(piece.strip() in known for piece in name.split(separator))

    return [name for name in classes if any(is_joined(name, separator) for separator in LABEL_SEPARATORS)]


def _same_key(names: Sequence[str], keys: Sequence[str]) -> list[str]:
    """The names that share their key with another."""
    if len(set(keys)) == len(keys):
        return []
    times = Counter(keys)
    return [name for name, key in zip(names, keys, strict=True) if times[key] > 1]


def _visible(name: str) -> str:
    """The name as it is seen: accents in one form, without invisible characters."""
    if name.isascii() and name.isprintable():
        return name
    return "".join(letter for letter in unicodedata.normalize("NFKC", name) if unicodedata.category(letter) not in INVISIBLE)
