"""The tables of a finished run, read once, for the review page."""

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
from pals.pipeline.item_order import DISAGREEMENT, column_of_numbers, item_order
from pals.pipeline.run_arrays import ItemNeighbors
from pals.relabel.queue_reasons import queue_reason
from pals.runs.run_json import refuse_strange
from pals.util.errors import InputError

VIEW_TABLES = ("labels.csv", "doubtful.csv", "votes.csv")
ENOUGH = "enough"


def key_of(item: str) -> str:
    """The item in an address: a hash, so that no file name is part of an address; the same in every round."""
    return hashlib.blake2b(item.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def places(items: Iterable[str], place: Mapping[str, int]) -> np.ndarray:
    """The number of each item; -1 if it is unknown."""
    return np.fromiter(map(place.get, items, repeat(-1)), dtype=np.int64)


def share_right(numbers: Mapping[str, Any], key: str) -> tuple[float, float, float] | None:
    """The estimated share of right labels and its interval, from the share of wrong ones in summary.json."""
    wrong, interval = numbers.get(key), numbers.get(f"{key}_interval")
    if not isinstance(wrong, float) or not isinstance(interval, list):
        return None
    return 1 - wrong, 1 - interval[1], 1 - interval[0]


@dataclass(frozen=True)
class RowsByItem:
    """The rows of a table grouped by item."""

    columns: dict[str, list[str]]
    row_R: np.ndarray
    start_N: np.ndarray

    @classmethod
    def of(cls, table: dict[str, list[str]], place: dict[str, int]) -> RowsByItem:
        place_R = places(table["item"], place)
        order = np.argsort(place_R, kind="stable")
        columns = {name: cells for name, cells in table.items() if name != "item"}
        return cls(columns, order, np.searchsorted(place_R[order], np.arange(len(place) + 1)))

    def __getitem__(self, item: int) -> list[dict[str, str]]:
        rows = self.row_R[self.start_N[item] : self.start_N[item + 1]].tolist()
        return [{name: column[row] for name, column in self.columns.items()} for row in rows]


class RunView:
    """The tables of a run folder. Items are numbered as in labels.csv."""

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
        self.labels, self.doubtful, self.votes = (read_columns(folder, name) for name in VIEW_TABLES)
        self.items = self.labels["item"]
        self.keys = [key_of(item) for item in self.items]
        self.place = dict(zip(self.items, range(len(self.items)), strict=True))
        self.number = dict(zip(self.keys, range(len(self.keys)), strict=True))
        self.votes_of, self.doubts_of = (RowsByItem.of(table, self.place) for table in (self.votes, self.doubtful))
        self.label_N = np.array(self.labels["label"], dtype=object)
        self.confidence_N = column_of_numbers(self.labels, "confidence")
        self.disagree_N = np.array(self.labels["status"], dtype=object) == DISAGREEMENT
        for table, column, missing in ((self.doubtful, "probability_wrong", None), (self.votes, "weight", 1.0)):
            column_of_numbers(table, column, missing)  # checked now, not when the item is opened
        self.decision_N, self.gain_N = self._decisions()
        self.neighbors = ItemNeighbors.load(folder)
        self.class_names: list[str] = read_columns(folder, "classes.csv")["class"]
        self.taxonomy = taxonomy_of(folder)
        self.below = itself if self.taxonomy is None else self.taxonomy.below

    def _decisions(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each item the decision (enough answers, one more, expert) and the gain of one more answer; "" and 0 where
        unknown."""
        decision_N, gain_N = np.full(len(self.items), "", dtype=object), np.zeros(len(self.items))
        table = read_columns(self.folder, "next.csv", ("item", "decision", "gain"))
        place_R = places(table["item"], self.place)
        known_R = place_R >= 0
        decision_N[place_R[known_R]] = np.array(table["decision"], dtype=object)[known_R]
        gain_N[place_R[known_R]] = column_of_numbers(table, "gain", missing=0.0)[known_R]
        return decision_N, gain_N

    @cached_property
    def order(self) -> np.ndarray:
        """All items without a known label, in the order of the queue."""
        return item_order(self.labels)

    @cached_property
    def choices(self) -> list[dict[str, Any]]:
        """What an answer may name: the classes, or all nodes of the taxonomy with their depth."""
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
    def annotators(self) -> list[str]:
        """The names of the annotators of the run."""
        return sorted(set(self.votes["annotator"]) - {""})

    # ---- one item

    def facts(self, item: int) -> dict[str, Any]:
        """What the page shows of an item."""
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
        return queue_reason(
            self.label_N[item],
            float(self.confidence_N[item]),
            self._answers(item),
            surest,
            self.below,
            self.labels["status"][item],
        )

    def _said(self, item: int) -> list[dict[str, Any]]:
        """The answers to an item, with the probability that each is wrong where known. Doubts are matched by annotator and
        labels: an annotator may have given several answers, and "(unnamed)" is many annotators."""

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
        pairs = zip(self.neighbors.choice_NT[item].tolist(), self.neighbors.share_NT[item].tolist(), strict=True)
        return [(self.class_names[choice], share) for choice, share in pairs]

    def _similar(self, item: int) -> list[dict[str, Any]]:
        pairs = zip(self.neighbors.neighbor_NK[item].tolist(), self.neighbors.similarity_NK[item].tolist(), strict=True)
        return [{**self.brief(other), "similarity": similarity} for other, similarity in pairs]
