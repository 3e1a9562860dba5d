"""Matching of items to image files by name. No file is opened: whatever an item is called, it is matched to one of the given
files or to none."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pals.readers.read_summary import some, unanswered
from pals.util.errors import InputError
from pals.util.words import how_many

TIED = -2
"""In place of a file's number: several files have the name."""


@dataclass(frozen=True)
class Match:
    """Which file each item is, and what was not matched; `print(match)` shows it in sentences.

    Args:
        file_I: Number of each item's file, -1 where there is none.
        by_path: Items matched by their path.
        by_name: Items matched by their base name.
        missing: Items without a file.
        ambiguous: Items that could be several files, or share their base name with another item.
        refused: Items whose path leads out of the image folder.
        unanswered: Files without an answer.
    """

    file_I: np.ndarray
    by_path: int
    by_name: int
    missing: tuple[str, ...] = ()
    ambiguous: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()

    def with_unanswered(self, files: Sequence[str], empty_F: np.ndarray) -> Match:
        """With the names of the files that have no answer."""
        return replace(self, unanswered=tuple(files[f] for f in empty_F.nonzero()[0].tolist()))

    def lines(self) -> list[str]:
        """The match in sentences, one per line."""
        lines = [f"{how_many(self.by_path, 'item')} found by path, {self.by_name:,} by base name"]
        for names, one, many in (
            (self.missing, "item of the votes has no image; its answers", "items of the votes have no image; their answers"),
            (self.ambiguous, "item has a base name that fits several images or items; its answers",
             "items have a base name that fits several images or items; their answers"),
            (self.refused, "item has a path that leads out of the image folder; its answers",
             "items have a path that leads out of the image folder; their answers"),
        ):  # fmt: skip
            if names:
                hint = ". Name such items by their relative path" if names is self.ambiguous else ""
                lines.append(f"{how_many(len(names), one, many)} are not used ({some(names, len(names))}){hint}")
        if self.unanswered:
            lines.append(unanswered(self.unanswered, "image has", "images have"))
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())


def match_names(items: Sequence[str], files: Sequence[str]) -> Match:
    """The file of each item: by its relative path, with or without the item's first folders; else by its base name, if that is
    unique among the items and among the files.

    Args:
        items: Names of the items.
        files: Paths relative to the image folder.

    Raises:
        InputError: A file is listed twice.

    >>> match_names(["ponds/a.jpg", "b.jpg"], ["a.jpg", "lakes/b.jpg"]).file_I.tolist()
    [0, 1]
    """
    paths = {one_spelling(file): number for number, file in enumerate(files)}
    if len(paths) < len(files):
        twice = next(file for number, file in enumerate(files) if paths[one_spelling(file)] != number)
        raise InputError(f"{twice!r} is listed twice (perhaps with an accent written in two ways). Rename one of them.")
    names = [one_spelling(item) for item in items]
    file_I = np.array([paths.get(name, -1) for name in names], dtype=np.int64)
    refused_I = np.array([_leads_out(name) for name in names], dtype=bool)
    file_I[refused_I] = -1
    open_ = ((file_I < 0) & ~refused_I).nonzero()[0].tolist()
    _assign(file_I, {i: _without_first_folders(names[i], paths) for i in open_})
    by_path = int((file_I >= 0).sum())

    by_base = _by_unique_name((_base(path), number) for path, number in paths.items())
    guesses = {i: by_base.get(_base(names[i]), -1) for i in open_ if file_I[i] < 0}
    if -1 in guesses.values():
        by_short_name = _by_unique_name((name, number) for path, number in paths.items() for name in _short_names(path))
        guesses = {i: by_short_name.get(_base(names[i]), -1) if guess == -1 else guess for i, guess in guesses.items()}
    tied = _assign(file_I, guesses) | {i for i, guess in guesses.items() if guess == TIED}
    return Match(
        file_I=file_I,
        by_path=by_path,
        by_name=int((file_I >= 0).sum()) - by_path,
        missing=tuple(items[i] for i in guesses if file_I[i] < 0 and i not in tied),
        ambiguous=tuple(items[i] for i in guesses if i in tied),
        refused=tuple(items[i] for i in refused_I.nonzero()[0].tolist()),
    )


def _assign(file_I: np.ndarray, guess: dict[int, int]) -> set[int]:
    """Give each item its guessed file if no other item has or shares it. Returns the items whose file is not free."""
    taken = set(file_I[file_I >= 0].tolist())
    guessed = Counter(number for number in guess.values() if number >= 0)
    free = {item: number for item, number in guess.items() if guessed[number] == 1 and number not in taken}
    for item, number in free.items():
        file_I[item] = number
    return {item for item, number in guess.items() if number >= 0 and item not in free}


def _without_first_folders(path: str, paths: dict[str, int]) -> int:
    """The file without some first folders of the item: "Ponds/fold1/a.png" is "fold1/a.png". Base names are matched later."""
    while "/" in path:
        path = path.partition("/")[2]
        if "/" in path and path in paths:
            return paths[path]
    return -1


def one_spelling(path: str) -> str:
    """One spelling per path: forward slashes, no ".", composed accents (macOS decomposes them).

    >>> one_spelling(".\\\\ponds//a.jpg")
    'ponds/a.jpg'
    """
    if is_plain(path):
        return path
    path = unicodedata.normalize("NFC", path).replace("\\", "/")
    return re.sub(r"/(?:\./|/)*", "/", path).removeprefix("./")


def is_plain(text: str) -> bool:
    """Whether `one_spelling` would change nothing; also of many paths at once."""
    return text.isascii() and not any(odd in text for odd in ("\\", "./", "//"))


def _leads_out(path: str) -> bool:
    """Whether the path has a step ".."; absolute paths are matched by their end or base name only."""
    return ".." in path.split("/")


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _short_names(path: str) -> set[str]:
    """Names of a file in some exports: without its suffix (Datumaro), or its number alone (peerannot: name-12.png)."""
    base = _base(path)
    stem = base.rpartition(".")[0] or base
    number = stem.rpartition("-")[2]
    return {stem, number} if number.isdigit() else {stem}


def _by_unique_name(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The file of each name; `TIED` where several have it."""
    found: dict[str, int] = {}
    for name, number in pairs:
        found[name] = TIED if name in found else number
    return found
