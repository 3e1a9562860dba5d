"""Who answers in a review: how many items each, and how often two of them agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

from pals.review.answer_log import ReviewAnswer
from pals.review.final_answers import DECIDING_KINDS, verdict

MAX_PAIRS = 12


class Reviewers(NamedTuple):
    """The annotators of a review.

    Args:
        counts: Name and number of items answered, most first.
        pairs: Two names, the number of items that both answered with sure labels, and the number on which they agree: those
            with the most such items first.
    """

    counts: list[tuple[str, int]]
    pairs: list[tuple[str, str, int, int]]

    @classmethod
    def of(cls, by_item: Iterable[Sequence[ReviewAnswer]], below: Callable[[str], Sequence[str]]) -> Reviewers:
        """Count them.

        Args:
            by_item: The standing answers of each item.
            below: The classes that a name in an answer stands for.
        """
        counts: Counter[str] = Counter()
        both: Counter[tuple[str, str]] = Counter()
        agree: Counter[tuple[str, str]] = Counter()
        for answers in by_item:
            counts.update(answer.annotator for answer in answers if answer.kind != "skip")
            deciding = [answer for answer in answers if answer.sure and answer.kind in DECIDING_KINDS]
            for one, other in combinations(sorted(deciding, key=lambda answer: answer.annotator), 2):
                pair = one.annotator, other.annotator
                both[pair] += 1
                agree[pair] += one.kind == other.kind and not verdict((one, other), below).disagree
        first = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
        return cls(first, [(*pair, number, agree[pair]) for pair, number in both.most_common(MAX_PAIRS)])
