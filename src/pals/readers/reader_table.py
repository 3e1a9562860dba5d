"""What a reader hands over: the answers of one file as columns, not yet cleaned. Row-by-row readers collect `Records`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pals.readers.read_summary import EXAMPLES, Skipped
from pals.readers.times import durations_of, times_of


class Coded(NamedTuple):
    """A column of text: each row has the number of its name, or -1 where there is nothing."""

    code_R: np.ndarray
    names: np.ndarray  # of str

    @classmethod
    def of(cls, values: Sequence[Any] | np.ndarray) -> Coded:
        """None becomes -1."""
        array = np.empty(len(values), dtype=object)
        array[:] = values
        code_R, names = pd.factorize(array)
        return cls(code_R.astype(np.int64), names)

    def take(self, index: np.ndarray) -> Coded:
        return Coded(self.code_R[index], self.names)


def no_annotators(rows: int) -> Coded:
    """The column of annotators where none is named."""
    return Coded(np.full(rows, -1, dtype=np.int64), np.empty(0, dtype=object))


@dataclass
class Tally:
    """Counts what is left out, by reason, with the first few places."""

    found: dict[str, tuple[int, list[str]]] = field(default_factory=dict)

    def add(self, reason: str, count: int, places: Iterable[str]) -> None:
        if count:
            before, examples = self.found.get(reason, (0, []))
            examples = examples + [place for place, _ in zip(places, range(EXAMPLES - len(examples)), strict=False)]
            self.found[reason] = (before + count, examples)

    def merge(self, other: Tally) -> None:
        for reason, (count, examples) in other.found.items():
            self.add(reason, count, examples)

    def done(self) -> tuple[Skipped, ...]:
        return tuple(Skipped(reason, count, tuple(examples)) for reason, (count, examples) in self.found.items())


@dataclass(frozen=True)
class Table:
    """The answers in one file, one row per label, as written there."""

    path: Path
    unit: str  # what `place_R` counts: "row", "line", ...
    place_R: np.ndarray
    item: Coded
    worker: Coded
    label: Coded  # -1: no answer
    answer_R: np.ndarray | None = None  # None, or -1 for a row: rows of the same item and annotator are one answer
    weight_R: np.ndarray | None = None
    gold_R: np.ndarray | None = None  # rows that say what is right, not what someone thinks
    sure_R: np.ndarray | None = None  # False where a mark beside the label says that it is unsure
    time_R: np.ndarray | None = None  # seconds since 1970, NaN where it is not known when the answer was given
    seconds_R: np.ndarray | None = None  # that the answer took, NaN where it is not known
    classes: tuple[str, ...] | None = None  # where the file declares them
    lone_items: tuple[str, ...] = ()  # named without any row
    splits: bool = False  # whether one cell may hold several labels with a separator between them
    as_written: bool = False  # whether no label has a mark: the file says elsewhere what is unsure
    skipped: Tally = field(default_factory=Tally)
    notes: tuple[str, ...] = ()

    grouped: bool = False  # set where `answer_R` was None
    unknown_R: np.ndarray | None = None  # set where the label was one of the words for "don't know"

    def take(self, index: np.ndarray, label: Coded) -> Table:
        """These rows, with other labels."""
        return replace(
            self,
            place_R=self.place_R[index],
            item=self.item.take(index),
            worker=self.worker.take(index),
            label=label,
            answer_R=None if self.answer_R is None else self.answer_R[index],
            weight_R=None if self.weight_R is None else self.weight_R[index],
            gold_R=None if self.gold_R is None else self.gold_R[index],
            sure_R=None if self.sure_R is None else self.sure_R[index],
            time_R=None if self.time_R is None else self.time_R[index],
            seconds_R=None if self.seconds_R is None else self.seconds_R[index],
        )

    def place(self, row: int) -> str:
        return f"{self.path.name}, {self.unit} {self.place_R[row]}"


@dataclass
class Records:
    """Collects answers one by one."""

    path: Path
    unit: str
    items: list[str] = field(default_factory=list)
    workers: list[str | None] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    golds: list[bool] = field(default_factory=list)
    sures: list[bool] = field(default_factory=list)
    times: list[object] = field(default_factory=list)
    seconds: list[object] = field(default_factory=list)
    places: list[int | str] = field(default_factory=list)
    lone: list[str] = field(default_factory=list)
    skipped: Tally = field(default_factory=Tally)
    count: int = 0
    by_id: dict[tuple[str, str | None, str], int] = field(default_factory=dict)

    def add(
        self,
        item: str,
        worker: str | None,
        labels: Sequence[str | None],
        place: int | str,
        *,
        weight: float = 1.0,
        weights: Sequence[float] | None = None,
        gold: bool = False,
        sure: bool | Sequence[bool] = True,
        time: object = None,
        seconds: object = None,
        joins: bool = False,
        answer_id: str | None = None,
    ) -> None:
        """One answer as written in the file: all its labels, whether it or each of them is sure, when it was given and how many
        seconds it took. No label, or None, is no answer. With `joins` it is part of what the annotator said about the item
        elsewhere, or, if it has an `answer_id`, where that is the same."""
        answer = -1 if joins else self.count
        if joins and answer_id:
            answer = self.by_id.setdefault((item, worker, answer_id), self.count)
        for number, label in enumerate(labels or [None]):
            self.items.append(item)
            self.workers.append(worker)
            self.labels.append(label)
            self.answers.append(answer)
            self.weights.append(weight if weights is None else weights[number])
            self.golds.append(gold)
            self.sures.append(sure if isinstance(sure, bool) else sure[number])
            self.times.append(time)
            self.seconds.append(seconds)
            self.places.append(place)
        self.count += 1

    def skip(self, reason: str, place: int | str, item: str | None = None) -> None:
        self.skipped.add(reason, 1, [f"{self.path.name}, {self.unit} {place}"])
        if item is not None:
            self.lone.append(item)

    def table(
        self,
        *,
        classes: Sequence[str] | None = None,
        notes: Iterable[str] = (),
        splits: bool = False,
        asked_for_times: bool = False,
    ) -> Table:
        def place(row: int) -> str:
            return f"{self.path}, {self.unit} {self.places[row]}"

        time_R, left = times_of(self.times, place, asked=asked_for_times)
        seconds_R, more_left = durations_of(self.seconds, place)
        return Table(
            path=self.path,
            unit=self.unit,
            place_R=np.array(self.places, dtype=object),
            item=Coded.of(self.items),
            worker=Coded.of(self.workers),
            label=Coded.of(self.labels),
            answer_R=np.array(self.answers, dtype=np.int64),
            weight_R=np.array(self.weights, dtype=np.float64),
            gold_R=np.array(self.golds, dtype=bool),
            sure_R=np.array(self.sures, dtype=bool),
            time_R=time_R,
            seconds_R=seconds_R,
            classes=None if classes is None else tuple(classes),
            lone_items=tuple(dict.fromkeys(self.lone)),
            splits=splits,
            skipped=self.skipped,
            notes=(*notes, *left, *more_left),
        )
