"""The sections of the page: from the content of report.json to what the template writes down. Every key may be missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import numpy as np
from markupsafe import Markup

from pals.report import heatmap
from pals.report.charts import Series, bar, interval, line_chart, strip
from pals.report.format import MISSING, count, isolated, number, percent, rows, text, texts

Data = Mapping[str, Any]

SOMEBODY = "somebody"  # who answered without a name
MOST_MIX_UPS = 12
MOST_PAIRS = 12  # of people, those that agree least
MOST_STRIP = 40  # classes; more do not fit into a cell of the table
MOST_CELLS = 60_000  # of the heat maps of single people, all together
MARKS = {"unsure": "Unsure", "unsure_weight": "Unsure counts", "dont_know": "Don't know"}
"""Columns of the people that are shown where there is anything in them."""

STATUS_WORDS = {
    "gold": "the right answer was known",
    "agreed": "as most people said",
    "tie-broken": "no label was ahead",
    "corrected": "against what most people said",
    "unsure": "too close to call",
    "no-answer": "no answer that counts; the classifier's label",
    "none-of-these": "may belong to a missing class",
}


# ---------------------------------------------------------------------------------------------------- doubtful items
def gallery(data: Data) -> list[dict[str, Any]]:
    """The items as the page's script reads them: every key there, every name a text, every number finite or null."""
    return [_entry(row) for row in rows(data.get("gallery"))]


def _entry(row: Data) -> dict[str, Any]:
    model = row.get("model")
    pairs = [pair for pair in model if isinstance(pair, (list, tuple)) and len(pair) == 2] if isinstance(model, list) else []
    return {
        "item": text(row.get("item")),
        "label": text(row.get("label")),
        "confidence": number(row.get("confidence")),
        "status": text(row.get("status")),
        "votes": _by_label(rows(row.get("votes"))),
        "doubtful": [
            {
                "annotator": text(one.get("annotator")) or SOMEBODY,
                "answer": text(one.get("answer")),
                "suggestion": text(one.get("suggestion")),
                "probability": number(one.get("probability_wrong")),
            }
            for one in rows(row.get("doubtful"))
        ],
        "model": [[text(name), number(share)] for name, share in pairs],
        "neighbors": [
            {"item": text(one.get("item")), "label": text(one.get("label")), "similarity": number(one.get("similarity"))}
            for one in rows(row.get("neighbors"))
        ],
    }


def _by_label(votes: Sequence[Data]) -> list[dict[str, Any]]:
    """Who said what, the answer with most weight first, unsure answers apart, and those who do not know last."""
    voters: dict[tuple[str, str], list[str]] = {}
    weight: dict[tuple[str, str], float] = {}
    unknown: set[tuple[str, str]] = set()
    for vote in votes:
        mark, own = "?" if vote.get("sure") is False else "", number(vote.get("weight"))
        said = text(vote.get("label")), mark
        voters.setdefault(said, []).append(text(vote.get("annotator")) or SOMEBODY)
        weight[said] = weight.get(said, 0.0) + (1.0 if own is None else own)
        unknown |= {said} if vote.get("unknown") is True else set()
    return [
        {"label": said[0], "mark": said[1], "voters": voters[said], "weight": round(weight[said], 2)}
        for said in sorted(voters, key=lambda said: (said in unknown, -weight[said]))
    ]


def said(row: Data) -> list[str]:
    """What people said of an item, in a few words: "gull ×2", "gull?", "don't know"."""
    counts = [(isolated(one["label"]) + one["mark"], len(one["voters"])) for one in _by_label(rows(row.get("votes")))]
    return [f"{words} ×{times}" if times > 1 else words for words, times in counts]


def doubted(entries: Sequence[Data]) -> tuple[Counter[str], Counter[str], Counter[tuple[str, str]]]:
    """How many items of the gallery a filter by person, by result, or by result and answer will show. As in the page: the
    doubted answers count, and all answers of an item where none is singled out."""
    by_person: Counter[str] = Counter()
    by_result: Counter[str] = Counter()
    by_pair: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        said = [(one["annotator"], one["answer"]) for one in entry["doubtful"]]
        said = said or [(name, vote["label"]) for vote in entry["votes"] for name in vote["voters"]]
        by_result[entry["label"]] += 1
        by_person.update({worker for worker, _ in said})
        by_pair.update({(entry["label"], answer) for _, answer in said})
    return by_person, by_result, by_pair


