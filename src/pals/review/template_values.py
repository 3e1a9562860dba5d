"""From what is known of an item to what a template shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pals.review.image_files import NoPictureError, Pictures, Sent
from pals.review.session import Desk
from pals.review.store import UNDO, Answer

MANY = 20  # classes beyond which people search by typing
LIKELY = 6  # choices that are offered then
DIGITS = "1234567890"
LETTERS = "abefghijklopqrtvwxy"
"""For further classes: without the letters that mean something else (c, d, m, n, s, u, z)."""
KINDS = {"dont-know": "don't know", "none-of-these": "none of these", "skip": "skipped"}


class View:
    """Plain values for the templates."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def common(self, person: str) -> dict[str, Any]:
        """What every page shows."""
        scene = self.desk.scene()
        return {
            "person": person,
            "run": self.desk.run.resolve().name,
            "round": scene.round.number if scene.round else 0,
            "classes": scene.shown.class_names,
            "people": scene.shown.people[:500],
            "pictures": self.desk.pictures is not None and self.desk.pictures.there,
        }

    def card(self, item: int, person: str) -> dict[str, Any]:
        shown = self.desk.scene().shown
        facts = shown.facts(item)
        standing = {answer.person: answer for answer in self.desk.store.of(facts["item"])}
        facts["said"] += [_answered(answer) for name, answer in standing.items() if name != person]
        many = shown.taxonomy is not None or len(shown.class_names) > MANY
        mine = standing.get(person)
        return {
            "facts": facts,
            "mine": None if mine is None else in_words(mine),
            "many": many,
            "choices": self._choices(facts, many),
            "history": self._history(facts["item"]),
            "no_picture": self._no_picture(facts["item"]),
            "known_look": shown.look is not None,
            "also": self.desk.store.claimed(but=person).get(facts["item"], ""),
        }

    def tiles(self, items: Sequence[int], person: str) -> list[dict[str, Any]]:
        shown = self.desk.scene().shown
        tiles = []
        for item in items:
            mine = next((answer for answer in self.desk.store.of(shown.items[item]) if answer.person == person), None)
            tiles.append({**shown.brief(item), "mine": None if mine is None else in_words(mine)})
        return tiles

    def undone(self, taken: Sequence[Answer]) -> dict[str, str] | None:
        """What was taken back, and which item to look at then."""
        if not taken:
            return None
        shown = self.desk.scene().shown
        place = shown.place.get(taken[0].item)
        said = in_words(taken[0]) if len(taken) == 1 else f"{len(taken)} answers"
        return {"key": "" if place is None else shown.keys[place], "said": said}

    def picture(self, item: str) -> Sent:
        return self._pictures().full(item)

    def thumbnail(self, item: str) -> Sent:
        return self._pictures().thumbnail(item)

    def _pictures(self) -> Pictures:
        if self.desk.pictures is None:
            raise NoPictureError("This run has no pictures.")
        return self.desk.pictures

    def _no_picture(self, item: str) -> str:
        """Why there is none to show; "" where there is one."""
        if self.desk.pictures is None:
            return "This run has no pictures: only feature vectors or answers."
        try:
            self.desk.pictures.check(item)
        except NoPictureError as error:
            return str(error)
        return ""

    def _choices(self, facts: dict[str, Any], many: bool) -> list[dict[str, str]]:
        """The buttons, with the key of each: all classes, or of very many those that are likely."""
        names = self.desk.scene().shown.class_names
        if many:
            said = [label for vote in facts["said"] for label in vote["labels"] if not vote["unknown"]]
            likely = [facts["label"], *said, facts["second"], *(name for name, _ in facts["model"])]
            names = [name for name in dict.fromkeys(likely) if name][:LIKELY]
        keys = own_digits(names) or (DIGITS if many else DIGITS + LETTERS).ljust(len(names))
        return [{"name": name, "key": key.strip()} for name, key in zip(names, keys, strict=False)]

    def _history(self, item: str) -> list[dict[str, str]]:
        """What was said of the item and then replaced or taken back."""
        rows = self.desk.store.history(item)
        standing = {answer.id for answer in self.desk.store.of(item)}
        undone = {answer.undoes for answer in rows if answer.kind == UNDO}
        return [
            {"who": row.person, "said": in_words(row), "what": "undone" if row.id in undone else "replaced"}
            for row in rows
            if row.kind != UNDO and row.id not in standing
        ]


def own_digits(names: Sequence[str]) -> str:
    """Where each class has a digit of its own in its name, and no other ("grade 3"), that is its key."""
    found = ["".join(letter for letter in name if letter in DIGITS) for name in names]
    return "".join(found) if all(len(one) == 1 for one in found) and len(set(found)) == len(found) else ""


def in_words(answer: Answer) -> str:
    """ "cat", "cat or dog", "cat (unsure)", "don't know"."""
    if answer.kind != "label":
        return KINDS.get(answer.kind, answer.kind)
    return " or ".join(answer.labels) + ("" if answer.sure else " (unsure)")


def _answered(answer: Answer) -> dict[str, Any]:
    """Somebody's answer on the page, beside those of the run."""
    labels = list(answer.labels) or [KINDS.get(answer.kind, answer.kind)]
    marks = {"sure": answer.sure, "unknown": not answer.labels, "wrong": None, "here": True}
    return {"who": answer.person, "labels": labels, **marks}
