"""What people do at the page, without the web: be shown an item, answer, take it back, go through many at once, update."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pals.review.answers_csv import answers_csv, none_of_these
from pals.review.image_files import Pictures
from pals.review.image_shards import PicturesInShards, is_of_shards
from pals.review.orders import Kind, Order, Orders, Progress
from pals.review.rounds import Update, base_of, newest
from pals.review.run_view import ENOUGH, Shown
from pals.review.store import Answer, Round, Said, Store
from pals.util.errors import InputError

LOOKED_AT: tuple[Kind, ...] = ("answered", "search")  # on the grid
GRID = 60  # items on one page of the grid
MAX_WAIT = 1.0  # seconds that an answer waits while another process writes; then the page tries again
TRIES = 20  # items that somebody else may take first


class Scene(NamedTuple):
    """One state of the run: it changes as a whole when an update is done."""

    shown: Shown
    orders: Orders
    progress: Progress
    round: Round | None


class Next(NamedTuple):
    """An item to look at, or None; how many of the order are left, how many of them others are looking at, and how many there
    are in all."""

    item: int | None
    left: int
    elsewhere: int
    total: int


class Desk:
    """One run, its store, and everybody who sits at it."""

    def __init__(self, run: Path, *, follow_links: bool = False, trust: Sequence[str] = ()) -> None:
        base = base_of(run)
        if base is not None:
            raise InputError(f"{run} is the result of reviewing {base}. Review that run instead: pals review {base}")
        before = Shown(run)
        self.run, self.store = run, Store(run, MAX_WAIT)
        self.store.trust(trust)
        self._opening = threading.Lock()
        self._seen = max((done.number for done in self.store.rounds()), default=0)
        self._scene = self._opened(before)
        self._right = before.right
        self.update = Update(run, self.scene)
        self.pictures = _pictures(before, run, follow_links)

    def close(self) -> None:
        self.update.stop()
        self.store.close()

    # ---- the run, in its last round

    def scene(self) -> Scene:
        """As the last update left the run, whoever started it."""
        last = max((done.number for done in self.store.rounds()), default=0)
        if last > self._seen and self._opening.acquire(blocking=False):  # the others go on with what there is meanwhile
            self._seen = last  # one that cannot be read is complained of once, and then done without
            try:
                self._scene = self._opened()
            finally:
                self._opening.release()
        return self._scene

    def _opened(self, before: Shown | None = None) -> Scene:
        folder, done = newest(self.run, self.store)
        shown = before if before is not None and done is None else Shown(folder)
        return Scene(shown, Orders(shown), Progress(shown, self.store, done.upto if done else 0), done)

    # ---- one item at a time

    def next(self, person: str, order: Order, after: int | None = None) -> Next:
        """The first item of the order (after this one) that needs an answer and that nobody else is looking at. It is kept for
        this person for a while."""
        scene = self.scene()
        items = scene.orders.items(order)
        open_, free = self._open(scene, person, items)
        numbers = len(open_), len(open_) - len(free), len(items)
        for item in _from(items, free, after)[:TRIES].tolist():
            if self.store.claim([scene.shown.items[item]], person):
                return Next(item, *numbers)
        return Next(None, *numbers)

    def page(self, person: str, order: Order) -> tuple[list[int], int]:
        """The next items of an order for the grid, kept for this person, and how many are left. What the person has answered,
        the last first, and what was searched for is shown whoever has answered it: nobody is asked, somebody looks."""
        scene = self.scene()
        if order.kind in LOOKED_AT:
            items = scene.progress.answered(person) if order.kind == "answered" else scene.orders.items(order)
            return items[:GRID].tolist(), len(items)
        open_, free = self._open(scene, person, scene.orders.items(order))
        got = self.store.claim([scene.shown.items[item] for item in free[:GRID].tolist()], person)
        return [scene.shown.place[item] for item in got], len(open_)

    def _open(self, scene: Scene, person: str, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those of these items that need an answer, and those of them that nobody else is looking at."""
        open_ = items[~scene.progress.done_N(person)[items]]
        place = scene.shown.place
        others = [place[item] for item in self.store.claimed(but=person) if item in place]
        return open_, open_[~np.isin(open_, others)]

    def answer(self, person: str, said: Sequence[Said], key: str) -> list[int]:
        """On disk when it returns."""
        shown = self.scene().shown
        for one in said:
            if one.item not in shown.place:
                raise InputError(f"{one.item!r} is not an item of {self.run}.")
            if (one.kind == "label") != bool(one.labels) or len(set(one.labels)) < len(one.labels):
                raise InputError("A label must name at least one class, each once; any other kind of answer names none.")
            shown.refuse_strange(one.labels)
        return self.store.add(person, said, key)

    # ---- how far it is

    def overview(self, person: str) -> dict[str, Any]:
        """Numbers for the page: what was answered, what waits for an update, what is enough, what is right by the estimate."""
        scene, answers = self.scene(), self.store.current()
        given = [answer for answer in answers if answer.kind != "skip"]
        return {
            "items": len(scene.shown.items),
            "answers": len(given),
            "mine": sum(answer.person == person for answer in given),
            "waiting": scene.progress.num_fresh(),
            "people_here": _counted(given),
            "decisions": _decisions(scene.shown),
            "rounds": self._estimates(),
            "none_of_these": len(none_of_these(answers)),
            "left": int((~scene.progress.done_N(person)[scene.orders.items(Order())]).sum()),
            "update": self.update.state,
            "lines": list(self.update.lines),
        }

    def state(self) -> dict[str, Any]:
        """What changes while somebody looks on, for the live line of the page."""
        scene = self.scene()
        return {
            "round": scene.round.number if scene.round else 0,
            "waiting": scene.progress.num_fresh(),
            "update": self.update.state,
            "lines": list(self.update.lines)[-12:],
        }

    def _estimates(self) -> list[dict[str, Any]]:
        """Labels right by the run's own estimate, before all updates and after each. Before them by the estimate of the last
        update, which knows more; `corrected` is what the first estimate was, if it lies outside that interval."""
        rounds = [(done.number, (done.share, done.low, done.high), done.seconds) for done in self.store.rounds()]
        scene = self.scene()
        again = None if scene.round is None else scene.shown.earlier_right
        right = again or self._right
        first = [] if right is None else [(0, right, 0.0)]
        found: list[dict[str, Any]] = [
            {"number": number, "share": share, "low": low, "high": high, "seconds": seconds, "corrected": None}
            for number, (share, low, high), seconds in (*first, *rounds)
        ]
        if again is not None and self._right is not None and not again[1] <= self._right[0] <= again[2]:
            found[0]["corrected"] = self._right[0]
        return found

    def export(self) -> str:
        return answers_csv(self.store.current(), self.scene().shown.separator)

    def missing_class(self) -> str:
        return "".join(f"{item}\n" for item in none_of_these(self.store.current()))