def status_words(entries: Sequence[Data]) -> dict[str, str]:
    """What the statuses in the gallery mean, in a fixed order."""
    found = {entry["status"] for entry in entries}
    return {status: words for status, words in STATUS_WORDS.items() if status in found}


def link(section: str, **filters: str) -> str:
    """An address within the page that sets a filter."""
    return f"#{section}?{urlencode(filters)}"


# --------------------------------------------------------------------------------------------------------- overview
def tiles(data: Data) -> list[dict[str, str]]:
    return [{key: text(row.get(key)) for key in ("label", "value", "note")} for row in rows(data.get("headline"))]


def noise(data: Data) -> dict[str, Any] | None:
    """The shares of wrong answers and wrong labels as two dots on one scale."""
    found = data.get("noise")
    if not isinstance(found, Mapping):
        return None
    answers, labels = number(found.get("answers_wrong")), number(found.get("labels_wrong"))
    low, high = number(found.get("low")), number(found.get("high"))
    known = [value for value in (answers, labels, high) if value is not None]
    scale = next((edge for edge in (0.02, 0.05, 0.1, 0.2, 0.3, 0.5) if max(known, default=0) <= edge), 1.0)
    lines = []
    if answers is not None:
        words = f"{percent(answers)} wrong"
        lines.append(
            {"name": "Answers as given", "words": words, "chart": interval(answers, None, None, scale, "before", words)}
        )
    if labels is not None:
        words = f"{percent(labels)} wrong"
        if low is not None and high is not None:
            words += f", likely {percent(low)} to {percent(high)}"
        lines.append(
            {"name": "Labels in the result", "words": words, "chart": interval(labels, low, high, scale, "after", words)}
        )
    sentence = text(found.get("sentence"))
    return {"lines": lines, "sentence": sentence, "scale": percent(scale)} if lines or sentence else None


# -------------------------------------------------------------------------------------------------------- confusion
def confusion(data: Data, pairs: Counter[tuple[str, str]]) -> dict[str, Any] | None:
    names = texts(data.get("classes"))
    count_CC = heatmap.matrix(data.get("confusion"), names)
    if count_CC is None:
        return None
    order = heatmap.arrange(count_CC)
    drawn = [names[k] for k in order]
    found = heatmap.mix_ups(count_CC, names, MOST_MIX_UPS)
    layout = heatmap.Layout(len(drawn))
    people = _own_confusions(rows(data.get("annotators")), names, order)
    return {
        "rows": heatmap.row_labels(drawn),
        "grid": heatmap.grid(heatmap.cells(count_CC, order), drawn),
        "drawn": len(drawn),
        "classes": len(names),
        "grouped": len(names) > heatmap.KEEP_ORDER,
        "numbers": len(drawn) <= heatmap.NUMBERS,
        "large": len(drawn) > MOST_STRIP,
        "agree": _legend("a", heatmap.AGREE),
        "differ": _legend("d", heatmap.DIFFER),
        "by_branch": isinstance(data.get("taxonomy"), Mapping),  # then the mix-ups stand beside the tree
        "mix_ups": [_mix_up(one, found[0].count, pairs) for one in found],
        "mix_ups_of": int(np.count_nonzero(count_CC) - np.count_nonzero(np.diag(count_CC))),
        "key": drawn if layout.numbered(drawn) else [],
        "people": [person["name"] for person in people],
        "script": {
            "names": drawn,
            "size": layout.cell,
            "numbers": len(drawn) <= heatmap.NUMBERS,
            "people": people,
        },
    }


def _own_confusions(found: Sequence[Data], names: Sequence[str], order: np.ndarray) -> list[dict[str, Any]]:
    """The heat map of each person, as long as the page stays small; none where there is but one person."""
    people: list[dict[str, Any]] = []
    cells = 0
    for row in found:
        own_CC = heatmap.matrix(row.get("confusion"), names)
        if own_CC is None:
            continue
        own = heatmap.cells(own_CC, order)
        cells += len(own)
        if cells > MOST_CELLS:
            break
        packed = [[one.row, one.column, round(one.count, 2), one.shade] for one in own]
        total_R = own_CC[order].sum(axis=1).round(2).tolist()
        people.append({"name": text(row.get("annotator")) or SOMEBODY, "cells": packed, "totals": total_R})
    return people if len(people) > 1 else []


