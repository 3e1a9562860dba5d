"""What the templates show: plain values from a session, and answers in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pals.pipeline.finished_run import read_columns
from pals.pipeline.item_answers import ItemAnswer
from pals.review.answer_log import UNDO, ReviewAnswer
from pals.review.image_files import NoImageError
from pals.review.instructions import instructions_html
from pals.review.session import ReviewSession
from pals.runs.rounds import complete_rounds, round_folder
from pals.util.errors import InputError

MAX_CHANGES = 500  # rows of changes.csv on one page
MAX_BUTTONS = 20  # with more classes a search field replaces the buttons
NUM_LIKELY = 6  # buttons for the likeliest classes then
DIGIT_KEYS = "1234567890"
LETTER_KEYS = "abefghijklopqrtvxy"
"""Keys of further classes, without the letters that are commands (c, d, m, n, s, u, w, z)."""
KIND_WORDS = {"dont-know": "don't know", "none-of-these": "none of these", "skip": "skipped"}


def common_values(session: ReviewSession, annotator: str) -> dict[str, Any]:
    """What every page shows."""
    state = session.run_state()
    return {
        "annotator": annotator,
        "run": session.run.resolve().name,
        "round": state.round.number,
        "classes": [*state.view.class_names, *session.new_classes()],
        "tree": state.view.taxonomy is not None,
        "annotators": state.view.annotators[:500],
        "images": session.images is not None and session.images.there,
        "trusted": session.store.trusts_answers(),
    }


def card_values(session: ReviewSession, item: int, annotator: str) -> dict[str, Any]:
    """What the page of one item shows."""
    view = session.run_state().view
    facts = view.facts(item)
    name = facts["item"]
    standing = {answer.annotator: answer for answer in session.store.of(name)}
    final, disagree = session.verdict(item).label, item in session.run_state().progress.disagreements()
    if final:
        facts |= {"label": final, "reason": ""}
    if session.store.trusts_answers():
        facts["said"] = [vote | ({"wrong": None} if vote["who"] in standing else {}) for vote in facts["said"]]
    facts["said"] += [_page_answer(answer) for other, answer in standing.items() if other != annotator]
    audit = bool(session.run_state().orders.audit_N[item]) and not (final or disagree)
    if audit:
        facts["reason"] = ""
    names = [*view.class_names, *session.new_classes()]
    many = view.taxonomy is not None or len(names) > MAX_BUTTONS
    mine = standing.get(annotator)
    return {
        "facts": facts,
        "final": bool(final),
        "disagree": disagree,
        "audit": audit,
        "mine": None if mine is None else in_words(mine),
        "many": many,
        "choices": _choices(facts, names, many),
        "history": _history(session, name, {answer.id for answer in standing.values()}),
        "no_image": _missing_image(session, name),
        "instructions": instructions_html(session.run),
        "also": session.store.claimed(but=annotator).get(name, ""),
    }


def tile_values(session: ReviewSession, items: Sequence[int], annotator: str) -> list[dict[str, Any]]:
    """What the grid shows of these items."""
    view, tiles = session.run_state().view, []
    disagreements = set(session.run_state().progress.disagreements().tolist())
    for item in items:
        mine = next((answer for answer in session.store.of(view.items[item]) if answer.annotator == annotator), None)
        final = session.verdict(item).label
        values = {"label": final or view.label_N[item], "final": bool(final), "disagree": item in disagreements}
        tiles.append({**view.brief(item), **values, "mine": None if mine is None else in_words(mine)})
    return tiles


def change_values(session: ReviewSession, number: int | None) -> dict[str, Any]:
    """What the page shows of the labels that a round changed; by default the current round."""
    state = session.run_state()
    number = state.round.number if number is None else number
    one = next((one for one in complete_rounds(session.run) if one.number == number), None)
    if one is None:
        raise InputError(f"There is no round {number}.")
    path = round_folder(session.run, number) / "changes.csv"
    table = read_columns(path.parent, path.name, ("item", "before", "after", "why")) if path.is_file() else {}
    keys = [state.view.keys[state.view.place[item]] if item in state.view.place else "" for item in table.get("item", ())]
    columns = {**table, "key": keys}
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    return {"shown": one, "changes": rows[:MAX_CHANGES], "total": len(rows), "current": state.round.number}


def undone_values(session: ReviewSession, taken: Sequence[ReviewAnswer]) -> dict[str, str] | None:
    """The answers that were taken back, in words, and the key of their first item; None if there are none."""
    if not taken:
        return None
    view = session.run_state().view
    number = view.place.get(taken[0].item)
    words = in_words(taken[0]) if len(taken) == 1 else f"{len(taken)} answers"
    return {"key": "" if number is None else view.keys[number], "said": words}


def own_digits(names: Sequence[str]) -> str:
    """The keys of classes such as "grade 3": each name has exactly one digit, and all digits differ. Else ""."""
    found = ["".join(letter for letter in name if letter in DIGIT_KEYS) for name in names]
    return "".join(found) if all(len(one) == 1 for one in found) and len(set(found)) == len(found) else ""


def in_words(answer: ReviewAnswer) -> str:
    """ "cat", "cat + dog", "cat?" as in the tables, or "don't know"."""
    labels = answer.labels if answer.kind == "label" else (KIND_WORDS.get(answer.kind, answer.kind),)
    return ItemAnswer(answer.annotator, labels, sure=answer.sure or answer.kind != "label").text


def _page_answer(answer: ReviewAnswer) -> dict[str, Any]:
    """Another annotator's answer in the review, in the form of the run's own answers."""
    labels = list(answer.labels) or [KIND_WORDS.get(answer.kind, answer.kind)]
    marks = {"sure": answer.sure, "unknown": not answer.labels, "wrong": None, "here": True}
    return {"who": answer.annotator, "labels": labels, **marks}


def _choices(facts: dict[str, Any], names: Sequence[str], many: bool) -> list[dict[str, str]]:
    """The buttons with their keys: all classes, or the likeliest ones of many."""
    if many:
        given = [label for vote in facts["said"] for label in vote["labels"] if not vote["unknown"]]
        likely = [facts["label"], *given, facts["second"], *(name for name, _ in facts["model"])]
        names = [name for name in dict.fromkeys(likely) if name][:NUM_LIKELY]
    keys = own_digits(names) or (DIGIT_KEYS if many else DIGIT_KEYS + LETTER_KEYS).ljust(len(names))
    return [{"name": name, "key": key.strip()} for name, key in zip(names, keys, strict=False)]


def _history(session: ReviewSession, item: str, standing: set[int]) -> list[dict[str, str]]:
    """The answers to the item that were replaced or taken back."""
    rows = session.store.history(item)
    undone = {row.undoes for row in rows if row.kind == UNDO}
    return [
        {"who": row.annotator, "said": in_words(row), "what": "undone" if row.id in undone else "replaced"}
        for row in rows
        if row.kind != UNDO and row.id not in standing
    ]


def _missing_image(session: ReviewSession, item: str) -> str:
    """Why there is no image to show; "" where there is one."""
    if session.images is None:
        return "This run has no images: only feature vectors or answers."
    try:
        session.images.check(item)
    except NoImageError as error:
        return str(error)
    return ""
