"""None of these, in a run: which items are probably of a class that is missing, in groups, as lists and for the report."""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pals.crowd.groups import group_alike
from pals.crowd.novelty import PROBABLE, none_of_these
from pals.fitting.new_class import GROUPS
from pals.fitting.report_json import answers_of
from pals.fitting.trained import Trained
from pals.util.files import write_text
from pals.util.words import how_many

if TYPE_CHECKING:
    from pals.fitting.findings import Findings

SHOWN = 24
"""Items of a group that the report shows, the likeliest first."""


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


def write_lists(findings: Findings, folder: Path) -> None:
    """One file per group with an item per line, for `pals update --add-class NAME --items FILE`."""
    shutil.rmtree(folder / GROUPS, ignore_errors=True)
    for number, item_G in enumerate(findings.groups, start=1):
        write_text(folder / _file(number), "".join(f"{findings.result.votes.items[item]}\n" for item in item_G))


def _file(number: int) -> str:
    return f"{GROUPS}/group-{number}.txt"


def for_report(findings: Findings) -> list[dict[str, Any]]:
    """Plain values: each group with its list, what people took its items for, and its first items."""
    result, none_N = findings.result, findings.result.none_N
    names, shown = result.votes.class_names, []
    for number, item_G in enumerate(findings.groups, start=1):
        said = answers_of(result.votes, item_G.tolist())
        first = [
            {"item": result.votes.items[item], "none_of_these": float(none_N[item]), "votes": said[item]}
            for item in item_G[:SHOWN].tolist()
            if none_N is not None
        ]
        labels = Counter(names[label] for label in result.label_N[item_G].tolist()).most_common()
        shown.append({"size": len(item_G), "file": _file(number), "labels": labels, "items": first})
    return shown


def in_a_sentence(findings: Findings) -> list[str]:
    """Nothing where no item is probably of a missing class."""
    groups = findings.groups
    look = how_many(sum(map(len, groups)), "item looks", "items look")
    return [f"{look} like none of the classes, in {how_many(len(groups), 'group')}."] if groups else []


def what_to_do(findings: Findings) -> list[str]:
    """How the largest group becomes a class."""
    run, file = (shlex.quote(str(path)) for path in (findings.folder, findings.folder / _file(1)))
    command = f"`pals update {run} --add-class NAME --items {file}`"
    return [f"Look at them in the report; {command} makes the largest group a class."] if findings.groups else []
