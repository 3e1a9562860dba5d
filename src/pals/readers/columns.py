"""Which column of a table, or key of a JSON record, has which role."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence

from pals.readers.source import Source
from pals.util.errors import InputError, unknown
from pals.util.words import listed, quoted

MAX_NOT_READ = 20
"""Columns that one note names."""

Columns = Mapping[str, str | Sequence[str]]
"""Columns that the user names, by role: {"item": "photo", "label": "species"}."""

KNOWN: dict[str, tuple[str, ...]] = {
    "item": ("item", "file_name", "filename", "file", "image_path", "image_name", "image", "img", "path", "photo", "picture",
             "image_id", "item_id", "task", "task_id", "example", "file_path", "filepath", "image_file", "img_path",
             "photo_id", "photograph", "pic", "picture_id", "subject", "subject_id", "sample", "sample_id", "photo_name",
             "picture_name", "item_name", "url", "id"),  # last what often numbers the rows
    "annotator": ("annotator", "annotator_id", "worker", "worker_id", "user", "user_name", "username", "user_id", "rater",
               "labeler", "labeller", "person", "expert", "completed_by", "who", "volunteer", "volunteer_id", "observer",
               "observer_id", "participant", "participant_id", "reviewer", "contributor", "coder", "worker_name",
               "annotator_name", "annotated_by", "labeled_by", "labelled_by", "identified_by", "recorded_by", "email"),
    "label": ("label", "class", "class_label", "label_name", "class_name", "answer", "response", "choice", "vote", "category",
              "species", "species_name", "taxon", "genus", "diagnosis", "judgment", "judgement", "annotation", "tag",
              "classification", "decision", "verdict"),
    "candidates": ("candidates", "candidate_labels", "candidate_set", "labels", "partial_labels", "partial_label"),
    "votes": ("votes", "answers"),
    "weight": ("weight", "weights"),
    "sure": ("sure", "is_sure", "certain", "is_certain", "certainty", "confidence", "confident", "confidence_level"),
    "unsure": ("unsure", "is_unsure", "not_sure", "uncertain", "is_uncertain", "uncertainty"),
    "time": ("answered_at", "submitted_at", "created_at", "timestamp", "date_time", "datetime", "time"),
    "seconds": ("seconds", "lead_time"),
    "rank": ("rank",),
    "percent": ("percent",),
    "audit": ("audit",),
    "answer_id": ("answer_id",),
    "is_gold": ("is_gold",),
    "gold": ("gold", "gold_label", "true_label", "ground_truth", "truth"),
}  # fmt: skip
"""Usual names of the columns, by role, the likelier first."""
OLD_ROLES = {"worker": "annotator", "workers": "annotators"}
"""Roles by their names in version 0.2."""

QUEUE_COLUMNS = {"rank", "suggestion", "confidence", "second", "reason", "said", "decision", "gain", "asked"}
"""Columns of the queue of `pals relabel` that help the annotator and are no answers."""


def find(names: Sequence[str], columns: Columns, roles: Iterable[str], source: Source) -> dict[str, str]:
    """The column of each role that is there.

    Args:
        names: All columns.
        columns: Those named by the user, which come first.
        roles: Roles to find.
        source: The file, for messages.

    Raises:
        InputError: The user named an unknown role or a column that is not there.
    """
    roles = list(roles)
    found: dict[str, str] = {}
    for role, name in columns.items():
        if role not in roles:
            raise unknown("column role", role, roles)
        if not isinstance(name, str):
            raise InputError(f"The column for {role!r} is one name, not {quoted(name)}.")
        if name not in names:
            raise InputError(f"{source.path}: there is no column {quoted(name)} for {role!r}. Found: {listed(names)}.")
        found[role] = name
    by_plain_name = {plain(name): name for name in reversed(names)}
    for role in roles:
        if role not in found:
            known = (by_plain_name[word] for word in KNOWN.get(role, ()) if word in by_plain_name)
            choice = next((name for name in known if name not in found.values()), None)
            if choice is not None:
                found[role] = choice
    return found


def renamed(columns: Columns) -> Columns:
    """With today's names of the roles; a role under its name of version 0.2 is read with a warning."""
    for old in OLD_ROLES.keys() & columns.keys():
        warnings.warn(f"columns: write {OLD_ROLES[old]!r} instead of {old!r}", DeprecationWarning, stacklevel=2)
    return {OLD_ROLES.get(role, role): name for role, name in columns.items()}


def require(found: Mapping[str, str], roles: Iterable[str], names: Sequence[str], source: Source) -> None:
    """Refuse a table without a column for each of these roles."""
    for role in roles:
        if role not in found:
            flag = f"--{role}-column NAME; " if role in ("item", "annotator", "label") else ""
            raise InputError(
                f"{source.path}: no column for {role!r} (looked for {', '.join(KNOWN[role][:5])} and the like). "
                f"Found: {listed(names)}. Say which one it is ({flag}columns={{{role!r}: 'NAME'}}); if the file has no header "
                f"row, add one."
            )


def not_read(names: Iterable[str], used: Iterable[str]) -> tuple[str, ...]:
    """A note on the columns that were not used; none on those of our own queue."""
    names, known = list(names), set(used)
    if is_queue(names):
        known |= QUEUE_COLUMNS
    left = [name for name in names if name not in known]
    more = f" and {len(left) - MAX_NOT_READ:,} more" if len(left) > MAX_NOT_READ else ""
    return (f"Columns not read: {', '.join(left[:MAX_NOT_READ])}{more}",) if left else ()


def is_queue(names: Iterable[str]) -> bool:
    """Whether these are the columns of a queue of `pals relabel`, or of the answers of `pals review`."""
    there = set(names)
    return {"rank", "suggestion", "reason", "said"} <= there or {"item", "annotator", "label", "sure", "time", "audit"} <= there


def plain(name: str) -> str:
    """The name in small letters, with underscores between its words.

    >>> plain(" File Name")
    'file_name'
    """
    return re.sub(r"[\s.\-]+", "_", name.strip().casefold())
