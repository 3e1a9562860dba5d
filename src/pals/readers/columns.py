"""Which column of a table, or key of a JSON record, means what."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from pals.readers.source import Source
from pals.util.errors import InputError, unknown

Columns = Mapping[str, str | Sequence[str]]
"""What the user says: {"item": "photo", "label": "species"}."""

KNOWN: dict[str, tuple[str, ...]] = {
    "item": ("item", "file_name", "filename", "file", "image_path", "image_name", "image", "img", "path", "photo", "picture",
             "image_id", "item_id", "task", "task_id", "example", "id"),
    "worker": ("worker", "worker_id", "annotator", "annotator_id", "user", "user_name", "username", "user_id", "rater",
               "labeler", "labeller", "person", "expert", "completed_by"),
    "label": ("label", "class", "class_label", "label_name", "class_name", "answer", "response", "choice", "vote", "category"),
    "candidates": ("candidates", "candidate_labels", "candidate_set", "labels", "partial_labels", "partial_label"),
    "votes": ("votes", "answers"),
    "weight": ("weight", "weights"),
    "is_gold": ("is_gold",),
    "gold": ("gold", "gold_label", "true_label", "ground_truth", "truth"),
}  # fmt: skip
"""Names that are understood without being told, the likelier first."""


def find(names: Sequence[str], columns: Columns, roles: Iterable[str], source: Source) -> dict[str, str]:
    """The name of the column for each of these roles that is there; the user's word goes first."""
    roles = list(roles)
    found: dict[str, str] = {}
    for role, name in columns.items():
        if role not in roles:
            raise unknown("column role", role, roles)
        if not isinstance(name, str):
            raise InputError(f"The column for {role!r} is one name, not {name!r}.")
        if name not in names:
            raise InputError(
                f"{source.path}: there is no column {name!r} for {role!r}. Found: {', '.join(map(repr, names)) or 'none'}."
            )
        found[role] = name
    spelled: dict[str, str] = {}
    for name in names:
        spelled.setdefault(plain(name), name)
    for role in roles:
        if role not in found:
            known = (spelled[word] for word in KNOWN.get(role, ()) if word in spelled)
            choice = next((name for name in known if name not in found.values()), None)
            if choice is not None:
                found[role] = choice
    return found


def require(found: Mapping[str, str], roles: Iterable[str], names: Sequence[str], source: Source) -> None:
    for role in roles:
        if role not in found:
            known = ", ".join(KNOWN[role][:5])
            raise InputError(
                f"{source.path}: no column for {role!r} (looked for {known} and the like). Found: "
                f"{', '.join(map(repr, names)) or 'none'}. Say which one it is ({_flag(role)}columns={{{role!r}: "
                f"'NAME'}}); if the file has no header row, add one."
            )


def _flag(role: str) -> str:
    """How a column is named on the command line, which has flags for the usual ones."""
    return f"--{role}-column NAME; " if role in ("item", "worker", "label") else ""


def not_read(names: Iterable[str], used: Iterable[str]) -> tuple[str, ...]:
    """A note on the columns that were left alone."""
    left = [name for name in names if name not in set(used)]
    return (f"Columns not read: {', '.join(left)}",) if left else ()


def plain(name: str) -> str:
    return re.sub(r"[\s.\-]+", "_", name.strip().casefold())
