"""Names that look like others, or hold what nobody typed: read as they stand, and pointed out."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence

from pals.labels.cells import MISSING
from pals.readers.read_summary import some
from pals.util.words import how_many

BETWEEN = "|;,/+&"
"""What people write between several labels."""
OF_A_SPREADSHEET = frozenset({"#REF!", "#NAME?", "#NAME", "#VALUE!", "#DIV/0!", "#NUM!", "#NULL!"})
UNSEEN = frozenset({"Cc", "Cf"})
"""Categories of characters that nobody sees."""


def odd_names(items: Sequence[str], classes: Sequence[str], workers: Sequence[str]) -> Iterator[str]:
    """What to look at, in words."""
    broken = [name for name in classes if any(unicodedata.category(letter) == "Cc" for letter in name)]
    if broken:
        count = how_many(
            len(broken), "label has a line break or control character", "labels have line breaks or control characters"
        )
        yield f"{count} inside ({some(broken, len(broken))}); check the quotes in the file"
    joined = list(_joined(classes))
    if joined:
        count = how_many(len(joined), "label looks like several labels", "labels look like several labels each")
        yield f"{count} ({some(joined, len(joined))}); in tables put | between several labels, in JSON make them a list"
    errors = [name for name in classes if name in OF_A_SPREADSHEET]
    if errors:
        count = how_many(len(errors), "label is the error of a spreadsheet", "labels are errors of a spreadsheet")
        yield f"{count} ({some(errors, len(errors))}); fix these cells and export the file again"
    nobody = [name for name in workers if name in MISSING]
    if nobody:
        count = how_many(len(nobody), "annotator is", "annotators are")
        yield f"{count} called {some(nobody, len(nobody))}; leave the cell blank where the annotator is not known"
    numbers = _alike(classes, [_number(name) for name in classes])
    if numbers:
        yield f"Classes that are the same number, written in different ways: {some(numbers, len(numbers))}"
    for what, names in (("Items", items), ("Classes", classes), ("Annotators", workers)):
        capitals = _alike(names, [name.casefold() for name in names])
        if capitals:
            yield f"{what} that differ in capitals only: {some(capitals, len(capitals))}"
        unseen = _alike(names, list(map(_seen, names)))
        if unseen:
            yield f"{what} that look the same, with other or unseen characters in them: {some(unseen, len(unseen))}"
        told = {*capitals, *unseen}
        spaced = [] if names is items else [name for name in _alike(names, list(map(_spaced, names))) if name not in told]
        if spaced:
            yield f"{what} that differ in blanks, hyphens or underscores: {some(spaced, len(spaced))}"


def _joined(classes: Sequence[str]) -> Iterator[str]:
    """Those that consist of others."""
    known = set(classes)
    for name in classes:
        for mark in BETWEEN:
            pieces = name.split(mark)
            if len(pieces) > 1 and all(piece.strip() in known for piece in pieces):
                yield name
                break


def _alike(names: Sequence[str], keys: Sequence[str]) -> list[str]:
    """Those that share their key with another."""
    if len(set(keys)) == len(keys):
        return []
    times = Counter(keys)
    return [name for name, key in zip(names, keys, strict=True) if times[key] > 1]


def _seen(name: str) -> str:
    """The name as the eye has it: accents in one form, without what is not shown."""
    if name.isascii() and name.isprintable():
        return name
    return "".join(letter for letter in unicodedata.normalize("NFKC", name) if unicodedata.category(letter) not in UNSEEN)


def _spaced(name: str) -> str:
    """The name in small letters, with one blank wherever words are parted."""
    return re.sub(r"[\s_-]+", " ", name.casefold())


def _number(name: str) -> str:
    """A whole number as it is usually written; any other name as it is."""
    found = re.fullmatch(r"0*([0-9]+)(?:\.0*)?", name)
    return found[1] if found else name
