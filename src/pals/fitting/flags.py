"""Which people look as if they clicked without looking, in words: a flag for each sign, and the evidence for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pals.crowd.clickers import among_others, repeated_answers
from pals.crowd.result import Result

Flag = Callable[[Result], dict[int, str]]
"""Evidence in words for each person (by number) who is flagged."""
BETWEEN = "; "


def repeats(result: Result) -> dict[int, str]:
    """Who gives the same answer again and again, more than the items explain."""
    found = repeated_answers(result.votes, result.label_N)
    return {
        person: f"same answer as before {found.same_W[person]:.0%} of {found.steps_W[person]:,} times, "
        f"where the items explain {found.expected_W[person]:.0%}"
        for person in np.flatnonzero(found.flagged_W).tolist()
    }


def chance(result: Result) -> dict[int, str]:
    """Who agrees with others no better than chance."""
    found = among_others(result.votes)
    return {
        person: f"agrees with others {found.agree_W[person]:.0%} of {found.answers_W[person]:,} times, "
        f"where chance gives {found.chance_W[person]:.0%}"
        for person in np.flatnonzero(found.flagged_W).tolist()
    }


FLAGS: dict[str, Flag] = {"repeats": repeats, "chance": chance}
"""What stands in the column `flags` of annotators.csv, and how it is found."""


def flagged_people(result: Result) -> tuple[list[str], list[str]]:
    """Flags and evidence of each person, blank for most; the last is for answers without a name, which are nobody's."""
    people = len(result.votes.workers) + 1
    flags: list[list[str]] = [[] for _ in range(people)]
    evidence: list[list[str]] = [[] for _ in range(people)]
    for name, find in FLAGS.items():
        for person, words in find(result).items():
            flags[person].append(name)
            evidence[person].append(words)
    return [BETWEEN.join(found) for found in flags], [BETWEEN.join(found) for found in evidence]
