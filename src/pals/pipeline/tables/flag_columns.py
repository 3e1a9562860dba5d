"""Flags of annotators who may be answering without looking at the items, each with its evidence in words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pals.crowd.annotator_flags import WORSE, AmongOthers, among_others, pace, repeated_answers
from pals.crowd.result import Result

Flag = Callable[[Result], dict[int, str]]
"""Evidence in words for each flagged annotator, by number."""
BETWEEN = "; "


def repeats(result: Result) -> dict[int, str]:
    """Annotators who repeat their previous answer more often than the items explain."""
    found = repeated_answers(result.votes, result.label_N)
    return {
        person: f"repeated the previous answer {found.same_W[person]:.0%} of {found.steps_W[person]:,} times, "
        f"where the items explain {found.expected_W[person]:.0%}"
        for person in np.flatnonzero(found.flagged_W).tolist()
    }


def chance(result: Result) -> dict[int, str]:
    """Annotators who agree with others no better than chance."""
    found = among_others(result.votes)
    return {
        person: f"{_agrees(found, person)}, where chance gives {found.chance_W[person]:.0%}"
        for person in np.flatnonzero(found.flagged_W).tolist()
    }


def fast(result: Result) -> dict[int, str]:
    """Annotators who answer far faster than others, if times are known, and agree less with them than they with each other."""
    if not result.votes.timed:
        return {}
    found, others = pace(result.votes), among_others(result.votes)
    return {
        person: f"a median of {_seconds(found.seconds_W[person])} per answer, others {_seconds(found.others_W[person])}"
        + ("" if others.flagged_W[person] else f", and {_agrees(others, person)}")  # the flag for chance has these words
        for person in np.flatnonzero(found.fast_W & others.below(WORSE)).tolist()
    }


def _agrees(found: AmongOthers, person: int) -> str:
    return f"agrees with others {found.agree_W[person]:.0%} of {found.answers_W[person]:,} times"


def _seconds(count: float) -> str:
    return f"{count:.1f} s" if count >= 1 else f"{count:.2f} s"


FLAGS: dict[str, Flag] = {"repeats": repeats, "chance": chance, "fast": fast}
"""Values of the column `flags` of annotators.csv, and the function that finds each."""


def flagged_annotators(result: Result) -> tuple[list[str], list[str]]:
    """Flags and evidence of each annotator, "" for most; the last is for answers without a name, which is never flagged."""
    people = len(result.votes.annotators) + 1
    flags: list[list[str]] = [[] for _ in range(people)]
    evidence: list[list[str]] = [[] for _ in range(people)]
    for name, find in FLAGS.items():
        for person, words in find(result).items():
            flags[person].append(name)
            evidence[person].append(words)
    return [BETWEEN.join(found) for found in flags], [BETWEEN.join(found) for found in evidence]
