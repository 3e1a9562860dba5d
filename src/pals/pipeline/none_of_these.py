"""None of these, in a run: the items that probably belong to a class that is not on the list, in groups, as lists, in words.

An item is in a group if the estimated probability that its class is missing is above `PROBABLE` (`pals.crowd.novelty`); a group
is disputed if a large share of its answers names a class about which annotators agree less than about all classes together.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from pals.crowd.novelty import PROBABLE, none_of_these
from pals.crowd.novelty_groups import group_alike
from pals.crowd.result import Result
from pals.pipeline.new_class import GROUPS
from pals.pipeline.stages.trained import Trained
from pals.readers import Votes
from pals.util.files import write_text
from pals.util.words import how_many, one_line

MIN_DISPUTED_SHARE = 0.25
"""Share of a group's answers that must name a disputed class for the group to be taken for items of that class."""


class MissingClass(NamedTuple):
    """A group of G items that may belong to a missing class.

    Args:
        item_G: The items, the likeliest first.
        disputed: The disputed class that many of the answers name; "" if there is none. With it, the group is more probably a
            dispute about that class than a class of its own.
    """

    item_G: np.ndarray
    disputed: str


def none_of_these_N(trained: Trained, posterior_NC: np.ndarray, neighbor_NK: np.ndarray) -> np.ndarray | None:
    """Probability that the class of each item is missing (N); None unless features are frozen and separate the classes:
    features that were trained have been fitted to the classes on the list."""
    if not trained.plan.solved or trained.fusion.calibration is None:
        return None
    found = none_of_these(
        trained.loaded.votes,
        trained.encoded.vectors_ND,
        posterior_NC.argmax(axis=1),
        neighbor_NK,
        seed=trained.plan.config.seed,
        spectrum=trained.spectrum,
    )
    return None if found is None else found.probability_N


def missing_classes(result: Result, features_ND: Tensor) -> tuple[MissingClass, ...]:
    """The groups, the largest first."""
    none_N = result.none_N
    item_M = np.flatnonzero(none_N > PROBABLE) if none_N is not None else np.zeros(0, dtype=np.int64)
    if none_N is None or not len(item_M):
        return ()
    unit_MD = torch.nn.functional.normalize(features_ND[torch.from_numpy(item_M)]).cpu().numpy()
    groups = [item_M[rows] for rows in group_alike(unit_MD)]
    disputed_C = _disputed_classes(result.votes, np.concatenate(groups))
    return tuple(
        MissingClass(item_G[np.argsort(-none_N[item_G], kind="stable")], _disputed(result.votes, item_G, disputed_C))
        for item_G in groups
    )


def _disputed(votes: Votes, item_G: np.ndarray, disputed_C: np.ndarray) -> str:
    """The disputed class that the answers to a group name most often, if they do so often enough; else ""."""
    named_C = np.bincount(votes.label_R[np.isin(votes.item_R, item_G)], minlength=len(votes.class_names))
    count_C = np.where(disputed_C, named_C, 0)
    most = int(count_C.argmax())
    return votes.class_names[most] if count_C[most] > 0 and count_C[most] >= MIN_DISPUTED_SHARE * named_C.sum() else ""


def _disputed_classes(votes: Votes, flagged: np.ndarray) -> np.ndarray:
    """C, bool: whether annotators agree less about a class than about all, without the flagged items, by specific agreement:
    if one answer names the class, how often another answer to the item does."""
    row = np.flatnonzero(~np.isin(votes.item_R, flagged))
    entries = np.ones(len(row)), (votes.item_R[row], votes.label_R[row])
    count_NC = csr_matrix(entries, shape=(len(votes.items), len(votes.class_names)))
    count_C, total_N = np.asarray(count_NC.sum(axis=0)).ravel(), np.asarray(count_NC.sum(axis=1)).ravel()
    same_C = np.asarray(count_NC.multiply(count_NC).sum(axis=0)).ravel() - count_C
    pairs_C = count_NC.T @ total_N - count_C
    disputed_C: np.ndarray = same_C * pairs_C.sum() < same_C.sum() * pairs_C
    return disputed_C


def write_lists(groups: Sequence[MissingClass], items: Sequence[str], folder: Path) -> None:
    """Write one file per group with an item per line, for `pals update --add-class NAME --items FILE`."""
    shutil.rmtree(folder / GROUPS, ignore_errors=True)
    for number, group in enumerate(groups, start=1):
        write_text(folder / group_file(number), "".join(f"{items[item]}\n" for item in group.item_G))


def group_file(number: int) -> str:
    """The list of a group's items, relative to the run folder."""
    return f"{GROUPS}/group-{number}.txt"


def group_sentences(groups: Sequence[MissingClass]) -> list[str]:
    """How many items fit no class, and a sentence for each disputed group; empty without groups."""
    new, lines = [len(group.item_G) for group in groups if not group.disputed], []
    if new:
        items = how_many(sum(new), "item looks", "items look")
        lines.append(f"{items} like none of the classes, in {how_many(len(new), 'group')}.")
    for group in groups:
        if group.disputed:
            count = how_many(len(group.item_G), "item has", "items have")
            line = (
                f"{count} answers that do not fit the images. Check them in the report: many answers name {group.disputed}, "
                f"about which annotators also disagree elsewhere, so this is hardly a new class."
            )
            lines.append(one_line(line))
    return lines


def next_step(groups: Sequence[MissingClass], folder: Path) -> list[str]:
    """The command that makes a class of the largest group that is not disputed."""
    number = next((number for number, group in enumerate(groups, start=1) if not group.disputed), None)
    if number is None:
        return []
    run, file = (shlex.quote(str(path)) for path in (folder, folder / group_file(number)))
    command = f"`pals update {run} --add-class NAME --items {file}`"
    return [f"Check them in the report; {command} makes the largest group a class."]
