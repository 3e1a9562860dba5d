"""The one error for input that a person can mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input: the message says where, what was found, and what to do. The command line prints it and exits with 2."""


def unknown(kind: str, found: object, known: Iterable[str]) -> InputError:
    """An error that names the nearest known word."""
    names = sorted(known)
    near = difflib.get_close_matches(str(found).lower(), names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return InputError(f"Unknown {kind} {str(found)!r}: {hint}Known: {', '.join(names) or 'none'}.")
