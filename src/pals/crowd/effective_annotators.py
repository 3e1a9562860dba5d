"""How many independent annotators the answers are worth, since annotators share mistakes and some copy.

    worth = n / (1 + (n - 1) rho)

with n answers to an item in the mean, those of annotators who never differ (`copied_answers`) counted once, and the fitted
correlation rho of mistakes about one item (`dawid_skene.correlation`): Kish's effective sample size. Mistakes that nearly all
annotators share are not part of rho, so the worth is an upper bound.

Reference: Kish 1965, Survey Sampling (design effect).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pals.crowd.copied_answers import Same
from pals.crowd.dawid_skene.em import Consensus

ALL_ANSWERED = 0.9
"""Answers to an item, as a share of the annotators, from which it is said that all of them answer."""


@dataclass(frozen=True)
class EffectiveAnnotators:
    """What the answers to an item are worth.

    Args:
        answers: Answers to an item, in the mean over items with an answer.
        independent: As many independent ones they are worth.
        correlation: Correlation of mistakes about one item.
        everybody: Number of annotators, if they answer nearly all items; else 0.
    """

    answers: float
    independent: float
    correlation: float
    everybody: int


def effective_annotators(consensus: Consensus, copies: Sequence[Same] = ()) -> EffectiveAnnotators:
    """Kish's effective number of annotators.

    Args:
        consensus: The fitted annotator model.
        copies: Groups of annotators who never differ; each counts as one.

    Returns:
        The number, 0 without answers.

    >>> from pathlib import Path
    >>> text = b"item,annotator,label\\na.jpg,ann,newt\\na.jpg,bob,newt\\nb.jpg,ann,frog\\nb.jpg,bob,frog\\n"
    >>> found = pals.dawid_skene(pals.read_votes([pals.Source(Path("votes.csv"), data=text)]), correlation=0.5)
    >>> round(effective_annotators(found).independent, 3)
    1.333
    """
    table, rho = consensus.answers, consensus.correlation
    counted_A = table.weight_A > 0
    item_A, annotator_A = table.item_A[counted_A], table.annotator_A[counted_A].copy()
    items = max(len(np.unique(item_A)), 1)
    who_W = np.arange(table.num_annotators)
    for same in copies:
        who_W[list(same.people)] = same.people[0]
    named_A = annotator_A >= 0

    def answers(of_W: np.ndarray) -> float:
        pairs = np.unique(item_A[named_A] * max(table.num_annotators, 1) + of_W[annotator_A[named_A]])
        return (len(pairs) + int((~named_A).sum())) / items

    given, apart = answers(np.arange(table.num_annotators)), answers(who_W)
    people = len(np.unique(annotator_A[named_A])) if named_A.all() else 0
    everybody = people if people and given >= ALL_ANSWERED * people else 0
    return EffectiveAnnotators(given, apart / (1 + max(apart - 1, 0) * rho), rho, everybody)
