"""Values of JSON files and of cells: names, their types in words, and objects whose keys are not repeated."""

from __future__ import annotations

import json
import re
from typing import Any

from pals.util.words import quoted

SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""An escape in JSON that may be half a character, which no file can contain."""


class RepeatedKeyError(ValueError):
    """One JSON object has a key twice, so that its value is ambiguous."""

    def __init__(self, key: str, first: tuple[str, Any]) -> None:
        beside = "" if first[0] == key else f" (the object that begins with {quoted(first[0], 20)}: {quoted(first[1], 40)})"
        super().__init__(f"one object has the key {quoted(key)} twice{beside}")


def load_json(text: str) -> Any:
    """The JSON value in a text.

    Raises:
        ValueError: It is no JSON (`json.JSONDecodeError`), has half a character (`UnicodeEncodeError`), or an object has a key
            twice (`RepeatedKeyError`).
        RecursionError: It is nested too deeply.
    """
    value = json.loads(text, object_pairs_hook=_without_repeats)
    if SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        raise RepeatedKeyError(next(key for key, _ in pairs if key in seen or seen.add(key)), pairs[0])  # type: ignore[func-returns-value]
    return found


def kind(value: object) -> str:
    """The type of a JSON value in words."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    number = "a number" if isinstance(value, (int, float)) else f"a value of type {type(value).__name__}"
    return names.get(type(value), number)


def text_of(value: object) -> str | None:
    """A name from a cell or a JSON value.

    Raises:
        TypeError: The value is neither a text nor a number.

    >>> text_of("newt"), text_of(3.0), text_of(None)
    ('newt', '3', None)
    """
    if value is None:
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return None if value != value else str(int(value)) if value.is_integer() else str(value)
    if isinstance(value, int):
        return str(value)
    raise TypeError(kind(value))


def labels_of(value: object) -> list[str | None]:
    """One label or a list of them."""
    return [text_of(label) for label in value] if isinstance(value, list) else [text_of(value)]
