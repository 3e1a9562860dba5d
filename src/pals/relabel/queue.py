"""Which items are worth a person's look, in which order, and why: numbers and words of one item, from the cells of a run's
tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pals.labels.cells import DONT_KNOW, UNSURE_WEIGHT, split_labels
from pals.pipeline.finished_run import UNNAMED
from pals.util.errors import InputError
from pals.util.words import quoted

TRUST = 0.75
"""How far the result's own confidence is trusted to say whether it is wrong; the rest is left to the votes."""

Labels = tuple[str, ...]
"""Those of one answer."""
Below = Callable[[str], Labels]
"""The classes that a name in an answer stands for: all those below it, where it is a node of a taxonomy."""


class Given(NamedTuple):
    """An answer to one item: what it weighs altogether, and how many people whose answers count gave it."""

    weight: float
    people: int


Columns = Mapping[str, Sequence[str]]
"""A table of the run, all cells as text."""


def expected_benefit(confidence_N: np.ndarray, votes_N: np.ndarray, agreement_N: np.ndarray) -> np.ndarray:
    """The chance that an item's result is wrong, which is what a right answer would mend: TRUST times what the result itself
    admits, 1 - confidence, and for the rest what the votes say alone: (votes against + 1/2) / (votes + 1), which is a half
    where nobody has answered and falls with every person who agrees."""
    against_N = (votes_N * (1 - agreement_N) + 0.5) / (votes_N + 1)
    benefit_N: np.ndarray = TRUST * (1 - confidence_N) + (1 - TRUST) * against_N
    return benefit_N


def in_order(labels: Columns, top: int | None = None) -> np.ndarray:
    """Rows of labels.csv in the order of the queue, without those whose right label is known; all, or the `top` best."""
    rows = [row for row, status in enumerate(labels["status"]) if status != "gold"]
    asked = {name: [labels[name][row] for row in rows] for name in ("item", "label", "confidence", "votes", "agreement")}
    confidence_N, votes_N = numbers(asked, "confidence"), numbers(asked, "votes")
    benefit_N = expected_benefit(confidence_N, votes_N, numbers(asked, "agreement", missing=0.0))
    order: np.ndarray = np.array(rows, dtype=np.int64)[
        spread_over_classes(benefit_N, np.array(asked["label"], dtype=object), len(rows) if top is None else top)
    ]
    return order


def spread_over_classes(benefit_N: np.ndarray, label_N: np.ndarray, top: int) -> np.ndarray:
    """The rows of the `top` items, best first. The k-th best item of a class (from 0) counts its benefit divided by
    1 + k / (top / classes): a class with twice the benefit of the others may have more than its even share of the queue, but
    none fills it alone while others have something to gain."""
    class_of = {label: number for number, label in enumerate(dict.fromkeys(label_N.tolist()))}
    class_N = np.array([class_of[label] for label in label_N.tolist()], dtype=np.int64)
    order_N = np.argsort(-benefit_N, kind="stable")
    by_class_N = order_N[np.argsort(class_N[order_N], kind="stable")]  # class by class, each from its best on
    size_C = np.bincount(class_N, minlength=len(class_of))
    before_N = np.empty(len(class_N), dtype=np.int64)
    before_N[by_class_N] = np.arange(len(class_N)) - np.repeat(np.cumsum(size_C) - size_C, size_C)
    value_N = benefit_N / (1 + before_N / (top / max(len(class_of), 1)))
    found: np.ndarray = order_N[np.argsort(-value_N[order_N], kind="stable")][:top]
    return found


def numbers(table: Columns, column: str, missing: float | None = None) -> np.ndarray:
    """A column of numbers; blank cells are `missing`, or an error where that is None."""
    try:
        value_N = np.fromiter(map(float, table[column]), dtype=np.float64)
    except ValueError:  # a cell is blank, or no number
        blank = np.nan if missing is None else missing
        value_N = np.array([_number(cell, blank) for cell in table[column]], dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(value_N))
    if len(bad):
        item, cell = table["item"][bad[0]], table[column][bad[0]].strip()
        raise InputError(f"The {column} of {quoted(item)} is {quoted(cell)}, not a number. Run `pals fit` again to rewrite it.")
    return value_N


def _number(cell: str, blank: float) -> float:
    try:
        return float(cell) if cell.strip() else blank
    except ValueError:
        return np.nan


def itself(name: str) -> Labels:
    return (name,)


def why_look(
    row: Mapping[str, Any],
    votes: Iterable[Mapping[str, str]],
    doubt: Mapping[str, Any] | None,
    separator: str | None,
    below: Below = itself,
) -> str:
    """The queue's reason for one item: its row of labels.csv, its rows of votes.csv, and its surest row of doubtful.csv. A
    table of a few rows would take ten times as long."""
    said: dict[Labels, Given] = {}
    for vote in sorted(votes, key=lambda vote: vote["label"]):
        if vote["is_gold"].casefold() in ("true", "1") or vote["label"] == DONT_KNOW:
            continue
        labels = tuple(split_labels(vote["label"], separator)) if separator else (vote["label"],)
        sure = vote.get("sure", "").casefold() != "false"
        weight = float(vote["weight"] or 1) * (1.0 if sure else UNSURE_WEIGHT)
        before = said.get(labels, Given(0.0, 0))
        said[labels] = Given(round(before.weight + weight, 6), before.people + (weight > 0))
    return reason_of(row, said, doubt, below)


def single(answers: Mapping[Labels, Given]) -> dict[str, float]:
    """The same label by label, the most frequent first: an answer that names several counts as a part for each."""
    parts: dict[str, float] = {}
    for labels, given in answers.items():
        for label in labels:
            parts[label] = parts.get(label, 0.0) + given.weight / len(labels)
    return dict(sorted(parts.items(), key=lambda part: -part[1]))


def reason_of(
    row: Mapping[str, Any], said: Mapping[Labels, Given], doubt: Mapping[str, Any] | None, below: Below = itself
) -> str:
    """Why a person should look, the strongest reason first. Who names several labels, or a node of a taxonomy, is for each of
    the classes that it stands for."""
    if not said:
        return "nobody answered"
    if not any(given.weight for given in said.values()):
        return "no answer counts any more"
    label, reasons = row["label"], []
    support: dict[str, float] = {}
    for labels, given in said.items():
        for name in {name for one in labels for name in below(one)}:
            support[name] = round(support.get(name, 0.0) + given.weight, 6)
    most, people = max(support.values()), sum(given.people for given in said.values())
    others = sum(given.people for labels, given in said.items() if not any(label in below(name) for name in labels))
    if label in support and not any(label in labels for labels in said):
        reasons.append(f"only coarser answers allow {label}")
    elif sum(weight == most for weight in support.values()) > 1:
        reasons.append("a tie")
    elif label not in support:
        reasons.append(f"nobody said {label}")
    elif support[label] < most:
        reasons.append("against what most said")
    elif others:
        reasons.append(f"{others} of {people} said something else")
    elif people == 1:
        reasons.append("one answer only")
    if float(row["confidence"]) < 0.5:
        reasons.append("the result is unsure")
    if doubt is not None:
        who = "somebody" if doubt["annotator"] in ("", UNNAMED) else doubt["annotator"]
        reasons.append(f"{who}'s {doubt['answer']} is probably wrong ({float(doubt['probability_wrong']):.2f})")
    return "; ".join(reasons) or "the least sure of those that are agreed on"
