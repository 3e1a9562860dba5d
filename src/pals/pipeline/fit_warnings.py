"""What to check before the result of a fit is used: one function for each check, which returns a sentence or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from pals.crowd.data_checks import find_mix_up
from pals.crowd.result import GOLD
from pals.pipeline.stages.analysis import Analysis
from pals.pipeline.tables.flag_columns import BETWEEN
from pals.util.words import how_many, one_line

MIN_AGREEMENT = 0.3
"""Agreement of the classifier with held-out answers, beyond chance, below which it is called weak."""
MIN_SHIFT_SHARE, MIN_SHIFT_SIGMAS, MIN_SHIFT_ITEMS = 0.2, 3.0, 5
"""A class has another number of items than the answers suggest if they differ by all three."""
MAX_LISTED_NAMES = 3
"""Classes, items or annotators that a sentence lists; the tables have all."""


def poor_classifier(found: Analysis) -> list[str]:
    """A classifier that hardly agrees with answers it was not trained on.

    With c the covering rate on held-out items and e the rate that chance gives, it is weak if c - e < MIN_AGREEMENT (1 - e).
    """
    trained = found.trained
    if not found.held_out:
        return []
    label_M = torch.from_numpy(trained.predicted_NC)[trained.loaded.trained_M].argmax(dim=1)
    candidate_MC = trained.loaded.candidates.allowed_NC.double()
    covered = found.held_out["covering"]
    predicted_C = torch.bincount(label_M, minlength=candidate_MC.shape[1]).double() / len(label_M)
    chance = float(predicted_C @ candidate_MC.mean(dim=0))
    if covered - chance >= MIN_AGREEMENT * (1 - chance):
        return []
    return [
        f"The classifier is weak: on items whose answers it was not trained on, it agrees with an answer {covered:.0%} of the "
        f"time; chance gives {chance:.0%}. Its labels for new items will be poor."
    ]


def moved_classes(found: Analysis) -> list[str]:
    """Classes that have far more or fewer items in the result than the answers suggest.

    Items with an answer that names several labels are left out: an annotator who answers "bird" for every rare tern does not
    suggest that half of the birds are terns.
    """
    result = found.result
    several_N = np.bincount(result.item_A[result.size_A > 1], minlength=len(result.label_N)) > 0
    use = np.flatnonzero((result.top_share_N > 0) & (result.status_N != GOLD) & ~several_N)
    share_MC = result.share_NC[use]
    label_X, share_X, classes = share_MC.indices, share_MC.data, share_MC.shape[1]
    found_C = np.bincount(result.label_N[use], minlength=classes)
    expected_C = np.bincount(label_X, share_X, classes)
    shift_C = np.abs(found_C - expected_C)
    moved_C = (shift_C >= MIN_SHIFT_SHARE * np.maximum(found_C, expected_C)) & (shift_C >= MIN_SHIFT_ITEMS)
    moved_C &= shift_C >= MIN_SHIFT_SIGMAS * np.sqrt(np.bincount(label_X, share_X * (1 - share_X), classes))
    order = np.flatnonzero(moved_C)[np.argsort(-shift_C[moved_C], kind="stable")]
    if not len(order):
        return []
    names, listed = result.votes.class_names, order[:MAX_LISTED_NAMES]
    words = [f"{names[c]} has {how_many(int(found_C[c]), 'item')} instead of about {expected_C[c]:,.0f}" for c in listed]
    rest = len(order) - MAX_LISTED_NAMES
    more = f", and {how_many(rest, 'more class', 'more classes')}" if rest > 0 else ""
    return [
        f"The class sizes in the result are not what the answers suggest: {', '.join(words)}{more}. Compare "
        f"label and majority in labels.csv before you rely on any counts."
    ]


def mixed_up_items(found: Analysis) -> list[str]:
    """Items whose answers seem to belong to other items."""
    mixed = find_mix_up(found.trained.fusion)
    if mixed is None:
        return []
    items = ", ".join(found.result.votes.items[i] for i in mixed.items[:MAX_LISTED_NAMES].tolist())
    return [
        f"Answers and classifier contradict each other: of the items that annotators agree on, about {mixed.share:.0%} have "
        f"answers that fit them no better than chance. Were file names or rows mixed up? Check these first: {items}. The "
        f"estimate of what is wrong does not include them."
    ]


def suspected_annotators(found: Analysis) -> list[str]:
    """Annotators with a flag: they may be answering without looking at the items."""
    flagged = found.tables["annotators"][found.tables["annotators"]["flags"] != ""]
    if not len(flagged):
        return []
    names = flagged["annotator"].tolist()
    if len(names) == 1:
        return [f"{names[0]} may be answering without looking: {flagged['evidence'].iloc[0].split(BETWEEN)[0]}."]
    rest = len(names) - MAX_LISTED_NAMES
    listed = ", ".join(names[:MAX_LISTED_NAMES]) + (f" and {rest:,} more" if rest > 0 else "")
    return [f"{len(names):,} annotators may be answering without looking: {listed}. annotators.csv has the evidence."]


def copied_answers(found: Analysis) -> list[str]:
    """Annotators who never differ, as if one had copied from another."""
    names = found.result.votes.annotators
    return [
        f"{_listed([names[person] for person in same.people])} gave the same answer to all {same.items:,} items they have in "
        f"common. Annotators who answer independently differ now and then: if one copied from another, they count as one, and "
        f"more is wrong than estimated."
        for same in found.copies
    ]


def _listed(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    if len(names) > MAX_LISTED_NAMES:
        more = len(names) - MAX_LISTED_NAMES
        return f"{len(names):,} annotators ({', '.join(names[:MAX_LISTED_NAMES])} and {more:,} more)"
    return f"{', '.join(names[:-1])} and {names[-1]}"


CHECKS: tuple[Callable[[Analysis], list[str]], ...] = (
    poor_classifier, mixed_up_items, copied_answers, moved_classes, suspected_annotators,
)  # fmt: skip


def fit_warnings(found: Analysis) -> list[str]:
    """The sentences of all checks, each on one line."""
    return [one_line(line) for check in CHECKS for line in check(found)]
