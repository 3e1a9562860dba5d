"""The sections of the page: what the template of each (`section_KEY.html`) shows, from the content of report.json.

Rows of tables are passed on with what the page adds: charts, links that set a filter of the gallery, and the number of items
that such a filter shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import numpy as np
from markupsafe import Markup

from pals.report import heatmap
from pals.report.charts import Series, bar, interval, line_chart, strip
from pals.report.format import DASH, count, isolated, percent
from pals.report.taxonomy_section import taxonomy_tree

Data = Mapping[str, Any]

NO_NAME = "somebody"  # an annotator without a name
MAX_WARNINGS = 12
MAX_CONFUSED_PAIRS = 12
MAX_ANNOTATOR_PAIRS = 12  # those with the least agreement
MAX_STRIP_CLASSES = 40  # more do not fit into a cell of the table
MAX_HEATMAP_CELLS = 60_000  # of the heat maps of single annotators, all together
MAX_GROUP_LABELS = 4
AXIS_ENDS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5)  # right ends of the axis of the error estimate
OPTIONAL_COLUMNS = {"unsure": "Unsure", "unsure_weight": "Unsure counts", "dont_know": "Don't know"}
"""Columns of the table of annotators that are shown where they hold a number."""
STATUS_WORDS = {
    "gold": "the right answer was known",
    "agreed": "as most people said",
    "tie-broken": "no label was ahead",
    "corrected": "against what most people said",
    "unsure": "too close to call",
    "no-answer": "no answer that counts; the classifier's label",
    "none-of-these": "may belong to a missing class",
    "disagreement": "trusted answers differ: to settle",
}


@dataclass(frozen=True)
class Section:
    """A section of the page; `values` is None where there is nothing to show."""

    key: str
    title: str
    values: Data | None


def sections(data: Data) -> tuple[list[Section], dict[str, Any]]:
    """The sections that have something to show, and the values for the script of the page.

    Args:
        data: The content of report.json.
    """
    entries = [gallery_entry(row) for row in data["gallery"]]
    counts = FilterCounts.of(entries)
    heat = confusion(data, counts)
    thumbs, tree = data["thumbs"], data["taxonomy"]
    easy, hard = ([{**row, "said": in_words(row.get("votes", []))} for row in data[key]] for key in ("easy", "hard"))
    groups = [none_of_these_group(row) for row in data["none_of_these"]]
    statuses = {entry["status"] for entry in entries}
    review = {
        "entries": len(entries),
        "of": data["gallery_of"],
        "status_words": {status: words for status, words in STATUS_WORDS.items() if status in statuses},
    }
    contested = [{**row, "said": in_words(row["votes"])} for row in data.get("guideline", ())]  # older runs have none
    disputed = {"found": contested, "of": data["guideline_of"], "thumbs": thumbs} if contested else None
    examples = {"easy": easy, "hard": hard, "of": data["examples_of"], "thumbs": thumbs}
    charts = training_charts(data["curves"])
    found = [
        Section("overview", "Overview", overview(data)),
        Section("doubtful", "Items to review", review),
        Section("none-of-these", "None of these", {"missing": groups, "thumbs": thumbs} if groups else None),
        Section("guideline", "Guideline", disputed),
        Section("people", "People", annotators(data, counts, heat)),
        Section("confusion", "Mix-ups", heat and {"confusion": heat}),
        Section("tree", "Taxonomy", tree and {"tree": taxonomy_tree(tree, lambda pair: pair_link(pair, counts))}),
        Section("classes", "Classes", classes(data, counts)),
        Section("examples", "Easy and hard", examples if easy or hard else None),
        Section("training", "Training", {"curves": charts} if charts else None),
        Section("repeat", "Repeat this run", {"command": data["command"], "settings": data["settings"]}),
    ]
    script = {"gallery": entries, "thumbs": thumbs, "heat": heat and heat["script"], "statusWords": STATUS_WORDS}
    return [section for section in found if section.values is not None], script


# ---- items


def gallery_entry(row: Data) -> dict[str, Any]:
    """An item of the gallery, with its answers by label."""
    doubtful = [
        {**doubt, "annotator": doubt["annotator"] or NO_NAME, "probability": doubt["probability_wrong"]}
        for doubt in row["doubtful"]
    ]
    return {**row, "votes": answers_by_label(row["votes"]), "doubtful": doubtful}


def answers_by_label(votes: Iterable[Data]) -> list[dict[str, Any]]:
    """The answers to an item grouped by label, the largest weight first; unsure answers are groups of their own, and "don't
    know" comes last."""
    groups: dict[tuple[bool, str, str], dict[str, Any]] = {}
    for vote in votes:
        mark = "?" if vote.get("sure") is False else ""
        key = (vote.get("unknown", False), vote["label"], mark)
        group = groups.setdefault(key, {"label": vote["label"], "mark": mark, "voters": [], "weight": 0.0})
        group["voters"].append(vote["annotator"] or NO_NAME)
        group["weight"] += vote["weight"]
    found = [{**group, "weight": round(group["weight"], 2)} for group in groups.values()]
    order = sorted(zip(groups, found, strict=True), key=lambda pair: (pair[0][0], -pair[1]["weight"]))
    return [group for _, group in order]


