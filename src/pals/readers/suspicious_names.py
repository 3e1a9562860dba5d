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


def suspicious_names(items: Sequence[str], classes: Sequence[str], annotators: Sequence[str]) -> Iterator[str]:
    """One warning per kind of mistake."""
    broken = [name for name in classes if any(unicodedata.category(letter) == "Cc" for letter in name)]
    errors = [name for name in classes if name in SPREADSHEET_ERRORS]
    missing = [name for name in annotators if name in MISSING]
    for found, one, several, hint in (
        (broken, "label has a line break or control character inside", "labels have line breaks or control characters inside",
         "check the quotes in the file"),
        (_joined(classes), "label looks like several labels", "labels look like several labels each",
         "in tables put | between several labels, in JSON make them a list"),
        (errors, "label is the error of a spreadsheet", "labels are errors of a spreadsheet",
         "fix these cells and export the file again"),
        (missing, "annotator has a name for a missing value", "annotators have names for missing values",
         "leave the cell blank where the annotator is not known"),
    ):  # fmt: skip
        if found:
            yield f"{how_many(len(found), one, several)} ({some(found, len(found))}); {hint}"
    numbers = _same_key(classes, [re.sub(r"\A0*([0-9]+)(?:\.0*)?\Z", r"\1", name) for name in classes])
    if numbers:
        yield f"Classes that are the same number, written in different ways: {some(numbers, len(numbers))}"
    for what, names in (("Items", items), ("Classes", classes), ("Annotators", annotators)):
        capitals = _same_key(names, [name.casefold() for name in names])
        invisible = _same_key(names, list(map(_visible, names)))
        spaces = [] if names is items else _same_key(names, [re.sub(r"[\s_-]+", " ", name.casefold()) for name in names])
        spaces = [name for name in spaces if name not in {*capitals, *invisible}]
        for found, how in (
            (capitals, "differ in capitals only"),
            (invisible, "look the same, with other or unseen characters in them"),
            (spaces, "differ in blanks, hyphens or underscores"),
        ):
            if found:
                yield f"{what} that {how}: {some(found, len(found))}"


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
