"""The orders in which a run can be reviewed, and which items are done."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from pals.pipeline.item_order import with_audit
from pals.review.answer_log import ReviewAnswer
from pals.review.final_answers import verdict
from pals.review.run_view import ENOUGH, RunView
from pals.review.store import AnswerStore
from pals.util.errors import unknown

OrderKind = Literal[
    "queue", "everything", "doubtful", "class", "annotator", "search", "answered", "alike", "disagreement", "unlisted"
]
ORDER_KINDS: tuple[OrderKind, ...] = get_args(OrderKind)
MAX_SIMILAR_ITEMS = 60  # items that are gone through with one
MAX_CACHED_ORDERS = 32  # orders that are not computed again


class ItemOrder(NamedTuple):
    """An order; `value` is the class, the annotator, the words to search for, or the key of an item."""

    kind: OrderKind = "queue"
    value: str = ""

    @classmethod
    def read(cls, kind: str, value: str) -> ItemOrder:
        for known in ORDER_KINDS:
            if kind == known:
                return cls(known, value)
        raise unknown("order", kind, ORDER_KINDS)


class ItemOrders:
    """The orders of one round, each computed once.

    Args:
        view: The tables of the round.
        number: Its number.
        audit: Share of the queue that is drawn at random.
    """

    def __init__(self, view: RunView, number: int = 0, audit: float = 0.0) -> None:
        self.view = view
        asked = view.order[view.decision_N[view.order] != ENOUGH]
        rows = round(len(asked) / (1 - audit))
        self.queue, audit_M = with_audit(asked, view.order, rows, audit, number)
        self.audit_N = np.zeros(len(view.items), dtype=bool)
        self.audit_N[self.queue[audit_M]] = True
        self._kept: OrderedDict[ItemOrder, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()

    def items(self, order: ItemOrder) -> np.ndarray:
        """All items of this order, done or not."""
        with self._lock:
            if order not in self._kept:
                self._kept[order] = self._computed(order)
                if len(self._kept) > MAX_CACHED_ORDERS:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(order)
            return self._kept[order]

    def _computed(self, order: ItemOrder) -> np.ndarray:
        view, queue = self.view, self.view.order
        chosen_N = np.ones(len(view.items), dtype=bool)
        if order.kind == "queue":
            return self.queue
        if order.kind == "doubtful":
            return self._numbers(view.doubtful["item"])
        if order.kind == "class":
            chosen_N = view.label_N == order.value
        if order.kind == "annotator":
            doubted = self._numbers(_items_of(view.doubtful, order.value))
            theirs_N = np.zeros(len(view.items), dtype=bool)
            theirs_N[self._numbers(_items_of(view.votes, order.value))] = True
            theirs_N[doubted] = False
            return np.concatenate([doubted, queue[theirs_N[queue]]])
        if order.kind == "search":
            words = order.value.casefold()
            chosen_N = np.fromiter((words in item.casefold() for item in view.items), dtype=bool, count=len(view.items))
        if order.kind == "unlisted":
            chosen_N = np.array(view.labels["status"], dtype=object) == "none-of-these"
        if order.kind == "disagreement":
            chosen_N = view.disagree_N
        if order.kind == "alike":
            return self._alike(order.value)
        found: np.ndarray = queue[chosen_N[queue]]
        return found

    def _alike(self, key: str) -> np.ndarray:
        """The item itself, its nearest neighbours, then their neighbours."""
        first = self.view.number.get(key)
        if first is None:
            return np.zeros(0, dtype=np.int64)
        found = [first]
        for item in found:  # grows while it is gone through
            if len(found) < MAX_SIMILAR_ITEMS:
                found += [other for other in self.view.neighbors.neighbor_NK[item].tolist() if other not in found]
        return np.array(found[:MAX_SIMILAR_ITEMS], dtype=np.int64)

    def _numbers(self, items: Iterable[str]) -> np.ndarray:
        """The numbers of these items, each once, in the order given."""
        place = self.view.place
        return np.array([place[item] for item in dict.fromkeys(items) if item in place], dtype=np.int64)


def _items_of(table: Mapping[str, Sequence[str]], annotator: str) -> Iterator[str]:
    """The items of this annotator's rows."""
    return (item for item, name in zip(table["item"], table["annotator"], strict=True) if name == annotator)


class ReviewProgress:
    """Which items are done: answered since the last update, or answered or skipped by this annotator. Where trusted answers
    differ, an item is done once that is settled."""

    def __init__(self, view: RunView, store: AnswerStore, upto: int) -> None:
        self._view, self._store, self._upto = view, store, upto
        self._lock = threading.Lock()
        self._seen = 0
        self._fresh_N = np.zeros(len(view.items), dtype=bool)
        self._disagree_N = view.disagree_N.copy()
        self._by: dict[str, np.ndarray] = {}
        self._skipped: dict[str, set[int]] = {}
        self._last: dict[str, dict[int, int]] = {}  # of each annotator and item the last answer

    def done_N(self, annotator: str) -> np.ndarray:
        with self._lock:
            self._catch_up()
            found: np.ndarray = self._fresh_N | self._by.get(annotator, False)
            if self._store.trusts_answers():
                found &= ~self._disagree_N
            found[list(self._skipped.get(annotator, ()))] = True
            return found

    def disagreements(self) -> np.ndarray:
        """The items whose trusted answers differ, in the order of their numbers; none where answers are not trusted."""
        with self._lock:
            self._catch_up()
            return np.flatnonzero(self._disagree_N & self._store.trusts_answers())

    def answered(self, annotator: str) -> np.ndarray:
        """The items that this annotator answered or skipped, the last first."""
        with self._lock:
            self._catch_up()
            last = self._last.get(annotator, {})
            return np.array(sorted(last, key=last.__getitem__, reverse=True), dtype=np.int64)

    def num_fresh(self) -> int:
        """The number of items with an answer that no update has used."""
        with self._lock:
            self._catch_up()
            return int(self._fresh_N.sum())

    def _catch_up(self) -> None:
        """Read only the answers that are new."""
        self._seen, changed = self._store.changes(self._seen)
        for item, standing in changed.items():
            number = self._view.place.get(item)
            if number is not None:
                self._set(number, standing)

    def _set(self, number: int, standing: list[ReviewAnswer]) -> None:
        self._fresh_N[number] = any(answer.id > self._upto and answer.kind != "skip" for answer in standing)
        self._disagree_N[number] = self._disagree(number, standing)
        for skipped in self._skipped.values():
            skipped.discard(number)
        for mine_N in self._by.values():
            mine_N[number] = False
        for last in self._last.values():
            last.pop(number, None)
        for answer in standing:
            if answer.kind == "skip":
                self._skipped.setdefault(answer.annotator, set()).add(number)
            self._last.setdefault(answer.annotator, {})[number] = answer.id
            self._by.setdefault(answer.annotator, np.zeros(len(self._view.items), dtype=bool))[number] = True

    def _disagree(self, number: int, standing: list[ReviewAnswer]) -> bool:
        """Whether trusted answers differ: those given here or, where these agree, those that the last update used, unless one
        given here settles that or replaces one of them."""
        if verdict(standing, self._view.below).disagree:
            return True
        changed = len(standing) > 1 and any(answer.id > self._upto for answer in standing)
        return bool(self._view.disagree_N[number]) and not changed and not any(answer.settles for answer in standing)
