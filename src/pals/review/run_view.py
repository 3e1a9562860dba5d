"""A finished run as the page shows it: read once, then asked about one item at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from pals.pipeline.finished_run import SEVERAL, UNNAMED, data_of, read_columns, taxonomy_of
from pals.pipeline.item_answers import TOGETHER, ItemAnswer, answers_of_rows, itself
from pals.pipeline.item_neighbors import SecondLook
from pals.pipeline.item_order import column_of_numbers, item_order
from pals.relabel.queue_reasons import queue_reason
from pals.runs.run_json import refuse_strange
from pals.util.errors import InputError
from pals.util.files import read_object

TABLES = ("labels.csv", "doubtful.csv", "votes.csv")
ENOUGH = "enough"


def key_of(item: str) -> str:
    """The item in an address: no name of a file ever stands in one, and it is the same in every round."""
    return hashlib.blake2b(item.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def places(items: Iterable[str], place: Mapping[str, int]) -> np.ndarray:
    """Where each item stands; -1 where it is not known."""
    return np.fromiter(map(place.get, items, repeat(-1)), dtype=np.int64)


@dataclass(frozen=True)
class Groups:
    """The rows of a table by the item that they are about, in the order of labels.csv."""

    columns: dict[str, list[str]]
    row_R: np.ndarray
    start_N: np.ndarray

    @classmethod
    def of(cls, table: dict[str, list[str]], place: dict[str, int]) -> Groups:
        place_R = places(table["item"], place)
        order = np.argsort(place_R, kind="stable")
        columns = {name: cells for name, cells in table.items() if name != "item"}
        return cls(columns, order, np.searchsorted(place_R[order], np.arange(len(place) + 1)))

    def __getitem__(self, item: int) -> list[dict[str, str]]:
        rows = self.row_R[self.start_N[item] : self.start_N[item + 1]].tolist()
        return [{name: column[row] for name, column in self.columns.items()} for row in rows]


class Shown:
    """The tables of a run's folder. Items are numbered as in labels.csv."""

    def __init__(self, folder: Path) -> None:
        refuse_strange(folder)
        data = data_of(folder)
        if "votes" not in data or not (folder / "summary.json").is_file():
            raise InputError(f"{folder} is not a finished run of `pals fit`. Run `pals fit` first, or let it finish.")
        self.folder = folder
        self.separator, images = data.get("separator", SEVERAL), data.get("images")
        if not all(isinstance(text, str | None) for text in (self.separator, images)):
            raise InputError(f"{folder / 'config.yaml'} is damaged. Restore it from a copy, or fit again.")
        self.images = None if images is None else Path(images)
        self.labels, self.doubtful, self.votes = (read_columns(folder, name) for name in TABLES)
        self.items = self.labels["item"]
        self.keys = [key_of(item) for item in self.items]
        self.place = dict(zip(self.items, range(len(self.items)), strict=True))
        self.number = dict(zip(self.keys, range(len(self.keys)), strict=True))
        self.votes_of, self.doubts_of = (Groups.of(table, self.place) for table in (self.votes, self.doubtful))
        self.label_N = np.array(self.labels["label"], dtype=object)
        self.confidence_N = column_of_numbers(self.labels, "confidence")
        for table, column, missing in ((self.doubtful, "probability_wrong", None), (self.votes, "weight", 1.0)):
            column_of_numbers(table, column, missing)  # damage is told now, not when the item is shown
        self.decision_N, self.gain_N = self._decisions()
        self.look = SecondLook.load(folder)
        self.class_names: list[str] = read_columns(folder, "classes.csv")["class"]
        self.taxonomy = taxonomy_of(folder)
        self.numbers = read_object(folder / "summary.json")

    def _decisions(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each item whether it has enough answers, and what one more is worth; "" and 0 where that is not known."""
        decision_N, gain_N = np.full(len(self.items), "", dtype=object), np.zeros(len(self.items))
        if not (self.folder / "next.csv").is_file():
            return decision_N, gain_N
        table = read_columns(self.folder, "next.csv", ("item", "decision", "gain"))
        place_R = places(table["item"], self.place)
        known_R = place_R >= 0
        decision_N[place_R[known_R]] = np.array(table["decision"], dtype=object)[known_R]
        gain_N[place_R[known_R]] = column_of_numbers(table, "gain", missing=0.0)[known_R]
        return decision_N, gain_N

    @cached_property
    def order(self) -> np.ndarray:
        """All items whose right label is not known, in the order of the queue."""
        return item_order(self.labels)

    @cached_property
    def choices(self) -> list[dict[str, Any]]:
        """What an answer may name, in the order of the page: classes, or all nodes of the taxonomy with their depth."""
        if self.taxonomy is None:
            return [{"name": name, "depth": 0, "leaf": True} for name in self.class_names]
        leaves = set(self.taxonomy.leaves)
        return [
            {"name": name, "depth": int(depth), "leaf": name in leaves}
            for name, depth in zip(self.taxonomy.nodes, self.taxonomy.depth_T.tolist(), strict=True)
        ]

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(choice["name"] for choice in self.choices)

    @cached_property
    def people(self) -> list[str]:
        """Who answered, by name."""
        return sorted(set(self.votes["annotator"]) - {""})

    @property
    def right(self) -> tuple[float, float, float] | None:
        """The share of all labels that is right by the run's own estimate, and its interval."""
        return self._share_right("labels_wrong")

    @property
    def earlier_right(self) -> tuple[float, float, float] | None:
        """The same of the labels before this update, by the estimate of this one."""
        return self._share_right("earlier_labels_wrong")

    def _share_right(self, key: str) -> tuple[float, float, float] | None:
        wrong, interval = self.numbers.get(key), self.numbers.get(f"{key}_interval")
        if not isinstance(wrong, float) or not isinstance(interval, list):
            return None
        return 1 - wrong, 1 - interval[1], 1 - interval[0]

    # ---- one item

    def facts(self, item: int) -> dict[str, Any]:
        """All that is known of an item, for a template."""
        brief = self.brief(item)
        return {
            **brief,
            "status": self.labels["status"][item],
            "second": self.labels["second"][item],
            "reason": self._reason(item),
            "decision": self.decision_N[item],
            "gain": float(self.gain_N[item]),
            "said": self._said(item),
            "model": self._model(item),
            "similar": self._similar(item),
        }

    def brief(self, item: int) -> dict[str, Any]:
        return {
            "key": self.keys[item],
            "item": self.items[item],
            "label": self.label_N[item],
            "confidence": float(self.confidence_N[item]),
        }

    def _answers(self, item: int) -> list[ItemAnswer]:
        return answers_of_rows(self.votes_of[item], self.separator)

    def _reason(self, item: int) -> str:
        surest = next(iter(self.doubts_of[item]), None)  # the first
        below = itself if self.taxonomy is None else self.taxonomy.below
        return queue_reason(self.label_N[item], float(self.confidence_N[item]), self._answers(item), surest, below)

    def _said(self, item: int) -> list[dict[str, Any]]:
        """Who answered what; the probability that it is wrong, where that is known. A doubt is about one answer: its annotator
        may have given another, and "(unnamed)" is many people."""

        def key_of_answer(who: str, labels: Sequence[str]) -> tuple[str, ...]:
            return (who, *sorted(TOGETHER.join(labels).split(TOGETHER)))

        doubts = {
            key_of_answer(doubt["annotator"], [doubt["answer"]]): float(doubt["probability_wrong"])
            for doubt in self.doubts_of[item]
        }
        said = []
        for answer in self._answers(item):
            who = answer.annotator or ("(known)" if answer.gold else UNNAMED)
            wrong = None if answer.gold else doubts.get(key_of_answer(who, answer.labels))
            said.append({"who": who, "labels": answer.labels, "sure": answer.sure, "unknown": answer.unknown, "wrong": wrong})
        return said

    def _model(self, item: int) -> list[tuple[str, float]]:
        if self.look is None:
            return []
        pairs = zip(self.look.choice_NT[item].tolist(), self.look.share_NT[item].tolist(), strict=True)
        return [(self.class_names[choice], share) for choice, share in pairs]

    def _similar(self, item: int) -> list[dict[str, Any]]:
        if self.look is None:
            return []
        pairs = zip(self.look.neighbor_NK[item].tolist(), self.look.similarity_NK[item].tolist(), strict=True)
        return [{**self.brief(other), "similarity": similarity} for other, similarity in pairs]

    def refuse_strange(self, labels: Sequence[str]) -> None:
        for label in labels:
            if label not in self.names:
                raise InputError(f"{label!r} is not among the classes of {self.folder.name}.")
