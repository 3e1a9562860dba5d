"""The answers of a review that stand: of each item and annotator the last one that was not taken back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

AnswerKind = Literal["label", "dont-know", "none-of-these", "skip"]
ANSWER_KINDS: tuple[AnswerKind, ...] = get_args(AnswerKind)
UNDO = "undo"


class ReviewAnswer(NamedTuple):
    """One annotator's answer to one item."""

    id: int
    item: str
    annotator: str
    kind: str
    labels: tuple[str, ...]
    sure: bool
    at: float
    undoes: int | None = None
    settles: bool = False
    audit: bool = False


class AnswerLog:
    """The standing answers: of each item and annotator the last answer that was not taken back."""

    def __init__(self) -> None:
        self.last_id = 0
        self._given: dict[str, dict[str, list[ReviewAnswer]]] = {}
        self._of_annotator: dict[str, dict[int, ReviewAnswer]] = {}

    def take(self, answer: ReviewAnswer) -> None:
        self.last_id = answer.id
        of_annotator = self._of_annotator.setdefault(answer.annotator, {})
        given = self._given.setdefault(answer.item, {}).setdefault(answer.annotator, [])
        if answer.kind == UNDO:
            of_annotator.pop(answer.undoes or 0, None)
            given[:] = [one for one in given if one.id != answer.undoes]
        else:
            of_annotator[answer.id] = answer
            given.append(answer)

    def last(self, annotator: str) -> ReviewAnswer | None:
        """The annotator's last standing answer."""
        of_annotator = self._of_annotator.get(annotator)
        return of_annotator[next(reversed(of_annotator))] if of_annotator else None

    def stands(self, answer: ReviewAnswer) -> bool:
        """Whether the answer was not taken back; it may have been replaced."""
        return answer.id in self._of_annotator.get(answer.annotator, {})

    def of(self, item: str) -> list[ReviewAnswer]:
        """The standing answers to an item. One that settles a disagreement replaces the earlier ones of all annotators."""
        given = self.given(item)
        settled = max((answer.id for answer in given if answer.settles), default=0)
        return [answer for answer in given if answer.id >= settled or answer.kind == "skip"]

    def given(self, item: str) -> list[ReviewAnswer]:
        """The standing answers to an item, settled or not."""
        return [_last(answers) for answers in self._given.get(item, {}).values() if answers]

    def by_item(self) -> list[list[ReviewAnswer]]:
        """The standing answers of each item, settled or not."""
        return [self.given(item) for item in self._given]

    def current(self) -> list[ReviewAnswer]:
        standing = (answer for item in self._given for answer in self.of(item))
        return sorted(standing, key=lambda answer: answer.id)


def _last(answers: Sequence[ReviewAnswer]) -> ReviewAnswer:
    """The last of one annotator's answers to one item; skipping the item later does not take an answer back."""
    return next((answer for answer in reversed(answers) if answer.kind != "skip"), answers[-1])
