"""What a reader of the result should look at before trusting it: one function for each check, in words or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from pals.crowd.copied_answers import never_differ
from pals.crowd.data_checks import find_mix_up
from pals.crowd.result import GOLD
from pals.pipeline.tables.flag_columns import BETWEEN
from pals.util.words import how_many, one_line

if TYPE_CHECKING:
    from pals.pipeline.stages.findings import Findings

POOR = 0.3
"""Agreement of the classifier with answers that it has not seen, beyond chance, below which it is called poor."""
MOVED, SURELY, FEWEST = 0.2, 3.0, 5
"""A class has left its number of items by the answers: by this share, so many standard deviations, and so many items."""
NAMED = 3
"""Classes or people that a sentence names; the tables have all."""


def poor_classifier(findings: Findings) -> list[str]:
    """How often the classifier, asked about items whose answers it has not seen, says something that a person said, too."""
    trained = findings.trained
    if not trained.held_out:
        return []
    said_M = torch.from_numpy(trained.said_NC)[trained.loaded.trained_M].argmax(dim=1)
    allowed_MC = trained.loaded.candidates.allowed_NC.double()
    covered = trained.held_out["covering"]
    predicted_C = torch.bincount(said_M, minlength=allowed_MC.shape[1]).double() / len(said_M)
    chance = float(predicted_C @ allowed_MC.mean(dim=0))
    if covered - chance >= POOR * (1 - chance):
        return []
    return [
        f"The classifier is weak: on items whose answers it has not seen, it agrees with somebody's answer {covered:.0%} of "
        f"the time, where chance gives {chance:.0%}. Its labels for new items will be poor."
    ]


def moved_classes(findings: Findings) -> list[str]:
    """Classes that have far more or fewer items in the result than the answers suggest. Items with an answer that names
    several labels are left out: who says "bird" of every rare tern does not say that half of the birds are terns."""
    result = findings.result
    several_N = np.bincount(result.item_A[result.size_A > 1], minlength=len(result.label_N)) > 0
    use = np.flatnonzero((result.top_share_N > 0) & (result.status_N != GOLD) & ~several_N)
    share_MC = result.share_NC[use]
    label_X, share_X, classes = share_MC.indices, share_MC.data, share_MC.shape[1]
    found_C = np.bincount(result.label_N[use], minlength=classes)
    expected_C = np.bincount(label_X, share_X, classes)
    apart_C = np.abs(found_C - expected_C)
    moved_C = (apart_C >= MOVED * np.maximum(found_C, expected_C)) & (apart_C >= FEWEST)
    moved_C &= apart_C >= SURELY * np.sqrt(np.bincount(label_X, share_X * (1 - share_X), classes))
    order = np.flatnonzero(moved_C)[np.argsort(-apart_C[moved_C], kind="stable")]
    if not len(order):
        return []
    names = result.votes.class_names
    words = [f"{names[c]} has {how_many(int(found_C[c]), 'item')} instead of about {expected_C[c]:,.0f}" for c in order[:NAMED]]
    more = f", and {how_many(len(order) - NAMED, 'more class', 'more classes')}" if len(order) > NAMED else ""
    return [
        f"The class sizes in the result are not what the answers suggest: {', '.join(words)}{more}. Compare "
        f"label and majority in labels.csv before you rely on any counts."
    ]


def mixed_up_items(findings: Findings) -> list[str]:
    """Items whose answers seem to be those of other items."""
    found = find_mix_up(findings.trained.fusion)
    if found is None:
        return []
    items = ", ".join(findings.result.votes.items[i] for i in found.items[:NAMED].tolist())
    return [
        f"People and classifier contradict each other: of the items that people agree on, about {found.share:.0%} have answers "
        f"that fit them no better than chance. Were file names or rows mixed up? Look at these first: {items}. The "
        f"estimate of what is wrong does not include them."
    ]


def suspected_people(findings: Findings) -> list[str]:
    """People who look as if they clicked without looking."""
    people = findings.annotators[findings.annotators["flags"] != ""]
    if not len(people):
        return []
    names = people["annotator"].tolist()
    if len(names) == 1:
        return [f"{names[0]} may be answering without looking: {people['evidence'].iloc[0].split(BETWEEN)[0]}."]
    listed = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED:,} more" if len(names) > NAMED else "")
    return [f"{len(names):,} people may be answering without looking: {listed}. annotators.csv has the evidence."]


def copied_answers(findings: Findings) -> list[str]:
    """People who never differ, as if they were one."""
    names = findings.result.votes.workers
    return [
        f"{_listed([names[person] for person in same.people])} gave the same answer to all {same.items:,} items they have in "
        f"common. People who answer independently differ now and then: if one copied from another, they count as one "
        f"person, and more is wrong than the estimate says."
        for same in never_differ(findings.result.votes, findings.people)
    ]


def _listed(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    if len(names) > NAMED:
        return f"{len(names):,} people ({', '.join(names[:NAMED])} and {len(names) - NAMED:,} more)"
    return f"{', '.join(names[:-1])} and {names[-1]}"


CHECKS: tuple[Callable[[Findings], list[str]], ...] = (
    poor_classifier, mixed_up_items, copied_answers, moved_classes, suspected_people,
)  # fmt: skip


def warnings(findings: Findings) -> list[str]:
    """All of them."""
    return [one_line(line) for check in CHECKS for line in check(findings)]