def _legend(letter: str, edges: Sequence[float]) -> list[tuple[str, str]]:
    """Each shade with the share at which it starts."""
    return [(f"{letter}{shade}", f"{100 * edge:g}%") for shade, edge in enumerate((0.0, *edges), start=1)]


def _mix_up(one: heatmap.MixUp, largest: float, pairs: Counter[tuple[str, str]]) -> dict[str, Any]:
    words = f"{count(one.count)} of {count(one.total)} answers"
    return {
        "result": one.result,
        "answer": one.answer,
        "words": words,
        "share": percent(one.share),
        "chart": bar(one.count / largest, words, kind="weak"),
        "review": pairs[one.result, one.answer],
        "href": link("doubtful", result=one.result, answer=one.answer),
    }


# ------------------------------------------------------------------------------------------------------------ people
def people(data: Data, by_person: Counter[str], *, with_confusion: Sequence[str]) -> dict[str, Any] | None:
    found = rows(data.get("annotators"))
    names = texts(data.get("classes"))
    if not found:
        return None
    drawn = [_person(row, names, by_person, with_confusion=with_confusion) for row in found]
    marks = {key: words for key, words in MARKS.items() if any(number(row.get(key)) is not None for row in found)}
    return {
        "rows": drawn,
        "of": int(number(data.get("annotators_of")) or len(drawn)),
        "flagged": [row for row in drawn if row["flags"]],
        "strips": 0 < len(names) <= MOST_STRIP,
        "classes": names,
        "marks": marks,
    }


def _person(row: Data, names: Sequence[str], by_person: Counter[str], *, with_confusion: Sequence[str]) -> dict[str, Any]:
    name = text(row.get("annotator")) or SOMEBODY
    agreement, chance = number(row.get("agreement")), number(row.get("by_chance"))
    right_C = [number(row.get(f"right: {label}")) for label in names]
    known = [(share, label) for share, label in zip(right_C, names, strict=True) if share is not None]
    weakest = min(known, default=None)
    words = f"{isolated(name)} agrees with the result on {percent(agreement)}; by chance it would be {percent(chance)}"
    return {
        "name": name,
        "answers": number(row.get("answers")),
        "agreement": agreement,
        "by_chance": chance,
        "above_chance": number(row.get("above_chance")),
        "marks": {key: number(row.get(key)) for key in MARKS},
        "bar": bar(agreement, words, mark=chance),
        "likely": _range(row.get("agreement_low"), row.get("agreement_high")),
        "flags": text(row.get("flags")),
        "evidence": text(row.get("evidence")),
        "strip": strip(right_C, names) if known and len(names) <= MOST_STRIP else Markup(""),
        "weakest": weakest[1] if weakest else "",
        "weakest_share": weakest[0] if weakest else None,
        "confused": arrow(text(row.get("confused"))),
        "review": by_person[name],
        "href": link("doubtful", person=name),
        "confusion_href": link("confusion", person=name) if name in with_confusion else "",
    }


def _range(low: object, high: object) -> str:
    """ "78.6 to 87.4%", or nothing."""
    start, end = number(low), number(high)
    return "" if start is None or end is None else f"{100 * start:.0f} to {100 * end:.0f}%"


def pairs_of_people(data: Data) -> dict[str, Any] | None:
    """The pairs that agree least beyond chance, and how many pairs were compared."""
    compared = [row for row in rows(data.get("agreement")) if row.get("of") == "pair" and number(row.get("value")) is not None]
    if not compared:
        return None
    order = sorted(compared, key=lambda row: number(row.get("value")) or 0.0)
    drawn = [
        {
            "one": text(row.get("name")),
            "other": text(row.get("other")),
            "items": number(row.get("items")),
            "kappa": with_interval(row),
        }
        for row in order[:MOST_PAIRS]
    ]
    return {"rows": drawn, "compared": len(compared)}


