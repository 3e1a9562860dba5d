"""Which image file does an item of the votes mean? Names are compared, nothing is opened: whatever the votes say, the
answer is one of the files given or none."""

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

SEVERAL = -2  # in place of a file's number


@dataclass(frozen=True)
class Match:
    """Which file each item is, and what found no partner."""

    file_I: np.ndarray  # number of the file, -1 where there is none
    by_path: int
    by_name: int
    missing: tuple[str, ...] = ()
    "Items without a file."
    ambiguous: tuple[str, ...] = ()
    "Items that could be several files, or share their base name with another item."
    refused: tuple[str, ...] = ()
    "Items whose path leads out of the image folder."
    unanswered: tuple[str, ...] = ()
    "Files without an answer."

    def with_unanswered(self, files: Sequence[str], empty_F: np.ndarray) -> Match:
        return replace(self, unanswered=tuple(files[f] for f in empty_F.nonzero()[0].tolist()))

    def lines(self) -> list[str]:
        lines = [f"{how_many(self.by_path, 'item')} found by path, {self.by_name:,} by base name"]
        for names, one, many in (
            (self.missing, "item of the votes has no image; its answers", "items of the votes have no image; their answers"),
            (self.ambiguous, "item has a base name that fits several images or items; its answers",
             "items have a base name that fits several images or items; their answers"),
            (self.refused, "item has a path that leads out of the image folder; its answers",
             "items have a path that leads out of the image folder; their answers"),
        ):  # fmt: skip
            if names:
                remedy = ". Name such items by their relative path" if names is self.ambiguous else ""
                lines.append(f"{how_many(len(names), one, many)} are not used ({some(names, len(names))}){remedy}")
        if self.unanswered:
            lines.append(unanswered(self.unanswered, "image has", "images have"))
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())


def match_names(items: Sequence[str], files: Sequence[str]) -> Match:
    """Each item's file: by relative path, also without the item's leading folders; else by base name, if it is unique
    on both sides."""
    paths = {one_spelling(file): number for number, file in enumerate(files)}
    if len(paths) < len(files):
        twice = next(file for number, file in enumerate(files) if paths[one_spelling(file)] != number)
        raise InputError(
            f"{twice!r} is listed twice: two pictures, or rows, have this name (an accent may be written in two ways). "
            f"Rename one of them."
        )
    plain = [one_spelling(item) for item in items]
    file_I = np.array([paths.get(name, -1) for name in plain], dtype=np.int64)
    refused_I = np.array([_leads_out(name) for name in plain], dtype=bool)
    file_I[refused_I] = -1
    open_ = ((file_I < 0) & ~refused_I).nonzero()[0].tolist()
    _claim(file_I, {i: _by_end(plain[i], paths) for i in open_})
    by_path = int((file_I >= 0).sum())

    names = _only_ones((_base(path), number) for path, number in paths.items())
    guesses = {i: names.get(_base(plain[i]), -1) for i in open_ if file_I[i] < 0}
    if any(guess == -1 for guess in guesses.values()):
        short = _only_ones((name, number) for path, number in paths.items() for name in _short_names(path))
        guesses = {i: short.get(_base(plain[i]), -1) if guess == -1 else guess for i, guess in guesses.items()}
    tied = _claim(file_I, guesses) | {i for i, guess in guesses.items() if guess == SEVERAL}
    return Match(
        file_I=file_I,
        by_path=by_path,
        by_name=int((file_I >= 0).sum()) - by_path,
        missing=tuple(items[i] for i in guesses if file_I[i] < 0 and i not in tied),
        ambiguous=tuple(items[i] for i in guesses if i in tied),
        refused=tuple(items[i] for i in refused_I.nonzero()[0].tolist()),
    )


def _claim(file_I: np.ndarray, guess: dict[int, int]) -> set[int]:
    """Give items the files that they alone ask for; back come those that had to yield."""
    taken = set(file_I[file_I >= 0].tolist())
    wanted = Counter(number for number in guess.values() if number >= 0)
    tied = set()
    for item, number in guess.items():
        if number >= 0 and wanted[number] == 1 and number not in taken:
            file_I[item] = number
        elif number >= 0:
            tied.add(item)
    return tied


def _by_end(path: str, paths: dict[str, int]) -> int:
    """An item may name more folders than the files do: "Ponds/fold1/a.png" is "fold1/a.png". The bare name is left to
    the search by base name."""
    while "/" in path:
        path = path.partition("/")[2]
        if "/" in path and path in paths:
            return paths[path]
    return -1


def one_spelling(path: str) -> str:
    """One spelling per path: forward slashes, no ".", composed accents (macOS writes them apart)."""
    if is_plain(path):
        return path
    path = unicodedata.normalize("NFC", path).replace("\\", "/")
    return re.sub(r"/(?:\./|/)*", "/", path).removeprefix("./")


def is_plain(text: str) -> bool:
    """Whether `one_spelling` would change nothing; also of many paths at once."""
    return text.isascii() and not any(odd in text for odd in ("\\", "./", "//"))


def _leads_out(path: str) -> bool:
    """Whether ".." takes the path above where it starts. (Absolute paths are found by their end or base name only.)"""
    if ".." not in path:
        return False
    depth = 0
    for part in path.split("/"):
        depth += -1 if part == ".." else 1
        if depth < 0:
            return True
    return ".." in path.split("/")  # "a/../b": no honest file list spells a path so


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _short_names(path: str) -> set[str]:
    """What some exports call a file: without its ending (Datumaro), or by its number alone (peerannot: name-12.png)."""
    base = _base(path)
    stem = base.rpartition(".")[0] or base
    number = stem.rpartition("-")[2]
    return {stem, number} if number.isdigit() else {stem}


def _only_ones(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The file of each name; `SEVERAL` where more than one has it."""
    found: dict[str, int] = {}
    for name, number in pairs:
        found[name] = SEVERAL if name in found else number
    return found
