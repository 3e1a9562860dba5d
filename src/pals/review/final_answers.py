"""What the trusted answers of a review come to: one class, or a disagreement that someone has to settle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from pals.review.answer_log import ReviewAnswer

DECIDING_KINDS = ("label", "none-of-these")


class Verdict(NamedTuple):
    """What the sure answers to one item come to.

    Args:
        label: The one class that all of them allow; "" if there are several or none.
        disagree: Whether no class is allowed by all of them.
    """

    label: str = ""
    disagree: bool = False


def verdict(answers: Iterable[ReviewAnswer], below: Callable[[str], Sequence[str]]) -> Verdict:
    """Compare the answers to one item. "None of these" allows no class.

    Args:
        answers: The standing answers; unsure ones, "don't know" and skipped ones decide nothing.
        below: The classes that a name in an answer stands for.
    """
    deciding = [answer for answer in answers if answer.sure and answer.kind in DECIDING_KINDS]
    classes = [{name for label in answer.labels for name in below(label)} for answer in deciding]
    if not any(classes):
        return Verdict()
    common = set.intersection(*classes)
    return Verdict(next(iter(common)) if len(common) == 1 else "", not common)