def agreement_by_class(data: Data) -> list[dict[str, str]]:
    """How far people agree on each class, by each measure that is known."""
    found: dict[str, dict[str, str]] = {}
    for row in rows(data.get("agreement")):
        if row.get("of") == "class" and number(row.get("value")) is not None:
            name = text(row.get("name"))
            shown = found.setdefault(name, {"name": name, "krippendorff_alpha": MISSING, "fleiss_kappa": MISSING})
            shown[text(row.get("measure")) or "krippendorff_alpha"] = with_interval(row)
    return list(found.values())


def with_interval(row: Data) -> str:
    """ "0.62 (0.58 to 0.66)": a measure of agreement and its interval."""
    value, low, high = (number(row.get(key)) for key in ("value", "low", "high"))
    if value is None:
        return MISSING
    return signed(value) if low is None or high is None else f"{signed(value)} ({signed(low)} to {signed(high)})"


def signed(value: float) -> str:
    """Two decimals, and no sign before a zero."""
    return f"{round(value, 2) + 0.0:.2f}"


def arrow(mistake: str) -> str:
    return mistake.replace(" -> ", " → ") or MISSING


# ----------------------------------------------------------------------------------------------------------- classes
def class_table(data: Data, by_result: Counter[str]) -> list[dict[str, Any]]:
    counts = ("items", "answers", "majority_items", "corrected", "unsure", "doubtful_answers")
    drawn = []
    for row in rows(data.get("class_table")):
        name, agreement = text(row.get("class")), number(row.get("agreement"))
        shown: dict[str, Any] = {key: number(row.get(key)) for key in counts}
        shown["name"] = name
        shown["agreement"] = agreement
        shown["bar"] = bar(agreement, f"{percent(agreement)} of the answers to {isolated(name)} agree with the result")
        shown["confidence"] = number(row.get("confidence"))
        shown["confused"] = arrow(text(row.get("confused")).removeprefix(f"{name} -> "))
        shown["review"] = by_result[name]
        shown["href"] = link("doubtful", result=name)
        drawn.append(shown)
    return drawn


# ---------------------------------------------------------------------------------------------------------- examples
def examples(value: object) -> list[dict[str, Any]]:
    drawn = []
    for row in rows(value):
        drawn.append(
            {
                "item": text(row.get("item")),
                "label": text(row.get("label")),
                "confidence": number(row.get("confidence")),
                "said": said(row),
            }
        )
    return drawn


# ---------------------------------------------------------------------------------------------------------- training
def curves(data: Data) -> list[dict[str, Any]]:
    """Up to three panels: the loss, the items trusted, and the rates that are known."""
    epochs = rows(data.get("curves"))
    number_of = [number(row.get("epoch")) for row in epochs]
    counted = [float(place) if found is None else found for place, found in enumerate(number_of, start=1)]

    def panel(title: str, note: str, keys: Mapping[str, str], form: Callable[[float], str], from_zero: bool) -> None:
        found = [Series(name, [number(row.get(key)) for row in epochs]) for key, name in keys.items()]
        found = [one for one in found if any(value is not None for value in one.values)]
        if found:
            chart = line_chart(title, counted, found, form, from_zero=from_zero)
            drawn.append({"title": title, "note": note, "chart": chart, "names": [one.name for one in found]})

    drawn: list[dict[str, Any]] = []
    panel("Loss", "How far the network is from the labels it learns. It should fall and level off.", {"loss": "loss"},
          lambda value: f"{value:.4g}", True)  # fmt: skip
    panel("Items trusted", "How many items have a label reliable enough to learn from. It should rise and level off.",
          {"selected": "items"}, count, True)  # fmt: skip
    meanings = {
        "covering": "Covering: how often the classifier's own answer is one that somebody gave.",
        "approximate": "Approximate: how often it is probably right, judging by the answers alone.",
        "accuracy": "Accuracy: how often it is right where the truth is known.",
    }
    known = {key: words for key, words in meanings.items() if any(number(row.get(key)) is not None for row in epochs)}
    panel("Agreement of the classifier", " ".join(known.values()), {key: key for key in known},
          lambda value: f"{100 * value:.4g}%", False)  # fmt: skip
    return drawn