def in_words(votes: Iterable[Data]) -> list[str]:
    """The answers to an item in short: "gull ×2", "gull?", "don't know"."""
    counts = [(isolated(group["label"]) + group["mark"], len(group["voters"])) for group in answers_by_label(votes)]
    return [f"{words} ×{times}" if times > 1 else words for words, times in counts]


def none_of_these_group(row: Data) -> dict[str, Any]:
    counted = [f"{isolated(name)} ×{times:,.0f}" for name, times in row["labels"]]
    return {
        **row,
        "labels": counted[:MAX_GROUP_LABELS] + ["others"] * (len(counted) > MAX_GROUP_LABELS),
        "shown": [{**item, "said": in_words(item["votes"])} for item in row["items"]],
    }


@dataclass(frozen=True)
class FilterCounts:
    """The number of items of the gallery that a filter shows. As in the script of the page, the doubtful answers count, and
    all answers of an item that has none."""

    by_annotator: Counter[str]
    by_result: Counter[str]
    by_pair: Counter[tuple[str, str]]
    "Of a result and an answer."

    @classmethod
    def of(cls, entries: Iterable[Data]) -> FilterCounts:
        counts = cls(Counter(), Counter(), Counter())
        for entry in entries:
            given = [(doubt["annotator"], doubt["answer"]) for doubt in entry["doubtful"]]
            given = given or [(name, group["label"]) for group in entry["votes"] for name in group["voters"]]
            counts.by_result[entry["label"]] += 1
            counts.by_annotator.update({name for name, _ in given})
            counts.by_pair.update({(entry["label"], answer) for _, answer in given})
        return counts


def link(section: str, **filters: str) -> str:
    """An address within the page that sets a filter."""
    return f"#{section}?{urlencode(filters)}"


def pair_link(pair: tuple[str, str], counts: FilterCounts) -> dict[str, Any]:
    """The link to the items of the gallery with this result and this answer, and their number."""
    return {"review": counts.by_pair[pair], "href": link("doubtful", result=pair[0], answer=pair[1])}


# ---- overview


def overview(data: Data) -> dict[str, Any]:
    warnings = data["warnings"]
    return {
        "tiles": data["headline"],
        "noise": error_estimate(data["noise"]),
        "summary": data["summary"],
        "warnings": warnings[:MAX_WARNINGS],
        "more_warnings": max(len(warnings) - MAX_WARNINGS, 0),
    }


def error_estimate(noise: Data) -> dict[str, Any]:
    """The shares of wrong answers and wrong labels as two dots on one axis."""
    answers, labels, low, high = (noise[key] or 0.0 for key in ("answers_wrong", "labels_wrong", "low", "high"))
    scale = next((edge for edge in AXIS_ENDS if max(answers, labels, high) <= edge), 1.0)
    before = f"{percent(answers)} wrong"
    after = f"{percent(labels)} wrong, likely {percent(low)} to {percent(high)}"
    charts = (
        ("Answers as given", before, interval(answers, None, None, scale, "before", before)),
        ("Labels in the result", after, interval(labels, low, high, scale, "after", after)),
    )
    lines = [{"name": name, "words": words, "chart": chart} for name, words, chart in charts]
    return {"lines": lines, "sentence": noise["sentence"], "scale": percent(scale)}


# ---- confusion


