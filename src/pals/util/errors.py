"""The one error for input that a person can mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input: the message says where, what was found, and what to do. The command line prints it and exits with 2."""


MOST_NAMES = 40  # in one message


def unknown(kind: str, found: object, known: Iterable[str]) -> InputError:
    """An error that names the nearest known word, and all of them where they are not too many."""
    names = sorted(known)
    near = difflib.get_close_matches(str(found).lower(), names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    listed = ", ".join(names[:MOST_NAMES]) or "none"
    rest = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return InputError(f"Unknown {kind} {str(found)!r}: {hint}Known: {listed}{rest}.")
