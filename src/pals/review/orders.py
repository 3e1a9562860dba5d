"""Which item comes next: the orders in which a run can be gone through, and what of it is done."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from pals.review.run_view import ENOUGH, Shown
from pals.review.store import Answer, Store
from pals.util.errors import unknown

Kind = Literal["queue", "everything", "doubtful", "class", "person", "search", "answered", "alike"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MOST_ALIKE = 60  # items that are gone through with one
KEPT = 32  # orders that are not computed again


class Order(NamedTuple):
    """How to go through the run; `value` is the class, the person or the words to look for."""

    kind: Kind = "queue"
    value: str = ""

    @classmethod
    def read(cls, kind: str, value: str) -> Order:
        for known in KINDS:
            if kind == known:
                return cls(known, value)
        raise unknown("order", kind, KINDS)


class Orders:
    """The orders of one run, each computed once."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown
        self._kept: OrderedDict[Order, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()

    def items(self, order: Order) -> np.ndarray:
        """The items in this order, all of them, done or not."""
        with self._lock:
            if order not in self._kept:
                self._kept[order] = self._computed(order)
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(order)
            return self._kept[order]

    def _computed(self, order: Order) -> np.ndarray:
        shown, queue = self.shown, self.shown.order
        chosen_N = np.ones(len(shown.items), dtype=bool)
        if order.kind == "queue":
            chosen_N = shown.decision_N != ENOUGH
        if order.kind == "doubtful":
            return self._numbers(shown.doubtful["item"])
        if order.kind == "class":
            chosen_N = shown.label_N == order.value
        if order.kind == "person":
            doubted = self._numbers(_items_of(shown.doubtful, order.value))
            theirs_N = np.zeros(len(shown.items), dtype=bool)
            theirs_N[self._numbers(_items_of(shown.votes, order.value))] = True
            theirs_N[doubted] = False
            return np.concatenate([doubted, queue[theirs_N[queue]]])
        if order.kind == "search":
            words = order.value.casefold()
            chosen_N = np.fromiter((words in item.casefold() for item in shown.items), dtype=bool, count=len(shown.items))
        if order.kind == "alike":
            return self._alike(order.value)
        found: np.ndarray = queue[chosen_N[queue]]
        return found

    def _alike(self, key: str) -> np.ndarray:
        """The item itself, then the most alike to it, then those that are alike to these."""
        first, look = self.shown.number.get(key), self.shown.look
        if first is None or look is None:
            return np.zeros(0, dtype=np.int64)
        found = [first]
        for item in found:  # grows while it is gone through
            if len(found) < MOST_ALIKE:
                found += [other for other in look.neighbor_NK[item].tolist() if other not in found]
        return np.array(found[:MOST_ALIKE], dtype=np.int64)

    def _numbers(self, items: Iterable[str]) -> np.ndarray:
        """Of these items, each once, in the order in which they come."""
        place = self.shown.place
        return np.array([place[item] for item in dict.fromkeys(items) if item in place], dtype=np.int64)


def _items_of(table: Mapping[str, Sequence[str]], person: str) -> Iterator[str]:
    """The items of this person's rows; of doubtful answers the surest come first."""
    return (item for item, worker in zip(table["item"], table["annotator"], strict=True) if worker == person)


class Progress:
    """Which items need nobody any more: somebody has answered since the last update, or this person has answered or passed."""

    def __init__(self, shown: Shown, store: Store, upto: int) -> None:
        self._shown, self._store, self._upto = shown, store, upto
        self._lock = threading.Lock()
        self._seen = 0
        self._fresh_N = np.zeros(len(shown.items), dtype=bool)
        self._by: dict[str, np.ndarray] = {}
        self._last: dict[str, dict[int, int]] = {}  # of each person and item the last answer

    def done_N(self, person: str) -> np.ndarray:
        with self._lock:
            self._catch_up()
            found: np.ndarray = self._fresh_N | self._by.get(person, False)
            return found

    def answered(self, person: str) -> np.ndarray:
        """What this person has answered or passed, the last first."""
        with self._lock:
            self._catch_up()
            last = self._last.get(person, {})
            return np.array(sorted(last, key=last.__getitem__, reverse=True), dtype=np.int64)

    def num_fresh(self) -> int:
        """Items with an answer that no update has taken in."""
        with self._lock:
            self._catch_up()
            return int(self._fresh_N.sum())

    def _catch_up(self) -> None:
        """Only what is new is read."""
        self._seen, changed = self._store.changes(self._seen)
        for item, standing in changed.items():
            number = self._shown.place.get(item)
            if number is not None:
                self._set(number, standing)

    def _set(self, number: int, standing: list[Answer]) -> None:
        self._fresh_N[number] = any(answer.id > self._upto and answer.kind != "skip" for answer in standing)
        for mine_N in self._by.values():
            mine_N[number] = False
        for last in self._last.values():
            last.pop(number, None)
        for answer in standing:
            self._last.setdefault(answer.person, {})[number] = answer.id
            self._by.setdefault(answer.person, np.zeros(len(self._shown.items), dtype=bool))[number] = True
