"""A review session without the web: next item, answers, undo, grid, numbers for the overview, updates."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pals.pipeline.finished_run import read_columns
from pals.pipeline.item_order import AUDIT_SHARE
from pals.review.answers_csv import answers_csv, none_of_these
from pals.review.final_answers import DECIDING_KINDS, Verdict, verdict
from pals.review.image_files import ImageFiles
from pals.review.image_shards import ImageShards, is_of_shards
from pals.review.old_rounds import OLD_FOLDER, adopt_old_rounds
from pals.review.orders import ItemOrder, ItemOrders, OrderKind, ReviewProgress
from pals.review.reviewers import Reviewers
from pals.review.run_view import ENOUGH, RunView, share_right
from pals.review.store import AnswerStore, NewAnswer
from pals.review.update_process import UpdateProcess
from pals.runs.rounds import Round, complete_rounds, current_round, round_folder, rounds_lock, run_of
from pals.util.errors import InputError
from pals.util.files import read_object

BROWSED_KINDS: tuple[OrderKind, ...] = ("answered", "search", "unlisted")  # on the grid
GRID_ITEMS = 60  # items on one page of the grid
MAX_WRITE_WAIT = 1.0  # seconds that an answer waits while another process writes; then the page tries again
MAX_CLASS_NAME = 80  # letters
MAX_CLAIM_TRIES = 20  # items that another annotator may reserve first


class ReviewState(NamedTuple):
    """A run and its review at one time: replaced as a whole when an update is done."""

    view: RunView
    orders: ItemOrders
    progress: ReviewProgress
    round: Round


class NextItem(NamedTuple):
    """The next item (None if there is none), the items of the order that are left, how many of them others have open, and the
    length of the order."""

    item: int | None
    left: int
    elsewhere: int
    total: int


class ReviewSession:
    """A run, its answers, and the annotators who review it."""

    def __init__(
        self,
        run: Path,
        *,
        follow_links: bool = False,
        trust: Sequence[str] = (),
        trust_review: bool | None = None,
        audit: float | None = None,
    ) -> None:
        whole = run_of(run)
        if whole is not None:
            raise InputError(f"{run} is a round of {whole}. Review that run instead: pals review {whole}")
        if (run / OLD_FOLDER).is_dir():
            with rounds_lock(run):
                adopt_old_rounds(run)
        if audit is not None and not 0 <= audit < 1:
            raise InputError(f"--audit {audit:g}: give a share from 0 to less than 1.")
        self.run, self._audit = run, audit
        self._opening = threading.Lock()
        self._seen = current_round(run).number
        view = RunView(round_folder(run, self._seen))
        self.store = AnswerStore(run, MAX_WRITE_WAIT)
        self.store.trust(trust)
        if trust_review is not None:
            self.store.trust_answers(trust_review)
        self._run_state = self._opened(view)
        self.update = UpdateProcess(run, self.run_state)
        self.images = _images(view, run, follow_links)

    def close(self) -> None:
        self.update.stop()
        self.store.close()

    # ---- the run, in its current round

    def run_state(self) -> ReviewState:
        """The current round, even if another process made it."""
        shown = current_round(self.run).number
        if shown != self._seen and self._opening.acquire(blocking=False):  # the others go on with what there is meanwhile
            self._seen = shown  # one that cannot be read is complained of once, and then done without
            try:
                self._run_state = self._opened(RunView(round_folder(self.run, shown)))
            finally:
                self._opening.release()
        return self._run_state

    def _opened(self, view: RunView) -> ReviewState:
        shown = current_round(self.run)
        usual = AUDIT_SHARE if self.store.trusts_answers() else 0.0
        orders = ItemOrders(view, shown.number, usual if self._audit is None else self._audit)
        return ReviewState(view, orders, ReviewProgress(view, self.store, shown.upto), shown)

    def trust_answers(self, trusted: bool) -> None:
        """Choose whether answers given here are trusted; only a trusted reviewer is asked for random checks by default."""
        self.store.trust_answers(trusted)
        self._run_state = self._opened(self._run_state.view)

    # ---- one item at a time

    def next(self, annotator: str, order: ItemOrder, after: int | None = None) -> NextItem:
        """The first item of the order, or after the item `after`, that needs an answer and that no other annotator has open. It
        is reserved for this annotator."""
        state = self.run_state()
        items = self._items(state, order, annotator)
        open_, free = self._open(state, annotator, items)
        numbers = len(open_), len(open_) - len(free), len(items)
        for item in _from(items, free, after)[:MAX_CLAIM_TRIES].tolist():
            if self.store.claim([state.view.items[item]], annotator):
                return NextItem(item, *numbers)
        return NextItem(None, *numbers)

    def page(self, annotator: str, order: ItemOrder, start: int = 0) -> tuple[list[int], int]:
        """The next items of an order for the grid, reserved for this annotator, and the number of items left. Orders for
        browsing (the annotator's own answers, a search) show answered items, too, from item `start` on, and reserve nothing."""
        state = self.run_state()
        if order.kind in BROWSED_KINDS:
            items = self._items(state, order, annotator)
            return items[start : start + GRID_ITEMS].tolist(), len(items)
        open_, free = self._open(state, annotator, self._items(state, order, annotator))
        got = self.store.claim([state.view.items[item] for item in free[:GRID_ITEMS].tolist()], annotator)
        return [state.view.place[item] for item in got], len(open_)

    def _items(self, state: ReviewState, order: ItemOrder, annotator: str) -> np.ndarray:
        """All items of an order. In the queue, items whose trusted answers differ come first."""
        if order.kind == "answered":
            return state.progress.answered(annotator)
        if order.kind == "unlisted":
            place = state.view.place
            marked = [place[item] for item in none_of_these(self.store.current()) if item in place]
            return np.array(list(dict.fromkeys([*marked, *state.orders.items(order).tolist()])), dtype=np.int64)
        items = state.orders.items(order)
        if order.kind not in ("queue", "disagreement"):
            return items
        first = state.progress.disagreements()
        return first if order.kind == "disagreement" else np.concatenate([first, items[~np.isin(items, first)]])

    def _open(self, state: ReviewState, annotator: str, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The items of these that need an answer, and those of them that no other annotator has open."""
        open_ = items[~state.progress.done_N(annotator)[items]]
        place = state.view.place
        others = [place[item] for item in self.store.claimed(but=annotator) if item in place]
        return open_, open_[~np.isin(open_, others)]

    def answer(self, annotator: str, said: Sequence[NewAnswer], key: str) -> list[int]:
        """Save answers; they are on disk when this returns."""
        state = self.run_state()
        view = state.view
        for one in said:
            if one.item not in view.place:
                raise InputError(f"{one.item!r} is not an item of {self.run}.")
            if (one.kind == "label") != bool(one.labels) or len(set(one.labels)) < len(one.labels):
                raise InputError("A label must name at least one class, each once; any other kind of answer names none.")
            strange = [label for label in one.labels if label not in view.names and label not in self.new_classes()]
            if strange:
                raise InputError(f"{strange[0]!r} is not among the classes of {self.run.resolve().name}.")
        marked = [
            replace(
                one,
                audit=bool(state.orders.audit_N[view.place[one.item]]),
                settles=one.settles or self._names_missing_class(one),
            )
            for one in said
        ]
        return self.store.add(annotator, marked, key)

    def _names_missing_class(self, answer: NewAnswer) -> bool:
        """Whether an answer names a new class where "none of these" is all that was answered: that is no disagreement."""
        if not set(answer.labels) & set(self.new_classes()):
            return False
        kinds = {given.kind for given in self.store.of(answer.item) if given.sure and given.kind in DECIDING_KINDS}
        return kinds == {"none-of-these"}

    def new_classes(self) -> list[str]:
        """Classes that were named here and that the current round does not have."""
        view = self.run_state().view
        return [name for name in self.store.new_classes() if name not in view.names]

    def add_class(self, name: str) -> str:
        """Name a class that the run does not have; returns the name.

        Raises:
            InputError: No answer could name such a class, or there is one of that name.
        """
        from pals.readers import NO_ANSWER  # loads pandas
        from pals.readers.unsure_answers import UnsureMarks

        view, name = self.run_state().view, " ".join(name.split())
        if view.taxonomy is not None:
            raise InputError("The classes of this run are a tree: pals update RUN --taxonomy FILE changes it.")
        if not 0 < len(name) <= MAX_CLASS_NAME or name.endswith("?") or UnsureMarks((), (), NO_ANSWER).is_unknown(name):
            raise InputError(f"{name!r} cannot be the name of a class. Choose another.")
        there = [known for known in (*view.class_names, *self.new_classes()) if known.casefold() == name.casefold()]
        if there:
            raise InputError(f"There is a class {there[0]!r} already.")
        self.store.add_class(name)
        return name

    def verdict(self, item: int) -> Verdict:
        """What the trusted answers given here to an item come to; nothing where answers are not trusted."""
        view = self.run_state().view
        return verdict(self.store.of(view.items[item]), view.below) if self.store.trusts_answers() else Verdict()

    def suggestion(self, item: int) -> str:
        """The class that trusted answers give the item, else its label in the run."""
        return self.verdict(item).label or str(self.run_state().view.label_N[item])

    # ---- how far it is

    def overview(self, annotator: str) -> dict[str, Any]:
        """Numbers for the overview: answers, items that wait for an update, decisions, estimates after each update."""
        state, answers = self.run_state(), self.store.current()
        given = [answer for answer in answers if answer.kind != "skip"]
        return {
            "items": len(state.view.items),
            "answers": len(given),
            "mine": sum(answer.annotator == annotator for answer in given),
            "waiting": state.progress.num_fresh(),
            "reviewers": Reviewers.of(self.store.by_item(), state.view.below),
            "decisions": _decisions(state.view),
            "rounds": self._rounds(),
            "queue_change": self._queue_change(state),
            "round": state.round.number,
            "none_of_these": len(none_of_these(answers)),
            "left": len(self._open(state, annotator, self._items(state, ItemOrder(), annotator))[0]),
            "disagreements": len(state.progress.disagreements()),
            "trusted": self.store.trusts_answers(),
            "update": self.update.state,
            "lines": list(self.update.lines),
        }

    def live_state(self) -> dict[str, Any]:
        """What the page polls: round, items waiting for an update, state and output of a running update."""
        state = self.run_state()
        return {
            "round": state.round.number,
            "waiting": state.progress.num_fresh(),
            "update": self.update.state,
            "lines": list(self.update.lines)[-12:],
        }

    def _queue_change(self, state: ReviewState) -> dict[str, int] | None:
        """How many items are in the queue, were in it before the current round, left it, and are new in it."""
        if not state.round.number:
            return None
        folders = (round_folder(self.run, state.round.before), state.view.folder)
        if not all((folder / "next.csv").is_file() for folder in folders):
            return None
        tables = [read_columns(folder, "next.csv", ("item", "decision")) for folder in folders]
        then, now = (
            {item for item, decision in zip(table["item"], table["decision"], strict=True) if decision != ENOUGH}
            for table in tables
        )
        return {"now": len(now), "then": len(then), "gone": len(then - now), "new": len(now - then)}

    def _rounds(self) -> list[dict[str, Any]]:
        """All rounds, oldest first: the estimated share of right labels with its interval, and that of the labels before it by
        the same estimate. `then`: how these were estimated then, if the new estimate contradicts that or is lower."""
        found: list[dict[str, Any]] = []
        estimates: dict[int, tuple[float, float, float] | None] = {}
        for one in complete_rounds(self.run):
            numbers = read_object(round_folder(self.run, one.number) / "summary.json")
            right, earlier = share_right(numbers, "labels_wrong"), share_right(numbers, "earlier_labels_wrong")
            then = estimates.get(one.before) if right and earlier else None
            agrees = right and earlier and then and earlier[1] <= then[0] <= min(earlier[2], right[0])
            found.append({**vars(one), "right": right, "earlier": earlier, "then": None if agrees else then})
            estimates[one.number] = right
        return found

    def export(self) -> str:
        return answers_csv(self.store.current(), self.run_state().view.separator)

    def missing_class(self) -> str:
        return "".join(f"{item}\n" for item in none_of_these(self.store.current()))


def _images(view: RunView, run: Path, follow_links: bool) -> ImageFiles | None:
    if view.images is None:
        return None
    if is_of_shards(view.images, next(iter(view.items), "")):
        return ImageShards(view.images, run)
    return ImageFiles(view.images, run, follow_links=follow_links)


def _from(items: np.ndarray, free: np.ndarray, after: int | None) -> np.ndarray:
    """The free items after the item `after` in the order, then those before it, then itself."""
    at = np.flatnonzero(items == after) if after is not None else np.zeros(0, dtype=np.int64)
    if not len(at):
        return free
    rank = np.full(int(items.max()) + 1, -1)
    rank[items] = np.arange(len(items))
    later = rank[free] > at[0]
    return np.concatenate([free[later], free[~later]])


def _decisions(view: RunView) -> dict[str, int]:
    names, counts = np.unique(view.decision_N.astype(str), return_counts=True)
    found = dict(zip(names.tolist(), counts.tolist(), strict=True))
    return {name: found.get(name, 0) for name in (ENOUGH, "one more", "expert")} if "" not in found else {}