def confusion(data: Data, counts: FilterCounts) -> dict[str, Any] | None:
    """The heat map of results and answers; None without answers."""
    names = data["classes"]
    count_CC = heatmap.matrix(data["confusion"], len(names))
    if not count_CC.any():
        return None
    order = heatmap.arrange(count_CC)
    drawn = [names[k] for k in order]
    pairs = heatmap.confused_pairs(count_CC, names, MAX_CONFUSED_PAIRS)
    layout, numbers = heatmap.HeatmapLayout(len(drawn)), len(drawn) <= heatmap.MAX_NUMBERED_CLASSES
    annotators = own_heatmaps(data["annotators"], len(names), order)
    return {
        "rows": heatmap.row_labels(drawn),
        "grid": heatmap.grid(heatmap.cells(count_CC, order), drawn),
        "drawn": len(drawn),
        "classes": len(names),
        "grouped": len(names) > heatmap.MAX_UNSORTED_CLASSES,
        "numbers": numbers,
        "large": len(drawn) > MAX_STRIP_CLASSES,
        "agree": legend("a", heatmap.AGREE_EDGES),
        "differ": legend("d", heatmap.DIFFER_EDGES),
        "by_branch": data["taxonomy"] is not None,  # then the confused pairs are in the section on the taxonomy
        "mix_ups": [confused_pair(pair, pairs[0].count, counts) for pair in pairs],
        "mix_ups_of": int(np.count_nonzero(count_CC) - np.count_nonzero(np.diag(count_CC))),
        "key": drawn if layout.numbered(drawn) else [],
        "people": [annotator["name"] for annotator in annotators],
        "script": {"names": drawn, "size": layout.cell, "numbers": numbers, "people": annotators},
    }


def own_heatmaps(rows: Iterable[Data], num_classes: int, order: np.ndarray) -> list[dict[str, Any]]:
    """The heat map of each annotator, while the page stays small; none where there is only one annotator."""
    found: list[dict[str, Any]] = []
    num_cells = 0
    for row in rows:
        own_CC = heatmap.matrix(row["confusion"], num_classes)
        cells = heatmap.cells(own_CC, order)
        num_cells += len(cells)
        if num_cells > MAX_HEATMAP_CELLS:
            break
        packed = [[cell.row, cell.column, round(cell.count, 2), cell.shade] for cell in cells]
        total_R = own_CC[order].sum(axis=1).round(2).tolist()
        if own_CC.any():
            found.append({"name": row["annotator"] or NO_NAME, "cells": packed, "totals": total_R})
    return found if len(found) > 1 else []


def legend(letter: str, edges: Sequence[float]) -> list[tuple[str, str]]:
    """Each shade with the share at which it starts."""
    return [(f"{letter}{shade}", f"{100 * edge:g}%") for shade, edge in enumerate((0.0, *edges), start=1)]


def confused_pair(pair: heatmap.ConfusedPair, largest: float, counts: FilterCounts) -> dict[str, Any]:
    words = f"{count(pair.count)} of {count(pair.total)} answers"
    return {
        "result": pair.result,
        "answer": pair.answer,
        "words": words,
        "share": percent(pair.share),
        "chart": bar(pair.count / largest, words, kind="weak"),
        **pair_link((pair.result, pair.answer), counts),
    }


# ---- annotators


def annotators(data: Data, counts: FilterCounts, heat: Data | None) -> dict[str, Any] | None:
    """The table of annotators and the pairs with the least agreement; None without annotators."""
    names, rows = data["classes"], data["annotators"]
    if not rows:
        return None
    with_heatmap = set(heat["people"]) if heat else set()
    drawn = [annotator(row, names, counts, with_heatmap) for row in rows]
    columns = {key: words for key, words in OPTIONAL_COLUMNS.items() if any(row.get(key) is not None for row in rows)}
    table = {
        "rows": drawn,
        "of": data["annotators_of"],
        "flagged": [row for row in drawn if row["flags"]],
        "strips": 0 < len(names) <= MAX_STRIP_CLASSES,
        "classes": names,
        "marks": columns,
    }
    return {"people": table, "pairs": annotator_pairs(data["agreement"])}


def annotator(row: Data, names: Sequence[str], counts: FilterCounts, with_heatmap: set[str]) -> dict[str, Any]:
    name = row["annotator"] or NO_NAME
    agreement, chance = row["agreement"], row["by_chance"]
    right_C = [row.get(f"right: {label}") for label in names]
    known = [(share, label) for share, label in zip(right_C, names, strict=True) if share is not None]
    weakest_share, weakest = min(known, default=(None, ""))
    words = f"{isolated(name)} agrees with the result on {percent(agreement)}; by chance it would be {percent(chance)}"
    low, high = row.get("agreement_low"), row.get("agreement_high")
    return {
        **row,
        "name": name,
        "marks": {key: row.get(key) for key in OPTIONAL_COLUMNS},
        "bar": bar(agreement, words, mark=chance),
        "likely": "" if low is None or high is None else f"{100 * low:.0f} to {100 * high:.0f}%",
        "strip": strip(right_C, names) if known and len(names) <= MAX_STRIP_CLASSES else Markup(""),
        "weakest": weakest,
        "weakest_share": weakest_share,
        "confused": arrow(row["confused"]),
        "review": counts.by_annotator[name],
        "href": link("doubtful", person=name),
        "confusion_href": link("confusion", person=name) if name in with_heatmap else "",
    }


