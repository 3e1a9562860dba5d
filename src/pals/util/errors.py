"""The error for bad input."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input: the message gives the place, the value and a remedy. The command line prints it and exits with code 2.

    >>> from pals import InputError, Truth
    >>> try:
    ...     Truth.of([0, 3], ["cat", "dog"])
    ... except InputError as error:
    ...     print(error)
    True label 3 of item 1 is none of the 2 classes. Number the classes from 0, or name all of them.
    """


MAX_LISTED_NAMES = 40  # in one message
MAX_WORD_CHARS = 60  # in one message


def unknown(kind: str, found: object, known: Iterable[str], most: int = MAX_LISTED_NAMES) -> InputError:
    """An error for an unknown word: it suggests the nearest known one and lists at most `most` of them."""
    names, word = sorted(known), str(found)
    near = difflib.get_close_matches(word[:MAX_WORD_CHARS].lower(), names, n=1, cutoff=0.5)
    hint = f"did you mean {_cut(near[0])!r}? " if near else ""
    listed = ", ".join(_cut(name) for name in names[:most]) or "none"
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return InputError(f"Unknown {kind} {_cut(word)!r}: {hint}Known: {listed}{rest}.")


def _cut(word: str) -> str:
    return word if len(word) <= MAX_WORD_CHARS else f"{word[: MAX_WORD_CHARS - 3]}..."