def _pictures(shown: Shown, run: Path, follow_links: bool) -> Pictures | None:
    if shown.images is None:
        return None
    if is_of_shards(shown.images, next(iter(shown.items), "")):
        return PicturesInShards(shown.images, run)
    return Pictures(shown.images, run, follow_links=follow_links)


def _from(items: np.ndarray, free: np.ndarray, after: int | None) -> np.ndarray:
    """The free items from the one after `after` on, then those before it, and at last itself."""
    at = np.flatnonzero(items == after) if after is not None else np.zeros(0, dtype=np.int64)
    if not len(at):
        return free
    rank = np.full(int(items.max()) + 1, -1)
    rank[items] = np.arange(len(items))
    later = rank[free] > at[0]
    return np.concatenate([free[later], free[~later]])


def _counted(given: Sequence[Answer]) -> list[dict[str, Any]]:
    counts: dict[str, int] = {}
    for answer in given:
        counts[answer.person] = counts.get(answer.person, 0) + 1
    return [{"name": name, "answers": counts[name]} for name in sorted(counts, key=lambda name: (-counts[name], name))]


def _decisions(shown: Shown) -> dict[str, int]:
    names, counts = np.unique(shown.decision_N.astype(str), return_counts=True)
    found = dict(zip(names.tolist(), counts.tolist(), strict=True))
    return {name: found.get(name, 0) for name in (ENOUGH, "one more", "expert")} if "" not in found else {}