def annotator_pairs(agreement: Iterable[Data]) -> dict[str, Any] | None:
    """The pairs of annotators with the least agreement beyond chance, and how many pairs were compared."""
    compared = [row for row in agreement if row["of"] == "pair" and row["value"] is not None]
    order = sorted(compared, key=lambda row: row["value"])[:MAX_ANNOTATOR_PAIRS]
    rows = [{"one": row["name"], "other": row["other"], "items": row["items"], "kappa": with_interval(row)} for row in order]
    return {"rows": rows, "compared": len(compared)} if rows else None


def with_interval(row: Data) -> str:
    """ "0.62 (0.58 to 0.66)": a measure of agreement and its interval."""

    def signed(value: float) -> str:
        return f"{round(value, 2) + 0.0:.2f}"  # + 0.0: no minus sign before a zero

    value, low, high = signed(row["value"]), row["low"], row["high"]
    return value if low is None or high is None else f"{value} ({signed(low)} to {signed(high)})"


def arrow(mistake: str | None) -> str:
    return (mistake or "").replace(" -> ", " → ") or DASH


# ---- classes


def classes(data: Data, counts: FilterCounts) -> dict[str, Any] | None:
    rows = []
    for row in data["class_table"]:
        name, agreement = row["class"], row["agreement"]
        words = f"{percent(agreement)} of the answers to {isolated(name)} agree with the result"
        added = {
            "name": name,
            "bar": bar(agreement, words),
            "confused": arrow((row["confused"] or "").removeprefix(f"{name} -> ")),
        }
        rows.append({**row, **added, "review": counts.by_result[name], "href": link("doubtful", result=name)})
    return {"class_table": rows, "agreement": class_agreement(data["agreement"])} if rows else None


def class_agreement(agreement: Iterable[Data]) -> list[dict[str, str]]:
    """The measures of agreement of each class, where known."""
    found: dict[str, dict[str, str]] = {}
    for row in agreement:
        if row["of"] == "class" and row["value"] is not None:
            measures = found.setdefault(row["name"], {"name": row["name"], "krippendorff_alpha": DASH, "fleiss_kappa": DASH})
            measures[row["measure"]] = with_interval(row)
    return list(found.values())


# ---- training


def training_charts(epochs: Sequence[Data]) -> list[dict[str, Any]]:
    """Up to three charts: the loss, the number of selected items, and the rates of agreement that are known."""
    number = [float(epoch.get("epoch", place)) for place, epoch in enumerate(epochs, start=1)]
    charts: list[dict[str, Any]] = []

    def chart(title: str, note: str, keys: Mapping[str, str], form: Callable[[float], str], from_zero: bool) -> None:
        lines = [Series(name, [epoch.get(key) for epoch in epochs]) for key, name in keys.items()]
        lines = [line for line in lines if any(value is not None for value in line.values)]
        if lines:
            drawn = line_chart(title, number, lines, form, from_zero=from_zero)
            charts.append({"title": title, "note": note, "chart": drawn, "names": [line.name for line in lines]})

    chart("Loss", "How far the network is from the labels it learns. It should fall and level off.", {"loss": "loss"},
          lambda value: f"{value:.4g}", True)  # fmt: skip
    chart("Selected items", "How many items have a label reliable enough to learn from. It should rise and level off.",
          {"selected": "items"}, count, True)  # fmt: skip
    meanings = {
        "covering": "Covering: how often the classifier's own answer is one that somebody gave.",
        "approximate": "Approximate: how often it is probably right, judging by the answers alone.",
    }
    known = {key: words for key, words in meanings.items() if any(epoch.get(key) is not None for epoch in epochs)}
    chart("Agreement of the classifier", " ".join(known.values()), {key: key for key in known},
          lambda value: f"{100 * value:.4g}%", False)  # fmt: skip
    return charts
