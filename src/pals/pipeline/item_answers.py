"""What annotators answered about an item, in words: used by the tables, the queue, the report and the review page.

An answer is written "cat", "cat + dog" if it names several labels, "cat?" if it is unsure; the answers of an item are counted,
"cat x2; dog?; don't know", the most frequent first and "don't know" last.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pals.labels.cells import DONT_KNOW, UNSURE_WEIGHT, split_labels

if TYPE_CHECKING:
    from pals.readers import Votes

TOGETHER = " + "  # between the labels of one answer
Labels = tuple[str, ...]
Below = Callable[[str], Labels]
"""The classes that a name in an answer stands for: those below it, where it is a node of a taxonomy."""


class ItemAnswer(NamedTuple):
    """One annotator's answer to one item. `annotator` is "" where no name is known; `gold` marks a known label."""

    annotator: str
    labels: Labels
    weight: float = 1.0
    sure: bool = True
    gold: bool = False

    @property
    def unknown(self) -> bool:
        """Whether the answer is "don't know"."""
        return self.labels == (DONT_KNOW,)

    @property
    def counts(self) -> float:
        """Weight where answers are only counted: an unsure one counts half, "don't know" and a gold label nothing."""
        return 0.0 if self.unknown or self.gold else self.weight * (1.0 if self.sure else UNSURE_WEIGHT)

    @property
    def text(self) -> str:
        """The answer as tables write it: "cat", "cat + dog", "cat?"."""
        return TOGETHER.join(self.labels if self.sure else (f"{label}?" for label in self.labels))


def itself(name: str) -> Labels:
    """`Below` without a taxonomy."""
    return (name,)


def answers_of_rows(rows: Iterable[Mapping[str, str]], separator: str | None) -> list[ItemAnswer]:
    """The answers to one item from its rows of votes.csv; rows of one answer share an `answer_id` or an annotator."""
    whole: dict[object, ItemAnswer] = {}
    for number, row in enumerate(rows):
        gold = row["is_gold"].casefold() in ("true", "1")
        key = (gold, row.get("answer_id") or row["annotator"] or number, row["label"] == DONT_KNOW)
        labels = tuple(split_labels(row["label"], separator)) if separator else (row["label"],)
        sure = row.get("sure", "").casefold() != "false"
        before = whole.get(key, ItemAnswer(row["annotator"], (), float(row["weight"] or 1), sure, gold))
        whole[key] = before._replace(labels=before.labels + labels, sure=before.sure or sure)
    return list(whole.values())


def answers_of_votes(
    votes: Votes, items: Iterable[int], answer_R: np.ndarray | None = None
) -> dict[int, dict[int, ItemAnswer]]:
    """The answers to these items: by item, then by the number of the answer; "don't know" has negative numbers."""
    from pals.readers.taxonomy_answers import spoken

    answer_R = votes.answer_R if answer_R is None else answer_R
    wanted_N = np.zeros(len(votes.items), dtype=bool)
    wanted_N[list(items)] = True
    row = np.flatnonzero(wanted_N[votes.item_R])
    row, names = spoken(votes, row[np.lexsort((votes.label_R[row], answer_R[row]))])
    found: dict[int, dict[int, ItemAnswer]] = {item: {} for item in np.flatnonzero(wanted_N).tolist()}
    people = (*votes.annotators, "")  # the last for -1
    columns = (column[row].tolist() for column in (votes.item_R, answer_R, votes.annotator_R, votes.weight_R, votes.sure_R))
    for item, answer, annotator, weight, sure, name in zip(*columns, names, strict=True):
        before = found[item].get(answer)
        if before is None:
            found[item][answer] = ItemAnswer(people[annotator], (name,), float(weight), bool(sure))
        else:
            found[item][answer] = before._replace(labels=(*before.labels, name), sure=before.sure or bool(sure))
    for number, (item, annotator) in enumerate(
        zip(votes.unknown_item_U.tolist(), votes.unknown_annotator_U.tolist(), strict=True)
    ):
        if wanted_N[item]:
            found[item][-1 - number] = ItemAnswer(people[annotator], (DONT_KNOW,))
    return found


def in_words(answers: Iterable[ItemAnswer]) -> str:
    """ "cat x2; dog?; bird (not counted); don't know": what was answered how often, gold labels left out."""
    count = Counter(
        answer.text if answer.weight > 0 or answer.unknown else f"{answer.text} (not counted)"
        for answer in answers
        if not answer.gold
    )
    return tally({text: count[text] for text in sorted(count, key=lambda text: (text == DONT_KNOW, -count[text]))})


def others_in_words(answers: Mapping[int, ItemAnswer], asked: Iterable[int]) -> list[str]:
    """For each of the answers `asked` to one item all other answers in words. As an item may have very many answers, equal ones
    share the words, which differ only in the order of equally frequent answers."""
    numbers = defaultdict(list)
    for number, answer in answers.items():
        if not answer.unknown:
            numbers[answer.text].append(number)
    unknown = sum(answer.unknown for answer in answers.values())

    @cache
    def others(own: str, first: bool) -> str:
        count = {text: len(given) - (text == own) for text, given in numbers.items()}
        begin = {text: given[int(first and text == own and len(given) > 1)] for text, given in numbers.items()}
        ranked = sorted((text for text in count if count[text]), key=lambda text: (-count[text], begin[text]))
        return tally({text: count[text] for text in ranked} | ({DONT_KNOW: unknown} if unknown else {}))

    return [others(answers[number].text, numbers[answers[number].text][0] == number) for number in asked]


def tally(counts: Mapping[str, int]) -> str:
    """ "cat x2; dog": each text with its number where that is not one."""
    return "; ".join(text if times == 1 else f"{text} x{times}" for text, times in counts.items())
