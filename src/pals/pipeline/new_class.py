"""A new class from a list of items: what `pals update --add-class NAME --items FILE` does to the answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pals.crowd.novelty import PROBABLE
from pals.readers import NO_ANSWER, Votes
from pals.readers.matching import match_names
from pals.readers.unsure_answers import UnsureMarks
from pals.runs.run_config import CLOSED_FORM
from pals.util.errors import InputError
from pals.util.files import without_mark

GROUPS = "none_of_these"
"""In a run's folder: a list of items for each group that may be a class."""
MIN_LISTED_SHARE = 0.25
"""Share of the listed items that must be in a group for its other items to belong to the new class as well: a single item in
the group of another class must not cost that class its answers."""


def add_classes(votes: Votes, lists: Mapping[str, str], earlier: str | None = None) -> Votes:
    """The votes with new classes, to which the listed items are known to belong (gold).

    Answers to listed items stay: they show what annotators call the new class. Answers to other items that may belong to it, by
    the run before, get weight 0: no annotator could have named the new class, so their images decide.

    Args:
        votes: The answers.
        lists: New class to the text file with its items.
        earlier: votes.csv of the run before.

    Raises:
        InputError: A file cannot be read, or the class or an item is not valid.
    """
    for name, path in lists.items():
        votes = _add(votes, name, Path(path))
        if earlier is not None:
            votes = set_aside(votes, name, Path(earlier).parent)
    return votes


def set_aside(votes: Votes, name: str, run: Path) -> Votes:
    """The votes with weight 0 for the answers to items that may belong to a new class, by the run that did not have it."""
    number = votes.class_names.index(name) if name in votes.class_names else len(votes.class_names)
    listed = {votes.items[i] for i in np.flatnonzero(votes.gold_I == number)}
    if not listed:
        return votes
    aside = _flagged(run / "labels.csv", listed) | _alike(run / GROUPS, listed)
    kept_I = np.array([item not in aside for item in votes.items]) | (votes.gold_I >= 0)
    return replace(votes, weight_R=votes.weight_R * kept_I[votes.item_R])


def _flagged(path: Path, listed: Collection[str]) -> set[str]:
    """The items of a run that are probably of none of the classes, without those of a class most of whose items are: it would
    lose all its answers."""
    try:
        table = pd.read_csv(path, dtype={"item": str, "label": str}, keep_default_na=False)
        if "none_of_these" not in table:  # a run of version 0.1
            return set()
        flagged = pd.to_numeric(table["none_of_these"]) > PROBABLE
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"Cannot read none_of_these in {path}: {reason}. Run `pals fit` again to rewrite it.") from None
    table = table.assign(item=table["item"].map(without_mark), flagged=flagged)
    others = table[~table["item"].isin(listed)]
    few = others.groupby("label")["flagged"].transform("mean") <= 0.5
    return set(others["item"][others["flagged"] & few])


def _alike(groups: Path, listed: Collection[str]) -> set[str]:
    """The items of all groups of a run that hold at least MIN_LISTED_SHARE of the list."""
    try:
        found = [set(path.read_text(encoding="utf-8").splitlines()) for path in sorted(groups.glob("*.txt"))]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Cannot read the lists in {groups} ({error}). Run `pals fit` again to rewrite them.") from None
    return set[str]().union(*(group for group in found if len(group.intersection(listed)) >= MIN_LISTED_SHARE * len(listed)))


def _add(votes: Votes, name: str, path: Path) -> Votes:
    votes = _with_class(votes, name)
    listed = read_list(path)
    place_L = match_names(tuple(listed), votes.items).file_I
    gold_L = votes.gold_I[place_L]
    for item, place, gold in zip(listed, place_L.tolist(), gold_L.tolist(), strict=True):
        where = f"{path}, line {listed[item]}: {item!r}"
        if place < 0:
            raise InputError(f"{where} is not an item of the run. Write items as in labels.csv, one per line.")
        if gold >= 0:
            raise InputError(f"{where} is known to be {votes.class_names[gold]!r} (gold). Remove it from the list.")
    gold_I = votes.gold_I.copy()
    gold_I[place_L] = votes.class_names.index(name)
    return replace(votes, gold_I=gold_I)


def _with_class(votes: Votes, name: str) -> Votes:
    """With the new class, in a taxonomy as a root. A class that exists is used if no answer names it."""
    if name in votes.class_names:
        if _is_named(votes, votes.class_names.index(name)):
            raise InputError(
                f"--add-class {name}: a class of this name already exists. Choose another name; items of "
                f"that class belong in a file of further answers, with the columns item, annotator and label."
            )
        return votes
    tree = votes.taxonomy
    if tree is not None and name in tree.number:
        raise InputError(f"--add-class {name}: this is a branch of the taxonomy. Choose another name for the class.")
    return replace(votes, class_names=(*votes.class_names, name), taxonomy=None if tree is None else tree.with_root(name))


def _is_named(votes: Votes, number: int) -> bool:
    """Whether an answer names this class alone, or an item is known to belong to it."""
    alone_R = np.bincount(votes.answer_R)[votes.answer_R] == 1
    return bool((alone_R & (votes.label_R == number)).any() or (votes.gold_I == number).any())


def read_list(path: Path) -> dict[str, int]:
    """The items in a text file, one a line, and their lines."""
    if not path.is_file():
        raise InputError(f"--items: {path} does not exist. Give a text file with one item per line, as in labels.csv.")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--items: cannot read {path} ({error}). Give a text file in UTF-8, one item per line.") from None
    found = {line.strip(): number for number, line in enumerate(lines, start=1) if line.strip()}
    if not found:
        raise InputError(f"--items: {path} names no items. Write at least one, one per line.")
    return found


def added_classes(name: str | None, items: str | Path | None) -> dict[str, str]:
    """The setting `data.added`: the new class and the file with its items."""
    if name is None and items is None:
        return {}
    if name is None or items is None:
        raise InputError("Give --add-class NAME and --items FILE together: the name of the new class, and a list of its items.")
    if not name.strip():
        raise InputError("--add-class: the new class needs a name.")
    if UnsureMarks((), (), NO_ANSWER).is_unknown(name):
        raise InputError(f'--add-class {name}: in a file of answers this means "don\'t know". Choose another name.')
    return {name.strip(): str(Path(items).resolve())}


def refuse_without_features(run: Path, settings: Mapping[str, Any]) -> None:
    """A trained network would have to learn the new class; frozen features can separate it already."""
    data = settings["data"]
    if settings["method"]["name"] != CLOSED_FORM or (data["images"] is None and data["features"] is None):
        raise InputError(
            f"--add-class needs frozen features of the items, and {run} has none. Fit the images with --encoder auto first."
        )
