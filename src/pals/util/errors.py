"""The one error for input that a person can mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input: the message says where, what was found, and what to do. The command line prints it and exits with code 2."""


MOST_NAMES = 40  # in one message
LONGEST = 60  # characters of a word in one message


def unknown(kind: str, found: object, known: Iterable[str], most: int = MOST_NAMES) -> InputError:
    """An error that names the nearest known word, and `most` of them, or all where there are fewer."""
    names, word = sorted(known), str(found)
    near = difflib.get_close_matches(word[:LONGEST].lower(), names, n=1, cutoff=0.5)
    hint = f"did you mean {_cut(near[0])!r}? " if near else ""
    listed = ", ".join(_cut(name) for name in names[:most]) or "none"
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return InputError(f"Unknown {kind} {_cut(word)!r}: {hint}Known: {listed}{rest}.")


def _cut(word: str) -> str:
    return word if len(word) <= LONGEST else f"{word[: LONGEST - 3]}..."
