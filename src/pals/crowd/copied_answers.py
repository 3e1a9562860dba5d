"""Annotators who give the same answers to all items: did they answer by themselves?

Everything else here takes annotators for independent given the class. If one copied from another, or one annotator has two
names, all of them agree and nothing seems wrong. Who answers alone errs now and then, and not always as others do: of
annotators each of whom is wrong about one answer in a hundred, beyond what chance makes right, the probability that none of
them ever differs shrinks with every answer. Where it is next to none, they are better than that, or they are not several."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from pals.crowd.agreement import Agreement, single_answers
from pals.readers import Votes

WRONG = 0.01
"""Share of the answers, beyond chance, that each annotator at least would get wrong on their own."""
FALSE_ALARMS = 0.01
"""Chance that an annotator is named in a crowd of such annotators; by Bonferroni over all groups of that size."""
MIN_SHARED_ITEMS = 100
"""Items that two annotators must have in common for being compared."""


@dataclass(frozen=True)
class Same:
    """Annotators, by their numbers in the votes, who never differ, and how many items two or more of them answered for."""

    people: tuple[int, ...]
    items: int


def never_differ(votes: Votes, found: Agreement) -> list[Same]:
    """Groups of annotators who agree about every item that they have in common, more often than they would by themselves; the
    largest first."""
    alike = [(pair.one, pair.other) for pair in found.pairs if pair.agree == 1 and pair.items >= MIN_SHARED_ITEMS]
    if not alike:
        return []
    crowd, (one_P, other_P) = len(votes.annotators), np.array(alike).T
    linked_WW = coo_matrix((np.ones(len(alike)), (one_P, other_P)), shape=(crowd, crowd))
    group_W = connected_components(linked_WW, directed=False)[1]
    item_A, annotator_A, label_A, _ = single_answers(votes)
    share_C = np.bincount(label_A) / len(label_A)
    beyond_chance = 1 - float((share_C**2).sum())
    groups = []
    for number in np.unique(group_W[one_P]).tolist():
        people = np.flatnonzero(group_W == number)
        own = np.flatnonzero(np.isin(annotator_A, people))
        answers_N = np.bincount(item_A[own], minlength=len(votes.items))
        said = len(np.unique(item_A[own] * len(share_C) + label_A[own]))
        shared_N = answers_N > 1
        log_groups = math.log(math.comb(crowd, len(people)))
        surprise = WRONG * beyond_chance * int(answers_N[shared_N].sum())
        if said == np.count_nonzero(answers_N) and surprise >= log_groups - math.log(FALSE_ALARMS):
            groups.append(Same(tuple(people.tolist()), int(shared_N.sum())))
    return sorted(groups, key=lambda same: -len(same.people))
