"""None of these, in a run: which items are probably of a class that is missing, in groups, as lists and for the report."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.sparse import csr_matrix

from pals.crowd.novelty import PROBABLE, none_of_these
from pals.crowd.novelty_groups import group_alike
from pals.pipeline.new_class import GROUPS
from pals.pipeline.stages.trained import Trained
from pals.readers import Votes
from pals.util.files import write_text
from pals.util.words import how_many, one_line

if TYPE_CHECKING:
    from pals.pipeline.stages.findings import Findings

MANY = 0.25
"""Share of a group's answers that name a disputed class from which on the group is taken for items of that class."""


def none_of_these_N(trained: Trained, posterior_NC: np.ndarray, neighbor_NK: np.ndarray) -> np.ndarray | None:
    """Only on frozen features that tell classes apart: features that were trained have learned to see the classes there are."""
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


def groups_of(findings: Findings) -> list[np.ndarray]:
    """The items of each group, the largest group first and the likeliest item first."""
    none_N = findings.result.none_N
    item_M = np.flatnonzero(none_N > PROBABLE) if none_N is not None else np.zeros(0, dtype=np.int64)
    if none_N is None or not len(item_M):
        return []
    unit_MD = torch.nn.functional.normalize(findings.trained.features_ND[torch.from_numpy(item_M)]).cpu().numpy()
    found = [item_M[rows] for rows in group_alike(unit_MD)]
    return [item_G[np.argsort(-none_N[item_G], kind="stable")] for item_G in found]


def disputed_G(findings: Findings) -> list[str]:
    """Of each group the disputed class that many of its answers name; "" where there is none. Such a group is rather one more
    dispute about that class than a class of its own."""
    votes, groups = findings.result.votes, findings.groups
    if not groups:
        return []
    disputed_C, found = _disputed_classes(votes, np.concatenate(groups)), []
    for item_G in groups:
        named_C = np.bincount(votes.label_R[np.isin(votes.item_R, item_G)], minlength=len(votes.class_names))
        many_C = np.where(disputed_C, named_C, 0)
        most = int(many_C.argmax())
        found.append(votes.class_names[most] if many_C[most] > 0 and many_C[most] >= MANY * named_C.sum() else "")
    return found


def _disputed_classes(votes: Votes, flagged: np.ndarray) -> np.ndarray:
    """C, bool: whether people agree less about a class than about all, the flagged items aside: where one answer names it, how
    often another answer to the item does (the specific agreement)."""
    row = np.flatnonzero(~np.isin(votes.item_R, flagged))
    said = np.ones(len(row)), (votes.item_R[row], votes.label_R[row])
    count_NC = csr_matrix(said, shape=(len(votes.items), len(votes.class_names)))
    count_C, total_N = np.asarray(count_NC.sum(axis=0)).ravel(), np.asarray(count_NC.sum(axis=1)).ravel()
    same_C = np.asarray(count_NC.multiply(count_NC).sum(axis=0)).ravel() - count_C
    pairs_C = count_NC.T @ total_N - count_C
    disputed_C: np.ndarray = same_C * pairs_C.sum() < same_C.sum() * pairs_C
    return disputed_C


def write_lists(findings: Findings, folder: Path) -> None:
    """One file per group with an item per line, for `pals update --add-class NAME --items FILE`."""
    shutil.rmtree(folder / GROUPS, ignore_errors=True)
    for number, item_G in enumerate(findings.groups, start=1):
        write_text(folder / group_file(number), "".join(f"{findings.result.votes.items[item]}\n" for item in item_G))


def group_file(number: int) -> str:
    """The list of a group's items, from the run folder on."""
    return f"{GROUPS}/group-{number}.txt"


def in_a_sentence(findings: Findings) -> list[str]:
    """Nothing where no item is probably of a missing class."""
    disputed, lines = disputed_G(findings), []
    new = [item_G for item_G, name in zip(findings.groups, disputed, strict=True) if not name]
    if new:
        look = how_many(sum(map(len, new)), "item looks", "items look")
        lines.append(f"{look} like none of the classes, in {how_many(len(new), 'group')}.")
    for item_G, name in zip(findings.groups, disputed, strict=True):
        if name:
            count = how_many(len(item_G), "item has", "items have")
            lines.append(
                one_line(
                    f"{count} answers that do not fit the pictures. Look at them in the report: many answers name {name}, "
                    f"about which people disagree elsewhere, too, so this is hardly a new class."
                )
            )
    return lines


def what_to_do(findings: Findings) -> list[str]:
    """How the largest group that may be a class becomes one."""
    number = next((number for number, name in enumerate(disputed_G(findings), start=1) if not name), None)
    if number is None:
        return []
    run, file = (shlex.quote(str(path)) for path in (findings.folder, findings.folder / group_file(number)))
    command = f"`pals update {run} --add-class NAME --items {file}`"
    return [f"Look at them in the report; {command} makes the largest group a class."]
